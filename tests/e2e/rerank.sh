#!/usr/bin/env bash
# Encoders as a server gives them: scores of pairs and embeddings equal to those of the transformers library, in any order of
# requests; the pooling of a folder of sentence transformers; what an encoder cannot do is refused.
. "$SOURCE/tests/e2e/lib.bash"
. "$SOURCE/tests/e2e/serve_lib.bash"
cd "$SCRATCH" || exit 1

cat > drive.py << 'PY'
import http.client, json, math, sys
port, want = int(sys.argv[1]), json.load(open(sys.argv[2]))
query, rows, vectors = want["query"], want["rows"], want["embeddings"]
documents = [row["document"] for row in rows]
def post(path, **body):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    c.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    r = c.getresponse()
    return r.status, json.loads(r.read())
def good(path, **body):
    status, answer = post(path, **body)
    assert status == 200, (path, answer)
    return answer
def bad(word, path, **body):
    status, answer = post(path, **body)
    assert status == 400 and word in answer["error"]["message"], (path, status, answer)
def close(a, b): assert abs(a - b) < 2e-5, (a, b)
raw = good("/v1/rerank", query=query, documents=documents, use_activation=False, return_documents=False)
assert raw["usage"]["total_tokens"] == sum(len(row["ids"]) for row in rows), raw["usage"]
best = sorted(range(len(rows)), key=lambda i: -rows[i]["logit"])
assert [r["index"] for r in raw["results"]] == best and "document" not in raw["results"][0]
for r in raw["results"]: close(r["relevance_score"], rows[r["index"]]["logit"])
for path in ("/rerank", "/v2/rerank"):
    top = good(path, query=query, documents=[{"text": d} for d in documents], top_n=2)["results"]
    assert [(r["index"], r["document"]["text"]) for r in top] == [(i, documents[i]) for i in best[:2]]
    for r in top: close(r["relevance_score"], 1 / (1 + math.exp(-rows[r["index"]]["logit"])))
scores = good("/v1/score", text_1=query, text_2=documents, use_activation=False)["data"]
again = good("/score", text_1=[query] * len(rows), text_2=documents, use_activation=False)["data"]
assert scores == again and [s["score"] for s in sorted(scores, key=lambda s: -s["score"])] == [r["relevance_score"] for r in raw["results"]]
for pooling, name in (("mean", "mean"), ("cls", "cls"), (None, sys.argv[3])):
    extra = {"pooling": pooling} if pooling else {}
    data = good("/v1/embeddings", input=documents, **extra)["data"]
    for d, v in zip(data, vectors):
        assert max(abs(a - b) for a, b in zip(d["embedding"], v[name])) < 2e-5, (pooling, d["index"])
bad("encoder", "/v1/completions", prompt="a")
bad("missing", "/v1/rerank", query="a")
bad("1 to 128 texts", "/v1/rerank", query="a", documents=[])
bad("as many texts", "/v1/score", text_1=["a", "b"], text_2=["a", "b", "c"])
bad("128 tokens", "/v1/rerank", query="a", documents=["one two " * 200])
bad("pooling", "/v1/embeddings", input="a", pooling="max")
PY

for family in bert modernbert xlm-roberta; do
    cp -r "$SOURCE/tests/golden/rerankers/$family" . && chmod -R u+w "$family"
    pooling=mean
    if [ "$family" = bert ]; then # a folder of sentence transformers
        pooling=cls
        mkdir "$family/1_Pooling"
        echo '{"word_embedding_dimension": 32, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}' > "$family/1_Pooling/config.json"
        echo '[{"path": "", "type": "sentence_transformers.models.Transformer"}, {"path": "1_Pooling",
            "type": "sentence_transformers.models.Pooling"}, {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]' > "$family/modules.json"
    fi
    start_server --model "$family" || exit 1
    python3 drive.py "$port" "$family/reference.json" "$pooling" || fail "$family: other answers"
    stop_server
done

# No scores without a head, no embeddings by a module that is not known.
echo '[{"path": "", "type": "sentence_transformers.models.Transformer"}, {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}]' > bert/modules.json
sed -i 's/BertForSequenceClassification/BertModel/' bert/config.json
start_server --model bert || exit 1
ask POST /v1/rerank '{"query": "a", "documents": ["b"]}'
[ "$status" = 400 ] && grep -q 'gives no scores' answer || fail "scores without a head: $(cat answer)"
ask POST /v1/embeddings '{"input": "a"}'
[ "$status" = 400 ] && grep -q "module 'Dense'" answer || fail "embeddings by an unknown module: $(cat answer)"
stop_server
try "$ASHLAR" generate --model bert --prompt a
expect_error 1 "text from an encoder" "bert models are encoders"
finish

#!/usr/bin/env bash
# Heads of multi-token prediction that a folder has, and of EAGLE-3: a server whose head drafts answers as one that drafts nothing, at drawn
# temperatures, with log-probabilities, over several ranks and after weights were replaced; folders without one, and broken ones.
. "$SOURCE/tests/e2e/lib.bash"
. "$SOURCE/tests/e2e/serve_lib.bash"

for family in deepseek_v3 glm4_moe; do
    cp -r "$SOURCE/tests/golden/heads/$family" "$SCRATCH/$family"
    cp "$SOURCE/tests/golden/stories260K/tokenizer.json" "$SCRATCH/$family/"
done
cat > "$SCRATCH/ask.py" <<'PY'
import json, random, sys, urllib.request
from concurrent.futures import ThreadPoolExecutor

port, vocab, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(11)
text = [rng.randrange(3, vocab) for _ in range(80)]


def draw():
    begins_alike = rng.random() < 0.4
    prompt = text[:rng.randrange(1, 80)] if begins_alike else [rng.randrange(3, vocab) for _ in range(rng.randrange(1, 70))]
    return {"prompt": prompt, "max_tokens": rng.randrange(1, 40), "temperature": rng.choice([0, 0, 0.6, 1.2]),
            "seed": rng.randrange(9), "n": rng.choice([1, 1, 2]), "logprobs": rng.choice([None, 0, 3]),
            "frequency_penalty": rng.choice([0, 0, 0.5]), "return_token_ids": True}


def post(body):
    request = urllib.request.Request("http://127.0.0.1:%s/v1/completions" % port, json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    answer = json.load(urllib.request.urlopen(request, timeout=300))
    return [(c["text"], c["token_ids"], c["finish_reason"], c.get("logprobs")) for c in answer["choices"]]


with ThreadPoolExecutor(4) as pool:
    for choices in pool.map(post, [draw() for _ in range(count)]):
        print(json.dumps(choices))
metrics = urllib.request.urlopen("http://127.0.0.1:%s/metrics" % port, timeout=300).read().decode()
for line in metrics.splitlines():
    if line.startswith("vllm:spec_decode"):
        print(line.split("{")[0], line.split()[-1], file=sys.stderr)
PY
# answers VOCAB COUNT FILE FLAGS...: of a server with these flags. $drafted and $accepted are its counters.
answers() {
    local vocab=$1 count=$2 out=$3
    shift 3
    start_server "$@" || exit 1
    python3 "$SCRATCH/ask.py" "$port" "$vocab" "$count" > "$out" 2> "$SCRATCH/counts" || fail "$*: $(tail -n 3 "$SCRATCH/counts")"
    stop_server
    drafted=$(sed -n 's/.*num_draft_tokens_total \([0-9]*\).*/\1/p' "$SCRATCH/counts")
    accepted=$(sed -n 's/.*num_accepted_tokens_total \([0-9]*\).*/\1/p' "$SCRATCH/counts")
}

answers 96 30 "$SCRATCH/plain" --model "$SCRATCH/deepseek_v3" --draft none
same "no drafts" 0 "$drafted"
answers 96 30 "$SCRATCH/head" --model "$SCRATCH/deepseek_v3"
cmp "$SCRATCH/plain" "$SCRATCH/head" || fail "a head changes answers"
grep -q "drafts come from the model's own head" "$SCRATCH/server.log" || fail "the log does not say who drafts"
[ "$drafted" -gt 0 ] || fail "the head drafts nothing"
echo "deepseek_v3: $accepted of $drafted drafts held"
answers 96 30 "$SCRATCH/head" --model "$SCRATCH/deepseek_v3" --draft mtp --num-speculative-tokens 9 --no-enable-prefix-caching --max-num-seqs 3 \
    --max-num-batched-tokens 24
cmp "$SCRATCH/plain" "$SCRATCH/head" || fail "nine drafted tokens change answers"
answers 96 15 "$SCRATCH/head" --model "$SCRATCH/deepseek_v3" --tp 2 --draft mtp
head -n 15 "$SCRATCH/plain" | cmp - "$SCRATCH/head" || fail "a head over two ranks changes answers"
[ "$drafted" -gt 0 ] || fail "the head of two ranks drafts nothing"
answers 96 15 "$SCRATCH/head" --model "$SCRATCH/deepseek_v3" --pp 2 --draft mtp
head -n 15 "$SCRATCH/plain" | cmp - "$SCRATCH/head" || fail "a head after two stages changes answers"
[ "$drafted" -gt 0 ] || fail "the head after two stages drafts nothing"
answers 160 30 "$SCRATCH/plain_glm" --model "$SCRATCH/glm4_moe" --draft none
answers 160 30 "$SCRATCH/head" --model "$SCRATCH/glm4_moe"
cmp "$SCRATCH/plain_glm" "$SCRATCH/head" || fail "glm4_moe: a head changes answers"
[ "$drafted" -gt 0 ] || fail "glm4_moe: the head drafts nothing"

# EAGLE-3: a folder of its own, for this model.
cp -r "$SOURCE/tests/golden/heads/eagle3" "$SCRATCH/eagle3"
answers 160 30 "$SCRATCH/head" --model "$SCRATCH/glm4_moe" --draft-model "$SCRATCH/eagle3"
cmp "$SCRATCH/plain_glm" "$SCRATCH/head" || fail "eagle3: a head changes answers"
[ "$drafted" -gt 0 ] || fail "eagle3: the head drafts nothing"
echo "eagle3: $accepted of $drafted drafts held"
answers 160 15 "$SCRATCH/head" --model "$SCRATCH/glm4_moe" --draft-model "$SCRATCH/eagle3" --tp 2 --num-speculative-tokens 7
head -n 15 "$SCRATCH/plain_glm" | cmp - "$SCRATCH/head" || fail "eagle3: a head over two ranks changes answers"
[ "$drafted" -gt 0 ] || fail "eagle3: the head of two ranks drafts nothing"
start_server --model "$SCRATCH/glm4_moe" --draft-model "$SCRATCH/eagle3" --admin-key admin || exit 1
ask POST /update_weights_from_disk "{\"model_path\": \"$SCRATCH/glm4_moe\"}" "Authorization: Bearer admin"
[ "$status" = 200 ] || fail "eagle3: status $status: $(tail -n 1 "$SCRATCH/answer")"
python3 "$SCRATCH/ask.py" "$port" 160 15 > "$SCRATCH/head" 2> "$SCRATCH/counts" || fail "eagle3: $(tail -n 3 "$SCRATCH/counts")"
head -n 15 "$SCRATCH/plain_glm" | cmp - "$SCRATCH/head" || fail "eagle3: other answers after a swap"
stop_server
try "$ASHLAR" serve --model "$SCRATCH/deepseek_v3" --port 0 --draft-model "$SCRATCH/eagle3"
expect_error 1 "a head of another model" "--draft-model" "streams of 48 numbers, the model's have 32"
try "$ASHLAR" serve --model "$SCRATCH/glm4_moe" --port 0 --draft-model "$SCRATCH/eagle3" --pp 2
expect 1 "a head over stages"
grep -q "leave --pp out" "$SCRATCH/err" || fail "a head over stages: $(cat "$SCRATCH/err")"

# Weights that are replaced: by the same with another head, and by a folder that was saved without one.
cp -r "$SCRATCH/deepseek_v3" "$SCRATCH/again"
"$ASHLAR" model convert "$SCRATCH/deepseek_v3" "$SCRATCH/bare" > /dev/null 2>&1 || fail "convert"
start_server --model "$SCRATCH/deepseek_v3" --admin-key admin || exit 1
for next in again bare; do
    ask POST /update_weights_from_disk "{\"model_path\": \"$SCRATCH/$next\"}" "Authorization: Bearer admin"
    [ "$status" = 200 ] || fail "$next: status $status: $(tail -n 1 "$SCRATCH/answer")"
    python3 "$SCRATCH/ask.py" "$port" 96 10 > "$SCRATCH/head" 2> "$SCRATCH/counts" || fail "$next: $(tail -n 3 "$SCRATCH/counts")"
    head -n 10 "$SCRATCH/plain" | cmp - "$SCRATCH/head" || fail "$next: other answers"
done
stop_server

# Folders without a head, with half of one, and flags that do not go together.
stories=$SOURCE/tests/golden/stories260K
try "$ASHLAR" serve --model "$stories" --port 0 --draft mtp
expect_error 1 "no head" "--draft mtp" "has no head for drafts"
try "$ASHLAR" serve --model "$stories" --port 0 --draft mtp --draft-model "$stories"
expect_error 1 "two that draft" "--draft-model" "leave --draft mtp out"
try "$ASHLAR" serve --model "$stories" --port 0 --draft nonsense
expect 2 "no such draft"
python3 - "$SCRATCH/again/model.safetensors" <<'PY'
import sys
path = sys.argv[1]
data = open(path, "rb").read()
open(path, "wb").write(data.replace(b"layers.3.eh_proj.weight", b"layers.3.no_proj.weight"))
PY
try "$ASHLAR" serve --model "$SCRATCH/again" --port 0
expect_error 1 "half a head" "--draft auto" "the weights lack tensor 'model.layers.3.eh_proj.weight'"

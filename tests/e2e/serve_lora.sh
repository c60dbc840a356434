#!/usr/bin/env bash
# Adapters of a server: chosen by model name, many in one batch with the answers of each alone, loaded and unloaded while others answer.
. "$SOURCE/tests/e2e/lib.bash"
. "$SOURCE/tests/e2e/serve_lib.bash"
cd "$SCRATCH" || exit 1

asked() { # status, what, words...
    [ "$status" = "$1" ] || fail "$2: status $status instead of $1: $(head -c 600 answer)"
    local what=$2 word
    shift 2
    for word in "$@"; do grep -qiF -- "$word" answer || fail "$what: '$word' is not in: $(head -c 600 answer)"; done
}
for i in 1 2 3; do python3 "$SOURCE/tests/e2e/lib/make_adapter.py" "$stories" "a$i" "$i" $((4 * i)) || exit 1; done

# Mistakes.
try "$ASHLAR" serve --model "$stories" --port 0 --lora-modules a1
expect 1 "no name"
grep -q 'NAME=DIR' err || fail "no name: $(cat err)"
try "$ASHLAR" serve --model "$stories" --port 0 --lora-modules one=nothing
expect 1 "no such folder"
grep -q 'one.*nothing' err || fail "no such folder: $(cat err)"
mkdir other && cp a1/* other/ && sed -i 's/"r": 4/"r": 5/' other/adapter_config.json
try "$ASHLAR" serve --model "$stories" --port 0 --lora-modules one=other
expect 1 "another rank"
grep -q 'lora_A.*another shape' err || fail "another rank: $(cat err)"

# One at a time, without a prefix cache; then all at once, with one: the same answers and log-probabilities.
cat > drive.py << 'PY'
import http.client, json, random, sys, threading
port, at_once = int(sys.argv[1]), sys.argv[2] == 'at_once'
random.seed(5)
bodies = [{"model": random.choice(["stories260K", "one", "two"]), "prompt": random.choice(["Once upon a time", "Once upon a time there", "One day"]),
           "max_tokens": random.randint(1, 24), "temperature": random.choice([0, 1]), "seed": i, "logprobs": 2, "ignore_eos": True} for i in range(36)]
answers = [None] * len(bodies)
def ask(i):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    c.request("POST", "/v1/completions", json.dumps(bodies[i]), {"content-type": "application/json"})
    r = json.loads(c.getresponse().read())
    answers[i] = [r["model"], r["choices"][0]["text"], r["choices"][0]["logprobs"]["token_logprobs"]]
if at_once:
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
    for t in threads: t.start()
    for t in threads: t.join()
else:
    for i in range(len(bodies)): ask(i)
print(json.dumps(answers))
PY
start_server --model "$stories" --lora-modules one=a1,two=a2 --no-enable-prefix-caching || exit 1
python3 drive.py "$port" alone > alone.json || fail "one at a time"
stop_server
start_server --model "$stories" --lora-modules one=a1,two=a2 --admin-key secret --max-num-batched-tokens 16 --max-num-seqs 8 --num-speculative-tokens 3 || exit 1
python3 drive.py "$port" at_once > together.json || fail "all at once"
cmp -s alone.json together.json || fail "answers depend on what else runs"
stop_server
start_server --model "$stories" --lora-modules one=a1,two=a2 --tp 3 --max-num-batched-tokens 16 --max-num-seqs 8 --num-speculative-tokens 3 || exit 1
python3 drive.py "$port" at_once > ranks.json || fail "over three ranks"
cmp -s alone.json ranks.json || fail "adapters over three ranks answer otherwise"
stop_server
try "$ASHLAR" model convert "$stories" gguf --dtype f32 --gguf # another order of q's and k's rows
start_server --model gguf/model.gguf --served-model-name stories260K --lora-modules one=a1,two=a2 --tp 2 || exit 1
python3 drive.py "$port" at_once > gguf.json || fail "over a GGUF file"
cmp -s alone.json gguf.json || fail "adapters over a GGUF file answer otherwise"
stop_server
start_server --model "$stories" --tp 2 --lora-modules one=a1,two=a2 --admin-key secret --max-num-batched-tokens 16 --max-num-seqs 8 || exit 1
for name in stories260K one two; do
    ask POST /v1/completions "{\"model\": \"$name\", \"prompt\": \"Once upon a time\", \"max_tokens\": 8, \"temperature\": 0}"
    echo "$(sed -n 's/.*"text":"\([^"]*\)".*/\1/p' answer)"
done | sort -u > texts
same "answers of three models to one prompt" 3 "$(wc -l < texts)"

# The same adapters and prompt without a server, over a folder and over a GGUF file; the folder may name another base.
ask POST /v1/completions '{"model": "one", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}'
served=$(sed -n 's/.*"text":"\([^"]*\)".*/\1/p' answer)
mkdir moved && sed 's|"base_model_name_or_path": "[^"]*"|"base_model_name_or_path": "elsewhere"|' a1/adapter_config.json > moved/adapter_config.json
cp a1/adapter_model.safetensors moved
for model in "$stories" gguf/model.gguf; do
    try "$ASHLAR" generate --model "$model" --lora moved --prompt "Once upon a time" --max-tokens 8 --temperature 0
    expect 0 "generate --lora over $model"
    same "generate --lora over $model" "$served" "$(cat out)"
done
try "$ASHLAR" generate --model moved --prompt a
expect_error 1 "a base that is not there" "its base 'elsewhere' is not there" "--model BASE --lora DIR"
try "$ASHLAR" generate --model a1 --prompt a
expect_error 1 "adapters without a tokenizer" "--model BASE --lora DIR"
try "$ASHLAR" generate --model "$stories" --lora "$stories" --prompt a
expect_error 1 "no adapters" "is no PEFT folder"
try "$ASHLAR" generate --model a1 --lora a1 --prompt a
expect_error 1 "adapters over adapters" "name the base as the model"

# Loading and unloading.
ask GET /v1/models; asked 200 "models" '"id":"one"' '"parent":"stories260K"'
three='{"lora_name": "three", "lora_path": "a3"}' admin='Authorization: Bearer secret'
ask POST /v1/load_lora_adapter "$three"; asked 401 "no admin key"
ask POST /v1/load_lora_adapter "$three" "$admin"; asked 200 "load" loaded
ask POST /v1/load_lora_adapter "$three" "$admin"; asked 400 "load twice" already
ask POST /v1/load_lora_adapter '{"lora_name": "stories260K", "lora_path": "a3"}' "$admin"; asked 400 "the model's own name" lora_name
ask POST /v1/load_lora_adapter '{"lora_name": "four", "lora_path": "other"}' "$admin"; asked 400 "a wrong one" lora_path "another shape"
ask POST /v1/load_lora_adapter '{"lora_name": "four"}' "$admin"; asked 400 "no path" lora_path
# an answer continues with an adapter that is unloaded meanwhile
stream='{"model": "three", "prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": true, "stream": true}'
exec 4<> "/dev/tcp/127.0.0.1/$port"
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' ${#stream} "$stream" >&4
read -r -t 120 line <&4
ask POST /v1/unload_lora_adapter '{"lora_name": "three"}' "$admin"; asked 200 "unload" unloaded
timeout 120 cat <&4 > rest
exec 4>&-
grep -q DONE rest || fail "the answer of an adapter that was unloaded: $(tail -c 300 rest)"
ask POST /v1/completions '{"model": "three", "prompt": "a"}'; asked 404 "unloaded" three
ask POST /v1/unload_lora_adapter '{"lora_name": "three"}' "$admin"; asked 404 "unload twice" three
stop_server
same "exit code" 0 "$server_code"
finish

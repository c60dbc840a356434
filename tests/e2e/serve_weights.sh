#!/usr/bin/env bash
# Weights in place: after a swap, answers and fingerprint are those of a server that began with the new weights, whatever was cached
# before; what does not fit is refused and changes nothing; a pause holds requests, and they are answered after it.
command -v python3 > /dev/null || { echo "SKIP: needs python3"; exit 77; }
. "$SOURCE/tests/e2e/lib.bash"
. "$SOURCE/tests/e2e/serve_lib.bash"
try "$ASHLAR" model convert "$stories" "$SCRATCH/other" --dtype bf16
expect 0 "other weights"
for file in tokenizer.json tokenizer_config.json generation_config.json; do
    [ -f "$SCRATCH/other/$file" ] || cp "$stories/$file" "$SCRATCH/other/" 2> /dev/null
done
cat > "$SCRATCH/ask.py" << 'PY'
import json, sys, threading, time, urllib.request, urllib.error
old, new, alone = sys.argv[1], sys.argv[2], sys.argv[3:5]
prompt = [1] + [3 + (i * 7) % 500 for i in range(200)]
def call(port, path, body=None, method="POST"):
    data = json.dumps(body).encode() if body is not None else b""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data if method == "POST" else None, {"authorization": "Bearer admin"}, method=method)
    try:
        with urllib.request.urlopen(request) as answer: return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error: return error.code, json.loads(error.read())
def ask(port):
    for _ in range(600): # the fingerprint comes when the weights are hashed
        status, answer = call(port, "/v1/completions", {"prompt": prompt, "max_tokens": 12, "temperature": 0, "logprobs": 1})
        assert status == 200, answer
        if answer["system_fingerprint"]: break
        time.sleep(0.05)
    return answer["system_fingerprint"], answer["choices"][0]["text"], answer["choices"][0]["logprobs"]["token_logprobs"]
port, peer = alone
first, want = ask(port), ask(peer)
assert first[0] != want[0] and first[2] != want[2], "the two weights do not differ"
status, answer = call(port, "/update_weights_from_disk", {"model_path": "/nothing/there"})
assert status == 400, (status, answer)
assert ask(port) == first
# while others ask: each answer is whole, of one of the two
seen, stop = set(), threading.Event()
def load():
    while not stop.is_set(): seen.add(json.dumps(ask(port)))
threads = [threading.Thread(target=load) for _ in range(4)]
for thread in threads: thread.start()
status, answer = call(port, "/update_weights_from_disk", {"model_path": new})
assert status == 200 and answer["success"] and answer["weight_version"] == want[0], (status, answer)
for _ in range(3): assert ask(port) == want
stop.set()
for thread in threads: thread.join()
assert seen <= {json.dumps(first), json.dumps(want)}, seen
# a pause
assert call(port, "/pause")[0] == 200 and call(port, "/is_paused", method="GET")[1]["is_paused"]
late = []
thread = threading.Thread(target=lambda: late.append(ask(port)))
thread.start()
thread.join(0.5)
assert not late, "answered in a pause"
assert call(port, "/update_weights_from_disk", {"model_path": old})[0] == 200
assert call(port, "/resume")[0] == 200
thread.join()
assert late == [first], (late, first)
# asleep, and awake again: the present weights, not those of the start
assert call(port, "/update_weights_from_disk", {"model_path": new})[0] == 200
assert call(port, "/sleep")[0] == 200 and call(port, "/is_sleeping", method="GET")[1]["is_paused"]
assert call(port, "/wake_up")[0] == 200
assert ask(port) == want
print("swapped twice, paused once")
PY
start_server --model "$SCRATCH/other" --admin-key admin || exit 1
peer=$port first=$server
trap 'kill -KILL "$first" 2> /dev/null; stop_server KILL' EXIT
mkdir -p "$SCRATCH/kv"
touch -d yesterday "$SCRATCH/kv/.tmp-mine" "$SCRATCH/kv/notes.kv" "$SCRATCH/kv/.ashlar-kv-1-2.txt" "$SCRATCH/kv/.ashlar-kv-1-2"
start_server --model "$stories" --admin-key admin --kv-dir "$SCRATCH/kv" --num-speculative-tokens 3 || exit 1
for file in .tmp-mine notes.kv .ashlar-kv-1-2.txt; do [ -e "$SCRATCH/kv/$file" ] || fail "the cache removed $file, which is not its own"; done
wait_for "what a dead writer left to go" [ ! -e "$SCRATCH/kv/.ashlar-kv-1-2" ]
try python3 "$SCRATCH/ask.py" "$stories" "$SCRATCH/other" "$port" "$peer"
expect 0 "weights in place"
stop_server
start_server --model "$stories" --admin-key admin --kv-dir "$SCRATCH/kv" --num-speculative-tokens 3 --tp 2 || exit 1
try python3 "$SCRATCH/ask.py" "$stories" "$SCRATCH/other" "$port" "$peer"
expect 0 "weights in place on two ranks"
finish

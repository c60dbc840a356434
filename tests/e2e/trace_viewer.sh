#!/usr/bin/env bash
# Traces of a server that was killed, and of a run, open in npm's speedscope without a complaint. Skips where there is no browser or npm.
set -uo pipefail
. "$SOURCE/tests/e2e/lib/npm.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || exit 77
need_npm trace_viewer playwright-core speedscope
modules=$(readlink "$SCRATCH/node_modules")
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/serve_lib.bash"
ln -sfn "$modules" "$SCRATCH/node_modules"
cp "$SOURCE/tests/e2e/trace_viewer.mjs" "$SCRATCH"
try "$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/run" --pages "$SCRATCH/pages" train.steps=6 train.trace=3-5
expect 0 "a run with a trace: $(cat "$SCRATCH/err")"
try "$ASHLAR" trace "$SCRATCH/run" --out "$SCRATCH/ranks.json"
expect 0 "its trace: $(cat "$SCRATCH/err")"

start_server --model "$stories" --served-model-name stories --pages "$SCRATCH/pages" || exit 1
try "$ASHLAR" trace --server "$SCRATCH/pages" --out "$SCRATCH/none.json"
expect_error 1 "a server that nobody asked" "recorded"
clients=()
for i in 1 2 3 4; do
    ask POST /v1/completions "{\"prompt\": \"Once upon a time\", \"max_tokens\": $((i * 8))}" "X-Request-Id: first-$i" > "$SCRATCH/client-$i" 2>&1 &
    clients+=($!)
done
wait "${clients[@]}"
# One that is being written when the server is killed: more tokens than it can write before.
ask POST /v1/completions '{"prompt": "Once upon a time", "max_tokens": 480, "ignore_eos": true, "n": 8}' "X-Request-Id: last" > "$SCRATCH/client" 2>&1 &
wait_for "a trace with the last request" sh -c "'$ASHLAR' trace --server '$SCRATCH/pages' --request last --out '$SCRATCH/last.json' > '$SCRATCH/out' 2>&1"
stop_server KILL
leak_free "$ASHLAR" trace --server "$SCRATCH/pages" --out "$SCRATCH/server.json"
expect 0 "the trace of a killed server: $(cat "$SCRATCH/err")"
try "$ASHLAR" trace --server "$SCRATCH/pages" --request first-3 --out "$SCRATCH/one.json"
expect 0 "one request: $(cat "$SCRATCH/err")"
python3 - "$SCRATCH/server.json" "$SCRATCH/one.json" << 'END' || fail "the trace is not what it should be"
import json, sys
events, one = (json.load(open(name))["traceEvents"] for name in sys.argv[1:])
spans = [e for e in events if e["ph"] == "X"]
requests = {e["name"]: e for e in spans if e["cat"] == "request" and e["name"].startswith("cmpl-first")}
assert sorted(requests) == [f"cmpl-first-{i}" for i in range(1, 5)], sorted(requests)
passes = [e for e in spans if e["cat"] == "pass" and e["tid"] == 1]
end = lambda e: e["ts"] + e["dur"]
for name, request in requests.items():
    inside = [e for e in spans if e["tid"] == request["tid"] and e is not request and request["ts"] <= e["ts"] and end(e) <= end(request) + 0.001]
    parts = {e["name"]: e for e in inside if e["cat"] == "part"}
    assert sorted(parts) == ["decode", "prefill", "queue"], (name, sorted(parts))
    mine = [e for e in inside if e["cat"] == "pass"]
    args = request["args"]
    assert args["outcome"] == "answered" and args["answer_tokens"] == 8 * int(name[-1]), args
    assert sum(e["args"]["tokens"] for e in mine) == args["answer_tokens"], name
    assert sum(e["args"]["rows"] for e in mine if e["args"]["prefill"]) == args["prompt_tokens"] - args["cached_tokens"], name
    for e in mine: # what a pass did for a request lies in that pass
        assert any(p["ts"] - 0.01 <= e["ts"] and end(e) <= end(p) + 0.01 for p in passes), e
        part = parts["prefill" if e["args"]["prefill"] else "decode"]
        assert part["ts"] - 0.01 <= e["ts"] and end(e) <= end(part) + 0.01, (e, part)
running = [e for e in spans if e["cat"] == "request" and e["name"] == "cmpl-last"]
assert len(running) == 8 and any(e["args"]["outcome"] == "running" for e in running), running
for row in {e["tid"] for e in spans}: # requests of a row do not overlap
    level = sorted((e["ts"], end(e)) for e in spans if e["tid"] == row and e["cat"] == "request")
    assert all(a[1] <= b[0] + 0.01 for a, b in zip(level, level[1:])), row
assert [e["name"] for e in one if e.get("cat") == "request"] == ["cmpl-first-3"]
END
try "$ASHLAR" trace --server --steps 1-2
expect_error 2 "steps of a server" "--steps"
try "$ASHLAR" trace --request x
expect_error 2 "a request without --server" "--server"
try "$ASHLAR" trace --server "$SCRATCH/pages" --request nobody
expect_error 1 "a request that never was" "nobody"
(cd "$SCRATCH" && node trace_viewer.mjs "$browser" ranks.json "rank 0" "rank 1" "collectives" -- server.json "server stories" passes "requests 1" -- one.json "requests 1") \
    || fail "speedscope complains"
finish

#!/usr/bin/env bash
# Chromium drives the page: a live run of two ranks with an agent, a rank that is killed, a node that must be drained, a log line that
# looks like HTML, 10,000 nodes, 380 pixels, dark, keys. Skips where there is no browser or no npm.
set -uo pipefail
. "$SOURCE/tests/e2e/lib/npm.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || exit 77
need_npm dash_page playwright-core
modules=$(readlink "$SCRATCH/node_modules")
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
ln -sfn "$modules" "$SCRATCH/node_modules"
cp "$SOURCE/tests/e2e/dash_page.mjs" "$SCRATCH"
pids=() launcher=
end() {
    local pid
    kill "$launcher" 2> "$SCRATCH/kill" # its ranks end with it, and write nothing any more
    for pid in "${pids[@]}"; do kill -KILL "$pid" 2> "$SCRATCH/kill"; done
    wait 2> "$SCRATCH/kill"
}
trap end EXIT
"$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/live" --pages "$SCRATCH/pages" train.steps=10000000 > "$SCRATCH/train.out" 2>&1 &
launcher=$!
mkdir -p "$SCRATCH/tree/dev"
echo '6,1,1,-;Linux version 6.1' > "$SCRATCH/tree/dev/kmsg"
"$ASHLAR" agent --port 0 --pages "$SCRATCH/pages" --root "$SCRATCH/tree" --nvml "$BUILD/standin/libnvidia-ml.so.1" --node node-1 --state '' > "$SCRATCH/agent.out" 2>&1 &
pids+=($!)
wait_for "the agent" grep -q http "$SCRATCH/agent.out"
wait_for "the run's log" test -s "$SCRATCH/live/log.jsonl"
agent=$(grep -o '127.0.0.1:[0-9]*' "$SCRATCH/agent.out")
# start_page NAME [words]
start_page() {
    local name=$1
    shift
    "$ASHLAR" dash --port 0 "$@" > "$SCRATCH/$name.out" 2> "$SCRATCH/$name.err" &
    pids+=($!)
    wait_for "the page $name" grep -q http "$SCRATCH/$name.out"
}
# A server in the same folder, asked twice.
"$ASHLAR" serve --model "$stories" --served-model-name 'stories <b>' --port 0 --pages "$SCRATCH/pages" > "$SCRATCH/serve.out" 2> "$SCRATCH/serve.err" &
pids+=($!)
wait_for "the server" grep -q 'ready after' "$SCRATCH/serve.err"
port=$(sed -n 's/.*listening on .* port \([0-9]*\).*/\1/p' "$SCRATCH/serve.err")
for i in 1 2; do
    curl -sS "127.0.0.1:$port/v1/completions" -H "X-Request-Id: question-$i" -d '{"prompt": "Once upon a time", "max_tokens": 24}' > "$SCRATCH/answer" || fail "no answer"
done
echo 'SwitchName=leaf-7 Nodes=node-[1-4]' > "$SCRATCH/topology.conf"
start_page dash "$SCRATCH/live" --agents "$agent,127.0.0.1:1" --pages '' --topology "$SCRATCH/topology.conf"
python3 - "$SCRATCH/many.json" << 'END'
import json, sys
statuses = ["healthy"] * 96 + ["doubtful", "drain for reboot", "to be checked", "not answering"]
nodes = [{"node": f"node-{i}", "status": statuses[i * 37 % 100], "since": 1.7e9, "findings": [], "domain": f"spine{i // 2500}/leaf{i // 16}"} for i in range(10000)]
# tp=8 dp=16 pp=4; one rank is a fifth slower
at = [[r % 8, 0, 0, 0, r // 8 % 16, r // 128] for r in range(512)]
ranks = [{"job": "1", "run": "big", "rank": r, "pid": r, "alive": r != 9, "mesh": [8, 1, 1, 1, 16, 4], "at": at[r],
          "steps": [[s, 120.0 if r == 77 else 100.0 + (r * 7 + s) % 3, 0, 1, 0, 0] for s in range(90, 100)]} for r in range(512)]
steps = [[s, 0.5 + 4 / s] for s in range(1, 1001)]
json.dump({"nodes": nodes, "ranks": ranks, "runs": [{"name": "big", "summary": "", "parts": [8, 1, 1, 0, 0], "loss": steps}]}, open(sys.argv[1], "w"))
END
start_page many --board "$SCRATCH/many.json"
try "$ASHLAR" dash --board "$SCRATCH/job.yaml" --port 0
expect_error 1 "a board that is none"
try "$ASHLAR" dash "$SCRATCH/nowhere" --port 0
expect_error 1 "a run that is not there" "nowhere"
url() { grep -o 'http://[^ ]*' "$SCRATCH/$1.out"; }
(cd "$SCRATCH" && node dash_page.mjs "$browser" "$(url dash)" "$(url many)" "$(url agent)" "$SCRATCH/tree/dev/kmsg" "$SCRATCH/pages") || fail "the browser found something"
finish

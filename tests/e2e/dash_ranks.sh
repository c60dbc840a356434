#!/usr/bin/env bash
# Which ranks and servers `ashlar dash` shows: each once if an agent has the folder on this machine, and of named runs only theirs.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
pids=()
trap 'kill -KILL "${pids[@]}" 2> "$SCRATCH/kill"' EXIT
for name in one other; do
    "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/$name" --pages "$SCRATCH/pages" $endless > "$SCRATCH/$name.train" 2>&1 &
    pids+=($!)
    wait_for "steps of $name" test -s "$SCRATCH/$name/log.jsonl"
done
kill -KILL "${pids[1]}" # ended, but a moment ago
mkdir -p "$SCRATCH/tree/dev"
echo '6,1,1,-;Linux version 6.1' > "$SCRATCH/tree/dev/kmsg"
"$ASHLAR" agent --port 0 --pages "$SCRATCH/pages" --root "$SCRATCH/tree" --nvml '' --node node-1 --state '' > "$SCRATCH/agent.out" 2>&1 &
pids+=($!)
wait_for "the agent" grep -q http "$SCRATCH/agent.out"
agent=$(grep -o '127.0.0.1:[0-9]*' "$SCRATCH/agent.out" | head -n 1)
# shows NAME WANTED [words]: runs and ranks that a page with these words gets.
shows() {
    local name=$1 wanted=$2 page
    shift 2
    "$ASHLAR" dash --port 0 "$@" > "$SCRATCH/$name.out" 2>&1 &
    pids+=($!)
    wait_for "the page $name" grep -q http "$SCRATCH/$name.out"
    page=$(grep -o '127.0.0.1:[0-9]*' "$SCRATCH/$name.out" | head -n 1)
    answered() { curl -sS "$page/v1/board?recent=1" > "$SCRATCH/$name.json" && python3 -c '
import json, sys
board = json.load(open(sys.argv[1]))
print(" ".join(sorted(r["run"] + str(r["rank"]) for r in board["ranks"])))
sys.exit(len(board["nodes"]) == 0 and sys.argv[2] == "agents")' "$SCRATCH/$name.json" "${kind:-}" > "$SCRATCH/$name.ranks"; }
    wait_for "the page's data" answered
    same "$name" "$wanted" "$(cat "$SCRATCH/$name.ranks")"
}
shows folder "one0 other0" --pages "$SCRATCH/pages"
kind=agents
shows both "one0 other0" --agents "$agent" --pages "$SCRATCH/pages"
shows named one0 "$SCRATCH/one" --agents "$agent" --pages "$SCRATCH/pages"
finish

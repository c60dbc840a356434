# Clean runs: drawn jobs in which nothing is wrong, and `ashlar diagnose` must blame nobody. Saves, validation, jitter (a rank that stops for a
# moment), ranks that are lost and replaced or come back, agents that are killed and started again. Sourced by faults.sh.
#   FAULTS=clean RUNS=100 SEED=1 ...   one line per run with what was drawn, and at the end how many blamed somebody
# On a machine that others use, processes do wait for cores: that counter is told apart.
cat > "$SCRATCH/clean.yaml" << YAML
model: {type: llama, hidden: 64, layers: 2, heads: 4, ffn: 128}
data: {train: $SCRATCH/train, valid: $SCRATCH/valid, seq: 32}
train: {steps: 1000000, global_batch: 16, grains: 4, valid_every: 0, save_every: 0}
schedule: {kind: constant}
runtime: {threads: 1}
YAML
# pick N: a number below N in $picked. Not by a subshell: those have random numbers of their own.
pick() { picked=$((RANDOM % $1)); }
flip() { pick "$1" && [ "$picked" = 1 ]; }
clean_steps() { [ "$(cat "$SCRATCH/clean/log.jsonl" 2> "$SCRATCH/err" | grep -c '"step"')" -ge "$1" ]; }
clean_wait() { wait_for "step $1" clean_steps "$1"; }
clean_agent() {
    [ -z "${clean_agent_pid:-}" ] || { kill -KILL "$clean_agent_pid" && wait "$clean_agent_pid"; } 2> "$SCRATCH/undo"
    : > "$SCRATCH/clean-agent.out"
    "$ASHLAR" agent --port 0 --state "$SCRATCH/clean-state.json" --pages "$SCRATCH/clean-pages" > "$SCRATCH/clean-agent.out" 2> "$SCRATCH/agent.err" &
    clean_agent_pid=$!
    wait_for "the agent" grep -q http "$SCRATCH/clean-agent.out"
    clean_at=$(grep -o '127[^/ ]*' "$SCRATCH/clean-agent.out")
}
clean_pids() { pgrep -P "$clean_job" | head -n "$clean_procs"; }
# clean_event NAME: what life brings.
clean_event() {
    local victim
    pick "$clean_procs"
    victim=$(clean_pids | sed -n "$((1 + picked))p")
    case $1 in
    jitter) for i in 1 2 3; do kill -STOP "$victim" && sleep 0.03 && kill -CONT "$victim" && sleep 0.2; done ;;
    lost | back) kill -KILL "$victim" ;;
    agent) clean_agent ;;
    esac 2> "$SCRATCH/undo"
}
clean_run() { # seed: draws a run, and prints what came of it
    local words=() launch=() drawn=() event step blamed
    RANDOM=$1
    pick 60
    step=$((60 + picked))
    pick 2
    clean_procs=$((1 + picked))
    flip 2 && words+=(train.save_every=20) && drawn+=(saves)
    flip 2 && words+=(train.valid_every=15) && drawn+=(validation)
    flip 2 && drawn+=(jitter)
    flip 3 && drawn+=(agent)
    if [ "$clean_procs" = 2 ]; then
        pick 3
        case $picked in
        1) launch+=(--spares 1) drawn+=(lost) ;;
        2) launch+=(--restarts 2) drawn+=(back) ;;
        esac
    fi
    rm -rf "$SCRATCH/clean" "$SCRATCH/clean-pages" "$SCRATCH/clean-state.json"
    clean_agent
    "$ASHLAR" launch --procs "$clean_procs" "${launch[@]}" train "$SCRATCH/clean.yaml" --out "$SCRATCH/clean" --pages "$SCRATCH/clean-pages" "${words[@]}" \
        > "$SCRATCH/clean.out" 2>&1 &
    clean_job=$!
    for event in "${drawn[@]}"; do
        clean_wait "$step"
        clean_event "$event"
        step=$((step + 30))
    done
    clean_wait $((step + 60))
    try "$ASHLAR" diagnose --run "$SCRATCH/clean" --agents "$clean_at" --wait 1 --json
    expect 0 "clean run $1"
    blamed=$(python3 -c '
import json, sys
for f in json.load(open(sys.argv[1]))["findings"]:
    if f["severity"] != "watch": print(f["layer"], f["where"], f["metric"], f["value"], sep=", ")' "$SCRATCH/out")
    kill -TERM "$clean_job" && wait "$clean_job" 2> "$SCRATCH/undo"
    echo "run $1: $clean_procs ranks, ${drawn[*]:-nothing}: ${blamed:-nobody is blamed}"
    grep -q node_pressure_cpu_waiting <<< "$blamed" && clean_busy=$((clean_busy + 1))
    [ -z "$(grep -v -e node_pressure_cpu_waiting -e '^$' <<< "$blamed")" ] || clean_blamed=$((clean_blamed + 1))
}
clean_blamed=0 clean_busy=0
for ((run = ${SEED:-1}; run < ${SEED:-1} + ${RUNS:-100}; run++)); do clean_run "$run"; done
kill -KILL "$clean_agent_pid"
echo "${RUNS:-100} clean runs: $clean_blamed blamed somebody; in $clean_busy processes waited for cores"
[ $clean_blamed -eq 0 ] || fail "$clean_blamed clean runs blamed somebody"

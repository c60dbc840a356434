#!/usr/bin/env bash
# Does training scale over processes? The gpt2-124m step (4 sequences of 256 tokens, bf16) by processes of one thread in each layout, compared with
# one process with as many threads. A run is ended as soon as its steps are logged, so nothing is saved. Runs take turns.
set -euo pipefail
. "$SOURCE/bench/lib/peer.sh"
. "$SOURCE/bench/lib/steps.sh"
rounds=${BENCH_ROUNDS:-3} procs=$(nproc) steps=4
work=$BUILD/bench-ranks
layouts=(dp zero1 zero3 tp)
names=()
for layout in "${layouts[@]}"; do names+=("ranks/gpt2-124m-$layout$procs" "ranks/gpt2-124m-$layout$procs-exposed"); done
wanted "${names[@]}" || exit 0
[ "$procs" -gt 1 ] || { note "one core: nothing to share"; exit 0; }
rm -rf "$work"
mkdir -p "$work"
"$ASHLAR" data arithmetic --out "$work/data" --count 20k > "$work/log" 2>&1 || { note "$(tail -n 1 "$work/log")"; exit 1; }
cat > "$work/job.yaml" << YAML
model: {type: gpt2, hidden: 768, layers: 12, heads: 12, vocab: 50257, max_positions: 256}
data: {train: $work/data, seq: 256}
train: {steps: 1000, global_batch: 4, grains: 2, micro_batch: 2, precision: bf16, save_every: 0, hash_every: 0}
YAML

# run WORDS...: train until the steps are logged, and read them.
run() {
    local log=$work/run/log.jsonl pid
    rm -rf "$work/run"
    "$@" --out "$work/run" > "$work/log" 2>&1 &
    pid=$!
    until [ "$(cat "$log" 2> /dev/null | wc -l)" -gt $steps ] || ! kill -0 $pid 2> /dev/null; do sleep 0.1; done
    kill -9 $pid 2> /dev/null && wait $pid 2> /dev/null || true
    read_steps "$log"
}

declare -A ours share
alone=()
for ((round = 0; round < rounds; round++)); do
    run "$ASHLAR" train "$work/job.yaml" runtime.threads="$procs"
    alone+=("$rates")
    for layout in "${layouts[@]}"; do
        # shellcheck disable=SC2046
        run "$ASHLAR" launch --procs "$procs" train "$work/job.yaml" runtime.threads=1 $(mesh_words "$layout" "$procs")
        ours[$layout]+=" $rates"
        share[$layout]+=" $exposed"
    done
done
for layout in "${layouts[@]}"; do
    goal=0
    [ "$layout" != dp ] || goal=0.97
    # shellcheck disable=SC2086
    "$BUILD/bench/row" "$BENCH_ROWS" "ranks/gpt2-124m-$layout$procs" tokens/s "one process, $procs threads" $goal higher ${ours[$layout]} -- "${alone[@]}"
    # shellcheck disable=SC2086
    "$BUILD/bench/row" "$BENCH_ROWS" "ranks/gpt2-124m-$layout$procs-exposed" "% of step" "5 % of the step" 1 lower ${share[$layout]} -- 5
done
rm -rf "$work"

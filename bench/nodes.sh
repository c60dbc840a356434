#!/usr/bin/env bash
# All-reduce and all-to-all between two nodes of two ranks over links of 1 Gbit/s (network namespaces, veth, tbf): inside
# a node first and across once, compared with the same with every rank exchanging with every other one. And training steps of two ranks of one
# thread, each on a node of its own, compared with the same two on one node: what the link costs a step.
set -euo pipefail
. "$SOURCE/bench/lib/peer.sh"
. "$SOURCE/bench/lib/steps.sh"

# gbs OP ALGORITHM BYTES: the bus bandwidth.
gbs() {
    "$ASHLAR" launch --procs 4 --nodes 2 --netns --link-rate 1gbit bench collective --op "$1" --min "$3" --max "$3" --rounds 5 --json \
        group.algorithm="$2" 2> "$BUILD/bench-nodes.err" | grep -o '"busbw":[0-9.e+-]*' | grep -o '[0-9.e+-]*$'
}
# row OP SIZE BYTES GOAL: both ways, in turns.
row() {
    local name=nodes/$1_$2_1gbit ours=() theirs=() round
    wanted "$name" || return 0
    for round in 1 2 3; do
        ours+=("$(gbs "$1" hierarchical "$3")") && theirs+=("$(gbs "$1" flat "$3")") ||
            { note "no networks for nodes here: $(head -n 1 "$BUILD/bench-nodes.err")"; exit 0; }
    done
    "$BUILD/bench/row" "$BENCH_ROWS" "$name" "GB/s bus" "flat" "$4" higher "${ours[@]}" -- "${theirs[@]}"
}
row all_reduce 1MiB 1mi 1.8
row all_reduce 16MiB 16mi 1.8
row all_to_all 4KiB 4ki 1.5
row all_to_all 1MiB 1mi 0 # the same bytes cross: the link decides

work=$BUILD/bench-nodes
mkdir -p "$work"
cat > "$work/job.yaml" << YAML
model: {type: llama, hidden: 256, layers: 8, heads: 4, ffn: 704, vocab: 512}
data: {train: $work/data, seq: 256}
train: {steps: 6, global_batch: 8, grains: 2, micro_batch: 4, precision: fp32, save_every: 0, hash_every: 0, valid_every: 0}
schedule: {warmup: 1}
YAML
# steps LAYOUT FLAGS...: a run of two ranks, read into $rates and $exposed.
steps() {
    local layout=$1
    shift
    rm -rf "$work/run"
    # shellcheck disable=SC2046
    "$ASHLAR" launch --procs 2 "$@" train "$work/job.yaml" --out "$work/run" runtime.threads=1 $(mesh_words "$layout" 2) > "$work/log" 2>&1 ||
        { note "no steps between nodes here: $(tail -n 1 "$work/log")"; exit 0; }
    read_steps "$work/run/log.jsonl"
}
# train_row LAYOUT: both, in turns.
train_row() {
    local name=nodes/train-$1_1gbit ours=() theirs=() shares=() round
    wanted "$name" "$name-exposed" || return 0
    [ -d "$work/data" ] || "$ASHLAR" data arithmetic --out "$work/data" --count 20k > "$work/log" 2>&1
    for round in 1 2 3; do
        steps "$1" --nodes 2 --netns --link-rate 1gbit
        ours+=("$rates") shares+=("$exposed")
        steps "$1"
        theirs+=("$rates")
    done
    "$BUILD/bench/row" "$BENCH_ROWS" "$name" tokens/s "on one node" 0 higher "${ours[@]}" -- "${theirs[@]}"
    "$BUILD/bench/row" "$BENCH_ROWS" "$name-exposed" "% of step" "5 % of the step" 0 lower "${shares[@]}" -- 5
}
for layout in dp zero1 zero2 zero3; do train_row $layout; done
rm -rf "$work"

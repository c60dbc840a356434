#!/usr/bin/env bash
# All-reduce between two nodes of two ranks over links of 1 Gbit/s (network namespaces, veth, tbf): inside a node first
# and across once, beside the same with every rank exchanging with every other one.
set -euo pipefail
. "$SOURCE/bench/lib/peer.sh"
wanted nodes/all_reduce_16MiB_1gbit nodes/all_reduce_1MiB_1gbit || exit 0

# gbs ALGORITHM BYTES: the bus bandwidth.
gbs() {
    "$ASHLAR" launch --procs 4 --nodes 2 --netns --link-rate 1gbit bench collective --min "$2" --max "$2" --rounds 5 --json \
        group.algorithm="$1" 2> "$BUILD/bench-nodes.err" | grep -o '"busbw":[0-9.e+-]*' | grep -o '[0-9.e+-]*$'
}
for size in 1 16; do
    ours=() theirs=()
    for round in 1 2 3; do # in turns
        ours+=("$(gbs hierarchical "${size}mi")") && theirs+=("$(gbs flat "${size}mi")") ||
            { note "no networks for nodes here: $(head -n 1 "$BUILD/bench-nodes.err")"; exit 0; }
    done
    "$BUILD/bench/row" "$BENCH_ROWS" "nodes/all_reduce_${size}MiB_1gbit" "GB/s bus" "flat" 1.8 higher "${ours[@]}" -- "${theirs[@]}"
done

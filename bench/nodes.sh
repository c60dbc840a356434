#!/usr/bin/env bash
# All-reduce and all-to-all between two nodes of two ranks over links of 1 Gbit/s (network namespaces, veth, tbf): inside
# a node first and across once, beside the same with every rank exchanging with every other one.
set -euo pipefail
. "$SOURCE/bench/lib/peer.sh"

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

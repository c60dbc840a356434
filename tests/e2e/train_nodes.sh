#!/usr/bin/env bash
# ashlar launch --nodes: ranks on several nodes, reached through the network, give the bits of one process.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
"$ASHLAR" version | grep -q 'libfabric [0-9]' || exit 77

words="train.grains=8 train.steps=20"
train one $words
expect 0 "one process"
bits_of one > "$SCRATCH/expected"
# nodes_give NAME [launch's flags] -- [words]
nodes_give() {
    local name=$1 flags=()
    shift
    while [ "$1" != -- ]; do flags+=("$1"); shift; done
    shift
    rm -rf "$SCRATCH/many"
    try "$ASHLAR" launch "${flags[@]}" train "$SCRATCH/job.yaml" --out "$SCRATCH/many" $words "$@"
    expect 0 "$name"
    bits_of many | cmp -s - "$SCRATCH/expected" || fail "$name: other bits"
    [ ! -s "$SCRATCH/err" ] || fail "$name: $(cat "$SCRATCH/err")"
}
nodes_give "2 nodes of 2" --procs 4 --nodes 2 --
nodes_give "3 nodes of 1, flat" --procs 3 --nodes 3 -- group.algorithm=flat
finish

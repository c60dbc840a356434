#!/usr/bin/env bash
# chaos matrix: drawn cells of the table of faults and layouts have the bits of one process, and lose no step.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
cells=1 flips=("bit of a copy" "bit of the bf16") inside=("update" "compute wrongly once" "kill the newcomer as it is fed") slow=1
! is_long || { cells=2 flips+=("bit of the state") inside+=("kill a rank in"); }
case $BUILD in *address* | *asan*) flips=() inside=("compute wrongly once") slow=0 ;; esac # of these, unit tests run all faults there
mkdir "$SCRATCH/matrix" && echo important > "$SCRATCH/matrix/thesis.txt"
try "$BUILD/tests/chaos" matrix --cells $cells --seed 8 --scratch "$SCRATCH/matrix"
expect 0 "$cells drawn cells: $(cat "$SCRATCH/out")"
grep -q '^| fault | same bits' "$SCRATCH/out" || fail "no table: $(cat "$SCRATCH/out")"
same "cells" $cells "$(sed -n 's/^| .* | \([0-9]*\) of [0-9]* | 0 | .*/\1/p' "$SCRATCH/out" | awk '{ n += $1 } END { print n + 0 }')"
# Bits that change by themselves: weights, copies, bf16 weights. Each rank on a node of its own.
for fault in "${flips[@]}"; do
    try "$BUILD/tests/chaos" matrix --nodes 4 --fault "$fault" --cells 1 --seed 2 --scratch "$SCRATCH/matrix"
    expect 0 "$fault: $(cat "$SCRATCH/out")"
    grep -q '| 1 of 1 | 0 |' "$SCRATCH/out" || fail "$fault: $(cat "$SCRATCH/out")"
done
# Ranks that die inside of a step or as they are fed, one that computes wrongly: it is found before the update.
for fault in "${inside[@]}"; do
    try "$BUILD/tests/chaos" matrix --fault "$fault" --cells 1 --seed 4 --scratch "$SCRATCH/matrix"
    expect 0 "$fault: $(cat "$SCRATCH/out")"
    grep -q '| 1 of 1 | 0 |' "$SCRATCH/out" || fail "$fault: $(cat "$SCRATCH/out")"
done
# A slow rank is named, and replaced where that is asked for.
if [ $slow = 1 ]; then
    try "$BUILD/tests/chaos" matrix --fault "slow a rank; a spare" --cells 1 --seed 2 --scratch "$SCRATCH/matrix"
    expect 0 "a slow rank: $(cat "$SCRATCH/out")"
    grep -q '| 1 of 1 | 0 |' "$SCRATCH/out" || fail "a slow rank: $(cat "$SCRATCH/out")"
fi
same "what is in the folder afterwards" thesis.txt "$(ls "$SCRATCH/matrix")"
try "$BUILD/tests/chaos" matrix --layout "no such" --scratch "$SCRATCH/matrix"
expect_error 1 "a layout that is not there" "dp*fsdp"
try "$BUILD/tests/chaos" matrix --cells -1
expect_error 2 "fewer than no cells" "cells"
finish

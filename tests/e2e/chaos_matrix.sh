#!/usr/bin/env bash
# ashlar chaos matrix: drawn cells of the table of faults and layouts have the bits of one process, and lose no step.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
cells=3
case $BUILD in *address* | *asan*) cells=1 ;; esac
try "$ASHLAR" chaos matrix --cells $cells --seed 5 --scratch "$SCRATCH/matrix"
expect 0 "$cells drawn cells: $(cat "$SCRATCH/out")"
grep -q '^| fault | same bits' "$SCRATCH/out" || fail "no table: $(cat "$SCRATCH/out")"
same "cells" $cells "$(sed -n 's/^| .* | \([0-9]*\) of [0-9]* | 0 | .*/\1/p' "$SCRATCH/out" | awk '{ n += $1 } END { print n + 0 }')"
[ -e "$SCRATCH/matrix" ] && fail "it leaves its folder"
try "$ASHLAR" chaos matrix --cells -1
expect_error 2 "fewer than no cells" "cells"
finish

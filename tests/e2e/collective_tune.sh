#!/usr/bin/env bash
# A cost model is measured inside a node and between nodes, one after the other into the same file, and a job takes it; a
# file of something else is left alone.
set -euo pipefail
. "$SOURCE/tests/e2e/lib.bash"
file=$SCRATCH/cost.json

# The first two numbers of the file: those of the first algorithm inside a node.
first_line() { grep -o '[0-9.e+-]*[0-9],\?$' "$file" | head -n 2 | awk '{ printf "%.6g ", $1 }'; }

"$ASHLAR" bench collective --procs 2 --rounds 1 --tune "$file" > "$SCRATCH/inside"
grep -q 'inside a node *all_reduce *one_shot' "$SCRATCH/inside" || fail "one_shot was not measured"
grep -q 'inside a node *all_reduce *two_shot' "$SCRATCH/inside" || fail "two_shot was not measured"
! grep -q 'between nodes' "$SCRATCH/inside" || fail "one node has nothing between nodes"
inside=$(first_line)

if "$ASHLAR" bench collective --procs 2 --nodes 2 --rounds 1 --tune "$file" > "$SCRATCH/across" 2> "$SCRATCH/err"; then
    for algorithm in 'all_reduce *flat' 'all_reduce *hierarchical' 'all_reduce *flat_two_shot' 'all_reduce *hierarchical_two_shot' \
        'reduce_scatter *flat' 'reduce_scatter *hierarchical' 'all_gather *flat' 'all_gather *hierarchical' 'broadcast *flat' 'broadcast *hierarchical' \
        'all_to_all *flat' 'all_to_all *hierarchical'; do
        grep -q "between nodes *$algorithm" "$SCRATCH/across" || fail "$algorithm was not measured"
    done
    [ "$(first_line)" = "$inside" ] || fail "what was measured inside a node is gone"
    "$ASHLAR" bench collective --procs 2 --nodes 2 --rounds 1 --max 4096 --json group.cost="$file" > "$SCRATCH/used"
    grep -q '"bytes":4096' "$SCRATCH/used" || fail "a job does not take the cost model"
else
    grep -q 'libfabric' "$SCRATCH/err" || fail "$(cat "$SCRATCH/err")" # built without: there is nothing between nodes
fi

# The largest size is measured; a barrier has none.
"$ASHLAR" bench collective --procs 2 --rounds 1 --min 1000 --max 3000 --json > "$SCRATCH/sizes"
[ "$(grep -o '"bytes":[0-9]*' "$SCRATCH/sizes" | tr '\n' ' ')" = '"bytes":1000 "bytes":3000 ' ] || fail "sizes: $(cat "$SCRATCH/sizes")"
"$ASHLAR" bench collective --procs 2 --rounds 1 --op barrier --json > "$SCRATCH/sizes"
[ "$(grep -o '"bytes":[0-9]*' "$SCRATCH/sizes")" = '"bytes":0' ] || fail "a barrier of sizes: $(cat "$SCRATCH/sizes")"

echo 'my notes' > "$file"
! "$ASHLAR" bench collective --procs 2 --tune "$file" 2> "$SCRATCH/err" || fail "notes were overwritten"
grep -q 'overwrites only cost models' "$SCRATCH/err" || fail "$(cat "$SCRATCH/err")"
[ "$(cat "$file")" = 'my notes' ] || fail "notes are gone"
! "$ASHLAR" bench collective --procs 2 group.algorithm=flat --tune "$file" 2> "$SCRATCH/err" || fail "--tune of one algorithm"
grep -q 'group.algorithm' "$SCRATCH/err" || fail "$(cat "$SCRATCH/err")"
finish

#!/usr/bin/env bash
# check cluster: nodes alike, a node that is not fit, a disk, a node whose link is throttled, by all pairs and by halves; mistakes.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
cd "$SCRATCH" || exit 1
# What this machine's kernel has logged since it was started is not part of this.
: > kernel.log
quiet=(--kernel-log "$SCRATCH/kernel.log")
# Cores that others use make disks of this machine slow: only a fiftieth of the median counts.
try "$ASHLAR" launch --procs 3 check cluster "${quiet[@]}" --slow 0.02 --disk "$SCRATCH" --seconds 0.2
expect 0 "three nodes alike: $(cat out err)"
same "rows of nodes" 3 "$(grep -c '^ *[012] ' out)"
grep -q '^3 nodes, [0-9.]* MB/s over the median link: no outlier$' out || fail "the verdict: $(cat out)"
awk '/^ *[012] / && ($6 <= 0 || $7 <= 0 || $5 <= 0) { exit 1 }' out || fail "links and disks have no rates: $(cat out)"
[ -z "$(ls -A "$SCRATCH" | grep ashlar-check)" ] || fail "the disk's file is left"
try "$ASHLAR" launch --procs 2 check cluster "${quiet[@]}" --slow 0 --json
expect 0 "two nodes as JSON: $(cat out err)"
grep -q '"alike": true' out && grep -q '"outliers": \[\]' out || fail "the JSON: $(cat out)"
# One node misses a GPU: it is named, and all end with 1.
printf '#!/bin/sh\nexec "%s" check cluster %s --slow 0 --gpus "$((RANK / 2))"\n' "$ASHLAR" "${quiet[*]}" > uneven && chmod +x uneven
try "$ASHLAR" launch --procs 3 --program "$SCRATCH/uneven"
[ "$code" -eq 1 ] || fail "a node that is not fit: exit code $code: $(cat out err)"
grep -q '^OUTLIER  node 2 (.*): not fit for work: GPUs' out || fail "the node that is not fit is not named: $(cat out)"
! grep '^OUTLIER' out | grep -v 'node 2 ' || fail "others are named: $(cat out)"
# One node sends through a link of 2 Mbit/s, the others through links of 200: it is cornered, and no other. However busy this machine is, the
# first is slow for sure, and the others are slow at most for want of a core. A sanitizer's processes are too slow to judge links.
printf '#!/bin/sh\ndev=$(ip -o link | awk -F"[:@ ]+" '"'"'$2 != "lo" { print $2; exit }'"'"')\nrate=200mbit; [ "$RANK" != 2 ] || rate=2mbit\ntc qdisc add dev "$dev" root tbf rate $rate burst 16kb latency 50ms || exit 9\nexec "%s" check cluster %s --slow 0.5 "$@"\n' "$ASHLAR" "${quiet[*]}" > throttled && chmod +x throttled
if [[ $BUILD != *address* ]] && "$ASHLAR" launch --procs 2 --nodes 2 --netns check cluster "${quiet[@]}" --slow 0 > out 2> err && command -v tc > tc.out; then
    for way in pairs halves; do
        nodes=$([ $way = pairs ] && echo 3 || echo 5)
        try "$ASHLAR" launch --procs "$nodes" --nodes "$nodes" --netns --program "$SCRATCH/throttled" --links $way
        [ "$code" -eq 1 ] || fail "a throttled node, by $way: exit code $code: $(cat out err)"
        grep -q '^OUTLIER  node 2 (.*): it sends with less than' out || fail "the throttled node is not named, by $way: $(cat out)"
        same "who is named, by $way" 1 "$(grep -c '^OUTLIER' out)"
    done
    grep -q '^[0-9]* of 20 links in [0-9]* rounds, the others in exchanges of groups$' out || fail "what halves measured: $(cat out)"
else
    echo "not tried: networks of their own for nodes: $(cat err)"
fi
try "$ASHLAR" check cluster
expect_error 1 "alone" "start this once per node"
try "$ASHLAR" check disk
expect_error 2 "something else" "ashlar check node, or cluster"
try "$ASHLAR" check node --disk /nowhere
[ "$code" -eq 1 ] && grep -q '^BAD *disk */nowhere: No such file' out || fail "a disk that is not there: $(cat out err)"
finish

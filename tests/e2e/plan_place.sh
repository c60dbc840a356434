#!/usr/bin/env bash
# `ashlar plan place` as a user meets it: running and waiting jobs, table and JSON, three forms of topology, errors.
. "$SOURCE/tests/e2e/lib.bash"
place() { "$ASHLAR" plan place --topology "$SCRATCH/topology.conf" --model deepseek-v3 --machine p5en.48xlarge --seq 4096 "$@"; }
holds() { # what, words...
    local what=$1 words
    shift
    for words in "$@"; do
        grep -qF -- "$words" "$SCRATCH/out" || fail "$what: '$words' is missing: $(cat "$SCRATCH/out")"
    done
}
printf 'SwitchName=a Nodes=n[0-7]\nSwitchName=b Nodes=n[8-15]\nSwitchName=top Switches=a,b\n' > "$SCRATCH/topology.conf"
for i in 0 1 2 3 4 5 6 7; do echo "n$i n$((i + 8))"; done > "$SCRATCH/hosts"

leak_free place --layout pp=2,ep=64 --hosts "$SCRATCH/hosts"
expect 0 "a running job"
holds "a running job" "hosts span top (layer 2)" "busiest link: above" "better order: n0 n1 n2" "verdict: reorder the ranks"
try place --layout pp=2,ep=64 --hosts 'n[0-15]' --json
expect 0 "in the order of the tree"
holds "in the order of the tree" '"reorder_gain": 0.0' '"axis": "ep"' '"layer": 2' '"worst_link"' '"first_rank": 0'

leak_free place --layout ep=64 --nodes 8 --free 'n[0-4],n[8-12]' --tokens 1e11 --wait-minutes 20 --json
expect 0 "a job that waits"
holds "a job that waits" '"missing": 3' '"n5"' '"domain": "top"' '"verdict": "wait: 20 minutes'
try place --layout ep=64 --nodes 8 --free 'n[0-4],n[8-12]' --tokens 1e11
expect 0 "what it waits for"
holds "what it waits for" "waits for 3 more hosts of a" "of these: n5 n6 n7" "verdict: wait if it takes less than"
try place --layout ep=64 --nodes 8 --free 'n[0-7]'
expect 0 "a job that fits"
holds "a job that fits" "best domain now: a (layer 1)" "verdict: start now"
try place --layout ep=64 --nodes 8 --free 'n[0-6]'
expect 0 "too few"
holds "too few" "verdict: cannot start: 7 of 8 hosts are free"

sed 's|\(.*\) \(.*\)|\1 s/a\n\2 s/b|' "$SCRATCH/hosts" > "$SCRATCH/plain"
try place --topology "$SCRATCH/plain" --model llama-3-8b --layout tp=1 --hosts 'n[0-15]'
expect 0 "pure data parallel"
holds "pure data parallel" "verdict: placement does not matter"

try place --layout ep=64 --hosts n99
expect_error 1 "an unknown host" "'n99' is not in the topology"
try place --layout ep=64 --nodes 17 --free n0
expect_error 1 "more than there is" "17"
try place --layout ep=64
expect_error 2 "neither" "--hosts"
try place --layout ep=64 --hosts n0 --nodes 2
expect_error 2 "both" "--hosts"
try place --topology "$SCRATCH/none" --layout ep=64 --hosts n0
expect_error 1 "no file" "none"
printf '[99.1] NVRM: Xid\n' > "$SCRATCH/kern.log"
try place --topology "$SCRATCH/kern.log" --model llama-3-8b --machine p5.48xlarge --layout tp=8 --hosts n1
expect_error 1 "a log instead of a topology" kern.log topology.conf spine1/leaf3
same "the file is named once" 1 "$(grep -o 'kern\.log' "$SCRATCH/err" | wc -l)"
finish

#!/usr/bin/env bash
# The catalog at the command line: lists, facts with sources and disagreements, machines of one's own, mistakes.
. "$SOURCE/tests/e2e/lib.bash" || exit 1

try "$ASHLAR" catalog ls
expect 0 "catalog ls"
for word in p5.48xlarge H100-SXM5-80GB u-p6e-gb200x72 fsx-persistent2-1000 'where sources disagree'; do
    grep -q "$word" "$SCRATCH/out" || fail "catalog ls lacks $word"
done
try "$ASHLAR" catalog show p6-b300.48xlarge
expect 0 "catalog show"
grep -q 'network_gbps  *6400  \[karp-bw\]' "$SCRATCH/out" || fail "show does not say who gives the network"
try "$ASHLAR" catalog show B300
grep -q 'but also  *12600' "$SCRATCH/out" || fail "show hides that sources disagree on fp4"
try "$ASHLAR" catalog show h100 --json
expect 0 "catalog show --json"
grep -q '"value": 989.4' "$SCRATCH/out" && grep -q '"nv-h100": "https://' "$SCRATCH/out" || fail "the JSON lacks values or sources"
cat > "$SCRATCH/mine.yaml" << 'YAML'
machines:
  - {name: rack, gpu: H200, gpus: 16, nvlink_domain: 16, network_gbps: 1600, usd_hour: 20}
YAML
try "$ASHLAR" catalog ls machines --catalog "$SCRATCH/mine.yaml"
expect 0 "a catalog of one's own"
grep -q '^rack  *H200-SXM5-141GB  *16  *16' "$SCRATCH/out" || fail "the machine of one's own is not listed"
try env ASHLAR_CATALOG="$SCRATCH/mine.yaml" "$ASHLAR" catalog show rack
expect 0 "a catalog from the environment"
try "$ASHLAR" catalog show nothing
expect 1 "an unknown machine"
grep -q "'nothing' in the catalog (all: ashlar catalog ls)$" "$SCRATCH/err" || fail "the error: $(cat "$SCRATCH/err")"
try "$ASHLAR" catalog show p5
expect 1 "the beginning of a name"
grep -q "nearest: p5.4xlarge, p5.48xlarge" "$SCRATCH/err" || fail "the error: $(cat "$SCRATCH/err")"
try "$ASHLAR" catalog show H1000
expect 1 "a misspelt GPU"
grep -q "nearest: H100-SXM5-80GB" "$SCRATCH/err" || fail "the error: $(cat "$SCRATCH/err")"
try "$ASHLAR" catalog ls machinery
expect 2 "an unknown list"
printf 'machines: [{name: x, gpu: nope, gpus: 1}]' > "$SCRATCH/bad.yaml"
try "$ASHLAR" catalog ls --catalog "$SCRATCH/bad.yaml"
expect 1 "a broken catalog"
grep -q "machine x: there is no GPU 'nope'" "$SCRATCH/err" || fail "the error does not name the machine"
finish

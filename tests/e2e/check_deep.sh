#!/usr/bin/env bash
# A wrong bit names its core or its device: planted in a product of a core, in one of a device, and in a device's memory. The device is
# the one for tests, whose memory the host cannot touch; a driver whose kernels do nothing is found out too.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
mkdir -p "$SCRATCH/tree/proc"
deep() { try "$ASHLAR" check node --root "$SCRATCH/tree" --deep --seconds 0.05 --json "$@"; }
# has NAME GRADE WORDS: a result of that name and grade that says so.
has() {
    python3 -c '
import json, sys
name, grade, words, path = sys.argv[1:]
results = json.load(open(path))["results"]
sys.exit(not any(r["name"] == name and r["grade"] == grade and words in r["found"] for r in results))' "$@" "$SCRATCH/out" || fail "no $1 $2 '$3': $(cat "$SCRATCH/out")"
}
deep --device apart
has products good "every bit as known"
has memory good "every bit came back"
has "device products" good "apart: "
has "device memory" good "apart: 0.0336 GB, "
has "device rates" good "from the host"
core=$(taskset -pc $$ | sed 's/.*: //; s/[^0-9].*//')
deep --device apart --fault-core "$core" --fault-device 0
[ "$code" -eq 1 ] || fail "wrong bits end with $code"
has products BAD "core $core: 1 wrong elements"
has "device products" BAD "apart: 1 wrong elements in"
has "device products" BAD "at row 0, column 77"
has "device memory" BAD "bits 0000000000000020, first at 0.0168 GB"
deep --device none
! grep -q '"name":"device' "$SCRATCH/out" || fail "none is checked: $(cat "$SCRATCH/out")"
deep --device cpu
has "device products" good "cpu: "
deep --device cuda:99
has device BAD ""
finish

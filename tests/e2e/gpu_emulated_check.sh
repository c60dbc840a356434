#!/usr/bin/env bash
# `ashlar check node --arithmetic`: on a GPU whose instructions are the models', nothing differs; on a driver whose kernels do nothing
# everything does; without a GPU it is one sentence.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
EMULATED=$BUILD/tests/ashlar_emulated
[ -x "$EMULATED" ] || exit 77
mkdir -p "$SCRATCH/tree/proc"
# has NAME GRADE WORDS: a result of that name and grade that says so.
has() {
    python3 -c '
import json, sys
name, grade, words, path = sys.argv[1:]
results = json.load(open(path))["results"]
sys.exit(not any(r["name"] == name and r["grade"] == grade and words in r["found"] for r in results))' "$@" "$SCRATCH/out" || fail "no $1 $2 '$3': $(cat "$SCRATCH/out")"
}
try "$EMULATED" check node --root "$SCRATCH/tree" --arithmetic --seconds 0.01 --json
has arithmetic good "cuda:0: bf16 products by mma.sync, 32768 cases, 0 differ"
has arithmetic good "cuda:0: bf16 products by wgmma, 16384 cases, 0 differ"
has arithmetic good "cuda:0: fp8 products (e4m3) by wgmma, 16384 cases, 0 differ"
has arithmetic good "cuda:0: powers of two by ex2.approx, 65536 cases, 0 differ"
try "$ASHLAR" check node --root "$SCRATCH/tree" --arithmetic --seconds 0.01 --device cuda:99 --json
has arithmetic skipped "no GPU to try: "
try "$ASHLAR" check node --root "$SCRATCH/tree" --arithmetic --seconds 0.01 --device cpu --json
has arithmetic skipped "cpu is no GPU"
finish

#!/usr/bin/env bash
# `ashlar plan audit` as a user meets it: tables, JSON, picture, measured routing, the check, and errors that help.
. "$SOURCE/tests/e2e/lib.bash"
audit() { "$ASHLAR" plan audit "$@"; }
b300=(--model deepseek-v3 --cluster 32xp6-b300.48xlarge --ep 32)

leak_free audit "${b300[@]}" --layout tp=1,pp=8,ep=32 --svg "$SCRATCH/a.svg"
expect 0 "table"
for words in "NVLink domains of 8" "EP16" "two-level dispatch" "fp8 dispatch" "u-p6e-gb200x72" "a guess until" "verdict: "; do
    grep -qF -- "$words" "$SCRATCH/out" || fail "table: '$words' is missing: $(cat "$SCRATCH/out")"
done
[ "$(grep -c '<polyline' "$SCRATCH/a.svg")" -eq 2 ] || fail "not two lines in the picture"

leak_free audit "${b300[@]}" --json
expect 0 "json, layout searched"
for words in '"leaving": 0.75' '"flip_gb_s"' '"verdict"' '"degrees"' '"changes"' '"try_first"'; do
    grep -qF -- "$words" "$SCRATCH/out" || fail "JSON: $words is missing"
done

for _ in $(seq 255); do echo 1; done > "$SCRATCH/routing"; echo 300 >> "$SCRATCH/routing"
try audit "${b300[@]}" --layout tp=1,pp=8,ep=32 --routing "$SCRATCH/routing"
expect 0 "measured routing"
grep -qF "routing as measured" "$SCRATCH/out" || fail "does not say whose routing"
leak_free audit --check
expect 0 "check"
grep -qE '^mean error 1?[0-9] % of 38 measurements$' "$SCRATCH/out" || fail "check: $(tail -1 "$SCRATCH/out")"

leak_free audit --check --json
expect 0 "check as JSON"
[ "$(grep -c '"predicted"' "$SCRATCH/out")" -eq 38 ] || fail "check as JSON lacks rows"
try audit --check --model deepseek-v3
expect_error 2 "a check of one model" "--check takes"
try audit "${b300[@]}" --layout tp=1,pp=8,mbs=2 --micro-batch 4
expect_error 1 "two micro-batches" "disagree"
try audit --model deepseek-v3
expect_error 2 "no cluster" "--cluster"
try audit --model llama-3.1-70b --cluster 2xp5.48xlarge --ep 8
expect_error 1 "dense model" "has no experts"
try audit "${b300[@]}" --layout tp=1,pp=8,ep=16
expect_error 1 "two degrees" "disagree"
try audit --model deepseek-v3 --cluster 32xp6-b300.48xlarge --ep 7
expect_error 1 "odd degree" "ep 7 does not divide the 256 experts" "16, 32, 64"
echo "1 2 3" > "$SCRATCH/short"
try audit "${b300[@]}" --routing "$SCRATCH/short"
expect_error 1 "short routing" "3 counts" "256 experts"
try audit "${b300[@]}" --rack u-nothing
expect_error 1 "unknown rack" "u-nothing"
finish

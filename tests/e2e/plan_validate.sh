#!/usr/bin/env bash
# plan validate at the command line: groups, rows, JSON as promised, constants that can be changed, mistakes.
. "$SOURCE/tests/e2e/lib.bash" || exit 1

leak_free "$ASHLAR" plan validate "$SOURCE/tests/plan/training.csv"
expect 0 "plan validate"
grep -q '^primary dense ' "$SCRATCH/out" || fail "no group of primary dense rows"
grep -q 'source mosaic-llm-foundry' "$SCRATCH/out" || fail "no group by source"
grep -q 'rows could not be predicted' "$SCRATCH/out" || fail "rows that cannot be predicted are not counted"
grep -q 'T0219 .*not well known' "$SCRATCH/out" || fail "rows that cannot be predicted are not named"
grep -q 'predicted rows would not fit' "$SCRATCH/out" || fail "rows that would not fit are not counted"
try "$ASHLAR" plan validate "$SOURCE/tests/plan/inference.csv" --json
expect 0 "plan validate --json"
for key in '"groups"' '"rows"' '"median_abs_err"' '"p90_abs_err"' '"name": "all"' '"reason"'; do
    grep -q -- "$key" "$SCRATCH/out" || fail "the JSON lacks $key"
done
try "$ASHLAR" plan validate "$SOURCE/tests/plan/training.csv" --rows
[ "$(grep -c '^T[0-9]' "$SCRATCH/out")" -gt 700 ] || fail "--rows lists too few rows"
cp "$SCRATCH/out" "$SCRATCH/before"
try "$ASHLAR" plan validate "$SOURCE/tests/plan/training.csv" --rows --set gemm_hopper=0.35
expect 0 "--set"
cmp -s "$SCRATCH/out" "$SCRATCH/before" && fail "--set changes nothing"
try "$ASHLAR" plan constants
expect 0 "plan constants"
grep -q '^gemm_hopper' "$SCRATCH/out" || fail "the constants are not listed"
try "$ASHLAR" plan models
grep -q '^gpt2-124m  *124 M  *124 M  *12 ' "$SCRATCH/out" || fail "plan models: $(grep '^gpt2-124m' "$SCRATCH/out")"
try "$ASHLAR" plan models --json
expect 0 "plan models"
grep -q '"deepseek-v3"' "$SCRATCH/out" || fail "the models are not listed"
try "$ASHLAR" plan validate "$SCRATCH/none.csv"
expect_error 1 "a missing file" none.csv
printf 'a,b\n1,2\n' > "$SCRATCH/other.csv"
try "$ASHLAR" plan validate "$SCRATCH/other.csv"
expect_error 1 "a file of another form" tokens_s_gpu out_tok_s_total
printf 'tokens_s_gpu\n"1\n' > "$SCRATCH/torn.csv"
try "$ASHLAR" plan validate "$SCRATCH/torn.csv"
expect_error 1 "a torn file" torn.csv
try "$ASHLAR" plan validate "$SOURCE/tests/plan/training.csv" --set nothing=1
expect_error 1 "an unknown constant" nothing
try "$ASHLAR" plan validate
expect 2 "no file"
finish

#!/usr/bin/env bash
# `ashlar plan goodput` as a user meets it: table, JSON, picture, the same answer for the same seed, and errors that help.
. "$SOURCE/tests/e2e/lib.bash"
goodput() { "$ASHLAR" plan goodput "$@"; }

leak_free goodput --params 405g --gpus 16384 --svg "$SCRATCH/g.svg"
expect 0 "table"
for words in "5.67 TB of state" "a failure every 108.0 min" "checkpointless" "verdict: checkpointless"; do
    grep -qF -- "$words" "$SCRATCH/out" || fail "table: '$words' is missing: $(cat "$SCRATCH/out")"
done
grep -q '<polyline' "$SCRATCH/g.svg" || fail "no line in the picture"
[ "$(grep -c '<polyline' "$SCRATCH/g.svg")" -eq 4 ] || fail "not four lines in the picture"

leak_free goodput --params 70g --gpus 131072 --failures llama3 --spares 64 --usd-gpu-hour 7 --json --seed 5
expect 0 "json"
cp "$SCRATCH/out" "$SCRATCH/a.json"
try goodput --params 70g --gpus 131072 --failures llama3 --spares 64 --usd-gpu-hour 7 --json --seed 5
cmp -s "$SCRATCH/out" "$SCRATCH/a.json" || fail "the same seed gave another answer"
[ "$(grep -c '"lost_usd_day"' "$SCRATCH/a.json")" -eq 4 ] || fail "not four ways in the JSON"
[ "$(grep -c '"from"' "$SCRATCH/a.json")" -eq 4 ] || fail "not four break-even points in the JSON"
grep -q '"gpus": 131072' "$SCRATCH/a.json" || fail "the JSON does not say how many GPUs"

leak_free goodput --model llama-3.1-405b --cluster 128xp5.48xlarge --storage fsx-persistent2-1000 --storage-tib 96
expect 0 "a tier of the catalog"
grep -qF "shared storage fsx-persistent2-1000 takes 96.00 GB/s" "$SCRATCH/out" || fail "tier: $(head -3 "$SCRATCH/out")"
grep -qF "on storage, age at most" "$SCRATCH/out" || fail "does not say how old a checkpoint may be"
try goodput --model llama-3.1-405b --cluster 128xp5.48xlarge --storage s3 --json
expect 0 "an object store"
grep -q '"storage": "s3"' "$SCRATCH/out" && grep -q '"durable_age_s"' "$SCRATCH/out" || fail "the JSON lacks the storage"
try goodput --model llama-3.1-405b --cluster 128xp5.48xlarge --storage fsx-persistent2-1000
expect_error 1 "a file system without a size" "--storage-tib"
try goodput --model llama-3.1-405b --cluster 128xp5.48xlarge --storage tape
expect_error 1 "an unknown tier" "tape" "fsx-persistent2-125" "s3"
try goodput --model llama-3.1-405b --cluster 128xp5.48xlarge --storage nvme
expect_error 1 "a tier without a rate" "measure it"
try goodput --params 70g --gpus 8 --storage s3
expect_error 2 "storage without clients" "--cluster"
try goodput --model llama-3.1-405b --cluster 128xp5.48xlarge --storage s3 --write-gb-s 5
expect_error 2 "two rates of storage" "not both"
try goodput --params 70g
expect_error 2 "no GPUs" "--gpus"
leak_free goodput --model llama-3.1-405b --cluster 2048xp5.48xlarge
expect 0 "model and cluster by name"
grep -qF "16384 GPUs" "$SCRATCH/out" && grep -qF "lost per day" "$SCRATCH/out" || fail "names: $(cat "$SCRATCH/out")"
try goodput --model llama-9 --cluster 2xp5.48xlarge
expect_error 1 "unknown model" "llama-9" "llama-7b"
try goodput --model llama-3.1-70b --cluster 2xp99.48xlarge
expect_error 1 "unknown machine" "p99.48xlarge" "p5.48xlarge"
try goodput --model llama-3.1-70b --params 70g --gpus 8
expect_error 2 "two models" "not both"
try goodput --params 70g --gpus 1001
expect_error 1 "odd GPUs" "1000 or 1008"
try goodput --params 70g --gpus 1024 --mtbf-hours 5 --failure-rate 1e-5
expect_error 2 "two rates" "not several"
try goodput --params 405g --gpus 1024 --interval-s 5
expect_error 1 "short interval" "the least is 57 s"
try goodput --params 405g --gpus 1024 --uncovered 0
expect_error 2 "copies that survive everything" "uncovered"
try goodput --params 405g --gpus 1024 --svg /nowhere/at/all.svg
expect_error 1 "no folder" "/nowhere/at/all.svg"

# From the ledger of a run. 40 failures of 0.5 s each in 1000 s, half a step of 1 s redone each, a tenth of the rest idle.
cat > "$SCRATCH/ledger.json" <<EOF
{"wall_s": 1000, "steps": 864, "recoveries": 40, "redone_steps": 40, "lost_steps": 0, "productive_s": 864, "detect_s": 4,
 "reform_s": 6, "transfer_s": 10, "redone_s": 20, "save_s": 46, "idle_s": 50}
EOF
leak_free goodput --ledger "$SCRATCH/ledger.json"
expect 0 "a ledger"
for words in "86.4 % of 1000 s was productive, 40 failures (one every 25 s)" "0.500 s of work redone" "predicted   86."; do
    grep -qF -- "$words" "$SCRATCH/out" || fail "ledger: '$words' is missing: $(cat "$SCRATCH/out")"
done
try goodput --ledger "$SCRATCH/ledger.json" --mtbf-hours 1 --json
expect 0 "a ledger as JSON"
grep -q '"goodput": 0.8998\|"goodput": 0.8999\|"goodput": 0.899' "$SCRATCH/out" || fail "a failure an hour: $(cat "$SCRATCH/out")"
sed 's/"recoveries": 40/"recoveries": 0/' "$SCRATCH/ledger.json" > "$SCRATCH/quiet.json"
try goodput --ledger "$SCRATCH/quiet.json"
expect_error 1 "a ledger without failures" "chaos run"
echo '{"steps": 3}' > "$SCRATCH/half.json"
try goodput --ledger "$SCRATCH/half.json"
expect_error 1 "half a ledger" "productive_s" "no ledger"
try goodput --ledger "$SCRATCH/none.json"
expect_error 1 "no ledger" "none.json"
try goodput --ledger "$SCRATCH/ledger.json" --params 70g --gpus 8
expect_error 2 "a ledger and a model" "--ledger"
finish

#!/usr/bin/env bash
# ashlar run: a run says what it is at, continues with fewer and with more ranks, and stops; from its folder alone, with the bits of one process.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
endless="$endless runtime.threads=1"
control() { try "$ASHLAR" run "$@"; }

"$ASHLAR" launch --procs 3 train "$SCRATCH/job.yaml" --out "$SCRATCH/run" $endless mesh.fsdp=3 > "$SCRATCH/run.out" 2> "$SCRATCH/run.err" < /dev/null &
launcher=$!
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/run/log.jsonl"
control status "$SCRATCH/run"
expect 0 "status"
grep -q '^state  *running$' "$SCRATCH/out" && grep -q '^step  *[0-9]* of 1000000, loss' "$SCRATCH/out" && grep -q '^ranks  *3 as fsdp=3' "$SCRATCH/out" ||
    fail "status: $(cat "$SCRATCH/out")"
control resize "$SCRATCH/run" 7
expect_error 1 "more ranks than there are processes" "has 3 processes"
for ranks in 1 3 2; do
    control resize "$SCRATCH/run" $ranks --wait 300
    expect 0 "resize to $ranks"
    grep -q "run has $ranks rank" "$SCRATCH/out" || fail "what a resize says: $(cat "$SCRATCH/out")"
    control status "$SCRATCH/run"
    grep -q "^ranks  *$ranks as" "$SCRATCH/out" || fail "$ranks ranks: $(cat "$SCRATCH/out")"
done
control stop "$SCRATCH/run" --wait 300
expect 0 "stop"
wait $launcher
same "a run that was stopped" 0 $?
control status "$SCRATCH/run"
expect 3 "status of one that has ended"
grep -q '^state  *stopped$' "$SCRATCH/out" || fail "status at the end: $(cat "$SCRATCH/out")"
check_bits run

# a wish that would end the run is refused, also one that is left in its folder; so is a second rank of one process
"$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/two" $endless mesh.dp=2 recover.min_ranks=2 > /dev/null 2> "$SCRATCH/two.err" < /dev/null &
two=$!
"$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/alone" $endless > /dev/null 2>&1 < /dev/null &
alone=$!
wait_for "two runs" grep -qs '"step":5,' "$SCRATCH/two/log.jsonl"
control resize "$SCRATCH/two" 1
expect_error 1 "fewer than recover.min_ranks" "fewer than 2 ranks"
echo '{"ranks": 1}' > "$SCRATCH/two/request.json"
wait_for "the wish to be refused" grep -q 'a resize to 1 is refused' "$SCRATCH/two.err"
wait_for "a run of one process" grep -qs '"step":1,' "$SCRATCH/alone/log.jsonl"
control resize "$SCRATCH/alone" 2
expect_error 1 "two ranks of one process" "it is one process" "launch --procs 2 train --resume"
for run in two alone; do
    control stop "$SCRATCH/$run" --wait 300
    expect 0 "stop of $run"
done
wait $two || fail "a run that refused a resize has failed: $(cat "$SCRATCH/two.err")"
wait $alone || fail "a run of one process has failed"

control stop "$SCRATCH/run"
expect_error 1 "nothing runs" "nothing is running"
# What it cost: parts in whole cents add up; processes are counted as they came and went.
control cost "$SCRATCH/run" --price 5000 --watts 300 --co2 0.5 --json
expect 0 "cost"
python3 - "$SCRATCH/out" "$SCRATCH/run/ledger.json" << 'PY' || fail "cost: $(cat "$SCRATCH/out")"
import json, sys
bill, ledger = (json.load(open(path)) for path in sys.argv[1:])
kinds = bill["kinds"].values()
hours = ledger["wall_s"] / 3600
assert sum(kind["cents"] for kind in kinds) == bill["cents"] > 0
assert abs(sum(kind["rank_hours"] for kind in kinds) - bill["rank_hours"]) < 1e-9 < bill["rank_hours"]
assert hours * 1.001 < bill["rank_hours"] < hours * 2.999, "it had one, two and three ranks"
assert abs(bill["kwh"] - bill["rank_hours"] * 0.3) < 1e-9 and abs(bill["co2_kg"] - bill["kwh"] / 2) < 1e-9
PY
echo '{"plans": [{"gpu_hours": 0.5, "usd": 2.5}]}' > "$SCRATCH/run/plan.json"
control cost "$SCRATCH/run" --price 5000
grep -q '^foreseen  *0.5 .* 2.50$' "$SCRATCH/out" || fail "what was foreseen: $(cat "$SCRATCH/out")"
echo '{}' > "$SCRATCH/run/plan.json"
control cost "$SCRATCH/run"
expect_error 1 "a plan that is none" "ashlar plan train --json"
control cost "$SCRATCH/run" --co2 1
expect_error 1 "CO2 without energy" "--watts"
control cost "$SCRATCH/none"
expect_error 1 "no run" "holds no run"
control status "$SCRATCH/none"
expect_error 1 "no run" "holds no run"
control resize "$SCRATCH/run" many
expect_error 2 "no number" "number of ranks"
finish

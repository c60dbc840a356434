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
for ranks in 1 3 2; do
    control resize "$SCRATCH/run" $ranks --wait 300
    expect 0 "resize to $ranks"
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

control stop "$SCRATCH/run"
expect_error 1 "nothing runs" "nothing is running"
control status "$SCRATCH/none"
expect_error 1 "no run" "holds no run"
control resize "$SCRATCH/run" many
expect_error 2 "no number" "number of ranks"
finish

#!/usr/bin/env bash
# Processes that are lost come back and join the run; those that are told to stop leave at a step's edge, and nothing is redone. A launcher that
# dies takes no step with it, and a rank that dies before all have met keeps nobody waiting.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
endless="$endless runtime.threads=1"

# start NAME LAUNCH-WORDS... : an endless job of three ranks; $launcher runs it.
start() {
    local name=$1
    shift
    "$ASHLAR" launch --procs 3 "$@" train "$SCRATCH/job.yaml" --out "$SCRATCH/$name" $endless mesh.fsdp=3 > "$SCRATCH/$name.out" 2> "$SCRATCH/$name.err" < /dev/null &
    launcher=$!
    wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/$name/log.jsonl"
}
rank() { pgrep -P $launcher | sed -n "$1p"; }
says() { grep -q -- "$2" "$SCRATCH/$1.err"; }
says_times() { [ "$(grep -c -- "$2" "$SCRATCH/$1.err")" -ge "$3" ]; }

# One that is killed, then the first: each comes back. Then one leaves. Then all are told to stop.
start back --restarts 3
kill -9 "$(rank 2)"
wait_for "one that comes back" says back '3 ranks continue from step [0-9]* as fsdp=3'
kill -9 "$(rank 1)"
wait_for "the first that comes back" says_times back '3 ranks continue from step [0-9]* as fsdp=3' 2
kill -TERM "$(rank 1)"
wait_for "one that leaves" says back 'rank [0-9] has left'
wait_for "what the others do" says back '1 rank leaves; 2 ranks continue from step [0-9]* as fsdp=2'
kill -TERM $launcher
wait $launcher
same "told to stop" 75 $?
check_bits back
grep -q '"lost_steps": 0' "$SCRATCH/back/ledger.json" || fail "steps are lost: $(cat "$SCRATCH/back/ledger.json")"

# The launcher dies: the ranks save and end by themselves.
start orphans
ranks=$(pgrep -P $launcher)
kill -9 $launcher
wait $launcher 2> /dev/null
for pid in $ranks; do wait_for "rank $pid to end" eval "! kill -0 $pid 2> /dev/null"; done
check_bits orphans
[ -d "$SCRATCH/orphans/checkpoints/step-$(printf %06d "$(steps_of orphans)")" ] || fail "the last step is not saved: $(ls "$SCRATCH/orphans/checkpoints")"

# A mesh that the model cannot have: bad settings, which nobody tries again.
try "$ASHLAR" launch --procs 2 --restarts 3 train "$SCRATCH/job.yaml" --out "$SCRATCH/none" mesh.ep=2
expect 2 "experts of a dense model"
grep -q 'error: mesh.ep=2' "$SCRATCH/err" || fail "it does not say what is wrong: $(cat "$SCRATCH/err")"
grep -q 'started again' "$SCRATCH/err" && fail "it is tried again: $(cat "$SCRATCH/err")"

finish

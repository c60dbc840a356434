#!/usr/bin/env bash
# ashlar train, killed again and again in the middle of saves: it always resumes, and ends with the bits of a quiet run.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1

train quiet train.steps=60
expect 0 "the quiet run"
killed=0
for round in $(seq 200); do
    "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/crash" --resume train.steps=60 train.save_every=1 \
        > "$SCRATCH/out" 2> "$SCRATCH/err" < /dev/null &
    pid=$!
    # Most of its time goes into saving; the longer it takes to start (a busy machine), the longer it may live.
    ms=$((RANDOM % 60 + 20 + 10 * round))
    sleep "$((ms / 1000)).$(printf '%03d' $((ms % 1000)))"
    kill -9 $pid 2> /dev/null
    wait $pid 2> /dev/null
    code=$?
    [ "$code" -eq 0 ] && break
    if [ "$code" -ne 137 ]; then
        fail "round $round: exit code $code: $(cat "$SCRATCH/err")"
        break
    fi
    killed=$((killed + 1))
done
[ -e "$SCRATCH/crash/model/config.json" ] || fail "not finished after $killed kills"
[ "$killed" -ge 3 ] || fail "killed only $killed times"
same "bits after $killed kills" "$(grep -o '"loss_bits":"[0-9a-f]*"' "$SCRATCH/quiet/log.jsonl" | md5sum)" \
    "$(grep -o '"loss_bits":"[0-9a-f]*"' "$SCRATCH/crash/log.jsonl" | md5sum)"
same "the last hash" "$(tail -n 1 "$SCRATCH/quiet/log.jsonl" | grep -o 'state_hash.*')" "$(tail -n 1 "$SCRATCH/crash/log.jsonl" | grep -o 'state_hash.*')"
same "steps in the log" 60 "$(steps_of crash)"
same "kept checkpoints and nothing half-written" "step-000059 step-000060" "$(ls -A "$SCRATCH/crash/checkpoints" | tr '\n' ' ' | sed 's/ $//')"
same "nothing next to the model" "" "$(ls -A "$SCRATCH/crash" | grep 'tmp\|old\|trash')"
echo "killed $killed times"

# Killed while an old checkpoint was being removed after the very last save: the next part has no step to do and sweeps all the same.
mkdir "$SCRATCH/crash/checkpoints/.step-000058.trash"
try "$ASHLAR" train --resume --out "$SCRATCH/crash"
expect 0 "a resume with nothing left to do"
same "nothing half-removed" "step-000059 step-000060" "$(ls -A "$SCRATCH/crash/checkpoints" | tr '\n' ' ' | sed 's/ $//')"
finish

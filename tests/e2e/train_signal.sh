#!/usr/bin/env bash
# Ctrl-C, SIGTERM and SIGHUP finish the step, save, say how to resume and exit with 130 (Ctrl-C) or 75 (told to stop); metrics are served meanwhile; a terminal sees one
# live line.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1

scrape() { # once the run has said where
    local port
    port=$(sed -n 's|^metrics: http://127.0.0.1:\([0-9]*\)/metrics$|\1|p' "$SCRATCH/out")
    [ -n "$port" ] && exec 3<> "/dev/tcp/127.0.0.1/$port" || return 1
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
    cat <&3 > "$SCRATCH/metrics"
    exec 3>&-
    grep -q '^ashlar_train_tokens_total [1-9]' "$SCRATCH/metrics"
} 2> /dev/null

for signal in INT TERM HUP; do
    setsid "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/$signal" $endless train.steps=10000 --metrics-port 0 \
        > "$SCRATCH/out" 2> "$SCRATCH/err" < /dev/null &
    pid=$!
    wait_for "metrics" scrape
    kill -s $signal $pid
    code=0
    wait $pid || code=$?
    expect $([ $signal = INT ] && echo 130 || echo 75) "SIG$signal"
    same "SIG$signal: what is said at once" "ashlar: stopping after this step (Ctrl-C again: at once, without saving)" "$(cat "$SCRATCH/err")"
    grep -q '^stopped and saved at step' "$SCRATCH/out" || fail "SIG$signal: it says: $(tail -n 3 "$SCRATCH/out")"
    grep -qF "ashlar train --resume --out $SCRATCH/$signal" "$SCRATCH/out" || fail "SIG$signal: it does not say how to resume"
    [ -e "$SCRATCH/$signal/model" ] && fail "SIG$signal: a model that is not finished"
    step=$(steps_of $signal)
    [ "$step" -ge 1 ] && [ "$step" -lt 10000 ] || fail "SIG$signal at step $step"
    tail -n 1 "$SCRATCH/$signal/log.jsonl" | grep -q state_hash || fail "SIG$signal: the saved step has no hash in the log"
    for metric in ashlar_train_step ashlar_train_loss ashlar_train_tokens_per_second ashlar_train_step_seconds_bucket \
        ashlar_train_skipped_steps_total; do
        grep -q "^$metric" "$SCRATCH/metrics" || fail "no metric $metric"
    done
    try "$ASHLAR" train --resume --out "$SCRATCH/$signal" --allow-change train.steps=$((step + 20))
    expect 0 "resume after SIG$signal"
    grep -q "^resumed .*at step $step" "$SCRATCH/out" || fail "SIG$signal: it does not say where it resumes"
    same "steps in the log" $((step + 20)) "$(steps_of $signal)"
    check_bits $signal
done

# nohup means it: SIGHUP is ignored, and metrics are served where they were asked for.
(trap '' HUP; exec "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/nohup" $endless train.steps=500 --metrics-port 0 --metrics-address 0.0.0.0) \
    > "$SCRATCH/out" 2> "$SCRATCH/err" < /dev/null &
pid=$!
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/nohup/log.jsonl"
kill -s HUP $pid
code=0
wait $pid || code=$?
expect 0 "SIGHUP under nohup"
grep -q '^metrics: http://0.0.0.0:[0-9]*/metrics' "$SCRATCH/out" || fail "no metrics on all addresses: $(head -n 1 "$SCRATCH/out")"
[ -e "$SCRATCH/nohup/.lock" ] && fail "the lock is left behind"

# A terminal, if there is a program that makes one.
if command -v script > /dev/null; then
    script -qec "stty cols 120; '$ASHLAR' train '$SCRATCH/job.yaml' --out '$SCRATCH/tty'" "$SCRATCH/typescript" > /dev/null < /dev/null
    grep -q $'\r\033\[Kstep  0/40 .*first step under way' "$SCRATCH/typescript" || fail "nothing on a terminal before the first step"
    grep -q $'\r\033\[Kstep .*loss' "$SCRATCH/typescript" || fail "no live line on a terminal"
    grep -q $'\r\033\[K40 steps in' "$SCRATCH/typescript" || fail "the live line is not cleared before the end"
fi
finish

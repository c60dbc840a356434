#!/usr/bin/env bash
# A rank that waits for one that does not come ends on SIGTERM and on Ctrl-C: it says for whom it waited, saves what is finished and leaves
# nothing behind.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
free_ports

# start NAME: two ranks by hand, patient with each other. Their ids in $first and $second.
start() {
    port=$((port + 1))
    local rank
    for rank in 0 1; do
        (export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port RANK=$rank
            exec "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/$1" train.steps=100000 train.valid_every=0 group.silent_timeout=600 \
                group.stop_grace=0.5) > "$SCRATCH/out$rank" 2> "$SCRATCH/err$rank" < /dev/null &
        [ $rank = 0 ] && first=$! || second=$!
    done
}

for signal in TERM INT; do
    start $signal
    wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/$signal/log.jsonl"
    kill -STOP $second
    sleep 0.3 # the first one waits by now
    kill -s $signal $first
    [ $signal = INT ] && sleep 0.7
    code=0
    wait $first || code=$?
    cp "$SCRATCH/err0" "$SCRATCH/err"
    expect $((128 + $(kill -l $signal))) "SIG$signal while it waits"
    grep -q '^ashlar: stopping after this step' "$SCRATCH/err0" || fail "SIG$signal: nothing is said at once: $(cat "$SCRATCH/err0")"
    grep -q '^ashlar: error: .*rank 1' "$SCRATCH/err0" || fail "SIG$signal: it does not say for whom it waited: $(cat "$SCRATCH/err0")"
    grep -q '^ended and saved at step' "$SCRATCH/out0" || fail "SIG$signal: it does not say what was saved: $(tail -n 2 "$SCRATCH/out0")"
    grep -q "train --resume --out $SCRATCH/$signal\$" "$SCRATCH/out0" || fail "SIG$signal: it does not say how to resume"
    [ -e "$SCRATCH/$signal/.lock" ] && fail "SIG$signal: the lock is left behind"
    kill -CONT $second
    wait $second 2> /dev/null && fail "SIG$signal: the other rank says that all is well"
    try "$ASHLAR" train --resume --out "$SCRATCH/$signal" --allow-change train.steps=$(($(steps_of $signal) + 5))
    expect 0 "SIG$signal: resumed"
done

# Nobody comes to meet: a stop request ends that, too.
(export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 1)) RANK=0
    exec "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/alone") > "$SCRATCH/out" 2> "$SCRATCH/err" < /dev/null &
first=$!
sleep 0.5
kill -TERM $first
code=0
wait $first || code=$?
expect 143 "SIGTERM before the ranks have met"
[ -e "$SCRATCH/alone" ] && fail "ranks that never met left a folder"
finish

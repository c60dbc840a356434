#!/usr/bin/env bash
# ashlar launch ... train: any number of processes gives the bits of one; a lost process is named, the others continue; Ctrl-C, resume
# and other launchers' variables work as with one process.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1

# train_on PROCS NAME [words]
train_on() {
    local procs=$1 name=$2
    shift 2
    try "$ASHLAR" launch --procs "$procs" train "$SCRATCH/job.yaml" --out "$SCRATCH/$name" "$@"
}

for words in "train.grains=8" "train.grains=8 train.precision=bf16 train.micro_batch=1"; do
    rm -rf "$SCRATCH/one"
    train one $words
    expect 0 "one process, $words"
    bits_of one > "$SCRATCH/expected"
    for procs in 2 3 5; do
        rm -rf "$SCRATCH/many"
        train_on $procs many $words
        expect 0 "$procs processes, $words"
        bits_of many | cmp -s - "$SCRATCH/expected" || fail "$procs processes give other bits ($words)"
        [ ! -s "$SCRATCH/err" ] || fail "$procs processes, $words: $(cat "$SCRATCH/err")"
    done
done
grep -q '^\[' "$SCRATCH/out" && fail "other ranks than the first print: $(grep '^\[' "$SCRATCH/out" | head -n 1)"
cmp -s "$SCRATCH/one/model/model.safetensors" "$SCRATCH/many/model/model.safetensors" || fail "the models differ"

# The parts of each step are never more than its time, and in most steps all of it: a busy machine may run other processes between the
# clocks of the parts and the clock of the step.
sed -E 's/.*"tokens":([0-9]+),"tokens_per_s":([^,]*),"compute_s":([^,]*),"comm_s":([^,]*),"data_s":([^,]*),"idle_s":([^,]*),.*/\1 \2 \3 \4 \5 \6/' \
    "$SCRATCH/many/log.jsonl" | awk '{ wall = ($1 - before) / $2; before = $1; parts = $3 + $4 + $5 + $6
        if (NF != 6 || parts > wall * 1.001 + 1e-5) { print "step", NR, "of", wall, "has parts of", parts; exit 1 }
        less += parts < wall * 0.98 - 1e-4 }
    END { if (NR == 0 || less * 2 > NR) { print less, "of", NR, "steps have parts of less"; exit 1 } }' ||
    fail "the parts of a step do not add up to it"

# More ranks than grains cannot share a step.
train_on 5 none train.grains=4
expect 2 "more ranks than grains"
grep -q 'train.grains' "$SCRATCH/err" || fail "it does not say what to change: $(cat "$SCRATCH/err")"

# Kill a rank in the middle: the others name it and continue from the same step, with whole replicas and with a sharded state, to the bits of an
# undisturbed run. Every step is in the log once.
# lose_one NAME WHICH [words]: 3 ranks, of which the first or the last is killed.
lose_one() {
    local name=$1 which=$2
    shift 2
    "$ASHLAR" launch --procs 3 train "$SCRATCH/job.yaml" --out "$SCRATCH/$name" $endless "$@" > "$SCRATCH/$name.out" 2> "$SCRATCH/$name.err" &
    launcher=$!
    wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/$name/log.jsonl"
    victim=$(pgrep -P $launcher | $which -n 1)
    kill -9 "$victim"
    wait_for "the name of the dead process $victim" grep -q "process $victim.* has died.*continue from step [0-9]* as" "$SCRATCH/$name.err" || cat "$SCRATCH/$name.err"
    stop_run "$name"
    wait $launcher
    same "$name: the exit code where the others end well" 0 $?
    check_bits "$name"
    pgrep -f "$SCRATCH/$name" > /dev/null && fail "$name: processes are left over"
}
lose_one replicas tail
lose_one first head
lose_one sharded tail mesh.fsdp=3
lose_one sharded_first head mesh.fsdp=3 mesh.zero=1

# Below recover.min_ranks the run ends, and no finished step is lost; without copies a sharded state goes back to the newest checkpoint by itself, and ends with the same bits.
"$ASHLAR" launch --procs 3 train "$SCRATCH/job.yaml" --out "$SCRATCH/few" $endless recover.min_ranks=3 > "$SCRATCH/out" 2> "$SCRATCH/err" &
launcher=$!
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/few/log.jsonl"
kill -9 "$(pgrep -P $launcher | tail -n 1)"
wait $launcher && fail "a run with too few ranks says that all is well"
grep -q '2 ranks are left, and recover.min_ranks is 3' "$SCRATCH/err" || fail "it does not say that ranks are too few: $(cat "$SCRATCH/err")"
try "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/few_straight" $endless train.steps="$(steps_of few)"
expect 0 "one process makes as many steps"
same "what too few ranks have saved" "$(steps_of few) $(grep -o '"state_hash":"[0-9a-f]*' "$SCRATCH/few_straight/log.jsonl" | tail -n 1 | cut -d'"' -f4)" \
    "$("$ASHLAR" checkpoint ls "$SCRATCH/few" | awk 'NR == 2 { print $1, $NF }')"
lose_one back tail mesh.fsdp=3 recover.copies=0 train.save_every=15
grep -q 'going back to the newest checkpoint' "$SCRATCH/back.err" || fail "back: it does not say so: $(cat "$SCRATCH/back.err")"

# Ctrl-C: all save at the same step.
"$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/stopped" train.steps=100000 train.valid_every=0 > "$SCRATCH/out" 2> "$SCRATCH/err" &
launcher=$!
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/stopped/log.jsonl"
kill -INT $launcher
wait $launcher
same "exit code after Ctrl-C" 130 $?
grep -q 'resume with: ashlar launch --procs 2 train --resume' "$SCRATCH/out" || fail "it does not say how to resume: $(tail -n 3 "$SCRATCH/out")"
grep -q '^mesh *dp=2: 2 ranks on 1 node' "$SCRATCH/out" || fail "it does not say how ranks share the work: $(head -n 8 "$SCRATCH/out")"
grep -q '^stopped and saved at step' "$SCRATCH/out" || fail "it does not say that it saved: $(tail -n 3 "$SCRATCH/out") $(cat "$SCRATCH/err")"

# Another launcher's variables.
free_ports
(export SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_ID=$((port - 10000)) SLURM_STEP_ID=0 SLURM_STEP_NODELIST="localhost,other" SLURM_LOCALID=0
    "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/slurm" train.grains=8 > "$SCRATCH/out" 2> "$SCRATCH/err" &
    SLURM_PROCID=1 SLURM_LOCALID=1 "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/slurm" train.grains=8 > "$SCRATCH/out1" 2>&1
    wait)
rm -rf "$SCRATCH/one"
train one train.grains=8
same "under Slurm's variables" "$(bits_of one | md5sum)" "$(bits_of slurm | md5sum)"
try env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/none"
expect_error 1 "no port" MASTER_PORT
try env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/none" group.join_timeout=0.3
expect_error 1 "nobody comes" "1 of 2 ranks"
finish

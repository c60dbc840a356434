#!/usr/bin/env bash
# Ranks that were started with different jobs, data or weights end at once, all of them, and say what differs.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1

"$ASHLAR" data arithmetic --out "$SCRATCH/other" --count 4000 --seed 7 > "$SCRATCH/out" 2>&1 || fail "data: $(cat "$SCRATCH/out")"
free_ports

# pair WORDS0 WORDS1: two ranks by hand, each with words of its own. Exit codes in $code and $code1.
pair() {
    local out=$SCRATCH/pair
    rm -rf "$out"
    port=$((port + 1))
    code=0
    code1=0
    (export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
        RANK=0 exec timeout -k 1 300 "$ASHLAR" train "$SCRATCH/job.yaml" --out "$out" $1) > "$SCRATCH/out" 2> "$SCRATCH/err" < /dev/null &
    local first=$!
    (export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
        RANK=1 exec timeout -k 1 300 "$ASHLAR" train "$SCRATCH/job.yaml" --out "$out" $2) > "$SCRATCH/out1" 2> "$SCRATCH/err1" < /dev/null || code1=$?
    wait $first || code=$?
}
# differ WORDS0 WORDS1 SAYS: both ranks are refused, in the same words.
differ() {
    local text
    pair "$1" "$2"
    same "'$1' and '$2': exit codes" "2 2" "$code $code1"
    for text in "$SCRATCH/err" "$SCRATCH/err1"; do
        same "'$1' and '$2': lines of error" 1 "$(wc -l < "$text")"
        grep -q "^ashlar: error: ranks were given different jobs: " "$text" || fail "'$1' and '$2': $(cat "$text")"
        grep -q -- "$3" "$text" || fail "'$1' and '$2': '$3' is not in: $(cat "$text")"
    done
    [ ! -e "$SCRATCH/pair" ] || fail "'$1' and '$2': something is left in the folder: $(ls -A "$SCRATCH/pair")"
}

differ optimizer.lr=3e-3 optimizer.lr=1e-2 'optimizer.lr is 0.003 on rank 0 (.*) and 0.01 on rank 1 ('
differ train.seed=1 train.seed=2 'train.seed is 1 on rank 0 (.*) and 2 on rank 1 ('
differ "" "data.train=$SCRATCH/other" 'data.train is [0-9a-f]* on rank 0 (.*) and [0-9a-f]* on rank 1 ('
differ "" "data.valid=$SCRATCH/other" 'data.valid is [0-9a-f]* on rank 0'
differ data.seq=16 data.seq=8 'data.seq is 16 on rank 0 .* and 8 on rank 1 '
differ train.steps=30 train.steps=20 'train.steps is 30 on rank 0 .* and 20 on rank 1 '
differ train.precision=fp32 train.precision=bf16 'train.precision is fp32 on rank 0 .* and bf16 on rank 1 '
differ train.valid_every=20 train.valid_every=30 'train.valid_every is 20 on rank 0 .* and 30 on rank 1 '
differ model.layers=2 model.layers=3 'model.layers is 2 on rank 0 .* and 3 on rank 1 '
differ train.global_batch=8 train.global_batch=16 'train.global_batch is 8 on rank 0 .* and 16 on rank 1 '
differ train.save_every=0 train.save_every=7 'train.save_every is 0 on rank 0 .* and 7 on rank 1 '
differ "train.seed=1 optimizer.lr=0.5" "train.seed=2 optimizer.lr=0.25" 'train.seed is 1 .*, optimizer.lr 0.5 and 0.25'
differ mesh.tp=2 mesh.fsdp=2 'mesh.fsdp is 1 on rank 0'

# What a process may choose for itself, and other paths to the same data, are no difference.
cp -r "$SCRATCH/train" "$SCRATCH/copy"
pair "runtime.threads=1" "runtime.threads=2 runtime.pin=off data.train=$SCRATCH/copy"
same "settings of a process: exit codes" "0 0" "$code $code1"

# Weights to start from.
train first train.steps=5
train second train.steps=6
expect 0 "a second model"
differ "model.from=$SCRATCH/first/model" "model.from=$SCRATCH/second/model" 'model.from is [0-9a-f]* on rank 0'
# One of two ranks sees no checkpoint to resume.
train mine train.steps=5
port=$((port + 1))
(export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port RANK=0
    exec timeout -k 1 300 "$ASHLAR" train "$SCRATCH/job.yaml" --resume --out "$SCRATCH/mine" train.steps=5) > "$SCRATCH/out" 2> "$SCRATCH/err" < /dev/null &
first=$!
code1=0
(export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port RANK=1
    exec timeout -k 1 300 "$ASHLAR" train "$SCRATCH/job.yaml" --resume --out "$SCRATCH/yours" train.steps=5) > "$SCRATCH/out1" 2> "$SCRATCH/err1" < /dev/null || code1=$?
code=0
wait $first || code=$?
same "a checkpoint that one rank does not see: exit codes" "2 2" "$code $code1"
grep -q "checkpoint is [0-9a-f]* on rank 0 .* and none on rank 1" "$SCRATCH/err" || fail "a checkpoint: $(cat "$SCRATCH/err")"
finish

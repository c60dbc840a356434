# What the training scripts share, on top of lib.bash: arithmetic data and a job so small that a run takes well under a second.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
"$ASHLAR" data arithmetic --out "$SCRATCH/train" --count 4000 > "$SCRATCH/out" 2>&1 || fail "data: $(cat "$SCRATCH/out")"
"$ASHLAR" data arithmetic --out "$SCRATCH/valid" --count 400 --split valid > "$SCRATCH/out" 2>&1 || fail "data: $(cat "$SCRATCH/out")"
cat > "$SCRATCH/job.yaml" << YAML
model: {type: llama, hidden: 16, layers: 2, heads: 2, ffn: 32}
data: {train: $SCRATCH/train, valid: $SCRATCH/valid, seq: 16}
train: {steps: 40, global_batch: 8, grains: 4, valid_every: 20, save_every: 0, hash_every: 10}
optimizer: {lr: 0.01}
schedule: {warmup: 5}
YAML
# train NAME [words]: a run of the job into $SCRATCH/NAME.
train() {
    local name=$1
    shift
    try "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/$name" "$@"
}
# All that must be the same in two runs: each step's loss bits and every hash.
bits_of() { grep -o '"step":[0-9]*\|"loss_bits":"[0-9a-f]*"\|"state_hash":"[0-9a-f]*"' "$SCRATCH/$1/log.jsonl"; }
# A run that ends when it is told to, however long that takes: its steps are those of one process that makes as many.
endless="train.steps=1000000 train.valid_every=0 train.hash_every=100 schedule.kind=constant"
stop_run() { # name
    try "$ASHLAR" run stop "$SCRATCH/$1" --wait 300
    expect 0 "$1: told to stop"
}
# last_state NAME STEPS: the state hash of the checkpoint after these steps, else the last one of the log. A run that ends because its
# ranks leave one by one has logged its last step before.
last_state() {
    local manifest=$SCRATCH/$1/checkpoints/step-$(printf %06d "$2")/manifest.json
    { grep -so '"state_hash": *"[0-9a-f]*"' "$manifest" || bits_of "$1" | grep state_hash | tail -n 1; } | grep -o '[0-9a-f]\{16\}'
}
# check_bits NAME [words]: the endless run has ended after some steps. Are they those of one process? Each once, and the last state.
check_bits() {
    local name=$1 steps
    shift
    steps=$(steps_of "$name")
    rm -rf "$SCRATCH/straight"
    try "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/straight" $endless "$@" train.steps="$steps"
    expect 0 "$name: one process, $steps steps"
    same "$name: steps and losses" "$(bits_of straight | grep -v state_hash | md5sum)" "$(bits_of "$name" | grep -v state_hash | md5sum)"
    same "$name: the last state" "$(last_state straight "$steps")" "$(last_state "$name" "$steps")"
}
steps_of() { grep -c '"step"' "$SCRATCH/$1/log.jsonl"; }

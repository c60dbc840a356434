#!/usr/bin/env bash
# Every layout gives the bits of one process: losses of each step, state hashes, checkpoint and finished model.
# Layouts that cannot be are refused with the reason; a run resumes in another layout than it was saved in.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
"$ASHLAR" data arithmetic --out "$SCRATCH/train" --count 4000 > "$SCRATCH/out" 2>&1 || fail "data: $(cat "$SCRATCH/out")"
"$ASHLAR" data arithmetic --out "$SCRATCH/valid" --count 400 --split valid > "$SCRATCH/out" 2>&1 || fail "data: $(cat "$SCRATCH/out")"

# job NAME TYPE TIED
job() {
    cat > "$SCRATCH/$1.yaml" << YAML
model: {type: $2, hidden: 64, layers: 4, heads: 4, ffn: 128, experts: 6, vocab: 128, tied: $3}
data: {train: $SCRATCH/train, valid: $SCRATCH/valid, seq: 64}
train: {steps: 4, global_batch: 16, grains: 8, micro_batch: 1, valid_every: 2, save_every: 0, hash_every: 2}
optimizer: {lr: 0.01}
schedule: {warmup: 2}
YAML
}
job dense llama false
job tied gpt2 true
job moe qwen3_moe false
# A bias lies where the shares of two ranks of cp meet, in the stage between the others.
cat > "$SCRATCH/seam.yaml" << YAML
model: {type: gpt2, hidden: 80, layers: 5, heads: 8, ffn: 64, vocab: 300}
data: {train: $SCRATCH/train, valid: $SCRATCH/valid, seq: 192}
train: {steps: 4, global_batch: 3, grains: 3, valid_every: 2, valid_batches: 1, save_every: 0, hash_every: 2}
optimizer: {lr: 0.01}
schedule: {warmup: 2}
YAML

bits_of() { grep -o '"step":[0-9]*\|"loss_bits":"[0-9a-f]*"\|"state_hash":"[0-9a-f]*"\|"valid_loss":[0-9.e+-]*' "$SCRATCH/$1/log.jsonl"; }
# same_as_one JOB PRECISION WORDS...: the run in $SCRATCH/many has the bits of one process.
same_as_one() {
    local one=$1-$2 file
    bits_of "$one" | cmp -s - <(bits_of many) || fail "$*: other bits"
    for file in model/model.safetensors checkpoints/step-000004/optimizer.safetensors; do
        cmp -s "$SCRATCH/$one/$file" "$SCRATCH/many/$file" || fail "$*: $file differs"
    done
}
# one JOB PRECISION: the run of one process, made once.
one() {
    [ ! -d "$SCRATCH/$1-$2" ] || return 0
    try "$ASHLAR" train "$SCRATCH/$1.yaml" --out "$SCRATCH/$1-$2" train.precision="$2"
    expect 0 "one process, $1 $2"
}
# check JOB PRECISION PROCS WORDS..., on the nodes that $nodes says.
nodes=
check() {
    local job=$1 precision=$2 procs=$3
    shift 3
    one "$job" "$precision"
    rm -rf "$SCRATCH/many"
    try "$ASHLAR" launch --procs "$procs" $nodes train "$SCRATCH/$job.yaml" --out "$SCRATCH/many" train.precision="$precision" "$@"
    expect 0 "$job $precision $procs $nodes $*"
    [ ! -s "$SCRATCH/err" ] || fail "$job $*: $(cat "$SCRATCH/err")"
    same_as_one "$job" "$precision" "$@"
}

# Every layout in the long form; in the short one every second of the mixtures; every sixth under a sanitizer, where each takes seconds.
turn=0 share=1
every() {
    turn=$((turn + 1))
    [ $((turn % share)) -eq 0 ] || return 0
    check "$@"
}
case $BUILD in *address* | *asan*) share=6 ;; esac

# each axis alone
every dense fp32 2 mesh.tp=2
every dense fp32 3 mesh.tp=3 train.recompute=full
every dense fp32 4 mesh.pp=4 train.micro_batch=2
every dense fp32 2 mesh.pp=2 mesh.interleave=2
every dense fp32 2 mesh.cp=2 train.recompute=selective
every dense fp32 2 mesh.fsdp=2 mesh.zero=1
every dense fp32 2 mesh.fsdp=2 mesh.zero=2
every dense fp32 3 mesh.fsdp=3 mesh.zero=3
every tied bf16 2 mesh.tp=2
every tied bf16 2 mesh.cp=2
every tied bf16 2 mesh.fsdp=2 train.micro_batch=2
every moe fp32 3 mesh.ep=3
# mixtures
[ $share -gt 1 ] || is_long || share=2
every dense fp32 4 mesh.tp=2 mesh.pp=2
every dense fp32 4 mesh.cp=2 mesh.tp=2
every dense fp32 4 mesh.cp=4 train.recompute=full
every tied bf16 4 mesh.dp=2 mesh.cp=2
every tied fp32 4 mesh.pp=2 mesh.cp=2
every seam bf16 6 mesh.pp=3 mesh.cp=2
every moe fp32 4 mesh.fsdp=2 mesh.zero=1 mesh.cp=2
every dense fp32 4 mesh.fsdp=2 mesh.zero=2 mesh.cp=2
every dense fp32 4 mesh.fsdp=2 mesh.tp=2 mesh.zero=3
every tied bf16 4 mesh.fsdp=2 mesh.pp=2
every tied fp32 4 mesh.dp=2 mesh.fsdp=2 mesh.zero=2
every moe bf16 4 mesh.ep=2 mesh.pp=2
every moe fp32 4 mesh.ep=2 mesh.cp=2
every moe fp32 4 mesh.ep=2 mesh.fsdp=2 mesh.zero=1
every moe fp32 4 mesh.ep=2 mesh.fsdp=2 mesh.zero=2 train.micro_batch=2
every moe bf16 6 mesh.ep=3 mesh.fsdp=2 mesh.zero=3
every moe fp32 8 mesh.ep=2 mesh.fsdp=2 mesh.dp=2 mesh.zero=3 train.micro_batch=2
every tied bf16 8 mesh.dp=2 mesh.tp=2 mesh.pp=2
every dense fp32 8 mesh.fsdp=2 mesh.cp=2 mesh.tp=2
every moe fp32 8 mesh.ep=2 mesh.pp=2 mesh.tp=2
every moe bf16 8 mesh.ep=2 mesh.cp=2 mesh.tp=2 train.recompute=selective
every tied bf16 8 mesh.fsdp=2 mesh.pp=2 mesh.interleave=2 mesh.cp=2

# Over two nodes, through libfabric, in networks of their own where that is permitted: every axis crosses.
if "$ASHLAR" version | grep -q 'libfabric [0-9]'; then
    nodes="--nodes 2 --netns"
    try "$ASHLAR" launch --procs 2 $nodes version
    [ "$code" -eq 0 ] || nodes="--nodes 2"
    every dense fp32 4 mesh.tp=4
    every dense fp32 4 mesh.pp=4
    every tied bf16 2 mesh.cp=2
    every tied bf16 4 mesh.dp=2 mesh.cp=2
    every dense fp32 4 mesh.fsdp=4
    every moe fp32 4 mesh.ep=4
    every moe bf16 6 mesh.ep=6 group.algorithm=hierarchical
    every moe fp32 6 mesh.ep=3 mesh.tp=2 group.algorithm=flat # two ranks of ep on one node, one on the other
    every tied bf16 4 mesh.fsdp=2 mesh.zero=3 mesh.tp=2 # weights put together where the other rank of tp reads them
    nodes=
fi

# Stopped in one layout, finished in another: the bits of an undisturbed run.
rm -rf "$SCRATCH/many"
try "$ASHLAR" launch --procs 4 train "$SCRATCH/tied.yaml" --out "$SCRATCH/many" train.precision=bf16 mesh.tp=2 mesh.pp=2 train.save_every=2 train.keep=0
expect 0 "a run to go back in"
rm -rf "$SCRATCH/many/checkpoints/step-000004" "$SCRATCH/many/model"
try "$ASHLAR" launch --procs 2 train --resume --out "$SCRATCH/many" mesh.tp=1 mesh.pp=1 mesh.fsdp=2
expect 0 "resume in another layout"
one tied bf16
same_as_one tied bf16 "resumed in another layout"

# refuse WHAT PATTERN PROCS JOB WORDS...
refuse() {
    local what=$1 pattern=$2 procs=$3 job=$4
    shift 4
    try "$ASHLAR" launch --procs "$procs" train "$SCRATCH/$job.yaml" --out "$SCRATCH/none" "$@"
    [ "$code" -ne 0 ] || fail "$what: was not refused"
    grep -q "$pattern" "$SCRATCH/err" || fail "$what: $(cat "$SCRATCH/err")"
    rm -rf "$SCRATCH/none"
}
refuse "sizes that do not fit" "has 6 ranks, and there are 4" 4 dense mesh.dp=3 mesh.tp=2
refuse "ranks left over" "needs a multiple of 3 ranks" 4 dense mesh.tp=3
refuse "more parts than heads" "key-value heads" 5 dense mesh.tp=5
refuse "more stages than layers" "more than the model's 4 layers" 5 dense mesh.pp=5
refuse "no experts" "has none" 2 dense mesh.ep=2
refuse "more data ranks than grains" "train.grains" 9 dense mesh.dp=9
refuse "micro-batches that do not interleave" "mesh.interleave" 3 dense mesh.pp=3 mesh.interleave=1 mesh.dp=1 model.layers=6 mesh.interleave=2 train.global_batch=8
finish

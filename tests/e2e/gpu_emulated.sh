#!/usr/bin/env bash
# Training on a GPU whose kernels run on the host (tests/emulate): float32 and bf16, stopped and resumed, and on ranks that
# share the GPU, it ends with the bits of the reference. A pointer to the host's memory among a kernel's arguments fails.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
ASHLAR=$BUILD/tests/ashlar_emulated
[ -x "$ASHLAR" ] || exit 77
tiny="model.type=llama model.hidden=64 model.layers=2 model.heads=2 model.kv_heads=2 model.ffn=64 model.vocab=64 model.tied=true
    data.seq=32 train.steps=2 train.global_batch=4 train.grains=2 train.micro_batch=2
    train.valid_every=0 train.save_every=1 train.hash_every=1 optimizer.lr=5e-3 schedule.warmup=0"

# state_of NAME BACKEND RANKS KEY=VALUE...: the state hash that a run ends with
state_of() {
    local name=$1 backend=$2 ranks=$3 start=("$ASHLAR")
    shift 3
    [ "$ranks" = 1 ] || start=("$ASHLAR" launch --procs "$ranks")
    rm -rf "${SCRATCH:?}/$name"
    try "${start[@]}" train "$SCRATCH/job.yaml" --out "$SCRATCH/$name" $tiny runtime.backend="$backend" "$@"
    expect 0 "$name on $backend, $ranks ranks, $*"
    sed -n 's/.*state \([0-9a-f]\{16\}\).*/\1/p' "$SCRATCH/out" | tail -n 1
}

for precision in fp32 bf16; do
    reference=ref
    [ $precision = fp32 ] || reference=ref-wgmma
    want=$(state_of reference $reference 1 train.precision=$precision)
    [[ $want =~ ^[0-9a-f]{16}$ ]] || fail "no state: '$want'"
    [ "$(state_of gpu cuda 1 train.precision=$precision)" = "$want" ] || fail "$precision: the GPU has other bits"
    rm -rf "$SCRATCH/gpu/checkpoints/step-000002" "$SCRATCH/gpu/model"
    try "$ASHLAR" train --resume --out "$SCRATCH/gpu" --profile "$SCRATCH/trace.json" # by other ops, with the same arithmetic
    expect 0 "$precision, resumed"
    grep -q 'machine .*, exact, ' "$SCRATCH/out" || fail "$precision: $(grep machine "$SCRATCH/out")"
    grep -q "state $want" "$SCRATCH/out" || fail "$precision: resumed, the GPU has other bits"
    for layout in mesh.dp=2 "mesh.fsdp=2 mesh.zero=3" mesh.pp=2; do
        [ "$(state_of ranks cuda 2 train.precision=$precision runtime.ranks_per_gpu=2 $layout)" = "$want" ] ||
            fail "$precision, $layout: ranks on the GPU have other bits"
    done
done
want=$(state_of reference ref 1)
for layout in mesh.tp=2 mesh.cp=2; do
    [ "$(state_of ranks cuda 2 runtime.ranks_per_gpu=2 $layout)" = "$want" ] || fail "$layout: ranks on the GPU have other bits"
done

# Values go from window to window: sums by a kernel. Through host memory where that is asked for, or the driver cannot share.
reduces() { grep -c 'launch [0-9]*: reduce_f32' "$SCRATCH/err"; }
export EMULATE_TRACE=1
[ "$(state_of ranks cuda 2 runtime.ranks_per_gpu=2 mesh.dp=2)" = "$want" ] || fail "traced, ranks have other bits"
[ "$(reduces)" -gt 0 ] || fail "no kernel adds up the ranks' gradients"
[ "$(state_of ranks cuda 2 runtime.ranks_per_gpu=2 mesh.dp=2 group.staged=true)" = "$want" ] || fail "staged ranks have other bits"
[ "$(reduces)" = 0 ] || fail "staged values are added up by a kernel"
export STANDIN_NO_SHARING=1
[ "$(state_of ranks cuda 2 runtime.ranks_per_gpu=2 mesh.dp=2)" = "$want" ] || fail "without windows, ranks have other bits"
[ "$(reduces)" = 0 ] || fail "memory that cannot be shared is added up by a kernel"
grep -q 'warning: values between ranks go through host memory, which is slower: .*CUDA_ERROR_NOT_SUPPORTED' "$SCRATCH/err" ||
    fail "it does not say that values are staged"
unset EMULATE_TRACE STANDIN_NO_SHARING

# A rank each, or say so.
try "$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/refused" $tiny runtime.backend=cuda
[ "$code" != 0 ] || fail "two ranks take one GPU unasked"
grep -q 'runtime.ranks_per_gpu=2' "$SCRATCH/err" || fail "it does not say how: $(cat "$SCRATCH/err")"
finish

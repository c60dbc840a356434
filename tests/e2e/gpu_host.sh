#!/usr/bin/env bash
# What a user sees of a GPU, on a stand-in of the driver whose kernels do nothing: it is taken unasked, its memory is foreseen,
# and when it fails the run ends with the GPU, the op and the checkpoint that is left.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
ASHLAR=$BUILD/tests/ashlar_standin
[ -x "$ASHLAR" ] || exit 77
export LD_LIBRARY_PATH=$BUILD/standin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
short="train.steps=6 train.save_every=2 train.valid_every=6 schedule.warmup=0"

# gpu NAME ENV... -- KEY=VALUE...: a short run in a fresh folder
gpu() {
    local name=$1 env=()
    shift
    while [ "$1" != -- ]; do env+=("$1"); shift; done
    shift
    rm -rf "${SCRATCH:?}/$name"
    try env "${env[@]}" "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/$name" $short "$@"
}
# error_says PATTERN WHAT
error_says() {
    [ "$code" != 0 ] || fail "$2: it succeeds"
    grep -q -- "$1" "$SCRATCH/err" || fail "$2: '$1' is not in: $(cat "$SCRATCH/err")"
}
machine() { grep '^machine' "$SCRATCH/out"; }

# The GPU, unless something else is asked for or it cannot be.
gpu first STANDIN_CALLS="$SCRATCH/calls" -- train.precision=bf16
expect 0 "unasked"
machine | grep -q 'stand-in GPU (cuda:0), exact, bf16' || fail "the GPU is not taken: $(machine)"
grep -Eq '^memory .*on the device \(weights .*, moments .*, gradients .*, activations .*, logits .*, scratch ' "$SCRATCH/out" ||
    fail "memory: $(grep '^memory' "$SCRATCH/out")"
read -r _ left peak _ replays < "$SCRATCH/calls"
[ "$left" = 0 ] || fail "$left things were not released"
# Batches are recorded when their shape comes again.
[ "$replays" -gt 20 ] || fail "$replays passes were replayed"
grep -q '^a step .*% of [0-9]* passes replayed' "$SCRATCH/out" || fail "nothing is said of replays: $(grep '^a step' "$SCRATCH/out")"
gpu cpu -- runtime.backend=cpu
machine | grep -q 'threads\?, .* kernels' || fail "asked for the CPU: $(machine)"
try "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/other" $short runtime.backend=cuda:1
error_says "there is no GPU 1" "cuda:1"
gpu old STANDIN_MINOR=5 --
machine | grep -q 'not used: it has compute capability 9.5' || fail "another capability: $(machine)"
rm -rf "$SCRATCH/two"
try "$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/two" $short
machine | grep -q 'not used: 2 ranks would share one GPU (stand-in GPU, number 0 of host .*runtime.ranks_per_gpu=2' || fail "two ranks: $(machine)"

# A bf16 run keeps to its arithmetic: one of the CPU stays there, one of the GPU does not move there.
gpu bf16 -- train.precision=bf16 runtime.backend=ref-bfmmla
sed -i 's/backend: .*/backend: null/' "$SCRATCH/bf16/job.yaml"
rm -rf "$SCRATCH/bf16/checkpoints/step-000006" "$SCRATCH/bf16/model"
try "$ASHLAR" train --resume --out "$SCRATCH/bf16"
machine | grep -q "not used: the bf16 products of this run follow 'ref-bfmmla'" ||
    grep -q "follow 'ref-bfmmla" "$SCRATCH/err" || fail "a resumed run changes its arithmetic: $(machine)"
try "$ASHLAR" train --resume --out "$SCRATCH/first" runtime.backend=cpu
error_says "its bf16 products follow 'ref-wgmma" "from the GPU to this CPU"

# Memory of a GPU, and of the host, that other processes open after its owner has gone.
for kind in host cuda; do
    try "$BUILD/tests/gpu_share" $kind 4
    expect 0 "shared memory: $kind"
    [ "$(wc -l < "$SCRATCH/out")" = 2 ] || fail "shared memory: $kind: $(cat "$SCRATCH/out")"
done

# The line of memory is the peak that the driver saw, but for the room of a library that is not here (32 MiB).
gpu large STANDIN_CALLS="$SCRATCH/large.calls" -- train.precision=bf16 train.steps=1 model.hidden=96 model.vocab=8000 data.seq=128 \
    train.micro_batch=2 train.recompute=selective
said=$(sed -n 's/^memory *\([0-9.]*\) MB on the device.*/\1/p' "$SCRATCH/out")
read -r _ _ seen _ < "$SCRATCH/large.calls"
awk -v said="$said" -v seen="$seen" 'BEGIN { said = said * 1e6 - 32 * 1048576; exit !(said > 0.97 * seen && said < 1.05 * seen) }' ||
    fail "the header says $said MB, and the driver saw $seen bytes"

# What does not fit is said before it is tried, with what would.
gpu full STANDIN_MEMORY=$((peak + (72 << 20))) -- train.precision=bf16 data.seq=512 train.global_batch=64 train.micro_batch=16
error_says "GPU memory (weights, moments and gradients" "too large a run"
fix=$(sed -n 's/.*it fits with //p' "$SCRATCH/err")
[ -n "$fix" ] || fail "nothing would fit: $(cat "$SCRATCH/err")"
gpu full STANDIN_MEMORY=$((peak + (72 << 20))) -- train.precision=bf16 data.seq=512 train.global_batch=64 train.micro_batch=16 $fix
expect 0 "with $fix"

# A kernel that traps: the GPU, what ran, and the checkpoint that is left. Nothing hangs, nothing is saved from it.
gpu traps STANDIN_TRAP_AT=5 --
error_says "GPU 0 (stand-in GPU): .*kernels (the last is .*CUDA_ERROR_ILLEGAL_ADDRESS" "a trap at once"
gpu traps STANDIN_CALLS="$SCRATCH/calls" -- train.steps=2
expect 0 "two steps"
read -r _ _ _ launches _ < "$SCRATCH/calls"
sed -i 's/steps: 2$/steps: 8/' "$SCRATCH/traps/job.yaml"
try env STANDIN_TRAP_AT=$launches "$ASHLAR" train --resume --out "$SCRATCH/traps" --allow-change
error_says "the newest checkpoint is step [0-9]* in .*--resume" "a trap after a checkpoint"
try "$ASHLAR" train --resume --out "$SCRATCH/traps" --allow-change
expect 0 "resumed after the trap"

# Text.
try env STANDIN_TRAP_AT=5 "$ASHLAR" generate --model "$SCRATCH/cpu/model" --prompt 12 --max-tokens 4
error_says "GPU 0 (stand-in GPU)" "text on a GPU that traps"
try "$ASHLAR" generate --model "$SCRATCH/cpu/model" --prompt 12 --max-tokens 4 --backend cpu
expect 0 "text on the CPU"
finish

#!/usr/bin/env bash
# A device whose memory the host cannot touch (--backend apart): training, validation, checkpoints, resume, evaluation and
# text have the CPU's bits there, so nothing reads or writes a device's memory without asking.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1

short="train.steps=12 train.save_every=6 train.valid_every=6 train.hash_every=3"
train cpu runtime.backend=ref $short
expect 0 "on the CPU"
bits_of cpu > "$SCRATCH/expected"
for variant in "" "train.micro_batch=1 train.recompute=full" "train.recompute=selective"; do
    train apart runtime.backend=apart $short $variant
    expect 0 "on the device, $variant"
    bits_of apart | cmp -s - "$SCRATCH/expected" || fail "the device has other bits ($variant)"
    cmp -s "$SCRATCH/cpu/checkpoints/step-000012/optimizer.safetensors" \
        "$SCRATCH/apart/checkpoints/step-000012/optimizer.safetensors" || fail "the device saves other moments ($variant)"
    if [ -z "$variant" ]; then mv "$SCRATCH/apart" "$SCRATCH/half"; else rm -rf "$SCRATCH/apart"; fi
done

# Checkpoints move between the two: half on one, half on the other.
rm -rf "$SCRATCH/half/checkpoints/step-000012" "$SCRATCH/half/model"
try "$ASHLAR" train --resume --out "$SCRATCH/half" runtime.backend=ref
expect 0 "from the device to the CPU"
bits_of half | tail -n 8 | cmp -s - <(tail -n 8 "$SCRATCH/expected") || fail "resumed on the CPU, the run has other bits"
rm -rf "$SCRATCH/half/checkpoints/step-000012" "$SCRATCH/half/model"
try "$ASHLAR" train --resume --out "$SCRATCH/half" runtime.backend=apart
expect 0 "from the CPU to the device"
bits_of half | tail -n 8 | cmp -s - <(tail -n 8 "$SCRATCH/expected") || fail "resumed on the device, the run has other bits"

# bf16: the working copy, and its rounding.
train bf16 runtime.backend=ref train.precision=bf16 train.steps=10
bits_of bf16 > "$SCRATCH/expected"
train bf16-apart runtime.backend=apart train.precision=bf16 train.steps=10
bits_of bf16-apart | cmp -s - "$SCRATCH/expected" || fail "bf16: the device has other bits"

# Text and evaluation, from mapped weights of every kind. Tokens are drawn on the device, too.
sampling="--temperature 0.9 --top-k 30 --top-p 0.95 --min-p 0.01 --repetition-penalty 1.1 --seed 5"
for model in "$SCRATCH/cpu/model" "$SOURCE"/tests/golden/gguf/*.gguf; do
    for backend in cpu apart; do
        try "$ASHLAR" generate --model "$model" --backend $backend --prompt 12 --max-tokens 24 $sampling
        expect 0 "text of $model on $backend"
        cp "$SCRATCH/out" "$SCRATCH/text-$backend"
    done
    cmp -s "$SCRATCH/text-cpu" "$SCRATCH/text-apart" || fail "$model: the device writes other text"
    sampling="--temperature 0"
done
try "$ASHLAR" eval --model "$SCRATCH/cpu/model" --data "$SCRATCH/valid" --backend apart
expect 0 "evaluation on the device"

# Several ranks, each with such a memory: every axis has the bits of one process.
words="train.steps=6 train.grains=8 train.hash_every=2 train.save_every=3 model.vocab=64 model.layers=4 model.ffn=64 model.hidden=32 runtime.threads=1"
train alone $words runtime.backend=ref
expect 0 "one process"
bits_of alone > "$SCRATCH/expected"
# ranks_give PROCS [words]
ranks_give() {
    local procs=$1
    shift
    rm -rf "$SCRATCH/many"
    try "$ASHLAR" launch --procs "$procs" train "$SCRATCH/job.yaml" --out "$SCRATCH/many" $words runtime.backend=apart "$@"
    expect 0 "$procs ranks on devices, $*"
    bits_of many | cmp -s - "$SCRATCH/expected" || fail "$procs ranks on devices have other bits ($*)"
    cmp -s "$SCRATCH/alone/checkpoints/step-000006/optimizer.safetensors" \
        "$SCRATCH/many/checkpoints/step-000006/optimizer.safetensors" || fail "they save other moments ($*)"
}
ranks_give 2 mesh.dp=2
ranks_give 2 mesh.fsdp=2 mesh.zero=1
ranks_give 2 mesh.fsdp=2 mesh.zero=2
ranks_give 2 mesh.fsdp=2 mesh.zero=3
ranks_give 2 mesh.tp=2
ranks_give 2 mesh.cp=2
ranks_give 2 mesh.pp=2 mesh.interleave=2
ranks_give 4 mesh.tp=2 mesh.fsdp=2 mesh.zero=3 train.recompute=full

# A rank of three is killed and comes back, and one leaves: the others go on with the bits of one process.
"$ASHLAR" launch --procs 3 --restarts 3 train "$SCRATCH/job.yaml" --out "$SCRATCH/faults" $endless mesh.fsdp=3 mesh.zero=3 \
    runtime.threads=1 runtime.backend=apart > "$SCRATCH/faults.out" 2> "$SCRATCH/faults.err" < /dev/null &
launcher=$!
says() { grep -q -- "$1" "$SCRATCH/faults.err"; }
wait_for "some steps" grep -qs '"step":10,' "$SCRATCH/faults/log.jsonl"
kill -9 "$(pgrep -P $launcher | sed -n 2p)"
wait_for "one that comes back" says '3 ranks continue from step [0-9]* as fsdp=3'
kill -TERM "$(pgrep -P $launcher | sed -n 1p)"
wait_for "what the others do" says '1 rank leaves; 2 ranks continue from step [0-9]* as fsdp=2'
kill -TERM $launcher
wait $launcher
same "told to stop" 75 $?
check_bits faults runtime.backend=ref
grep -q '"lost_steps": 0' "$SCRATCH/faults/ledger.json" || fail "steps are lost: $(cat "$SCRATCH/faults/ledger.json")"
finish

#!/usr/bin/env bash
# Text on a GPU whose kernels run on the host (tests/emulate), one token at a time: bf16 and quantised weights, with steps that are
# recorded and replayed, give the reference's text. Recorded products ask for the next one's weights ahead, whose addresses the emulator
# checks.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
ASHLAR=$BUILD/tests/ashlar_emulated
[ -x "$ASHLAR" ] || exit 77
train run model.hidden=128 model.kv_heads=1 model.ffn=256 train.steps=2 train.precision=bf16 train.valid_every=0 schedule.warmup=0 \
    runtime.backend=ref-wgmma
expect 0 "a model"
try "$ASHLAR" model convert "$SCRATCH/run/model" "$SCRATCH/bf16" --dtype bf16
expect 0 "its weights as bf16"
try "$ASHLAR" model convert "$SCRATCH/run/model" "$SCRATCH/q8" --quant q8
expect 0 "its weights as q8"

# text_of MODEL BACKEND SEED: what it says to a sum
text_of() {
    try env EMULATE_TRACE=1 "$ASHLAR" generate --model "$1" --prompt 12 --max-tokens 8 --raw --precision bf16 --backend "$2" \
        --seed "$3" --temperature 1.5
    expect 0 "text of $1 on $2"
    cat "$SCRATCH/out"
}
for model in bf16 q8; do
    asked=0
    for seed in 1 2; do
        want=$(text_of "$SCRATCH/$model" ref-wgmma $seed)
        same "$model, seed $seed: text" "$want" "$(text_of "$SCRATCH/$model" cuda $seed)"
        asked=$((asked + $(grep -c 'bytes ahead$' "$SCRATCH/err")))
    done
    [ "$asked" -gt 0 ] || fail "$model: no product asked for weights ahead"
done
finish

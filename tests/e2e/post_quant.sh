#!/usr/bin/env bash
# Adapters over a base that is held quantised: close to those over the base as it is, the same bits in any layout and after an
# interruption, and a clear word where it cannot be.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1

mkdir "$SCRATCH/tok"
cp "$SOURCE/tests/golden/tokenizers/qwen2-nfc/tokenizer.json" "$SCRATCH/tok/"
for i in $(seq 40); do printf '{"prompt": "%d+%d=", "completion": "%d"}\n' "$i" 5 $((i + 5)); done > "$SCRATCH/rows.jsonl"
try "$ASHLAR" data chat --tokenizer "$SCRATCH/tok" --out "$SCRATCH/rows" "$SCRATCH/rows.jsonl"
expect 0 "data"
cat > "$SCRATCH/sft.yaml" << YAML
model: {type: llama, hidden: 64, layers: 2, heads: 4, head_dim: 128, ffn: 544}
data: {train: $SCRATCH/rows, seq: 64}
train: {steps: 6, global_batch: 4, grains: 2, save_every: 3, hash_every: 3}
optimizer: {lr: 0.01}
YAML
run() { # name, words...
    local name=$1
    shift
    try "$ASHLAR" sft "$SCRATCH/sft.yaml" --out "$SCRATCH/$name" "$@"
}
loss_of() { sed -n '$s/.*"loss":\([0-9.]*\).*/\1/p' "$SCRATCH/$1/log.jsonl"; }
run start
expect 0 "the base"
lora=(model.from="$SCRATCH/start/model" lora.rank=4 lora.targets=all-linear)
run plain "${lora[@]}"
expect 0 "adapters"
for quant in q8 q4 q8w; do
    run $quant "${lora[@]}" model.quant=$quant
    expect 0 "$quant"
    awk "BEGIN { d = $(loss_of $quant) / $(loss_of plain) - 1; exit !(d != 0 && d < 0.01 && d > -0.01) }" || fail "$quant: loss $(loss_of $quant), $(loss_of plain) without"
done
lora+=(lora.dropout=0.1) # drawn by the number of a sequence, so that layouts draw alike
mv "$SCRATCH/q4" "$SCRATCH/whole"
run q4 "${lora[@]}" model.quant=q4
[ "$(bits_of q4)" != "$(bits_of whole)" ] || fail "lora.dropout leaves nothing out"
run other "${lora[@]}" model.quant=q4 train.micro_batch=1 train.recompute=full
same "micro-batches" "$(bits_of q4)" "$(bits_of other)"
try "$ASHLAR" launch --procs 2 sft "$SCRATCH/sft.yaml" --out "$SCRATCH/sharded" "${lora[@]}" model.quant=q4 mesh.fsdp=2
same "two processes" "$(bits_of q4)" "$(bits_of sharded)"
# mesh.tp cuts matrices where their blocks end, and names the one that it cannot cut
try "$ASHLAR" launch --procs 2 sft "$SCRATCH/sft.yaml" --out "$SCRATCH/cut" "${lora[@]}" model.quant=q4 mesh.tp=2
same "two halves" "$(bits_of q4)" "$(bits_of cut)"
try "$ASHLAR" launch --procs 4 sft "$SCRATCH/sft.yaml" --out "$SCRATCH/uncut" "${lora[@]}" model.quant=q4 mesh.tp=4
expect 2 "a group of weights that would be cut"
grep -q "o_proj.weight' is quantised in groups of 256 of its 512 inputs, which mesh.tp=4 would cut: mesh.tp=2 would do" "$SCRATCH/err" || fail "not named: $(cat "$SCRATCH/err")"
rm -rf "$SCRATCH/other" && cp -r "$SCRATCH/q4" "$SCRATCH/other" && rm -rf "$SCRATCH/other/checkpoints/step-000006" "$SCRATCH/other/model"
try "$ASHLAR" sft --resume --out "$SCRATCH/other"
same "resumed" "$(bits_of q4)" "$(bits_of other)"
run bad model.from="$SCRATCH/start/model" model.quant=q4
expect_error 2 "no adapters" model.quant lora.rank
try "$ASHLAR" model convert "$SCRATCH/start/model" "$SCRATCH/gguf" --quant q8
run bad "${lora[@]}" model.from="$SCRATCH/gguf" model.quant=q4
expect 2 "a base that is quantised"
run bad "${lora[@]}" model.from="$SCRATCH/gguf"
expect_error 2 "a file with another order of rows" "model.quant"
finish

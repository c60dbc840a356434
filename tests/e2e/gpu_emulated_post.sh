#!/usr/bin/env bash
# Post-training on a GPU whose kernels run on the host (tests/emulate): each method ends with the bits of the reference, on
# one GPU and on ranks that share it.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
ASHLAR=$BUILD/tests/ashlar_emulated
[ -x "$ASHLAR" ] || exit 77
cd "$SCRATCH" || exit 1

for i in $(seq 40); do
    printf '{"prompt": "%d+5=", "completion": "%d"}\n' "$i" $((i + 5)) >> chat.jsonl
    printf '{"prompt": "%d+5=", "chosen": "%d", "rejected": "%d"}\n' "$i" $((i + 5)) $((i - 5)) >> pairs.jsonl
done
cat > base.yaml << 'YAML'
model: {type: llama, hidden: 64, layers: 2, heads: 2, kv_heads: 2, ffn: 64}
data: {train: plain, seq: 32}
train: {steps: 1, global_batch: 2, valid_every: 0, save_every: 0}
YAML
cat > job.yaml << 'YAML'
model: {from: base/model}
data: {train: chat, seq: 32}
train: {steps: 2, global_batch: 4, grains: 2, micro_batch: 2, valid_every: 0, save_every: 0, hash_every: 1}
optimizer: {lr: 0.005}
schedule: {warmup: 0}
YAML
try "$ASHLAR" data arithmetic --out plain --count 100
expect 0 "data"
try "$ASHLAR" train base.yaml --out base runtime.backend=cpu
expect 0 "a model to begin with"
for data in chat pairs; do
    try "$ASHLAR" data chat --tokenizer base/model --out $data $data.jsonl
    expect 0 "$data"
done

# state_of METHOD BACKEND RANKS KEY=VALUE...: the state hash that a run ends with
state_of() {
    local method=$1 backend=$2 ranks=$3 start=("$ASHLAR") shares=()
    shift 3
    [ "$ranks" = 1 ] || { start+=(launch --procs "$ranks") && shares=(runtime.ranks_per_gpu="$ranks"); }
    rm -rf run
    try "${start[@]}" "$method" job.yaml --out run runtime.backend="$backend" "${shares[@]}" "$@"
    expect 0 "$method on $backend, $ranks ranks, $*"
    sed -n 's/.*state \([0-9a-f]\{16\}\).*/\1/p' out | tail -n 1
}

# same_bits FORMS METHOD LAYOUT REFERENCE KEY=VALUE...: on one GPU (FORMS: one) or on two ranks in that layout (two); both in the
# long form
same_bits() {
    local forms=$1 method=$2 layout=$3 reference=$4 want
    shift 4
    ! is_long || forms="one two"
    want=$(state_of "$method" "$reference" 1 "$@")
    [[ $want =~ ^[0-9a-f]{16}$ ]] || fail "$method $*: no state: '$want'"
    [[ $forms != *one* ]] || [ "$(state_of "$method" cuda 1 "$@")" = "$want" ] || fail "$method $*: the GPU has other bits"
    [[ $forms != *two* ]] || [ "$(state_of "$method" cuda 2 "$layout" "$@")" = "$want" ] ||
        fail "$method $* $layout: ranks on the GPU have other bits"
}

same_bits one sft mesh.dp=2 ref lora.rank=4 lora.bias=all lora.dropout=0.1
same_bits two sft mesh.pp=2 ref-wgmma lora.rank=4 lora.dropout=0.1 train.precision=bf16
same_bits two sft mesh.dp=2 ref lora.rank=4 model.quant=q8
same_bits one sft mesh.pp=2 ref-wgmma lora.rank=4 model.quant=q8 train.precision=bf16
same_bits two dpo mesh.fsdp=2 ref data.train=pairs
same_bits one distill mesh.dp=2 ref distill.teacher=base/model distill.beta=0.3 distill.sft_weight=0.5
same_bits two reward mesh.cp=2 ref data.train=pairs lora.rank=4

# Adapters in answers
try "$ASHLAR" sft job.yaml --out adapters runtime.backend=cpu lora.rank=4 optimizer.lr=0.05
expect 0 "adapters"
for backend in ref cuda; do
    try "$ASHLAR" eval --model base/model --lora adapters/model --backend $backend --data plain --seq 64
    expect 0 "adapters on $backend"
    grep perplexity out > $backend.txt
done
cmp ref.txt cuda.txt || fail "adapters on the GPU: $(cat ref.txt cuda.txt)"

# Weights that are bf16 are computed with as such
try "$ASHLAR" model convert base/model narrow --dtype bf16
expect 0 "a model in bf16"
try "$ASHLAR" eval --model narrow --backend ref-wgmma --precision bf16 --data plain --seq 64
expect 0 "bf16 by the reference"
grep perplexity out > ref.txt
try "$ASHLAR" eval --model narrow --backend cuda --data plain --seq 64
expect 0 "bf16 on the GPU"
grep -q 'exact, bf16' err || fail "a model in bf16 on the GPU: $(cat err)"
grep perplexity out | cmp ref.txt - || fail "bf16 on the GPU: $(cat ref.txt out)"
finish

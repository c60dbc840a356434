#!/usr/bin/env bash
# One family of each form trains whole: alone, and on two ranks, stopped half way and resumed, with the same bits. Its finished
# model opens again, and a server gives the text that `ashlar generate` gives.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/serve_lib.bash"
cd "$SCRATCH" || exit 1
cat > families.yaml << YAML
data: {train: $SCRATCH/train, seq: 48}
train: {steps: 4, global_batch: 4, grains: 2, micro_batch: 1, save_every: 2, hash_every: 2, valid_every: 0, precision: fp32}
optimizer: {lr: 0.01}
schedule: {kind: constant}
YAML
prompt=$(printf '12+34=%.0s' {1..16}) # longer than a page of the cache
state_of() { grep -o '"state_hash":"[0-9a-f]*"' "$1/log.jsonl" | tail -n 1; }
family() { # name, axis
    local from=$SOURCE/tests/golden/families/$1 axis=${2:-tp} text
    try "$ASHLAR" train families.yaml --out alone model.from="$from"
    expect 0 "$1, one process"
    try "$ASHLAR" launch --procs 2 train families.yaml --out half model.from="$from" mesh.$axis=2 train.steps=2
    expect 0 "$1, two ranks"
    try "$ASHLAR" launch --procs 2 train --resume --allow-change --out half train.steps=4
    expect 0 "$1, resumed"
    [ -n "$(state_of alone)" ] || fail "$1: no state hash: $(tail -n 1 alone/log.jsonl)"
    same "$1: state" "$(state_of alone)" "$(state_of half)"
    cmp -s alone/model/model.safetensors half/model/model.safetensors || fail "$1: two ranks save other weights"

    try "$ASHLAR" generate --model alone/model --prompt "$prompt" --max-tokens 12 --json
    expect 0 "$1: the saved folder"
    text=$(grep -o '"text": *"[^"]*"' out | tr -d ' ')
    [ -n "$text" ] || fail "$1: no text: $(cat out)"
    start_server --model half/model || { fail "$1: no server"; return; }
    for turn in first "with the first one's pages"; do
        ask POST /v1/completions "{\"prompt\": \"$prompt\", \"max_tokens\": 12, \"temperature\": 0}"
        same "$1: $turn" "$text" "$(grep -o '"text": *"[^"]*"' answer | tr -d ' ')"
    done
    stop_server
    rm -rf alone half
}
for name in gpt_neox gemma3 hunyuan_moe deepseek_v2 gpt_oss granite phi3 llama4 phimoe; do family $name; done
family mamba2 fsdp
family granitemoehybrid-experts pp
family falcon_h1-factors fsdp
family qwen3_next-gqa pp
try "$ASHLAR" model convert "$SOURCE/tests/golden/families/qwen3_next" written --quant fp8
expect 0 "recurrent states beside matrices in fp8"
try "$ASHLAR" model convert written plain --dtype f32
expect 0 "which opens again"
try "$ASHLAR" model info "$SOURCE/tests/golden/families/mamba2"
grep -q 'states *6 heads, 16 wide' out || fail "model info: $(cat out)"
finish

#!/usr/bin/env bash
# A training step (4 sequences of 256 tokens: forward, loss, backward, clipping, AdamW) compared with PyTorch's in float32, on as many
# threads. Both processes stay up and take turns, after a warm-up each.
set -euo pipefail
. "$SOURCE/bench/lib/peer.sh"
rounds=${BENCH_ROUNDS:-5} threads=$(nproc) tokens=1024

# add_rows SHAPE PRECISION GOAL PEER OURS... -- THEIRS...: seconds of steps as two rows.
add_rows() {
    local name=train/$1-$2 goal=$3 peer=$4 value rates=()
    shift 4
    for value in "$@"; do
        [ "$value" = -- ] && rates+=(--) || rates+=("$(awk "BEGIN { print $tokens / $value }")")
    done
    "$BUILD/bench/row" "$BENCH_ROWS" "$name" s/step "$peer" "$goal" lower "$@"
    "$BUILD/bench/row" "$BENCH_ROWS" "$name-rate" tokens/s "$peer" "$goal" higher "${rates[@]}"
}

# run_shape NAME
run_shape() {
    local shape=$1 peer='' fp32=() bf16=() theirs=() round
    ask_open ours "$BUILD/bench/train_step" "$shape" "$threads" || return 0
    note "$shape: $answer"
    [ -n "$python" ] && ask_open torch "$python" "$SOURCE/bench/torch_step.py" "$shape" "$threads" && peer=$answer
    for ((round = 0; round <= rounds; round++)); do # round 0 is the warm-up
        ask ours fp32 || break
        ((round == 0)) || fp32+=("$answer")
        if [ -n "$peer" ]; then
            ask torch step || break
            ((round == 0)) || theirs+=("$answer")
        fi
        ask ours bf16 || break
        ((round == 0)) || bf16+=("$answer")
    done
    ask_close ours
    [ -z "$peer" ] || ask_close torch
    [ ${#bf16[@]} -gt 0 ] || return 0
    add_rows "$shape" fp32 1.4 "$peer" "${fp32[@]}" -- "${theirs[@]}"
    add_rows "$shape" bf16 4 "$peer" "${bf16[@]}" -- "${theirs[@]}"
}

python=$(find_torch) || { apt_get python3-torch libopenblas0-pthread && python=$(find_torch); } ||
    { note "no PyTorch (Debian: python3-torch): rows without it"; python=''; }
for shape in gpt2-124m llama-300m; do
    if wanted "train/$shape-"{fp32,bf16}{,-rate}; then run_shape "$shape"; fi
done

#!/usr/bin/env bash
# Post-training in layouts drawn from a seed: adapters, pairs and answers, each refused with a reason or with the bits of one process; and ranks
# that are killed while a policy samples and learns. DRAWN_SEED=7 DRAWN_LAYOUTS=500 tests/e2e/post_drawn.sh looks further.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
layouts=${DRAWN_LAYOUTS:-24}
case $BUILD in *address* | *thread*) layouts=${DRAWN_LAYOUTS:-5} ;; esac
RANDOM=${DRAWN_SEED:-1}
same=0 refused=0
# draw NAME WORD...: NAME becomes one of the words.
draw() {
    local name=$1
    shift
    printf -v "$name" %s "${@:RANDOM % $# + 1:1}"
}
for i in $(seq 40); do
    printf '{"prompt": "%d+%d=", "chosen": "%d", "rejected": "%d"}\n' "$i" 5 $((i + 5)) $((i - 5))
done > "$SCRATCH/pairs.jsonl"

echo "model: {from: $SCRATCH/base/model}" > "$SCRATCH/from.yaml"

# A model that samples, and pairs in its tokens.
draw_base() {
    draw type llama qwen3 gpt2 mixtral
    draw tied true false
    local more="head_dim: 32, kv_heads: 4, tied: $tied"
    [ "$type" != gpt2 ] || more="tied: true"
    [ "$type" != mixtral ] || more="$more, experts: 4"
    rm -rf "$SCRATCH/base" "$SCRATCH/pairs"
    sed "s/^model: .*/model: {type: $type, hidden: 128, layers: 3, heads: 4, ffn: 64, vocab: 64, $more}/; s/seq: 16/seq: 128/" "$SCRATCH/job.yaml" > "$SCRATCH/base.yaml"
    try "$ASHLAR" train "$SCRATCH/base.yaml" --out "$SCRATCH/base" train.steps=10 train.hash_every=0 train.valid_every=0
    expect 0 "a $type to start from"
    try "$ASHLAR" data chat --tokenizer "$SCRATCH/base/model" --out "$SCRATCH/pairs" "$SCRATCH/pairs.jsonl"
    expect 0 "pairs"
}
draw_job() {
    local precision
    draw method rl rl sft dpo
    draw precision fp32 fp32 bf16
    draw rank 0 4
    job=(data.seq=128 train.steps=4 train.grains=4 train.save_every=0 train.hash_every=1 optimizer.lr=1e-3
        train.precision=$precision)
    [ "$rank" -eq 0 ] || job+=(lora.rank=$rank)
    case $method in
        rl)
            local lag epochs minibatches kl
            draw lag 0 0 1 2
            draw epochs 1 1 2
            draw minibatches 1 1 2
            draw kl 0 0 0.01
            job+=(rl.prompts_per_step=4 rl.samples=4 rl.rewards=arithmetic,ended:0.5 rollout.max_tokens=5 rollout.max_prompt_tokens=8
                rollout.lag=$lag rl.epochs=$epochs rl.minibatches=$minibatches rl.kl_coef=$kl)
            ;;
        sft)
            method=train
            job+=(data.train="$SCRATCH/train" train.global_batch=4)
            [ "$rank" -eq 0 ] || job+=(lora.dropout=0.1)
            ;;
        dpo) job+=(data.train="$SCRATCH/pairs" train.global_batch=4) ;;
    esac
}
draw_mesh() {
    local dp fsdp tp pp cp ep zero
    draw dp 1 1 2
    draw fsdp 1 2
    draw tp 1 1 2
    draw pp 1 1 2 3
    draw cp 1 1 2
    draw ep 1 1 2
    draw zero 1 2 3
    [ "$type" = mixtral ] || ep=1
    procs=$((dp * fsdp * ep * tp * pp * cp))
    mesh=(mesh.dp=$dp mesh.fsdp=$fsdp mesh.tp=$tp mesh.pp=$pp mesh.cp=$cp mesh.ep=$ep mesh.zero=$zero runtime.threads=1)
}
check_layout() {
    rm -rf "$SCRATCH/many"
    try "$ASHLAR" launch --procs "$procs" "$method" "$SCRATCH/from.yaml" --out "$SCRATCH/many" "${job[@]}" "${mesh[@]}"
    if [ "$code" -eq 1 ] && grep -q 'error: ' "$SCRATCH/err" && ! grep -q 'internal error' "$SCRATCH/err" && [ ! -e "$SCRATCH/many/log.jsonl" ]; then
        refused=$((refused + 1))
    elif [ "$code" -ne 0 ]; then
        fail "exit code $code of $method ${job[*]} ${mesh[*]}: $(tail -n 4 "$SCRATCH/err")"
    elif bits_of one | cmp -s - <(bits_of many); then
        same=$((same + 1))
    else
        fail "other bits: $type, $method ${job[*]} ${mesh[*]}"
    fi
}
jobs=0
while [ $((same + failures)) -lt "$layouts" ] && [ "$jobs" -lt $((20 * layouts)) ]; do
    [ $((jobs % 4)) -ne 0 ] || draw_base
    jobs=$((jobs + 1))
    draw_job
    rm -rf "$SCRATCH/one"
    try "$ASHLAR" "$method" "$SCRATCH/from.yaml" --out "$SCRATCH/one" "${job[@]}"
    expect 0 "$type, $method ${job[*]}"
    for _ in 1 2 3; do
        draw_mesh
        [ "$procs" -eq 1 ] || [ "$procs" -gt 6 ] || check_layout
    done
done
echo "$same layouts of $jobs jobs have the bits of one process, $refused were refused"
[ $((same + failures)) -ge "$layouts" ] || fail "nearly all layouts were refused"
finish

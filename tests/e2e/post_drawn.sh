#!/usr/bin/env bash
# Post-training in layouts drawn from a seed: adapters, pairs and answers, each refused with a reason or with the bits of one process; and ranks
# that are killed while a policy samples and learns. DRAWN_SEED=7 DRAWN_LAYOUTS=500 tests/e2e/post_drawn.sh looks further; with DRAWN_STOPS=10 ten jobs of
# 20 steps are stopped after every step, and resumed in a layout that is drawn. Without it one of each method on examples is, after one drawn step.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
layouts=${DRAWN_LAYOUTS:-8}
stops=${DRAWN_STOPS:-3}
case $BUILD in *address* | *thread*) layouts=${DRAWN_LAYOUTS:-2} stops=${DRAWN_STOPS:-1} ;; esac # slow there
RANDOM=${DRAWN_SEED:-1}
alike=0 refused=0
# draw NAME WORD...: NAME becomes one of the words.
draw() {
    local name=$1
    shift
    printf -v "$name" %s "${@:RANDOM % $# + 1:1}"
}
for i in $(seq 40); do
    printf '{"prompt": "%d+%d=", "chosen": "%d", "rejected": "%d"}\n' "$i" 5 $((i + 5)) $((i - 5))
done > "$SCRATCH/pairs.jsonl"
sed 's/"chosen"/"completion"/; s/, "rejected".*/}/' "$SCRATCH/pairs.jsonl" > "$SCRATCH/rows.jsonl"

echo "model: {from: $SCRATCH/base/model}" > "$SCRATCH/from.yaml"

# Layouts that are refused, by what is said: too few layers, heads, grains or tokens; sums that cannot be cut there.
refusals="stages \\(mesh.pp times mesh.interleave\\) are more than|cannot share [0-9]* grains|shards experts, and this model has none|\
mesh.cp=[0-9]* cannot cut sequences|is more than the [0-9]* key-value heads|wants more parts than there are key-value heads|\
would cut a sum over heads|cannot be cut into [0-9]* parts|adapters of latent attention|is quantised in groups of"
is_refused() { [ "$code" -eq 1 ] && grep -qE "error: .*($refusals)" "$SCRATCH/err"; }

# A model that samples, and examples and pairs in its tokens.
draw_base() {
    draw type llama qwen3 gpt2 mixtral
    draw tied true false
    local more="head_dim: 32, kv_heads: 4, tied: $tied"
    [ "$type" != gpt2 ] || more="tied: true"
    [ "$type" != mixtral ] || more="$more, experts: 4"
    rm -rf "$SCRATCH/base" "$SCRATCH/pairs" "$SCRATCH/rows"
    sed "s/^model: .*/model: {type: $type, hidden: 128, layers: 3, heads: 4, ffn: 64, vocab: 64, $more}/; s/seq: 16/seq: 128/" "$SCRATCH/job.yaml" > "$SCRATCH/base.yaml"
    try "$ASHLAR" train "$SCRATCH/base.yaml" --out "$SCRATCH/base" train.steps=10 train.hash_every=0 train.valid_every=0
    expect 0 "a $type to start from"
    try "$ASHLAR" data chat --tokenizer "$SCRATCH/base/model" --out "$SCRATCH/pairs" "$SCRATCH/pairs.jsonl"
    expect 0 "pairs"
    try "$ASHLAR" data chat --tokenizer "$SCRATCH/base/model" --out "$SCRATCH/rows" "$SCRATCH/rows.jsonl"
    expect 0 "examples"
}
# draw_job [METHOD]
draw_job() {
    local precision quant bias
    draw method rl rl sft dpo reward distill
    method=${1:-$method}
    draw precision fp32 fp32 bf16
    draw rank 0 4
    job=(data.seq=128 train.steps=4 train.grains=4 train.save_every=0 train.hash_every=1 optimizer.lr=1e-3
        train.precision=$precision)
    draw quant none none q8
    case $type in gpt2 | mixtral) quant=none ;; esac
    draw bias none lora_only all
    [ "$rank" -eq 0 ] || job+=(lora.rank=$rank model.quant=$quant lora.bias=$bias)
    case $method in
        rl)
            local lag epochs minibatches kl algorithm top_k top_p policy_loss
            draw algorithm grpo grpo rloo ppo distill raft
            draw policy_loss clip clip cispo
            draw lag 0 0 1 2
            draw epochs 1 1 2
            draw minibatches 1 1 2
            draw kl 0 0 0.01
            draw top_k 0 0 9
            draw top_p 1 1 0.8
            [ "$algorithm" != distill ] || { kl=0 && job+=(rl.reference="$SCRATCH/base/model"); }
            job+=(rl.prompts_per_step=4 rl.samples=4 rl.rewards=arithmetic,ended:0.5 rollout.max_tokens=5 rollout.max_prompt_tokens=8
                rollout.lag=$lag rl.epochs=$epochs rl.minibatches=$minibatches rl.kl_coef=$kl
                rl.algorithm=$algorithm rl.policy_loss=$policy_loss rollout.top_k=$top_k rollout.top_p=$top_p)
            ;;
        sft)
            job+=(data.train="$SCRATCH/rows" train.global_batch=4)
            [ "$rank" -eq 0 ] || job+=(lora.dropout=0.1)
            ;;
        dpo)
            local loss
            draw loss sigmoid kto robust hinge ipo orpo simpo sigmoid_norm apo_zero nca
            job+=(data.train="$SCRATCH/pairs" train.global_batch=4 dpo.loss=$loss)
            ;;
        reward) job+=(data.train="$SCRATCH/pairs" train.global_batch=4) ;;
        distill)
            local beta weight
            draw beta 0 0.5 1
            draw weight 0.5 1 # it starts as its own teacher
            job+=(data.train="$SCRATCH/rows" train.global_batch=4 distill.teacher="$SCRATCH/base/model" distill.beta=$beta
                distill.sft_weight=$weight)
            ;;
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
    if is_refused && [ ! -e "$SCRATCH/many/log.jsonl" ]; then
        refused=$((refused + 1))
    elif [ "$code" -ne 0 ]; then
        fail "exit code $code of $method ${job[*]} ${mesh[*]}: $(tail -n 4 "$SCRATCH/err")"
    elif bits_of one | cmp -s - <(bits_of many); then
        alike=$((alike + 1))
    else
        fail "other bits: $type, $method ${job[*]} ${mesh[*]}"
    fi
}
jobs=0
while [ $((alike + failures)) -lt "$layouts" ] && [ "$jobs" -lt $((20 * layouts)) ]; do
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
echo "$alike layouts of $jobs jobs have the bits of one process, $refused were refused"
[ $((alike + failures)) -ge "$layouts" ] || fail "nearly all layouts were refused"

# Jobs of 20 steps, stopped after each of them: what continues from there, alone or in a drawn layout, ends in the same bits. Every third run that
# continues loses a rank on its way, at a step that is drawn.
examples=(sft dpo reward distill)
stopped=0 lost=0 stops_refused=0
# resume_run: continues in $SCRATCH/many; $victim: the step after which a rank is killed, or 0.
resume_run() {
    local launcher rank
    "$ASHLAR" launch --procs "$procs" --restarts 2 "$method" --resume --out "$SCRATCH/many" "${mesh[@]}" > "$SCRATCH/out" 2> "$SCRATCH/err" &
    launcher=$!
    while [ "$victim" -gt 0 ] && kill -0 $launcher 2> /dev/null; do
        if grep -qs "\"step\":$victim," "$SCRATCH/many/log.jsonl"; then
            rank=$(pgrep -P $launcher | head -n $((RANDOM % procs + 1)) | tail -n 1)
            [ -z "$rank" ] || ! kill -9 "$rank" 2> /dev/null || lost=$((lost + 1))
            break
        fi
        sleep 0.02
    done
    wait $launcher
    code=$?
}
for i in $(seq "$stops"); do
    [ $((i % 3)) -ne 1 ] || draw_base
    steps=$(seq 19)
    if [ -n "${DRAWN_STOPS:-}" ]; then
        draw_job
    else
        draw_job "${examples[i - 1]}"
        steps=$((RANDOM % 19 + 1))
    fi
    job+=(train.steps=20 train.save_every=1 train.keep=100 train.hash_every=4)
    rm -rf "$SCRATCH/one"
    try "$ASHLAR" "$method" "$SCRATCH/from.yaml" --out "$SCRATCH/one" "${job[@]}"
    expect 0 "$type, $method ${job[*]}"
    for step in $steps; do
        rm -rf "$SCRATCH/many"
        cp -r "$SCRATCH/one" "$SCRATCH/many"
        rm -rf "$SCRATCH/many/model"
        for later in $(seq $((step + 1)) 20); do rm -rf "$SCRATCH/many/checkpoints/step-$(printf %06d "$later")"; done
        awk -v last="$step" '!match($0, /"step":[0-9]+/) || substr($0, RSTART + 7, RLENGTH - 7) + 0 <= last' "$SCRATCH/one/log.jsonl" > "$SCRATCH/many/log.jsonl"
        draw_mesh
        [ "$procs" -le 4 ] || procs=1
        [ "$procs" -gt 1 ] || mesh=(mesh.dp=1 mesh.fsdp=1 mesh.tp=1 mesh.pp=1 mesh.cp=1 mesh.ep=1)
        victim=$((procs > 1 && RANDOM % 3 == 0 ? step + 1 + RANDOM % (20 - step) : 0))
        resume_run
        if is_refused; then
            stops_refused=$((stops_refused + 1))
            continue
        fi
        expect 0 "$type, $method ${job[*]} from step $step in ${mesh[*]}, loss after $victim"
        same "$type, $method ${job[*]} from step $step in ${mesh[*]}, loss after $victim" "$(bits_of one)" "$(bits_of many)"
        stopped=$((stopped + 1))
    done
    echo "job $i: $type $method: $stopped alike, $stops_refused refused, $lost ranks killed, $failures failures" >&2
done
echo "$stopped runs that were stopped ended in the bits of those that were not; $stops_refused layouts were refused; $lost ranks were killed"

# Ranks that are killed while a policy and its critic sample, reward and learn: others continue, a new one joins, the bits are those of one process.
# Where the run is over before the signal comes, its bits are compared all the same.
draw type llama
draw_base
for algorithm in grpo ppo; do
    job=(data.seq=64 train.steps=60 train.grains=6 train.save_every=16 train.hash_every=20 optimizer.lr=1e-3 rl.algorithm=$algorithm rl.prompts_per_step=6
        rl.samples=4 rl.rewards=arithmetic,ended:0.5 rollout.max_tokens=5 rollout.max_prompt_tokens=8 rollout.lag=1 runtime.threads=1)
    rm -rf "$SCRATCH/one" "$SCRATCH/many"
    try "$ASHLAR" rl "$SCRATCH/from.yaml" --out "$SCRATCH/one" "${job[@]}"
    expect 0 "$algorithm, one process"
    "$ASHLAR" launch --procs 3 --restarts 3 rl "$SCRATCH/from.yaml" --out "$SCRATCH/many" mesh.fsdp=3 "${job[@]}" > "$SCRATCH/out" 2> "$SCRATCH/err" &
    launcher=$!
    for step in 10 30; do
        wait_for "step $step of $algorithm" grep -qs "\"step\":$step," "$SCRATCH/many/log.jsonl"
        victim=$(pgrep -P $launcher | shuf -n 1 --random-source=<(yes))
        [ -z "$victim" ] || kill -9 "$victim" 2> /dev/null
    done
    wait $launcher
    same "$algorithm: the exit code after losses" 0 $?
    same "$algorithm: bits after losses" "$(bits_of one)" "$(bits_of many)"
done
finish

#!/usr/bin/env bash
# Samplers in processes of their own: the bits of one process that samples and trains, in layouts of both sides that are drawn from a seed, with a
# process of either side killed or stopped. APART_SEED=8 APART_JOBS=60 tests/e2e/rl_apart.sh looks further.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
jobs=${APART_JOBS:-3}
RANDOM=${APART_SEED:-74} # of lag 3 with the first rank killed, then of lag 1 with the only sampler killed
train base train.steps=30 train.valid_every=0
expect 0 "a model that samples"
cat > "$SCRATCH/rl.yaml" << YAML
model: {from: $SCRATCH/base/model}
data: {seq: 32}
train: {steps: 24, grains: 2, save_every: 8, hash_every: 4}
optimizer: {lr: 1e-3}
rl: {prompts_per_step: 4, samples: 4, rewards: [arithmetic, "ended:0.5"]}
rollout: {max_tokens: 5, max_prompt_tokens: 8, silence: 2}
YAML
# draw NAME WORD...: NAME becomes one of the words.
draw() {
    local name=$1
    shift
    printf -v "$name" %s "${@:RANDOM % $# + 1:1}"
}
# hit RANK SIGNAL: the rank of the launcher's job gets the signal, if it is there.
hit() {
    local pid
    for pid in $(pgrep -P "$launcher"); do
        tr '\0' '\n' 2> /dev/null < "/proc/$pid/environ" | grep -qx "RANK=$1" && kill "-$2" "$pid" 2> /dev/null && return
    done
}
killed=0
for i in $(seq "$jobs"); do
    draw lag 1 0 3
    draw mesh "mesh.dp=2" "mesh.pp=2" "mesh.fsdp=2" "mesh.dp=1"
    draw samplers 2 1
    draw more "lora.rank=2" "rl.epochs=2 rollout.top_k=9" "rl.sampling_rounds=2 train.precision=bf16"
    draw chunk 1 2 0
    if [ "$lag" -ge 2 ] && [ "$chunk" -gt 0 ]; then # tokens of an answer from several versions of the weights
        more="${more/rl.sampling_rounds=2/rl.minibatches=2} rollout.chunk=$chunk"
    fi
    trainers=2
    [ "$mesh" != mesh.dp=1 ] || trainers=1
    procs=$((trainers + samplers))
    victim=$((RANDOM % procs))
    draw signal KILL KILL STOP
    [ "$victim" -ge "$trainers" ] || signal=KILL # a stopped rank that trains is found by its silence, which lasts a minute here
    [ "$victim" -ne "$((trainers - 1))" ] || [ "$samplers" -ne 1 ] || victim=$trainers
    [ "$signal" != STOP ] || [ "$samplers" -eq 2 ] || signal=KILL
    what="lag $lag, $mesh, $samplers samplers, $more, $signal of rank $victim"
    rm -rf "$SCRATCH/one" "$SCRATCH/many"
    try "$ASHLAR" rl "$SCRATCH/rl.yaml" --out "$SCRATCH/one" rollout.lag="$lag" $more
    expect 0 "$what: together"
    "$ASHLAR" launch --procs "$procs" --restarts 3 rl "$SCRATCH/rl.yaml" --out "$SCRATCH/many" rollout.mode=apart rollout.procs="$samplers" \
        rollout.lag="$lag" "$mesh" $more > "$SCRATCH/out" 2> "$SCRATCH/err" &
    launcher=$!
    while kill -0 $launcher 2> /dev/null; do
        if grep -qs '"step":3,' "$SCRATCH/many/log.jsonl"; then
            hit "$victim" $signal && killed=$((killed + 1))
            break
        fi
        sleep 0.01
    done
    wait $launcher
    code=$?
    expect 0 "$what: apart"
    same "$what" "$(bits_of one | sort -u | md5sum)" "$(bits_of many | sort -u | md5sum)"
done
# where the weights stay what they are, chunks change nothing but the versions of tokens
answers_of() { cat "$SCRATCH/$1"/rollouts/step-?.jsonl | grep -o '"ended":.*"logprob_bits":[^]]*' | sed 's/"versions.*//' | md5sum; }
for chunk in 0 2; do
    try "$ASHLAR" rl "$SCRATCH/rl.yaml" --out "$SCRATCH/still-$chunk" rollout.lag=3 rollout.chunk=$chunk optimizer.lr=0 train.steps=9
    expect 0 "chunks of $chunk tokens, and nothing is learned"
done
same "answers in one piece and in several" "$(answers_of still-0)" "$(answers_of still-2)"
grep -q '"versions":\[[^]]*1,1,2' "$SCRATCH/still-2/rollouts/step-4.jsonl" || fail "no answer has tokens of several versions"
# the log-probability of a token is that of the weights that its record names
if command -v python3 > /dev/null; then
    try "$ASHLAR" rl "$SCRATCH/rl.yaml" --out "$SCRATCH/versions" rollout.lag=3 rollout.chunk=2 train.steps=5 train.save_every=1 train.keep=9
    expect 0 "a run that keeps all its weights"
    try python3 "$SOURCE/tests/e2e/lib/token_versions.py" "$ASHLAR" "$SCRATCH/versions" "$SCRATCH/base/model" 5
    expect 0 "versions of tokens: $(cat "$SCRATCH/out")"
fi
# one command starts all of it; what is saved continues together
lag=3 more="rollout.chunk=2 rl.epochs=2" # so that a checkpoint has answers that are not whole
rm -rf "$SCRATCH/many"
try "$ASHLAR" rl "$SCRATCH/rl.yaml" --out "$SCRATCH/many" rollout.mode=apart rollout.procs=1 rollout.lag="$lag" $more train.steps=16
expect 0 "one command"
grep -q '^waits     trainer: .* samplers: .* draw' "$SCRATCH/out" || fail "nothing says who waited: $(tail -n 5 "$SCRATCH/out")"
tail -n 1 "$SCRATCH/many/curves.jsonl" | tr -d '"{}' | tr ',' '\n' | awk -F: '/^trainer:|^samplers:/ { $1 = $2; $2 = $3; side++ } side { sum[side] += $2 }
    END { exit !(sum[1] > 0.999 && sum[1] < 1.001 && sum[2] > 0.999 && sum[2] < 1.001) }' || fail "shares do not add up to 1: $(tail -n 1 "$SCRATCH/many/curves.jsonl")"
try "$ASHLAR" plan rl --run "$SCRATCH/many" --procs 5
expect 0 "how processes should be divided"
grep -q '^verdict: [1-4] train and [1-4] sample (rollout.procs=' "$SCRATCH/out" || fail "no verdict on the division: $(cat "$SCRATCH/out")"
same "divisions of five processes" 4 "$(grep -c '^  *[1-4]  *[1-4] ' "$SCRATCH/out")"
try "$ASHLAR" plan rl --run "$SCRATCH/one"
expect_error 1 "a run that samples together" "rollout.mode=apart"
try "$ASHLAR" rl "$SCRATCH/rl.yaml" --out "$SCRATCH/one" rollout.lag="$lag" $more train.steps=16
rm -rf "$SCRATCH/one" && cp -r "$SCRATCH/many" "$SCRATCH/one" && rm -rf "$SCRATCH/one/rollouts" "$SCRATCH/one"/checkpoints/step-000016 "$SCRATCH/one/model"
sed -i '/"step":9,/,$d' "$SCRATCH/one/log.jsonl"
try "$ASHLAR" rl --resume --out "$SCRATCH/one" rollout.mode=together
expect 0 "a checkpoint of a run with samplers, continued without them"
same "the end of it" "$(bits_of many | sort -u | md5sum)" "$(bits_of one | sort -u | md5sum)"
# a sampler that does not fit, and settings that do not
try "$ASHLAR" launch --procs 2 rl "$SCRATCH/rl.yaml" --out "$SCRATCH/wrong" rollout.mode=apart rollout.procs=2
expect 2 "nobody trains"
grep -q 'none is left to train' "$SCRATCH/err" || fail "nobody trains: $(cat "$SCRATCH/err")"
try "$ASHLAR" rl "$SCRATCH/rl.yaml" --out "$SCRATCH/wrong" --sampler
expect_error 2 "a sampler of a run together" "rollout.mode=apart"
try "$ASHLAR" rl "$SCRATCH/rl.yaml" --out "$SCRATCH/wrong" rollout.mode=apart rollout.lag=1 rl.algorithm=ppo
expect_error 2 "a critic apart" "rollout.lag=0"
try "$ASHLAR" rl "$SCRATCH/rl.yaml" --out "$SCRATCH/wrong" rollout.lag=1 rollout.chunk=4
expect_error 2 "chunks of one version" "rollout.lag"
try "$ASHLAR" rl "$SCRATCH/rl.yaml" --out "$SCRATCH/wrong" rollout.lag=2 rollout.chunk=4 rl.sampling_rounds=2
expect_error 2 "chunks of groups that are replaced" "rl.sampling_rounds"
echo "$jobs jobs with samplers apart had the bits of one process; $killed processes were killed or stopped"
finish

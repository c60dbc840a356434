#!/usr/bin/env bash
# Post-training as a user runs it: examples from JSON lines, fine-tuning, adapters, pairs, rewards, answers; the same bits for any micro-batch,
# layout and interruption; and what is wrong with data and settings.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1

mkdir "$SCRATCH/tok"
cp "$SOURCE/tests/golden/tokenizers/qwen2-nfc/tokenizer.json" "$SCRATCH/tok/"
cat > "$SCRATCH/tok/chat_template.jinja" << 'JINJA'
{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}
JINJA
printf '{"eos_token": "<|im_end|>"}' > "$SCRATCH/tok/tokenizer_config.json"
for i in $(seq 60); do
    printf '{"messages": [{"role": "user", "content": "What is %d+%d?"}, {"role": "assistant", "content": "%d"}]}\n' "$i" 7 $((i + 7))
done > "$SCRATCH/chat.jsonl"
for i in $(seq 40); do
    printf '{"prompt": "%d+%d=", "chosen": "%d", "rejected": "%d"}\n' "$i" 5 $((i + 5)) $((i - 5))
done > "$SCRATCH/pairs.jsonl"

try "$ASHLAR" data chat --tokenizer "$SCRATCH/tok" --out "$SCRATCH/chat" "$SCRATCH/chat.jsonl"
expect 0 "data chat"
grep -q '60 examples' "$SCRATCH/out" || fail "data chat: $(cat "$SCRATCH/out")"
try "$ASHLAR" data show "$SCRATCH/chat" --count 1
grep -q '\[\[8<|im_end|>' "$SCRATCH/out" || fail "data show marks no answer: $(cat "$SCRATCH/out")"
try "$ASHLAR" data info "$SCRATCH/chat"
expect_error 1 "examples are no token shards" "holds examples" "ashlar data show" "ashlar sft"
try "$ASHLAR" data chat --tokenizer "$SCRATCH/tok" --out "$SCRATCH/pairs" "$SCRATCH/pairs.jsonl"
expect 0 "pairs"

# a folder is replaced only on request, and only one that this command wrote
mkdir "$SCRATCH/notes" && echo important > "$SCRATCH/notes/thesis.tex"
cp -r "$SCRATCH/tok" "$SCRATCH/model_there"
for there in notes model_there; do
    try "$ASHLAR" data chat --tokenizer "$SCRATCH/tok" --out "$SCRATCH/$there" --overwrite "$SCRATCH/chat.jsonl"
    expect_error 1 "examples into a folder of other files" "$there" "choose another folder"
done
[ -e "$SCRATCH/notes/thesis.tex" ] || fail "data chat removed a file of the user's"
try "$ASHLAR" data chat --tokenizer "$SCRATCH/tok" --out "$SCRATCH/chat" "$SCRATCH/chat.jsonl"
expect_error 1 "examples over examples" "--overwrite"
try "$ASHLAR" data chat --tokenizer "$SCRATCH/tok" --out "$SCRATCH/chat" --overwrite "$SCRATCH/chat.jsonl"
expect 0 "examples over examples, on request"
echo notes > "$SCRATCH/chat/notes.txt"
try "$ASHLAR" data chat --tokenizer "$SCRATCH/tok" --out "$SCRATCH/chat" --overwrite "$SCRATCH/chat.jsonl"
expect_error 1 "examples with a file of the user's" "notes.txt"
rm "$SCRATCH/chat/notes.txt"

# mistakes in data
echo '{"messages": [{"role": "user", "content": "Hello"}]}' > "$SCRATCH/bad.jsonl"
try "$ASHLAR" data chat --tokenizer "$SCRATCH/tok" --out "$SCRATCH/bad" "$SCRATCH/bad.jsonl"
expect_error 1 "nothing to learn" "line 1" "no token of it would be learned"
echo '{"messages": [{"role": "narrator", "content": "Hello"}]}' > "$SCRATCH/bad.jsonl"
try "$ASHLAR" data chat --tokenizer "$SCRATCH/tok" --out "$SCRATCH/bad" "$SCRATCH/bad.jsonl"
expect_error 1 "a role" "line 1" "narrator"
echo '{"tools": "{}", "messages": [{"role": "assistant", "content": "Hello"}]}' > "$SCRATCH/bad.jsonl"
try "$ASHLAR" data chat --tokenizer "$SCRATCH/tok" --out "$SCRATCH/bad" "$SCRATCH/bad.jsonl"
expect_error 1 "tools" "line 1" "tools must be a list"
[ -e "$SCRATCH/bad" ] && fail "bad data left a folder behind"

cat > "$SCRATCH/sft.yaml" << YAML
model: {type: llama, hidden: 16, layers: 2, heads: 2, ffn: 32}
data: {train: $SCRATCH/chat, seq: 64}
train: {steps: 6, global_batch: 4, grains: 2, save_every: 3, hash_every: 3}
optimizer: {lr: 0.01}
YAML
# post METHOD NAME JOB [words]: a run into $SCRATCH/NAME.
post() {
    local method=$1 name=$2 job=$3
    shift 3
    try "$ASHLAR" $method "$SCRATCH/$job" --out "$SCRATCH/$name" "$@"
}
# alike METHOD JOB [words]: one process, other micro-batches, two layouts and a resumed run have the same bits.
alike() {
    local method=$1 job=$2 mesh
    shift 2
    rm -rf "$SCRATCH/one" "$SCRATCH/other"
    post $method one $job "$@"
    expect 0 "$method $*"
    post $method other $job train.micro_batch=1 train.recompute=full "$@"
    same "$method $*: micro-batches" "$(bits_of one)" "$(bits_of other)"
    for mesh in $meshes; do
        rm -rf "$SCRATCH/other"
        try "$ASHLAR" launch --procs 2 $method "$SCRATCH/$job" --out "$SCRATCH/other" $mesh "$@"
        expect 0 "$method $* $mesh"
        same "$method $* $mesh" "$(bits_of one)" "$(bits_of other)"
    done
    rm -rf "$SCRATCH/other"
    cp -r "$SCRATCH/one" "$SCRATCH/other"
    # a checkpoint alone is enough, also where answers for later steps were sampled before it
    rm -rf "$SCRATCH/other/checkpoints/step-000006" "$SCRATCH/other/model" "$SCRATCH/other/rollouts"
    try "$ASHLAR" $method --resume --out "$SCRATCH/other"
    expect 0 "$method $*: resumed"
    same "$method $*: resumed" "$(bits_of one)" "$(bits_of other)"
}

meshes="mesh.dp=2 mesh.fsdp=2 mesh.tp=2"
alike sft sft.yaml
cp -r "$SCRATCH/one/model" "$SCRATCH/start"
sed "s|model: .*|model: {from: $SCRATCH/start}|" "$SCRATCH/sft.yaml" > "$SCRATCH/lora.yaml"
sed "s|model: .*|model: {from: $SCRATCH/start}|; s|$SCRATCH/chat|$SCRATCH/pairs|" "$SCRATCH/sft.yaml" > "$SCRATCH/dpo.yaml"
alike dpo dpo.yaml
meshes="mesh.tp=2"
alike dpo dpo.yaml dpo.loss=kto dpo.undesirable_weight=0.5
meshes="mesh.tp=2 mesh.pp=2"
alike distill sft.yaml distill.teacher="$SCRATCH/start" distill.beta=0.3 distill.temperature=2 distill.sft_weight=0.5
# a teacher over plain text: token shards in place of examples; nothing is to be learned from itself
post train plain job.yaml train.steps=3 schedule.warmup=0
expect 0 "a teacher of plain text"
meshes="mesh.dp=2 mesh.pp=2"
alike distill job.yaml distill.teacher="$SCRATCH/plain/model" schedule.warmup=0 train.steps=6 train.save_every=3 train.valid_every=3
grep -q '"valid_loss"' "$SCRATCH/one/log.jsonl" || fail "distillation on shards has no validation"
post distill itself job.yaml model.from="$SCRATCH/plain/model" distill.teacher="$SCRATCH/plain/model" schedule.warmup=0 train.steps=1
expect 0 "its own teacher on shards"
grep -q '"loss":0,' "$SCRATCH/itself/log.jsonl" || fail "a model differs from itself: $(cat "$SCRATCH/itself/log.jsonl")"
post distill itself2 job.yaml distill.teacher="$SCRATCH/plain/model" data.train="$SCRATCH/pairs"
expect_error 2 "a teacher over pairs" "holds pairs" "learns from examples"
meshes="mesh.fsdp=2 mesh.tp=2"
alike sft lora.yaml lora.rank=4 lora.targets=all-linear lora.dropout=0.1
[ -e "$SCRATCH/one/model/adapter_model.safetensors" ] || fail "no PEFT folder"
grep -q '"down_proj"' "$SCRATCH/one/model/adapter_config.json" || fail "modules of adapters: $(cat "$SCRATCH/one/model/adapter_config.json")"
try "$ASHLAR" model info "$SCRATCH/one/model"
expect 0 "adapters as a model"
grep -q "parameters .*of adapters of 14 modules of $SCRATCH/start" "$SCRATCH/out" || fail "adapters look like a model: $(cat "$SCRATCH/out")"
try "$ASHLAR" model merge "$SCRATCH/start" "$SCRATCH/one/model" "$SCRATCH/merged"
expect 0 "merge"
grep -q '^logits of' "$SCRATCH/out" || fail "merge does not say how far logits move"
post sft gpt sft.yaml model.type=gpt2 model.tied=true train.steps=2
expect 0 "a model with biases"
post sft "two words" sft.yaml train.steps=1 train.save_every=0
grep -qF "ashlar generate --model '$SCRATCH/two words/model' --prompt TEXT" "$SCRATCH/out" || fail "the last line is no command: $(tail -n 1 "$SCRATCH/out")"
sed "s|model: .*|model: {from: $SCRATCH/gpt/model}|" "$SCRATCH/sft.yaml" > "$SCRATCH/gpt.yaml"
alike sft gpt.yaml lora.rank=2 lora.targets=c_attn lora.bias=all
grep -q 'c_attn.base_layer.bias.*ln_f.bias' "$SCRATCH/one/model/adapter_model.safetensors" || fail "PEFT's names of biases"
grep -q '"bias": "all"' "$SCRATCH/one/model/adapter_config.json" || fail "bias in adapter_config.json"
try "$ASHLAR" model merge "$SCRATCH/gpt/model" "$SCRATCH/one/model" "$SCRATCH/merged_gpt"
expect 0 "merge of biases"
post sft more gpt.yaml lora.adapter="$SCRATCH/one/model" train.steps=1
expect 0 "adapters with biases to start from"
try "$ASHLAR" sft "$SCRATCH/gpt.yaml" --out "$SCRATCH/none" lora.bias=all
expect_error 2 "biases without a rank" "lora.bias is given" "set lora.rank"
meshes="mesh.dp=2"
alike reward dpo.yaml
[ -e "$SCRATCH/one/model/tokenizer.json" ] || fail "a new model of pairs has no tokenizer"
# held-out pairs: their loss, how many are ranked right, the rewards; the same in any layout, and learned pairs are right
held="data.valid=$SCRATCH/pairs train.valid_every=3 train.steps=30 train.save_every=30"
valid_of() { grep -o '"valid_loss.*' "$SCRATCH/$1/log.jsonl" | sed 's/,"state_hash.*//'; }
for method in "dpo dpo.loss=sigmoid" "reward reward.center=0" "dpo dpo.loss=simpo" "dpo dpo.loss=kto"; do
    rm -rf "$SCRATCH/held" "$SCRATCH/held2"
    post ${method%% *} held dpo.yaml $held ${method#* }
    expect 0 "$method with held-out pairs"
    grep -q 'of pairs ranked right' "$SCRATCH/out" || fail "$method says nothing of held-out pairs: $(cat "$SCRATCH/out")"
    grep -Eq '"valid_accuracy":(1|0\.[89])' "$SCRATCH/held/log.jsonl" || fail "$method: $(valid_of held)"
    try "$ASHLAR" launch --procs 2 ${method%% *} "$SCRATCH/dpo.yaml" --out "$SCRATCH/held2" mesh.fsdp=2 $held ${method#* }
    expect 0 "$method with held-out pairs on two ranks"
    same "$method: validation" "$(valid_of held)" "$(valid_of held2)"
done
grep -q ForSequenceClassification "$SCRATCH/one/model/config.json" || fail "no reward model"

# mistakes in settings
post sft long sft.yaml data.seq=8
expect_error 2 "too long" "example 0" "data.seq"
post sft wrong lora.yaml lora.rank=4 lora.rank_pattern=q_prj:8
expect_error 2 "a rank for no module" "q_prj"
post sft wrong lora.yaml lora.rank=4 lora.modules_to_save=lm_hed
expect_error 2 "a module to save that is not there" "lm_hed"
post sft wrong lora.yaml lora.rank=4 lora.targets=q_prj
expect_error 2 "targets" "targets"
post sft wrong lora.yaml lora.rank=4 lora.targets=q_proj,nope
expect_error 2 "a misspelt target beside a right one" "nope"
post sft wrong lora.yaml lora.targets=q_proj
expect_error 2 "targets without a rank" "lora.rank"
post distill wrong sft.yaml
expect_error 2 "no teacher" "distill.teacher"
post distill wrong sft.yaml distill.teacher="$SOURCE/tests/golden/post/models/llama" data.tokenizer="$SCRATCH/tok"
expect_error 1 "another vocabulary" "384 ids" "one vocabulary"
post dpo wrong sft.yaml
expect_error 2 "examples for dpo" "pairs"

# answers: every ratio of sampler and trainer is exactly 1
train base train.steps=60
expect 0 "a model that samples"
cat > "$SCRATCH/rl.yaml" << YAML
model: {from: $SCRATCH/base/model}
data: {seq: 32}
train: {steps: 6, grains: 2, save_every: 3, hash_every: 3}
optimizer: {lr: 1e-3}
rl: {prompts_per_step: 4, samples: 4, rewards: [arithmetic, "ended:0.5"]}
rollout: {max_tokens: 5, max_prompt_tokens: 8}
YAML
alike rl rl.yaml
post rl said rl.yaml
grep -q 'ratios exactly 1' "$SCRATCH/out" || fail "rl does not count ratios: $(tail -n 5 "$SCRATCH/out")"
[ -e "$SCRATCH/said/rollouts/step-6.jsonl" ] || fail "no record of the answers"
grep -q '"title":"Reward","step":\[1,2,3,4,5,6\],.*"answers":\[{"step":1,"rows":\[\["[^]]*=","[^]]*\],.*{"step":6,"rows":\[\["' "$SCRATCH/said/report.html" ||
    fail "the report has no curves, or no answers to read: $(grep -o '"more":.*' "$SCRATCH/said/report.html" | head -c 600)"
# the ids that filters left travel with each token
alike rl rl.yaml rollout.lag=2 rl.kl_coef=0.01 rollout.top_k=9 rollout.top_p=0.8
grep -q '"kept":\[\[[0-9]' "$SCRATCH/one/rollouts/step-1.jsonl" || fail "the record has no kept ids"
alike rl rl.yaml rollout.temperature=0.7 rl.entropy=0.01 train.precision=bf16 rollout.top_p=0.9
# several steps a rollout, groups that agree are sampled again, long answers cost
alike rl rl.yaml rl.epochs=2 rl.minibatches=2 rl.sampling_rounds=3 rl.overlong_buffer=2
grep -q '"replaced_groups":[1-9]' "$SCRATCH/one/curves.jsonl" || fail "no group was sampled again: $(cat "$SCRATCH/one/curves.jsonl")"
same "lines of curves.jsonl after a resume" "$(cut -d, -f1-8 "$SCRATCH/one/curves.jsonl")" "$(cut -d, -f1-8 "$SCRATCH/other/curves.jsonl")"
post rl uneven rl.yaml rl.minibatches=3
expect_error 2 "minibatches" "rl.minibatches=3" "multiple"
# a teacher: the policy comes near it, on its own answers; nothing is to be learned from itself
post train teacher job.yaml model.from="$SCRATCH/base/model" train.steps=60
expect 0 "a teacher that has seen more"
taught="rl.algorithm=distill rl.reference=$SCRATCH/teacher/model"
alike rl rl.yaml $taught rl.samples=1 rl.prompts_per_step=16 rl.epochs=2 rollout.lag=1 rl.policy_loss=cispo
rm -rf "$SCRATCH/one"
post rl one rl.yaml $taught train.steps=80 optimizer.lr=3e-3 train.save_every=0
expect 0 "a teacher"
kls=$(sed -n 's/.*"step":\([0-9]*\),.*"kl":\([-0-9.e]*\).*/\1 \2/p' "$SCRATCH/one/curves.jsonl")
awk '$1 <= 10 { first += $2 } $1 > 70 { last += $2 } END { exit !(first > 0 && last < first / 2) }' <<< "$kls" ||
    fail "the policy does not come near its teacher: $kls"
post rl own rl.yaml rl.algorithm=distill rl.reference="$SCRATCH/base/model" train.steps=1
expect 0 "its own teacher"
grep -q '"kl":0.0,' "$SCRATCH/own/curves.jsonl" || fail "a model differs from itself: $(cat "$SCRATCH/own/curves.jsonl")"
post rl wrong rl.yaml rl.algorithm=distill
expect_error 2 "no teacher of answers" "rl.reference is missing"
post rl wrong rl.yaml $taught rl.kl_coef=0.1
expect_error 2 "a teacher and a divergence" "rl.kl_coef" "leave it out"
post rl wrong rl.yaml $taught rl.sampling_rounds=2
expect_error 2 "a teacher and rewards that agree" "rl.sampling_rounds"
post rl wrong rl.yaml rl.algorithm=distill rl.reference="$SCRATCH/start"
expect_error 1 "a teacher with other tokens" "the reference $SCRATCH/start" "tokenizer"
# the best answers are learned, the others cost nothing
alike rl rl.yaml rl.algorithm=raft rl.loss=token-mean
grep -q '"advantage":1.0' "$SCRATCH"/one/rollouts/step-*.jsonl || fail "no answer is the best: $(head -n 4 "$SCRATCH/one/rollouts/step-1.jsonl")"
# other bounds of ratios
alike rl rl.yaml rl.epochs=3 rl.clip=0.01 rl.delta=1.02 rl.dual_clip=1.01 optimizer.lr=0.02
grep -q '"clipped_low":0.0*[1-9]' "$SCRATCH/one/curves.jsonl" || fail "no ratio was out of bounds: $(cat "$SCRATCH/one/curves.jsonl")"
post rl wrong rl.yaml rl.policy_loss=cispo rl.delta=2
expect_error 2 "a bound of the other loss" "rl.delta" "rl.clip_high alone"
post rl wrong rl.yaml rl.policy_loss=cispo rl.ratio=sequence
expect_error 2 "one ratio for all" "rl.ratio=sequence"
post rl wrong rl.yaml rl.delta=1.1
expect_error 2 "a bound within the other" "rl.delta=1.1" "1 + 0.2"
post rl wrong rl.yaml rl.dual_clip=1
expect_error 2 "a multiple below" "rl.dual_clip=1"
# rewards by a program, a schema and a reward model; nobody is asked twice
cat > "$SCRATCH/reward.sh" << 'SH'
while read -r line; do
    case $line in *'"ended":true'*) echo 0.5 ;; *) echo '{"reward": -1}' ;; esac
done
SH
echo '{"type": "integer"}' > "$SCRATCH/schema.json"
rewards="program=sh $SCRATCH/reward.sh,schema=$SCRATCH/schema.json:2,arithmetic"
namespaces=
post rl program rl.yaml "rl.rewards=$rewards"
if grep -q 'runs in its own namespaces' "$SCRATCH/err"; then
    namespaces="no namespaces here"
    echo "$namespaces: rewards by programs are left out"
else
    expect 0 "a reward program"
    rm -rf "$SCRATCH/other"
    try "$ASHLAR" launch --procs 2 rl "$SCRATCH/rl.yaml" --out "$SCRATCH/other" mesh.dp=2 "rl.rewards=$rewards"
    same "a reward program, two processes" "$(bits_of program)" "$(bits_of other)"
    rm -rf "$SCRATCH/other"
    cp -r "$SCRATCH/program" "$SCRATCH/other"
    rm -rf "$SCRATCH/other/checkpoints/step-000006" "$SCRATCH/other/model"
    echo 'exit 3' > "$SCRATCH/reward.sh"
    try "$ASHLAR" rl --resume --out "$SCRATCH/other"
    expect 0 "a reward program that is gone is not asked again"
    same "a reward program, resumed" "$(bits_of program)" "$(bits_of other)"
    post rl dead rl.yaml "rl.rewards=$rewards"
    expect_error 1 "a program that dies" "rollout 0, prompt 0, sample 0" "ended without an answer"
fi
# several turns: what an environment says is part of the answer and not learned; it is asked alike in every layout
cat > "$SCRATCH/environment.sh" << 'SH'
while read -r line; do
    case $line in
        *'"answer":"5'*) echo null ;;
        *'"turn":0'*) echo '{"text": "1+1="}' ;;
        *) echo '{"text": "2+"}' ;;
    esac
done
SH
turns=(rl.turns=3 "rl.environment=sh $SCRATCH/environment.sh" rollout.max_tokens=14 rollout.lag=1 rollout.top_p=0.9)
post rl wrong rl.yaml rl.turns=2
expect_error 2 "turns without an environment" "rl.environment" "between them"
if ! grep -q 'no namespaces here' <<< "$namespaces"; then
    meshes="mesh.dp=2 mesh.fsdp=2"
    alike rl rl.yaml "${turns[@]}"
    grep -q '"given":\[0[0,]*,1,1,1,1,0' "$SCRATCH/one/rollouts/step-1.jsonl" || fail "nobody went on: $(head -n 3 "$SCRATCH/one/rollouts/step-1.jsonl")"
    echo 'echo 7; cat > /dev/null' > "$SCRATCH/environment.sh"
    post rl wrong rl.yaml "${turns[@]}"
    expect_error 1 "no turn" "rollout 0, prompt 0, sample" "rl.environment, turn 1" "is no turn"
fi
post rl wrong rl.yaml "rl.rewards=model=$SCRATCH/base/model"
expect_error 1 "a language model as reward model" "no reward model"
try "$ASHLAR" data chat --tokenizer "$SCRATCH/base/model" --out "$SCRATCH/sums" "$SCRATCH/pairs.jsonl"
post reward scores dpo.yaml model.from="$SCRATCH/base/model" data.train="$SCRATCH/sums" train.save_every=0
expect 0 "a reward model of the policy's tokens"
for words in "generate --prompt 1+1=" "eval --task arithmetic"; do
    try "$ASHLAR" $words --model "$SCRATCH/scores/model"
    expect_error 1 "a reward model for $words" "is a reward model" "--verifier model="
done
try "$ASHLAR" generate --model "$SCRATCH/base/model" --prompt "1+1=" --n 2 --strategy best --verifier "model=$SCRATCH/scores/model"
expect 0 "a reward model as verifier"
post rl scored rl.yaml "rl.rewards=model=$SCRATCH/scores/model"
expect 0 "a reward model's rewards"
grep -q '"reward":-*0\.[0-9]*[1-9]' "$SCRATCH/scored/rollouts/step-1.jsonl" || fail "no scores: $(head -n 1 "$SCRATCH/scored/rollouts/step-1.jsonl")"
post rl wrong rl.yaml "rl.rewards=model=$SCRATCH/one/model"
expect_error 1 "no reward model, or another tokenizer" "reward model"
post rl wrong rl.yaml "rl.rewards=magic"
expect_error 2 "a reward" "magic"
# a budget for thoughts needs a model that thinks
try "$ASHLAR" generate --model "$SCRATCH/base/model" --prompt "1+1=" --think-min 5
expect_error 1 "no thoughts" "</think>" "a model that thinks"
try "$ASHLAR" generate --model "$SCRATCH/base/model" --prompts "$SCRATCH/pairs.jsonl" --think-max 5
expect_error 1 "many prompts" "</think>"
# a policy that collapses is not trained on
for bound in min_entropy=9 max_length=1 min_length=6; do
    post rl "collapse-$bound" rl.yaml rl.$bound
    expect_error 1 "rl.$bound" "collapses" "rl.${bound%=*}" "rollout 0"
done
post rl collapse-kl rl.yaml rl.max_kl=1e-9 rollout.max_tokens=5
expect_error 1 "rl.max_kl" "collapses" "divergence from the reference" "rollout 1"
# or it goes back to the checkpoint before, and draws other answers from there; how often does not depend on the layout
post rl free rl.yaml train.steps=12 rollout.eval_every=4 rollout.eval_count=8
longest=$(sed -n 's/.*"step":\([0-9]*\),.*"length":\([0-9.]*\).*/\2 \1/p' "$SCRATCH/free/curves.jsonl" | awk '$2 > 4' | sort -rn | head -n 1)
[ -e "$SCRATCH/free/best/model.safetensors" ] || fail "the best model is not kept"
back="train.steps=12 rl.on_collapse=back rl.max_backs=8 rl.max_length=$(awk -v most="${longest% *}" 'BEGIN { print most - 0.01 }')"
rm -rf "$SCRATCH/one" "$SCRATCH/other"
post rl one rl.yaml $back
expect 0 "$back: from step ${longest#* }"
[ -s "$SCRATCH/one/backs.jsonl" ] || fail "the run did not go back: $(cat "$SCRATCH/err")"
same "a line for each step" 12 "$(grep -c . "$SCRATCH/one/curves.jsonl")"
try "$ASHLAR" launch --procs 2 rl "$SCRATCH/rl.yaml" --out "$SCRATCH/other" mesh.fsdp=2 $back
expect 0 "two processes go back"
same "two processes go back" "$(bits_of one)" "$(bits_of other)"
cp -r "$SCRATCH/one" "$SCRATCH/again"
rm -rf "$SCRATCH/again/checkpoints/step-000012" "$SCRATCH/again/model"
try "$ASHLAR" rl --resume --out "$SCRATCH/again"
same "a run that has gone back is resumed" "$(bits_of one)" "$(bits_of again)"
finish

#!/usr/bin/env bash
# Servers that sample for `ashlar rl`: our own, whose log-probabilities are the trainer's as long as it learns nothing, and one that writes
# as vLLM and llama.cpp do. Ranks share the questions; servers that are busy, away, silent or of another model get one sentence each.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/serve_lib.bash" || exit 1
python=$(command -v python3) || { echo "no python3"; exit 77; }
train base train.steps=30 train.valid_every=0
expect 0 "a model that samples"
cat > "$SCRATCH/rl.yaml" << YAML
model: {from: $SCRATCH/base/model}
data: {seq: 32}
train: {steps: 6, grains: 2, save_every: 3, hash_every: 2}
optimizer: {lr: 1e-3}
rl: {prompts_per_step: 4, samples: 4, rewards: [arithmetic, "ended:0.5"]}
rollout: {max_tokens: 8, max_prompt_tokens: 8}
YAML
start_server --model "$SCRATCH/base/model" || exit 1
url=http://127.0.0.1:$port
"$python" "$SOURCE/tests/e2e/lib/openai_stub.py" "$url" > "$SCRATCH/stub.port" 2> "$SCRATCH/stub.err" &
stub_pid=$!
trap 'kill $stub_pid; stop_server KILL' EXIT
wait_for "the other server" test -s "$SCRATCH/stub.port"
stub=http://127.0.0.1:$(cat "$SCRATCH/stub.port")
# run NAME WORD...: a run of the job.
run() {
    local name=$1
    shift
    try "$ASHLAR" rl "$SCRATCH/rl.yaml" --out "$SCRATCH/$name" "$@"
}
last() { tail -n 1 "$SCRATCH/$1/curves.jsonl" | grep -o "\"$2\":[^,}]*" | cut -d: -f2; }
# the same model on both sides: the same bits
run still rollout.url="$url" optimizer.lr=0
expect 0 "our own server"
same "divergence from a server with the same weights" 0.0 "$(last still mismatch_kl)"
same "largest ratio" 1.0 "$(last still mismatch_max_ratio)"
# one rank, two ranks, a run that goes on; forms of others
run one rollout.url="$url"
expect 0 "a run that learns"
grep -q '^servers   divergence of a token 0.0' "$SCRATCH/out" || fail "nothing says how far the server is from the trainer: $(tail -n 5 "$SCRATCH/out")"
awk "BEGIN { exit !($(last one mismatch_kl) > 0 && $(last one mismatch_max_ratio) > 1) }" || fail "no divergence after six steps"
try "$ASHLAR" launch --procs 2 rl "$SCRATCH/rl.yaml" --out "$SCRATCH/two" rollout.url="$url/,$url/v1" mesh.fsdp=2
expect 0 "two ranks and two addresses"
same "two ranks" "$(bits_of one | sort -u | md5sum)" "$(bits_of two | sort -u | md5sum)"
for form in tokens content flaky; do
    run "$form" rollout.url="$stub/$form"
    expect 0 "a server that writes $form"
    same "the run with $form" "$(bits_of one | sort -u | md5sum)" "$(bits_of "$form" | sort -u | md5sum)"
done
run ids rollout.url="$stub/ids"
expect 0 "a server that writes ends"
grep -q '"ended":true,.*"sampler_logprobs":\[[^]]*-0.5\]' "$SCRATCH/ids/rollouts/step-1.jsonl" || fail "the end has no log-probability"
grep -q '"ids":\[[^]]*1,1\]' "$SCRATCH/ids/rollouts/step-1.jsonl" && fail "an answer has two ends"
run late rollout.url="$url" rollout.lag=1 rollout.max_weight=1
expect 0 "answers of the step before, weights of at most 1"
rm -rf "$SCRATCH/again" && cp -r "$SCRATCH/late" "$SCRATCH/again" && rm -rf "$SCRATCH"/again/checkpoints/step-000006 "$SCRATCH/again/rollouts" "$SCRATCH/again/model"
sed -i '/"step":4,/,$d' "$SCRATCH/again/log.jsonl"
try "$ASHLAR" rl --resume --out "$SCRATCH/again"
expect 0 "a run that goes on from its checkpoint"
same "its end" "$(bits_of late | sort -u | md5sum)" "$(bits_of again | sort -u | md5sum)"
# what cannot be learned from
wrong() { # form, code, words...
    local form=$1 limit_s=60
    shift
    [ "$form" != slow ] || limit_s=0.5
    run wrong rollout.url="$stub/$form" rollout.url_tries=2 rollout.url_timeout=$limit_s
    expect_error "$1" "a server that is $form" "rollout.url" "${@:2}"
    rm -rf "$SCRATCH/wrong"
}
wrong texts 1 "no token ids"
wrong silent 1 "no log-probabilities"
wrong wrong 2 "another vocabulary" "id 1"
wrong other 2 "another vocabulary" "other ids"
wrong slow 1 "rollout.url_tries"
wrong html 1 "no JSON"
wrong refuse 1 "not for me"
stop_server TERM
run wrong rollout.url="$url" rollout.url_tries=2
expect_error 1 "no server" "rollout.url" "/v1/models"
run wrong rollout.url="$url" rollout.top_k=5
expect_error 2 "filters" "rollout.top_k"
finish

#!/usr/bin/env bash
# Mistakes in jobs, data and folders: one line that says what to do, the right exit code, nothing left behind.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1

mistake() { # code, what, words of the error (one string), words of the command...
    local code_wanted=$1 what=$2 says=$3
    shift 3
    try "$ASHLAR" train "$@"
    expect_error "$code_wanted" "$what" "$says"
}
job=$SCRATCH/job.yaml
out=(--out "$SCRATCH/run")
mistake 2 "no folder" "--out" "$job"
mistake 2 "no job" "job file" "${out[@]}"
mistake 2 "a job that is not there" "nowhere.yaml" "$SCRATCH/nowhere.yaml" "${out[@]}"
mistake 2 "nothing to resume" "holds no run" --resume "${out[@]}"
mistake 2 "two jobs" "$job" "$job" "$job" "${out[@]}"
mistake 2 "a misspelt override" "did you mean 'train.steps'" "$job" train.stepz=5 "${out[@]}"
mistake 2 "a misspelt flag" "--resume" "$job" --resum "${out[@]}"
mistake 2 "text for a number" "train.steps" "$job" train.steps=many "${out[@]}"
mistake 2 "grains" "train.grains=3 does not divide train.global_batch=8" "$job" train.grains=3 "${out[@]}"
mistake 2 "micro-batch" "train.micro_batch=3" "$job" train.micro_batch=3 "${out[@]}"
mistake 2 "a long warm-up" "(0: none)" "$job" schedule.warmup=41 "${out[@]}"
mistake 2 "no length" "train.steps or train.tokens" "$job" train.steps=0 "${out[@]}"
mistake 2 "an unknown type" "qwen3" "$job" model.type=llamma "${out[@]}"
mistake 2 "a small vocabulary" "model.vocab=0" "$job" model.vocab=8 "${out[@]}"
mistake 2 "data that are not there" "data.train" "$job" "data.train=$SCRATCH/nothing" "${out[@]}"
mistake 2 "sequences longer than the data" "data.train" "$job" data.seq=1000000 model.max_positions=1000000 "${out[@]}"
mistake 2 "an unknown backend" "abacus" "$job" runtime.backend=abacus "${out[@]}"
mistake 2 "a model that is not there" "there is no model folder or .gguf file" "$job" "model.from=$SCRATCH/nothing" "${out[@]}"
mkdir "$SCRATCH/gguf"
: > "$SCRATCH/gguf/model.gguf"
mistake 2 "a GGUF file" "training starts from a Hugging Face folder" "$job" "model.from=$SCRATCH/gguf/model.gguf" "${out[@]}"
mistake 2 "a folder with a GGUF file" "training starts from a Hugging Face folder" "$job" "model.from=$SCRATCH/gguf" "${out[@]}"
mistake 2 "another tokenizer" "was not made with the tokenizer" "$job" "data.tokenizer=$stories" "${out[@]}"
printf 'Once upon a time there was a dog.\n%.0s' {1..200} > "$SCRATCH/story.txt"
"$ASHLAR" data tokenize --tokenizer "$stories" --out "$SCRATCH/tales" "$SCRATCH/story.txt" > "$SCRATCH/tales.log" 2>&1 || fail "$(cat "$SCRATCH/tales.log")"
mistake 2 "another tokenizer for validation" "data.valid was made with another tokenizer" "$job" "data.valid=$SCRATCH/tales" "${out[@]}"
mistake 2 "text instead of shards" "this is text, not token shards: \`ashlar data tokenize\`" "$job" "data.train=$SCRATCH/story.txt" "${out[@]}"
mistake 2 "a folder that is a file" "job.yaml" "$job" --out "$job"
mistake 2 "a port that cannot be" "--metrics-port is 70000" "$job" "${out[@]}" --metrics-port 70000
printf 'train:\n  steps: 5\n stray' > "$SCRATCH/broken.yaml"
mistake 2 "broken YAML" "broken.yaml:" "$SCRATCH/broken.yaml" "${out[@]}"
printf 'train:\n  setps: 5\n' > "$SCRATCH/typo.yaml"
mistake 2 "a misspelt key" "typo.yaml:2" "$SCRATCH/typo.yaml" "${out[@]}"
mkdir "$SCRATCH/empty"
mistake 2 "an empty folder of data" "data.train" "$job" "data.train=$SCRATCH/empty" "${out[@]}"
[ -e "$SCRATCH/run" ] && fail "mistakes left something behind: $(ls -A "$SCRATCH/run")"
mistake 2 "a setting as two words" "write train.steps=3" "$job" train.steps 3 "${out[@]}"
mistake 2 "a setting without a value" "write model.hidden=VALUE" "$job" model.hidden "${out[@]}"
mistake 1 "an address that cannot be" "--metrics-address" "$job" "${out[@]}" --metrics-port 0 --metrics-address nowhere

# A warm-up that nobody asked for shrinks with the run.
sed '/^schedule:/d' "$job" > "$SCRATCH/plain.yaml"
for steps in 1 20; do
    try "$ASHLAR" train "$SCRATCH/plain.yaml" train.steps=$steps --out "$SCRATCH/short$steps"
    expect 0 "a run of $steps steps"
    grep -q "^  warmup: $((steps / 10))\$" "$SCRATCH/short$steps/job.yaml" || fail "warm-up of $steps steps: $(grep warmup "$SCRATCH/short$steps/job.yaml")"
done

# Data that are read again and again.
grep -q 'reads its data' "$SCRATCH/err" && fail "a warning of few epochs"
"$ASHLAR" data arithmetic --out "$SCRATCH/little" --count 20 > "$SCRATCH/out" 2>&1
try "$ASHLAR" train "$job" data.train="$SCRATCH/little" train.steps=100 --out "$SCRATCH/epochs"
expect 0 "many epochs"
grep -q '^ashlar: warning: the run reads its data [0-9]* times' "$SCRATCH/err" || fail "no warning of many epochs: $(cat "$SCRATCH/err")"

# The examples are jobs: what they lack is the data (or the model) that they name.
for example in "$SOURCE"/examples/*.yaml; do
    command=train missing=data.train
    ! grep -q '^rl:' "$example" || command=rl missing="cannot open 'runs/rl-start/model'"
    (cd "$SCRATCH" && try "$ASHLAR" $command "$example" --out "$SCRATCH/example") || true
    grep -q "^ashlar: error: $missing: " "$SCRATCH/err" || fail "$example: $(cat "$SCRATCH/err")"
done

# A folder that holds a run, and a job that changed.
train run
expect 0 "a run"
train tuned model.from="$SCRATCH/run/model" model.layers=3
expect 0 "sizes of a new model for one that is there"
grep -q '^ashlar: warning: model.hidden=16, model.layers=3, .*for new models only' "$SCRATCH/err" || fail "no warning of sizes: $(cat "$SCRATCH/err")"
try "$ASHLAR" generate --model "$SCRATCH/run" --prompt 1
expect_error 1 "a run for a model" "its model is '$SCRATCH/run/model'"
try "$ASHLAR" model info "$SCRATCH"
expect_error 1 "a folder without a model" "config.json"
mistake 2 "a second start" "--resume" "$job" "${out[@]}"
mistake 2 "another seed" "train.seed was 1" "$job" train.seed=2 "${out[@]}" --resume
mistake 2 "another seed" "--allow-change" "$job" train.seed=2 "${out[@]}" --resume
mistake 2 "other data" "train.global_batch was 8" "$job" train.global_batch=16 "${out[@]}" --resume
try "$ASHLAR" train "$job" "${out[@]}" --resume --allow-change train.steps=44
expect 0 "longer with --allow-change"
same "steps in the log" 44 "$(steps_of run)"

mv "$SCRATCH/train" "$SCRATCH/away"
mistake 2 "data that is not there any more" "the run's paths are relative to the folder it was started in" "${out[@]}" --resume
mv "$SCRATCH/away" "$SCRATCH/train"
# A run's folder that is moved while it runs: the run says so and ends.
"$ASHLAR" train "$job" --out "$SCRATCH/moved" $endless train.save_every=10 > /dev/null 2> "$SCRATCH/moved.err" < /dev/null &
moved=$!
wait_for "some steps" grep -qs '"step":30,' "$SCRATCH/moved/log.jsonl"
mv "$SCRATCH/moved" "$SCRATCH/moved_away"
wait $moved && fail "a run whose folder was moved has ended well"
grep -q "error: .*moved/.lock is gone: the run's folder was moved or removed" "$SCRATCH/moved.err" || fail "a moved folder: $(tail -n 2 "$SCRATCH/moved.err")"

# A hopeless learning rate: skipped steps are said, and too many end the run, saved.
train nan optimizer.lr=1e30 schedule.warmup=0 guard.max_skips=5
expect 1 "a hopeless learning rate"
same "skipped steps said" 5 "$(grep -c '^ashlar: warning: step [0-9]* skipped: ' "$SCRATCH/err")"
grep -q '^ashlar: error: 5 steps in a row were left out' "$SCRATCH/err" || fail "hopeless: $(cat "$SCRATCH/err")"
same "skipped steps logged" 5 "$(grep -c '"skipped":true' "$SCRATCH/nan/log.jsonl")"
same "saved all the same" 1 "$(ls "$SCRATCH/nan/checkpoints" | wc -l)"
finish

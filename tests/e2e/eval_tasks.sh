#!/usr/bin/env bash
# `ashlar eval --tasks` and `--strategy`, `ashlar scaling`, `ashlar data dedup` and `mix` as a user runs them, and what is wrong with tasks and tables.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
model=$SOURCE/tests/golden/stories260K
cd "$SCRATCH" || exit 1

printf '%s\n' 'context,good,bad,gold' 'Once upon a time there was a little girl named,Lily,because,0' 'The dog was very,of,happy,1' > docs.csv
cat > base.yaml << 'YAML'
dataset_path: csv
dataset_kwargs: {data_files: {test: docs.csv}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{context}}"
doc_to_target: "{{gold | int}}"
YAML
cat > task.yaml << 'YAML'
include: base.yaml
task: stories
doc_to_choice: "{{[good, bad]}}"
YAML
try "$ASHLAR" eval --model "$model" --tasks task.yaml --json --output results.json
expect 0 "a task"
grep -q '"acc,none": 1.0' "$SCRATCH/out" || fail "accuracy: $(cat "$SCRATCH/out")"
grep -q '"acc_norm,none": 1.0' results.json || fail "no results in the file: $(cat results.json)"
try "$ASHLAR" eval --model "$model" --tasks task.yaml --json --batch 1 --threads 1 --output other.json
same "another batch and one thread" "$(cat results.json)" "$(cat other.json)"
try "$ASHLAR" eval --model "$model" --tasks task.yaml --num-fewshot 1
expect 0 "with an example"
try "$ASHLAR" eval --model "$model" --tasks task.yaml --num-fewshot 2
expect_error 1 "too few examples" "num_fewshot is 2"
printf '{"q": "Once upon a time there was a little girl named", "a": "Lily"}\n' > docs.jsonl
cat > generate.yaml << 'YAML'
task: names
dataset_path: json
dataset_kwargs: {data_files: docs.jsonl}
doc_to_text: q
doc_to_target: a
generation_kwargs: {until: ["."], max_gen_toks: 8}
filter_list:
  - name: word
    filter:
      - {function: regex, regex_pattern: "^ *(\\w+)"}
      - {function: take_first}
YAML
try "$ASHLAR" eval --model "$model" --tasks generate.yaml
expect 0 "generated text"
grep -q '^exact_match,word  *1.0000' "$SCRATCH/out" || fail "generated text: $(cat "$SCRATCH/out")"
# several tasks: each has the result that it has alone, in one file
try "$ASHLAR" eval --model "$model" --tasks task.yaml,generate.yaml --output both.json
expect 0 "two tasks"
same "two tasks, both printed" "stories names" "$(awk '$1 == "task" { sub(/,/, "", $2); print $2 }' "$SCRATCH/out" | paste -sd ' ')"
python3 - results.json both.json << 'PY' || fail "two tasks: $(cat both.json)"
import json, sys
alone, both = (json.load(open(f)) for f in sys.argv[1:])
same = all(both[k]["stories"] == alone[k]["stories"] for k in ("results", "configs", "n-shot", "n-samples"))
sys.exit(not (same and both["results"]["names"]["exact_match,word"] == 1 and both["n-samples"]["names"]["original"] == 1))
PY
try "$ASHLAR" eval --model "$model" --tasks task.yaml,task.yaml
expect_error 1 "a task twice" "both called 'stories'"
try "$ASHLAR" eval --model "$model" --tasks task.yaml,nowhere.yaml --output none.json
expect_error 1 "one of two is missing" "nowhere.yaml"
same "none is asked if one is missing" "" "$(cat "$SCRATCH/out")"
echo 'process_docs: !function utils.clean' >> generate.yaml
try "$ASHLAR" eval --model "$model" --tasks generate.yaml
expect_error 1 "Python" "!function utils.clean"
try "$ASHLAR" eval --model "$model" --tasks nowhere.yaml
expect_error 1 "no task" "nowhere.yaml"
try "$ASHLAR" eval --model "$model" --tasks task.yaml --data here
expect_error 2 "two things" "exclude"

# dedup
printf '%s\n' '{"text": "a b c d e f g"}' '{"text": "other"}' '{"text": "a b c d e f g"}' '{"text": "A, b c d e f g!"}' > lines.jsonl
try "$ASHLAR" data dedup --out clean.jsonl lines.jsonl
expect 0 "dedup"
same "equal lines" 3 "$(wc -l < clean.jsonl)"
try "$ASHLAR" data dedup --out clean.jsonl lines.jsonl
expect_error 1 "lines over a file" "--overwrite"
try "$ASHLAR" data dedup --overwrite --out lines.jsonl clean.jsonl lines.jsonl
expect_error 1 "lines over an input" "which is read"
try "$ASHLAR" data dedup --near 0.9 --overwrite --out clean.jsonl lines.jsonl
same "near lines" 2 "$(wc -l < clean.jsonl)"
echo '{"text": ' >> lines.jsonl
try "$ASHLAR" data dedup --out damaged.jsonl lines.jsonl
expect_error 1 "a damaged line" "lines.jsonl" 5
[ -e damaged.jsonl ] && fail "damaged lines left a file behind"

# mix
try "$ASHLAR" data arithmetic --out plus --count 300 --ops add
try "$ASHLAR" data arithmetic --out minus --count 300 --ops sub --shard-tokens 500
try "$ASHLAR" data mix --out mixed --tokens 3000 plus:3 minus:1
expect 0 "mix"
grep -qE '^plus +22[0-9][0-9] tokens' "$SCRATCH/out" || fail "weights of a mix: $(cat "$SCRATCH/out")"
grep -qE '^minus +7[0-9][0-9] tokens' "$SCRATCH/out" || fail "weights of a mix: $(cat "$SCRATCH/out")"
try "$ASHLAR" data mix --out again --tokens 3000 plus:3 minus:1
same "the same mix twice" "$(sha256sum < mixed/shard-00000.safetensors)" "$(sha256sum < again/shard-00000.safetensors)"
try "$ASHLAR" data mix --out mixed --tokens 3000 plus:3 minus:1
grep -q 'complete already' "$SCRATCH/out" || fail "a mix is made twice: $(cat "$SCRATCH/out")"
try "$ASHLAR" data mix --out mixed --tokens 3000 plus:1 minus:1
expect_error 1 "another mix in the folder" "mixed"
try "$ASHLAR" data mix --out other plus:0
expect_error 1 "a weight" "'0' is no weight"

# scaling laws
table=$SOURCE/tests/golden/post/scaling/testbed-rpj.csv
try "$ASHLAR" scaling fit "$table" --tied --below-params 1e9 --bootstrap 50
expect 0 "fit"
same "predictions" 3 "$(grep -c '^predicted ' "$SCRATCH/out")"
grep -q '(+0.31 %)' "$SCRATCH/out" || fail "fit: $(cat "$SCRATCH/out")"
try "$ASHLAR" scaling predict "$table" --tied --flops 1e22 --bootstrap 50 --json
expect 0 "predict"
try "$ASHLAR" scaling predict "$table"
expect_error 2 "which run" "--params"
# Chinchilla's table and budget recommend about Chinchilla: 70e9 parameters, 1.4e12 tokens.
chinchilla=$SOURCE/tests/golden/post/scaling/chinchilla.csv
try "$ASHLAR" plan scaling "$chinchilla" --drop-highest 5 --bootstrap 20 --flops 5.76e23 --days 60 --machines p5.48xlarge --json
expect 0 "plan scaling"
python3 - "$SCRATCH/out" << 'PY' || fail "plan scaling: $(cat "$SCRATCH/out")"
import json, sys
plan = json.load(open(sys.argv[1]))
ok = 60e9 < plan["params"] < 80e9 and 1.2e12 < plan["tokens"] < 1.6e12 and abs(6 * plan["params"] * plan["tokens"] / 5.76e23 - 1) < 1e-6
sys.exit(not (ok and plan["interval"][0] < plan["loss"] < plan["interval"][1] and plan["machines"][0]["usd"] > 1e5))
PY
try "$ASHLAR" plan scaling "$chinchilla" --bootstrap 20 --usd 50000 --days 30 --machines p5.48xlarge
expect 0 "plan scaling for a budget"
usd=$(awk '$1 == "p5.48xlarge" { sub(/\*/, "", $5); print $5 }' "$SCRATCH/out")
awk "BEGIN { exit !($usd > 40000 && $usd <= 50000) }" || fail "a budget of 50,000 dollars: $(cat "$SCRATCH/out")"
try "$ASHLAR" plan scaling "$chinchilla" --bootstrap 20 --loss 1.5 --days 30
expect_error 1 "a loss below the law's" "stays above 1.8913"
try "$ASHLAR" plan scaling "$chinchilla" --loss 2
expect_error 2 "no time and no machines" "--gpus or --days"
try "$ASHLAR" plan scaling "$chinchilla" --loss 2 --flops 1e20 --days 30
expect_error 2 "two runs" "which run?"
printf 'params,loss\n1,2\n' > bad.csv
try "$ASHLAR" scaling fit bad.csv
expect_error 1 "a column" "tokens"
cat > job.yaml << YAML
model: {type: llama, hidden: 8, layers: 1, heads: 2, ffn: 16}
data: {train: $SCRATCH/sums, seq: 16}
train: {steps: 4, global_batch: 2, grains: 1, save_every: 0}
YAML
printf 'job: job.yaml\nruns:\n  - {name: a, set: {model.hidden: 8}}\n  - {name: b, set: {model.hidden: 16, train.steps: 6}}\n' > ladder.yaml
try "$ASHLAR" data arithmetic --out sums --count 500
try "$ASHLAR" scaling run ladder.yaml --out ladder
expect 0 "a ladder"
same "its table" 3 "$(wc -l < ladder/runs.csv)"
grep -q '^b,[0-9]*,192,' ladder/runs.csv || fail "runs: $(cat ladder/runs.csv)"
cp ladder/runs.csv first.csv
try "$ASHLAR" scaling run ladder.yaml --out ladder
same "nothing is made twice" "$(cat first.csv)" "$(cat ladder/runs.csv)"

# strategies
try "$ASHLAR" eval --model ladder/b/model --task arithmetic --count 20 --strategy best --n 1,4 --plot curve.svg
expect 0 "best of n"
grep -q '<svg' curve.svg || fail "no plot"
best=$(cat "$SCRATCH/out")
try "$ASHLAR" eval --model ladder/b/model --task arithmetic --count 20 --strategy best --n 1,4 --verifier exact
same "a verifier that knows" "$best" "$(cat "$SCRATCH/out")"
try "$ASHLAR" eval --model ladder/b/model --task arithmetic --count 20 --strategy weighted --n 1,4 --verifier 'regex=^[0-9]+$,length=1:0.1'
expect 0 "answers with weights"
try "$ASHLAR" eval --model ladder/b/model --task arithmetic --count 20 --strategy majority --n 1,4 --verifier ended
expect_error 2 "a majority has no weights" "--verifier" "best or weighted"
try "$ASHLAR" eval --model ladder/b/model --task arithmetic --count 20 --strategy best --n 1 --verifier magic
expect_error 1 "a verifier" "--verifier" "magic"
try "$ASHLAR" eval --model ladder/b/model --task arithmetic --count 20 --strategy majority --n 4,1
expect_error 1 "n that falls" "ascending"
finish

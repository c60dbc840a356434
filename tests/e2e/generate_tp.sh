#!/usr/bin/env bash
# `generate` and `eval` over several processes: what they print is what one process prints, byte by byte; one launcher, the variables of
# another, and none; wrong counts; a rank that is killed.
. "$SOURCE/tests/e2e/lib.bash"
cd "$SCRATCH" || exit 1
printf 'One day\nLily and Tom\n{"prompt": "The dog"}\n' > prompts.txt
printf 'Once upon\nTom\n' > lines
for i in $(seq 60); do echo "Once upon a time there was a dog that had $i red balls."; done > text.txt
try "$ASHLAR" data tokenize --tokenizer "$stories" --out data text.txt
expect 0 "data"
printf '{"question": "Lily went to", "answer": " the park"}\n{"question": "Tom has a", "answer": " ball"}\n' > docs.jsonl
cat > task.yaml << 'YAML'
task: small
dataset_path: json
dataset_kwargs: {data_files: docs.jsonl}
output_type: loglikelihood
test_split: train
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: perplexity}, {metric: acc}]
YAML
all() { # OUT flags...: everything that a model computes
    local out=$1
    shift
    {
        "$ASHLAR" generate --model "$stories" --prompt "Once upon a time" --max-tokens 24 --temperature 0.8 --seed 3 --json --logprobs "$@" | sed 's/"timings".*//'
        "$ASHLAR" generate --model "$stories" --prompts prompts.txt --batch 2 --max-tokens 20 --logprobs "$@"
        "$ASHLAR" generate --model "$stories" --prompt "Lily" --strategy majority --n 4 --max-tokens 6 --regex '( [a-z]+){2}' "$@"
        "$ASHLAR" generate --model "$stories" --max-tokens 8 "$@" < lines
        "$ASHLAR" eval --model "$stories" --data data --json "$@"
        "$ASHLAR" eval --model "$stories" --data data --seq 60 --json "$@"
        "$ASHLAR" eval --model "$stories" --task arithmetic --count 8 --json "$@"
        "$ASHLAR" eval --model "$stories" --tasks task.yaml "$@" | grep -v seconds
        echo "exit codes: ${PIPESTATUS[0]}"
    } > "$out" 2> "$out.err" || fail "$out: $(tail -n 2 "$out.err")"
}
all one
[ "$(wc -l < one)" -ge 30 ] && grep -q perplexity one || fail "one process: $(cat one one.err)"
all two --tp 2
all three --tp 3 --precision fp32
all stages --tp 2 --pp 2
for ranks in two three stages; do cmp -s one $ranks || fail "$ranks ranks print something else: $(diff one $ranks | head -c 600)"; done

# A launcher starts the ranks, or torchrun's variables say which one this is.
words=(generate --model "$stories" --prompt "Once upon a time" --max-tokens 12 --temperature 0 --tp 2)
try "$ASHLAR" "${words[@]}"
expect 0 "two ranks"
cp out alone
try "$ASHLAR" launch --procs 2 "${words[@]}"
expect 0 "under a launcher"
cmp -s out alone || fail "under a launcher: $(cat out)"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$port WORLD_SIZE=2 LOCAL_WORLD_SIZE=2
RANK=1 LOCAL_RANK=1 "$ASHLAR" "${words[@]}" > other.out 2> other.err &
other=$!
RANK=0 LOCAL_RANK=0 try "$ASHLAR" "${words[@]}"
expect 0 "torchrun's variables"
wait "$other" || fail "torchrun's variables: rank 1: $(cat other.err)"
cmp -s out alone || fail "torchrun's variables: $(cat out)"
[ ! -s other.out ] || fail "rank 1 prints: $(cat other.out)"
unset MASTER_ADDR MASTER_PORT WORLD_SIZE LOCAL_WORLD_SIZE

# Mistakes are one sentence.
try "$ASHLAR" launch --procs 3 "${words[@]}"
expect 1 "another count than the launcher's"
grep -q 'the launcher has started 3' err || fail "another count than the launcher's: $(cat err)"
try "$ASHLAR" generate --model "$stories" --prompt a --tp 5
expect_error 1 "more ranks than heads" "key-value heads (4)"
try "$ASHLAR" eval --model "$SCRATCH/nothing" --data data --tp 2
expect 1 "no such model"
try "$ASHLAR" generate --model "$stories" --lora "$SCRATCH/a" --prompt a --tp 2
expect_error 1 "an adapter" "--lora"

# A rank is killed while the text is written: an error that names it, and no process is left.
for i in $(seq 3000); do echo "Once $i"; done > many.txt
"$ASHLAR" generate --model "$stories" --prompts many.txt --max-tokens 300 --tp 2 > long.out 2> long.err &
job=$!
wait_for "the first answer" test -s long.out
ranks=$(pgrep -P "$job")
kill -KILL "$(tail -n 1 <<< "$ranks")"
code=0
wait "$job" || code=$?
[ "$code" != 0 ] || fail "a killed rank: exit code 0"
grep -q 'rank 1' long.err || fail "a killed rank: $(cat long.err)"
for rank in $ranks; do ! kill -0 "$rank" 2> err || fail "rank $rank outlives a killed one"; done
finish

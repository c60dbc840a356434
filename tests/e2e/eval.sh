#!/usr/bin/env bash
# ashlar eval: loss on shards and arithmetic accuracy do not depend on batch, threads or backend; wrong use is refused.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
other=ref
# a sanitizer makes the reference a hundred times slower: there, the backend after the best
case $BUILD in *address*) other=$("$ASHLAR" version | sed -n "s/^ *backends *[^,]*, \([^,]*\),.*/\1/p") ;; esac

# ---- arithmetic on a model that cannot: every answer is wrong, and that is counted properly
eval=("$ASHLAR" eval --model "$stories" --task arithmetic --count 12 --ops add,sub,mul --mul-digits 2)
leak_free "${eval[@]}" --json
expect 0 "arithmetic"
cp "$SCRATCH/out" "$SCRATCH/first"
for words in '"asked": 12' '"interval"' '"+"' '"-"' '"*"' '"wrong"'; do
    grep -qF "$words" "$SCRATCH/first" || fail "arithmetic --json: $words is not in it"
done
for variant in "--batch 1" "--batch 7" "--threads 1" "--backend $other"; do
    try "${eval[@]}" --json $variant
    cmp -s "$SCRATCH/out" "$SCRATCH/first" || fail "arithmetic differs with $variant"
done
try "${eval[@]}" --show 2
expect 0 "arithmetic in words"
grep -q '^accuracy .* of 12; 95 %' "$SCRATCH/out" || fail "arithmetic says: $(cat "$SCRATCH/out")"
same "wrong answers shown" 2 "$(grep -c '^wrong: ' "$SCRATCH/out")"
try "${eval[@]}" --seed 5 --json
cmp -s "$SCRATCH/out" "$SCRATCH/first" && fail "another seed, the same problems"

# ---- loss
for i in $(seq 30); do
    echo "Once upon a time there was a little dog number $i. He liked to play in the park."
done > "$SCRATCH/text.txt"
try "$ASHLAR" data tokenize "$SCRATCH/text.txt" --tokenizer "$stories" --out "$SCRATCH/shards"
expect 0 "data tokenize"
loss=("$ASHLAR" eval --model "$stories" --data "$SCRATCH/shards" --seq 128)
leak_free "${loss[@]}" --json
expect 0 "loss"
cp "$SCRATCH/out" "$SCRATCH/first"
for variant in "--threads 1" "--threads 3" "--backend $other"; do
    try "${loss[@]}" --json $variant
    cmp -s "$SCRATCH/out" "$SCRATCH/first" || fail "loss differs with $variant"
done
value=$(sed -n 's/.*"loss": \([0-9.]*\),*/\1/p' "$SCRATCH/first")
awk -v x="$value" 'BEGIN { exit !(x > 0.3 && x < 5) }' || fail "a loss of $value: this model knows stories"
try "${loss[@]}"
for words in perplexity "bits per byte" windows; do grep -q "$words" "$SCRATCH/out" || fail "loss: no $words"; done
try "${loss[@]}" --windows 2
grep -q 'in 2 windows' "$SCRATCH/out" || fail "two windows: $(cat "$SCRATCH/out")"
try "$ASHLAR" eval --model "$stories" --data "$SCRATCH/shards" --seq 100000
expect 1 "windows longer than the context"
try "$ASHLAR" eval --model "$SOURCE/tests/golden/llama-gqa" --data "$SCRATCH/shards"
expect_error 1 "no tokenizer" "tokenizer.json"
try "$ASHLAR" eval --model "$stories" --data "$SCRATCH/nowhere"
expect_error 1 "no data" "nowhere"
try "$ASHLAR" eval --model "$stories" --data "$SCRATCH/text.txt"
expect_error 1 "text instead of shards" "this is text" "ashlar data tokenize"
try "$ASHLAR" data arithmetic --out "$SCRATCH/sums" --count 500
try "$ASHLAR" eval --model "$stories" --data "$SCRATCH/sums" --seq 64
expect_error 1 "another tokenizer" "sums' was not made with the tokenizer of" "tokenize the text again"
try "$ASHLAR" model convert "$stories" "$SCRATCH/q8" --quant q8
mkdir "$SCRATCH/alone" && mv "$SCRATCH/q8/"*.gguf "$SCRATCH/alone/model.gguf"
try "$ASHLAR" eval --model "$SCRATCH/alone/model.gguf" --data "$SCRATCH/shards" --seq 128
expect 0 "the same vocabulary, written in a GGUF file"

# ---- wrong use
try "$ASHLAR" eval --model "$stories"
expect_error 2 "nothing to measure" "--data"
try "$ASHLAR" eval --task arithmetic
expect_error 2 "no model" "--model"
try "$ASHLAR" eval --model "$stories" --task arithmetic --data x
expect_error 2 "two measures" "exclude"
try "$ASHLAR" eval --model "$stories" --task algebra
expect_error 2 "unknown task" "arithmetic"
finish

#!/usr/bin/env bash
# `ashlar plan serve` as a user meets it: tables, JSON, picture, limits that decide, and errors that help.
. "$SOURCE/tests/e2e/lib.bash"
serve() { "$ASHLAR" plan serve "$@"; }

leak_free serve --model llama-3.1-70b --cluster 2xp5.48xlarge --weights fp8 --cache fp8 --itl-ms 40 --svg "$SCRATCH/s.svg"
expect 0 "table"
for words in "llama-3.1-70b on 2 x p5.48xlarge" "tok/s/GPU" "disaggregated:" "are the limit" "over EFA v2" "a token's cache takes" "verdict:"; do
    grep -qF -- "$words" "$SCRATCH/out" || fail "table: '$words' is missing: $(cat "$SCRATCH/out")"
done
grep -q 'misses the limits' "$SCRATCH/out" && fail "a 70B model can answer within 40 ms"
# the verdict is the better of the two: what "it pays" recommends, with its tokens/s
grep -q '^  it pays: ' "$SCRATCH/out" || fail "disaggregation does not pay for a 70B model within 40 ms"
best=$(awk '/  best  / { print $8 }' "$SCRATCH/out")
rate=$(sed -n 's/^verdict: .* for prompts and .* for answers .*: \([0-9]*\) tok.s, .*/\1/p' "$SCRATCH/out")
[ "${rate:-0}" -ge "$best" ] || fail "the verdict ($rate tok/s) contradicts the table ($best): $(tail -4 "$SCRATCH/out")"
grep -q '^verdict: .* an hour, .* a month, .* per million tokens$' "$SCRATCH/out" || fail "no price in the verdict"
grep -q '<polyline' "$SCRATCH/s.svg" || fail "no line in the picture"

leak_free serve --model deepseek-v3 --cluster 8xp5en.48xlarge --weights fp8 --in 4000 --out 1000 --qps 40 --json
expect 0 "json"
for words in '"cuts"' '"curve"' '"disaggregated"' '"ratios"' '"cache_tokens"' '"disaggregation_pays"' '"needed"' '"usd_hour"' '"cut": "dp8 ep8"'; do
    grep -qF -- "$words" "$SCRATCH/out" || fail "JSON: $words is missing"
done
grep -qF '"recommendation"' "$SCRATCH/out" || fail "the JSON has no recommendation"
try serve --model llama-3.1-70b --cluster 8xH100 --qps 1000
grep -q '^1000 requests/s need .* = [0-9]* GPUs = [0-9]* x dgx-h100, more than the 8 GPUs there are' "$SCRATCH/out" || fail "what is needed: $(tail -1 "$SCRATCH/out")"
for machines in 1 2 8; do # the offer does not change what is needed
    try serve --model llama-3.1-70b --cluster ${machines}xp5.48xlarge --weights fp8 --itl-ms 40 --qps 1
    grep -q '^1 request/s needs .* = 1 x p5.48xlarge' "$SCRATCH/out" || fail "$machines machines: $(tail -1 "$SCRATCH/out")"
done
try serve --model deepseek-v3 --cluster 1xp5.48xlarge --weights fp8
expect_error 1 "weights that leave no room" "84.1 GB per GPU" "about 16 GPUs"
try serve --model "$SOURCE/tests/golden/stories260K" --cluster 1xp5.48xlarge
expect 0 "a tiny model"
grep -qE '[0-9]e\+[0-9]' "$SCRATCH/out" && fail "a rate in powers of ten: $(grep -E '[0-9]e\+[0-9]' "$SCRATCH/out")"
try serve --model deepseek-v3 --cluster 1xp5en.48xlarge --weights fp8 --out 1
expect 0 "answers of one token"
grep -qF "answers of 1 token" "$SCRATCH/out" || fail "one token: $(head -1 "$SCRATCH/out")"
grep -qF "leave nothing to decode" "$SCRATCH/out" || fail "one token has nothing to decode"
try serve --model llama-3.1-70b --cluster 8xH100 --in 200000
grep -qF "llama-3.1-70b was made for 131072 at most" "$SCRATCH/out" || fail "a prompt beyond the context"
try serve --model llama-3.1-8b --cluster 1xp4d.24xlarge --weights fp8
grep -qF "has no fp8 arithmetic: products run in bf16" "$SCRATCH/out" || fail "fp8 weights on A100"

leak_free serve --model "$stories" --cluster 1xg6e.xlarge --in 64 --out 64
expect 0 "a model folder"
try serve --model qwen3-32b --cluster 8xH200 --samples 8 --verify 1 --thinking 8000
expect 0 "test-time compute"
grep -qF "8 answers of 8512 tokens (8000 of thinking), 1 verifier pass each" "$SCRATCH/out" || fail "no line about the request"
try serve --model deepseek-v3 --cluster 1xu-p6e-gb200x72 --weights fp8 --cache fp8 --in 4000 --out 1000
grep -q '^note: that is .* between tokens, .*--itl-ms 50' "$SCRATCH/out" || fail "a verdict for throughput alone says nothing: $(tail -n 4 "$SCRATCH/out")"
try serve --model llama-3.1-8b --cluster 8xH100 --itl-ms 0.1
expect 0 "a limit that nobody meets"
grep -qF "no cut meets the limits" "$SCRATCH/out" || fail "does not say that the limit is missed"

leak_free "$ASHLAR" plan rl --model qwen3-32b --cluster 16xp5.48xlarge --samples 16 --thinking 4000
expect 0 "reinforcement learning"
for words in "in turns" "waits" "best" "begun again" "share of the state" "verdict: "; do
    grep -qF -- "$words" "$SCRATCH/out" || fail "plan rl: '$words' is missing: $(cat "$SCRATCH/out")"
done
try "$ASHLAR" plan rl --model deepseek-v3 --cluster 64xp5en.48xlarge --weights fp8 --json
expect 0 "reinforcement learning as JSON"
for words in '"splits"' '"handover_s"' '"prompt_reuse_share"' '"turns": true'; do
    grep -qF -- "$words" "$SCRATCH/out" || fail "plan rl --json: $words is missing"
done
try "$ASHLAR" plan rl --model llama-3.1-405b --cluster 1xp5.48xlarge
expect_error 1 "a model too large for both" "does not fit"
try serve --model llama-3.1-70b --cluster 8xH100 --prompt 4000
expect_error 2 "a flag of another program" "--prompt" "--in"
try serve --model llama-3.1-70b
expect_error 2 "no cluster" "--cluster"
try serve --model llama-9 --cluster 8xH100
expect_error 1 "unknown model" "llama-9" "llama-7b"
try serve --model llama-3.1-70b --cluster 8xH99
expect_error 1 "unknown GPU" "H99"
try serve --model llama-3.1-70b --cluster 8xH100 --ep 4
expect_error 1 "experts of a dense model" "has no experts" "--tp"
try serve --model llama-3.1-70b --cluster 8xH100 --tp 7
expect_error 1 "odd cut" "does not divide the 64 heads"
try serve --model llama-3.1-405b --cluster 2xH100
expect_error 1 "too small" "GB per GPU" "about 16 GPUs"
try serve --model deepseek-v3 --cluster 8xH100 --tp 8 --attn-dp 8
expect_error 1 "both" "give one of them"
try serve --model llama-3.1-70b --cluster 8xH100 --set infer_nothing=1
expect_error 1 "unknown constant" "infer_nothing"
for name in infer_chunk infer_gemm_fp8 infer_weights infer_batch; do # what users set is answered, whatever it is
    try serve --model deepseek-v3 --cluster 2xp5en.48xlarge --weights fp8 --set $name=0
    [ "$code" -le 1 ] || fail "$name=0: exit code $code: $(cat "$SCRATCH/err")"
done
finish

#!/usr/bin/env bash
# plan train at the command line: searches, given layouts, JSON, drawing, machines of one's own, and mistakes.
. "$SOURCE/tests/e2e/lib.bash" || exit 1

leak_free "$ASHLAR" plan train --model llama-3.1-70b --cluster 64xp5.48xlarge --tokens 2e12 --svg "$SCRATCH/step.svg"
expect 0 "plan train"
for word in 'tokens/s' 'memory per GPU' 'compute' 'HBM' 'exposed NVLink' 'exposed network' 'pipeline bubble' 'optimizer' 'data' 'checkpoint' MWh TFLOPs 'days' 'USD' 'bound by' 'kW' 'twice the arithmetic rate'; do
    grep -q "$word" "$SCRATCH/out" || fail "plan train does not say '$word'"
done
grep -q 'without failures and checkpoints [0-9.]* days, .* GPU-hours; with both (ashlar plan goodput) [0-9.]* to [0-9.]* days' "$SCRATCH/out" || fail "no days with failures"
grep -q ' $' "$SCRATCH/out" && fail "blanks at the end of a line"
awk '$1 == "1" { for (i = 2; i <= NF; i++) if ($i ~ /%$/ && $i + 0 > 60) exit 1 }' "$SCRATCH/out" || fail "the MFU of fp8 is not one of the fp8 peak"
head -c 4 "$SCRATCH/step.svg" | grep -q '<svg' || fail "no drawing"
try "$ASHLAR" plan train --model deepseek-v3 --cluster 32xp6-b200.48xlarge --seq 4096 --layout pp=16,ep=8,mbs=1,precision=fp8 --svg "$SCRATCH/pipe.svg" --json
expect 0 "a given layout"
for key in '"tokens_s"' '"memory_bytes"' '"nvlink"' '"network"' '"checkpoint"' '"bound_by"' '"what_if"' '"pp": 16' '"fits"'; do
    grep -q -- "$key" "$SCRATCH/out" || fail "the JSON lacks $key"
done
[ "$(grep -c 'backward of micro-batch' "$SCRATCH/pipe.svg")" -gt 100 ] || fail "the pipeline is not drawn"
if command -v xmllint > /dev/null; then xmllint --noout "$SCRATCH/pipe.svg" || fail "the drawing is not XML"; fi
for schedule in zb-h1 dualpipe; do
    try "$ASHLAR" plan train --model deepseek-v3 --cluster 256xp5en.48xlarge --seq 4096 --global-batch 15360 --layout pp=16,ep=16,precision=fp8,schedule=$schedule --svg "$SCRATCH/pipe.svg"
    expect 0 "schedule $schedule"
    grep -q "pp16-$schedule" "$SCRATCH/out" || fail "the layout does not name $schedule"
    grep -q 'gradients of weights of micro-batch' "$SCRATCH/pipe.svg" || fail "$schedule is not drawn"
done
try "$ASHLAR" plan train --model deepseek-v3 --cluster 256xhgx-h800 --seq 4096 --global-batch 15360 --precision fp8 --layout pp=16-dualpipe,ep=64,recompute=selective
expect 0 "a layout as tables print it"
grep -q 'DOES NOT FIT' "$SCRATCH/out" && fail "DeepSeek-V3 as it was trained does not fit: $(cat "$SCRATCH/out")"
try "$ASHLAR" plan train --model llama-3.1-405b --cluster 2048xp5.48xlarge --global-batch 2048 --layout tp=8,pp=16
grep -q 'interleaving of the pipeline (vpp) .*tp8 pp16x' "$SCRATCH/out" || fail "vpp is not among what would change: $(cat "$SCRATCH/out")"
try "$ASHLAR" plan train --model "$stories" --cluster 1xH100 --seq 256 --global-batch 64
grep -q 'GPUs draw up to 700 W' "$SCRATCH/out" || fail "watts: $(cat "$SCRATCH/out")"
grep -q '^best layout$' "$SCRATCH/out" || fail "no heading of the best layout"
try "$ASHLAR" plan train --model llama-3.1-8b --cluster 5xp5.48xlarge --global-batch 1024
grep -q '^note: 1024 sequences are no multiple of 40 GPUs; --global-batch 1040' "$SCRATCH/out" || fail "a batch that GPUs do not divide: $(cat "$SCRATCH/out")"
try "$ASHLAR" plan train --model deepseek-v3 --cluster 256xp5en.48xlarge --seq 4096 --global-batch 15360 --schedules all
expect 0 "all schedules"
grep -q 'pp[0-9]*-\(zb-h1\|dualpipe\)' "$SCRATCH/out" || fail "no other schedule was found: $(cat "$SCRATCH/out")"
try "$ASHLAR" plan train --model "$SOURCE/tests/golden/qwen3_moe-mixed" --cluster p4d.24xlarge --seq 512 --global-batch 64 --top 2
expect 0 "a model folder"
cat > "$SCRATCH/mine.yaml" << 'YAML'
machines:
  - {name: rack, gpu: H200, gpus: 16, nvlink_domain: 16, network_gbps: 1600, usd_hour: 20}
YAML
try "$ASHLAR" plan train --model llama-3-8b --cluster 4xrack --catalog "$SCRATCH/mine.yaml" --tokens 1e12
expect 0 "machines of one's own"
try "$ASHLAR" plan train --model llama-3-70b --cluster 8xp5.48xlarge --tuning lora --stack eager --zero 3 --recompute full --precision bf16
expect 0 "everything fixed"

leak_free "$ASHLAR" plan machines --model llama-3.1-70b --tokens 2e12 --days 30
expect 0 "plan machines"
for word in '^p5.48xlarge ' '^u-p6e-gb200x72 ' 'bound by' 'capacity block' '^g5.xlarge .*more do not help'; do
    grep -q "$word" "$SCRATCH/out" || fail "plan machines does not say '$word': $(cat "$SCRATCH/out")"
done
try "$ASHLAR" plan machines --model deepseek-v3 --tokens 1e12 --gpus 512 --seq 4096 --machines p5en.48xlarge,rack --catalog "$SCRATCH/mine.yaml" --json
expect 0 "plan machines --json"
[ "$(grep -c '"usd_hour"' "$SCRATCH/out")" -eq 2 ] || fail "plan machines does not list both: $(cat "$SCRATCH/out")"
try "$ASHLAR" plan machines --model llama-3.1-70b --tokens 2e12
expect_error 2 "neither GPUs nor days" '--gpus or --days'
try "$ASHLAR" plan machines --model llama-3.1-70b --tokens 2e12 --gpus 8 --days 30
expect_error 2 "both GPUs and days" 'not both'
try "$ASHLAR" plan machines --model kimi-k2 --tokens 1e12 --gpus 8 --precision fp4 --machines p5.48xlarge
grep -q 'has no fp4 arithmetic' "$SCRATCH/out" || fail "fp4 on Hopper: $(cat "$SCRATCH/out")"
try "$ASHLAR" plan machines --model llama-3.1-405b --tokens 15e12 --days 0.01 --machines p5.48xlarge
grep -q '1048576 of its GPUs at 80 % of their peak would take' "$SCRATCH/out" || fail "no time at all: $(cat "$SCRATCH/out")"
try "$ASHLAR" plan machines --model llama-3.1-70b --tokens 2e12 --gpus 8 --machines p9
expect_error 1 "an unknown machine" p9 "ashlar catalog ls"
try "$ASHLAR" plan memory --model gpt2-124m --micro-batch 4 --precision bf16 --json
expect 0 "plan memory"
grep -q '"activations"' "$SCRATCH/out" || fail "plan memory lacks activations"
try "$ASHLAR" plan memory --model llama-3.1-405b
grep -q 'total .* TB$' "$SCRATCH/out" || fail "plan memory of a large model: $(cat "$SCRATCH/out")"
try "$ASHLAR" plan memory --model deepseek-v3
expect_error 1 "memory of latent attention" 'latent attention'

try "$ASHLAR" plan train --model lama-9 --cluster 8xp5.48xlarge
expect_error 1 "an unknown model" lama-9 'well-known name'
try "$ASHLAR" plan train --model Llama3.1-70 --cluster 8xp5.48xlarge
expect_error 1 "a model that is misspelt" 'the nearest are llama-3.1-70b'
try "$ASHLAR" plan train --model llama-3-8b --cluster 8xp9
expect_error 1 "an unknown machine" p9 "ashlar catalog ls"
try "$ASHLAR" plan train --model llama-3-8b --cluster 0xp5.48xlarge
expect_error 1 "no machines" COUNTxNAME
try "$ASHLAR" plan train --model llama-3.1-405b --cluster 2xp5.48xlarge --no-offload
expect_error 1 "too little memory" 'does not fit' 'would do'
try "$ASHLAR" plan train --model llama-3-8b --cluster p5.48xlarge --layout tp=16
expect_error 1 "a layout for more GPUs" 'does not divide 8 GPUs' 'a product of 8 would'
try "$ASHLAR" plan train --model llama-3-8b --cluster p5.48xlarge --layout tp=2,mbs=3
expect_error 1 "a batch in parts" 'not whole micro-batches' '1032 would be'
try "$ASHLAR" plan train --model llama-3-8b --cluster p5.48xlarge --layout shard=3
expect_error 1 "copies in parts" '2 would'
try "$ASHLAR" plan train --model llama-3-8b --cluster p5.48xlarge --set gemm_hoper=0.7
expect_error 1 "a constant that is misspelt" 'did you mean gemm_hopper?'
try "$ASHLAR" plan train --model llama-3-8b --cluster p5.48xlarge --set gemm_hopper
expect_error 1 "a constant without a value" 'name=value'
try "$ASHLAR" plan train --model llama-3-8b --cluster -3xp5.48xlarge
expect_error 1 "fewer than no machines" COUNTxNAME
try "$ASHLAR" plan train --model llama-3-8b --cluster 8xp5
expect_error 1 "half a name" 'nearest: p5.4xlarge, p5.48xlarge'
try "$ASHLAR" plan train --model llama-3-8b --cluster p5.48xlarge --layout pp=3,schedule=dualpipe
expect_error 1 "a layout for fewer GPUs" 'does not divide 8 GPUs'
try "$ASHLAR" plan train --model llama-3-8b --cluster p5.48xlarge --layout schedule=dualpipe
expect_error 1 "a schedule without a pipeline" 'pp of 2'
try "$ASHLAR" plan train --model llama-3-8b --cluster p5.48xlarge --layout tp=8 --schedules all
expect_error 2 "schedules for one layout" 'schedule=zb-h1'
try "$ASHLAR" plan train --model llama-3-8b --cluster p5.48xlarge --layout ep=2
expect_error 1 "experts of a dense model" 'no experts'
try "$ASHLAR" plan train --model llama-3-8b --cluster p4d.24xlarge --precision fp8
expect_error 1 "fp8 on Ampere" 'no fp8'
for words in 'tp=8,zero=1 --zero 3' 'precision=bf16 --precision fp8' 'recompute=full --recompute none' 'tp=8,offload --no-offload'; do
    try "$ASHLAR" plan train --model llama-3-8b --cluster p5.48xlarge --layout $words
    expect_error 1 "a layout that contradicts a flag" 'contradicts --layout'
done
try "$ASHLAR" plan train --model llama-3-8b --cluster p5.48xlarge --layout zero=3,precision=fp8 --zero 3 --precision fp8
expect 0 "a layout that repeats a flag"
try "$ASHLAR" plan train --model llama-3-8b --cluster p5.48xlarge --overlap-dispatch
expect_error 1 "dispatch of a dense model" 'has no experts'
try "$ASHLAR" plan train --model llama-3-8b
expect 2 "no cluster"
try "$ASHLAR" plan train --model llama-3-8b --cluster p5.48xlarge --layout tp=8 --top 2
expect 2 "the best two of one layout"
try "$ASHLAR" plan train --model llama-3-8b --cluster p5.48xlarge --svg "$SCRATCH/none/x.svg"
expect 1 "a drawing that cannot be written"
finish

#!/usr/bin/env bash
# Checks and measures the GPU backend on a machine with a GPU, from the folder that scripts/gpu_bundle.sh made.
#
#   facts        the GPU, the driver, what this build finds
#   peaks        memory, products and copies: what everything else is measured against
#   conformance  every op against its reference, to the bit
#   goldens      the transformers library in float32; within 1e-2 in bf16; logits equal alone, in batches, in pieces and in the
#                trainer, and equal to the CPU's reference
#   share        memory that one process writes and another reads after the first has gone
#   bits         training and text equal to the CPU's
#   steps        five steps of each family: micro-batches, recomputation, stop and resume, equal to the CPU's reference
#   sanitizer    compute-sanitizer over the test programs, parts of at most two minutes
#   losses       162 million weights, 2,000 steps from PyTorch's weights on its data: the same loss within 0.5 %
#   first        8 billion weights in bf16: from the page cache to the first token, and a prompt of 8,192 tokens
#   bench, peers our ops and PyTorch's
#   profile      where a training step and a decode step spend their time
#
# Each appends rows to RESULTS (JSON lines); what passed there is not run again. A part that takes too long is a failed row, and
# the others still run.
# usage: gpu_check.sh RESULTS [STAGE...]     (default: all)
# GPU_BACKEND (cuda) is what is checked: with ref-wgmma or apart the logic of this script runs anywhere. STEP_MODELS and
# SANITIZER_TESTS pick some models and programs.
set -uo pipefail
[ $# -gt 0 ] || { echo "usage: gpu_check.sh RESULTS [STAGE...]" >&2; exit 2; }
results=$(realpath "$1") || exit 2
shift
cd "$(dirname "$0")" || exit 2
export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CMOCKA_MESSAGE_OUTPUT=stdout
touch "$results" || exit 2
backend=${GPU_BACKEND:-cuda}
status=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# row STAGE NAME ok|failed SECONDS
row() { printf '{"stage": "%s", "name": "%s", "result": "%s", "seconds": %s}\n' "$@" | tee -a "$results"; }
passed() { grep -qF "\"stage\": \"$1\", \"name\": \"$2\", \"result\": \"ok\"" "$results"; }
# attempt STAGE NAME LIMIT COMMAND...: unless it passed before; what it printed is shown where it fails
attempt() {
    local stage=$1 name=$2 limit=$3 start=$SECONDS out code=0
    shift 3
    if passed "$stage" "$name"; then return; fi
    out=$(timeout --kill-after=5 "$limit" "$@" 2>&1) || code=$?
    if [ $code = 0 ]; then
        row "$stage" "$name" ok $((SECONDS - start))
        return
    fi
    row "$stage" "$name" failed $((SECONDS - start))
    [ $code != 124 ] || echo "  it took longer than $limit s"
    { grep -E 'ERROR|error|FAIL|=========|differ|row [0-9]' <<< "$out" || tail -n 5 <<< "$out"; } | head -8 | sed 's/^/  /'
    status=1
}
# same STAGE NAME A B: a row that says whether two results are there and equal
same() {
    if [ -n "$3" ] && [ "$3" = "$4" ]; then
        row "$1" "$2" ok 0
    else
        row "$1" "$2" failed 0
        printf "  '%s' and '%s'\n" "$3" "$4"
        status=1
    fi
}
# What the CPU computes for the backend that is checked, in float32 and in bf16.
reference_of() { if [ "$1" = bf16 ] && [ "$backend" != apart ]; then echo ref-wgmma; else echo ref; fi; }

facts() {
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null || echo "no nvidia-smi here"
    ./ashlar version | sed -n 's/^  gpu */ashlar: /p'
}
# Rates of memory and of the host's link as `ashlar check` sees them, and the best of our products.
peaks() {
    local start=$SECONDS
    if passed peaks all; then return; fi
    if [ "$backend" = cuda ]; then
        timeout 60 ./ashlar check node --deep --seconds 3 --json > "$work/check" 2> "$work/err" || head -n 2 "$work/err"
        grep -o '"device rates[^}]*' "$work/check" | sed 's/^/  /'
        timeout 55 ./gpu gemm > "$work/peaks" 2> "$work/err" || head -n 2 "$work/err"
        timeout 30 ./gpu adamw >> "$work/peaks" 2> "$work/err" || head -n 2 "$work/err"
    else
        echo '{"op": "none", "tflops": 1}' > "$work/peaks"
    fi
    if grep -q tflops "$work/peaks"; then
        sed 's/^{/{"stage": "peaks", /' "$work/peaks" >> "$results"
        sed -n 's/.*"op": "\([a-z0-9_]*\)".*"tflops": \([0-9.]*\).*/\1 \2/p' "$work/peaks" |
            awk '$2 > most[$1] { most[$1] = $2 } END { for (op in most) print "  " op ": " most[op] " TFLOP/s at most" }'
        row peaks all ok $((SECONDS - start))
    else
        row peaks all failed $((SECONDS - start))
        status=1
    fi
}
conformance() {
    local test
    for test in tests/test_ops_* tests/test_wgmma; do
        if [ -x "$test" ]; then attempt conformance "$(basename "$test")" 110 "$test"; fi
    done
}
# The lines of gpu_logits for one folder, computed by a backend.
logits() { (cd goldens && ../gpu_logits --backend "$1" --precision "$2" "$3"); }
# equal_logits PRECISION FOLDER: ours are all equal, near the library's, and the reference's
equal_logits() {
    local ours theirs
    ours=$(logits "$backend" "$1" "$2") || { echo "$ours"; return 1; }
    theirs=$(logits "$(reference_of "$1")" "$1" "$2") || { echo "the reference: $theirs"; return 1; }
    [ "$ours" = "$theirs" ] || { echo "error: '$ours' here, '$theirs' in the reference"; return 1; }
}
goldens() {
    local dir name precision
    export backend
    export -f logits equal_logits reference_of
    for dir in goldens/*; do
        name=$(basename "$dir")
        attempt goldens "$name" 60 ./golden --backend "$backend" "$dir"
        for precision in fp32 bf16; do
            attempt goldens "logits $precision $name" 60 bash -c 'equal_logits "$@"' - $precision "$name"
        done
    done
}
# data: token shards of arithmetic for all training stages
data() {
    [ -d "$work/train" ] && return
    ./ashlar data arithmetic --out "$work/train" --count 200k > "$work/log" 2>&1 &&
        ./ashlar data arithmetic --out "$work/valid" --count 4k --split valid --seed 2 >> "$work/log" 2>&1 || cat "$work/log"
}
state_in() { sed -n 's/.*state \([0-9a-f]\{16\}\).*/\1/p'; }
# state BACKEND KEY=VALUE...: the state hash that a short training run ends with; its last words where it has none
state() {
    local on=$1 out=$work/run-$1 said
    shift
    rm -rf "$out"
    said=$(timeout --kill-after=5 110 ./ashlar train quickstart.yaml --out "$out" data.train="$work/train" data.valid="$work/valid" \
        runtime.backend="$on" "$@" 2>&1)
    state_in <<< "$said" | grep . || tail -n 1 <<< "$said"
}
share() { attempt share "owners that exit and die" 60 ./gpu_share "$([ "$backend" = cuda ] && echo cuda || echo host)" 256; }
# The same bits on the GPU and on the CPU: training in float32 and bf16, and text.
bits() {
    local short="train.steps=40 train.valid_every=20 train.save_every=20 schedule.warmup=4" file
    local tiny="train.steps=3 train.valid_every=3 schedule.warmup=1 train.precision=bf16"
    data
    passed bits "train float32, 40 steps" || same bits "train float32, 40 steps" "$(state "$backend" $short)" "$(state cpu $short)"
    passed bits "train bf16, 3 steps" ||
        same bits "train bf16, 3 steps" "$(state "$backend" $tiny)" "$(state "$(reference_of bf16)" $tiny)"
    for file in gguf/*.gguf; do
        passed bits "text of $(basename "$file")" && continue
        same bits "text of $(basename "$file")" "$(text "$backend" "$file")" "$(text cpu "$file")"
    done
    passed bits "the quick start" || [ "$backend" != cuda ] || same bits "the quick start" "$(state cuda)" c71c8bdf1e1723cc
}
text() {
    timeout 60 ./ashlar generate --model "$2" --backend "$1" --prompt Once --max-tokens 48 --temperature 0 2> "$work/err" ||
        head -n 1 "$work/err"
}
# Five steps of a model folder in bf16, from its weights: the reference's state, whatever the micro-batch, recomputation and stops.
family_steps() {
    local dir=$1 name vocab settings expected found variant out=$work/family
    name=$(basename "$dir")
    vocab=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' "$dir/config.json" | head -n 1)
    [ "${vocab:-0}" -ge 16 ] || { echo "error: $name has a vocabulary of '${vocab:-}'"; return 1; }
    settings="model.from=$dir data.seq=16 train.steps=5 train.global_batch=8 train.grains=2 train.micro_batch=4 train.save_every=0
        train.valid_every=0 train.hash_every=1 schedule.warmup=1 optimizer.lr=1e-3 train.precision=bf16"
    expected=$(state "$(reference_of bf16)" $settings)
    [[ $expected =~ ^[0-9a-f]{16}$ ]] || { echo "error: the reference: $expected"; return 1; }
    for variant in train.micro_batch=4 "train.micro_batch=1 train.recompute=full" "train.micro_batch=2 train.recompute=selective"; do
        found=$(state "$backend" $settings $variant)
        [ "$found" = "$expected" ] || { echo "error: $variant: '$found' instead of '$expected'"; return 1; }
    done
    # stopped after three steps: the last checkpoint is taken away, and the run goes on from the one before
    rm -rf "$out"
    ./ashlar train quickstart.yaml --out "$out" data.train="$work/train" data.valid="$work/valid" runtime.backend="$backend" \
        $settings train.save_every=3 > "$work/err" 2>&1 || { tail -n 1 "$work/err"; return 1; }
    rm -rf "$out/checkpoints/step-000005" "$out/model"
    found=$(./ashlar train --resume --out "$out" 2>&1 | state_in)
    [ "$found" = "$expected" ] || { echo "error: resumed: '$found' instead of '$expected'"; return 1; }
}
steps() {
    local dir
    data
    export backend work
    export -f family_steps state state_in reference_of
    for dir in ${STEP_MODELS:-goldens/*}; do
        [ -e "$dir/tokenizer.json" ] && [ ! -e "$dir/reference.safetensors" ] && continue
        attempt steps "five steps of $(basename "$dir")" 110 bash -c 'family_steps "$1"' - "$PWD/$dir"
    done
}
# Bad accesses and races of every kernel (one runs some hundred times slower under it).
sanitizer() {
    local test tool
    command -v compute-sanitizer > /dev/null || { echo "gpu_check: no compute-sanitizer here"; return; }
    for test in ${SANITIZER_TESTS:-tests/test_*}; do
        for tool in memcheck racecheck; do
            [ $tool = memcheck ] || [ "$(basename "$test")" != test_ops_attn ] || continue # two minutes are not enough for that
            attempt sanitizer "$tool $(basename "$test")" 115 \
                compute-sanitizer --tool $tool --error-exitcode 9 --launch-timeout 0 "$test"
        done
    done
    attempt sanitizer "memcheck training" 115 compute-sanitizer --tool memcheck --error-exitcode 9 ./gpu_logits --precision bf16 goldens/llama-gqa
}
bench() { { timeout 60 ./gpu "${BENCH_PATTERN:-}"; timeout 60 ./gpu_decode "${BENCH_PATTERN:-}"; } | sed 's/^{/{"stage": "bench", /' | tee -a "$results"; }
peers() { timeout 115 python3 peers/gpu_ops.py | sed 's/^{/{"stage": "peers", /' | tee -a "$results"; }
# Two programs train the same weights on the same sequences in the same order. Each has a part of two minutes.
losses() {
    local dir=${LOSS_DIR:-/tmp/ashlar-losses} theirs ours
    if passed losses "2,000 steps"; then return; fi
    if ! [ -e "$dir/data/train/manifest.json" ]; then
        timeout 100 python3 peers/gpu_loss.py prepare "$dir" > "$work/log" 2>&1 &&
            ./ashlar data tokenize --tokenizer goldens/stories260K --eos none --out "$dir/data/train" "$dir/text.txt" >> "$work/log" 2>&1 &&
            cp goldens/stories260K/tokenizer.json "$dir/model/" || { tail -n 3 "$work/log"; row losses "2,000 steps" failed 0; status=1; return; }
    fi
    [ -s "$dir/theirs" ] || timeout 118 python3 peers/gpu_loss.py train "$dir" 2000 > "$dir/theirs" 2> "$work/err" || tail -n 3 "$work/err"
    rm -rf "$work/losses"
    timeout 118 ./ashlar train quickstart.yaml --out "$work/losses" runtime.backend="$backend" model.from="$dir/model" \
        data.train="$dir/data/train" data.seq=1024 train.steps=2000 train.global_batch=8 train.grains=1 train.micro_batch=8 \
        train.precision=bf16 train.valid_every=0 train.save_every=0 optimizer.lr=3e-4 optimizer.beta2=0.95 optimizer.weight_decay=0 \
        optimizer.clip=0 schedule.kind=constant schedule.warmup=0 > "$work/err" 2>&1 || tail -n 3 "$work/err"
    ours=$(sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p' "$work/losses/log.jsonl" | tail -n 100 | awk '{ sum += $1 } END { if (NR == 100) print sum / NR }')
    theirs=$(sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p' "$dir/theirs")
    echo "{\"stage\": \"losses\", \"op\": \"train_loss\", \"ours\": ${ours:-null}, \"theirs\": ${theirs:-null}}" | tee -a "$results"
    if awk -v a="${ours:-0}" -v b="${theirs:-0}" 'BEGIN { exit !(a > 0 && b > 0 && a < b * 1.005) }'; then
        row losses "2,000 steps" ok 0
    else
        row losses "2,000 steps" failed 0
        status=1
    fi
}
# A prompt of 8,192 tokens is made of one-token words; --raw adds none.
first() {
    local dir=${MODEL_8B:-/tmp/ashlar-8b} out
    if passed first "8B"; then return; fi
    [ -e "$dir/tokenizer.json" ] || { timeout 118 python3 peers/random_model.py "$dir" > "$work/log" 2>&1 && cp goldens/stories260K/tokenizer.json "$dir/"; } ||
        { tail -n 3 "$work/log"; row first "8B" failed 0; status=1; return; }
    cat "$dir"/*.safetensors > /dev/null # the page cache
    for ((i = 0; i < 8191; i++)); do printf ' the'; done > "$work/prompt"
    for out in "short --prompt Once --max-tokens 32" "again --prompt Once --max-tokens 32" "long --prompt-file $work/prompt --max-tokens 1"; do
        local start=$EPOCHREALTIME name=${out%% *}
        timeout 60 ./ashlar generate --model "$dir" --backend "$backend" --precision bf16 --raw --temperature 0.8 --top-p 0.95 --json \
            ${out#* } > "$work/out" 2> "$work/err" || { tail -n 2 "$work/err"; row first "8B" failed 0; status=1; return; }
        printf '{"stage": "first", "op": "%s", "seconds": %s, "timings": %s}\n' "$name" \
            "$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')" \
            "$(sed -n 's/.*"usage":\({[^}]*}\),"timings":\({[^}]*}\).*/[\1, \2]/p' "$work/out")" | tee -a "$results"
    done
    row first "8B" ok 0
}
# Tables of ops; the traces stay beside RESULTS.
profile() {
    local out=${results%.*}
    data
    attempt profile "a training run" 110 ./ashlar train quickstart.yaml --out "$work/profiled" data.train="$work/train" \
        data.valid="$work/valid" runtime.backend="$backend" train.steps=20 train.valid_every=0 train.save_every=0 schedule.warmup=2 \
        train.precision=bf16 --profile "$out-train.json"
    attempt profile "text" 60 ./ashlar generate --model "$(ls gguf/*.gguf | head -n 1)" --backend "$backend" --prompt Once \
        --max-tokens 64 --profile "$out-text.json"
}

[ $# -gt 0 ] || set -- facts peaks conformance goldens share bits steps losses first sanitizer bench peers profile
for stage in "$@"; do
    case $stage in
        facts | peaks | conformance | goldens | share | bits | steps | losses | first | sanitizer | bench | peers | profile) "$stage" ;;
        *) echo "gpu_check: there is no stage '$stage'" >&2; exit 2 ;;
    esac
done
exit $status

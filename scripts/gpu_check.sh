#!/usr/bin/env bash
# Checks and measures the GPU backend on a machine with a GPU, from the folder that scripts/gpu_bundle.sh made. Stages: facts,
# conformance, goldens, bits, sanitizer, bench, peers. Each appends rows to RESULTS (JSON lines); a stage that passed there is not run again.
# usage: gpu_check.sh RESULTS [STAGE...]     (default: all)
set -uo pipefail
results=$(realpath "$1")
shift
cd "$(dirname "$0")"
export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CMOCKA_MESSAGE_OUTPUT=stdout
touch "$results"
status=0

# row STAGE NAME ok|failed SECONDS
row() { printf '{"stage": "%s", "name": "%s", "result": "%s", "seconds": %s}\n' "$@" | tee -a "$results"; }
passed() { grep -q "\"stage\": \"$1\", \"name\": \"$2\", \"result\": \"ok\"" "$results"; }
# attempt STAGE NAME LIMIT COMMAND...: unless it passed before; what it printed is shown where it fails
attempt() {
    local stage=$1 name=$2 limit=$3 start=$SECONDS out
    shift 3
    if passed "$stage" "$name"; then return; fi
    if out=$(timeout "$limit" "$@" 2>&1); then
        row "$stage" "$name" ok $((SECONDS - start))
    else
        row "$stage" "$name" failed $((SECONDS - start))
        grep -E 'ERROR|error|=========' <<< "$out" | head -8
        status=1
    fi
}

facts() { nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; }
conformance() {
    local test
    for test in tests/test_ops_* tests/test_wgmma; do attempt conformance "$(basename "$test")" 150 "$test"; done
}
# Results of the transformers library, in float32, as on the CPU.
goldens() {
    local dir
    for dir in goldens/*; do attempt goldens "$(basename "$dir")" 60 ./golden --backend cuda "$dir"; done
}
# state BACKEND KEY=VALUE...: the state hash that a short training run ends with
state() {
    local backend=$1 out=$work/$1
    shift
    rm -rf "$out"
    ./ashlar train quickstart.yaml --out "$out" runtime.backend="$backend" "$@" 2>&1 | sed -n 's/.*state \([0-9a-f]\{16\}\).*/\1/p'
}
# same NAME A B: a row that says whether two results are equal
same() {
    if [ -n "$2" ] && [ "$2" = "$3" ]; then
        row bits "$1" ok 0
    else
        row bits "$1" failed 0
        echo "  '$2' and '$3'"
        status=1
    fi
}
# The same bits on the GPU and on the CPU: training in float32 and bf16, and text.
bits() {
    work=$(mktemp -d)
    local short="train.steps=40 train.valid_every=20 train.save_every=20 schedule.warmup=4" file
    local tiny="train.steps=3 train.valid_every=3 schedule.warmup=1"
    ./ashlar data arithmetic --out "$work/train" --count 200k > "$work/log"
    ./ashlar data arithmetic --out "$work/valid" --count 4k --split valid --seed 2 >> "$work/log"
    local data="data.train=$work/train data.valid=$work/valid"
    same "train float32, 40 steps" "$(state cuda $data $short)" "$(state cpu $data $short)"
    same "train bf16, 3 steps" "$(state cuda $data $tiny train.precision=bf16)" \
        "$(state ref-wgmma $data $tiny train.precision=bf16)"
    for file in gguf/*.gguf; do
        same "text of $(basename "$file")" "$(./ashlar generate --model "$file" --backend cuda --prompt Once --max-tokens 48 --temperature 0 2> "$work/log")" \
            "$(./ashlar generate --model "$file" --backend cpu --prompt Once --max-tokens 48 --temperature 0 2> "$work/log")"
    done
    same "the quick start" "$(state cuda $data)" c71c8bdf1e1723cc
    rm -rf "$work"
}
# Bad accesses and races of every kernel, on the smaller tests (a kernel runs some hundred times slower).
sanitizer() {
    command -v compute-sanitizer > /dev/null || { echo "gpu_check: no compute-sanitizer here"; return; }
    local test
    for test in test_wgmma test_ops_project test_ops_attn; do
        attempt sanitizer "memcheck $test" 110 compute-sanitizer --tool memcheck --error-exitcode 9 tests/$test
    done
}
bench() { { ./gpu "${BENCH_PATTERN:-}"; ./gpu_decode "${BENCH_PATTERN:-}"; } | sed 's/^{/{"stage": "bench", /' | tee -a "$results"; }
peers() { python3 peers/gpu_ops.py | sed 's/^{/{"stage": "peers", /' | tee -a "$results"; }

[ $# -gt 0 ] || set -- facts conformance goldens bits sanitizer bench peers
for stage in "$@"; do
    case $stage in
        facts | conformance | goldens | bits | sanitizer | bench | peers) "$stage" ;;
        *) echo "gpu_check: there is no stage '$stage'" >&2; exit 2 ;;
    esac
done
exit $status

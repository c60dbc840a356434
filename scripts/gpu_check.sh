#!/usr/bin/env bash
# Checks and measures the GPU backend on a machine with a GPU, from the folder that scripts/gpu_bundle.sh made. Stages: facts,
# conformance, sanitizer, bench, peers. Each appends rows to RESULTS (JSON lines); a stage that passed there is not run again.
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
# Bad accesses and races of every kernel, on the smaller tests (a kernel runs some hundred times slower).
sanitizer() {
    command -v compute-sanitizer > /dev/null || { echo "gpu_check: no compute-sanitizer here"; return; }
    local test
    for test in test_wgmma test_ops_project; do
        attempt sanitizer "memcheck $test" 110 compute-sanitizer --tool memcheck --error-exitcode 9 tests/$test
    done
}
bench() { ./gpu "${BENCH_PATTERN:-}" | sed 's/^{/{"stage": "bench", /' | tee -a "$results"; }
peers() { python3 peers/gpu_ops.py | sed 's/^{/{"stage": "peers", /' | tee -a "$results"; }

[ $# -gt 0 ] || set -- facts conformance sanitizer bench peers
for stage in "$@"; do
    case $stage in
        facts | conformance | sanitizer | bench | peers) "$stage" ;;
        *) echo "gpu_check: there is no stage '$stage'" >&2; exit 2 ;;
    esac
done
exit $status

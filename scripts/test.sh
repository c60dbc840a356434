#!/usr/bin/env bash
# The whole suite: every test in the ordinary build, then again under ASan+UBSan (built with clang where there is one, so that both
# compilers' warnings are errors), then what uses threads under TSan. With an argument, only that sanitizer's build.
# LONG=1: the long form, in which tests draw several times as many cases, and fuzzers run for longer.
# Each part ends with ctest's summary; the first failing part ends the run. The last lines list the slowest tests, then those that were
# skipped, and why.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(($(nproc) + 1)) # many tests wait more than they work

# fast_linker COMPILER: the option for the fastest linker that is here, if any: it links some hundred programs.
fast_linker() {
    local name
    for name in mold lld gold; do
        echo 'int main(void) { return 0; }' | "$1" -fuse-ld=$name -x c -o /dev/null - 2> /dev/null && echo "-fuse-ld=$name" && return
    done
    return 0
}

# part TITLE BUILD_DIR SANITIZERS COMPILER "TARGETS" CTEST_ARGUMENTS...   (no targets: all)
part() {
    local title=$1 dir=$2 san=$3 cc=$4 targets=$5
    shift 5
    echo "== $title"
    local flags=()
    [ -z "$san" ] || flags=(-DNVCC=OFF "-DCMAKE_EXE_LINKER_FLAGS=$(fast_linker "$cc")") # no test there uses a GPU's kernels
    cmake -S . -B "$dir" -G Ninja -DASHLAR_SANITIZE="$san" -DCMAKE_C_COMPILER="$cc" "${flags[@]}" > "$dir.log" 2>&1 || { cat "$dir.log"; exit 1; }
    cmake --build "$dir" ${targets:+--target $targets} > "$dir.log" 2>&1 || { cat "$dir.log"; exit 1; }
    rm -f "$dir.log"
    ctest --test-dir "$dir" -j "$jobs" --output-on-failure --no-tests=error "$@"
}

# The last lines, even if a part fails.
trap 'scripts/slowest.sh build*/Testing/Temporary/LastTest.log; scripts/skipped.sh build*/Testing/Temporary/LastTest.log' EXIT
rm -f build*/Testing/Temporary/LastTest.log

cc=${CC:-cc}
other=$(scripts/clang.sh || true)
other=${other:-$cc}
# What compares with other programs, or long runs with each other, says nothing more under a sanitizer.
slow='test_openb|e2e_.*_world|e2e_train_bits|e2e_(s3_train|serve_cancels|serve_page|chaos_campaign|submit_slurm|slurm_faults|submit_kube|queue_export|dash_page|dashboards|agent_slurm|checkpoint_power|grammar_llama|bench_serve|docs|tutorials|package)|lint|floors|names|ratchets'
threaded='test_workers test_metrics test_metrics_page test_collect test_exporter test_pass test_pass_tp test_trainer test_dataset test_tokenize test_tokenizer_bpe test_grammar_masks test_generator test_core test_core_stories test_runner test_group test_channel test_reform test_call test_overlap test_http test_http_connections test_api test_api_fields test_api_faults test_api_load'

if [ -n "${1:-}" ]; then
    part "tests with -fsanitize=$1" "build-${1//,/-}" "$1" "$cc" "" -E "$slow"
    exit 0
fi
# Fuzzers: the next part's see which branches they reach, where clang has built them; then this part's run their seeds alone.
seconds=1 few=0
[ "$other" != "$cc" ] || few=1
[ -z "${LONG:-}" ] || seconds=3 few=1
FUZZ_SECONDS=${FUZZ_SECONDS:-$few} part "tests" build "" "$cc" ""
export FUZZ_SECONDS=${FUZZ_SECONDS:-$seconds}
part "tests under ASan and UBSan" build-address-undefined address,undefined "$other" "" -E "$slow"
# A job of ranks may stall under TSan on a busy machine: it has more tries. A race has none: one report fails the part.
rm -f build-thread/race.*
export TSAN_OPTIONS="atexit_sleep_ms=0 log_path=$PWD/build-thread/race"
part "threads under TSan" build-thread thread "$cc" "$threaded" -R "^(${threaded// /|})$" --repeat until-pass:3
if compgen -G 'build-thread/race.*' > /dev/null; then
    cat build-thread/race.*
    exit 1
fi

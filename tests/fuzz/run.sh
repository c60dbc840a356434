#!/usr/bin/env bash
# Runs a fuzz target for a bounded time on a copy of its seed corpus (libFuzzer adds files to the folder it is given).
# usage: run.sh BINARY CORPUS   FUZZ_SECONDS (3), FUZZ_MAX_LEN (65536), FUZZ_MEMORY_MB (2048)
# The input of a crash is left in the current folder as crash-*.
set -u
binary=$1 corpus=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/corpus"
[ -d "$corpus" ] && cp -r "$corpus/." "$work/corpus/"
# Parsers may ask for more memory than there is: they must live with the NULL they get.
export ASAN_OPTIONS="allocator_may_return_null=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
"$binary" -max_total_time="${FUZZ_SECONDS:-3}" -max_len="${FUZZ_MAX_LEN:-65536}" -rss_limit_mb="${FUZZ_MEMORY_MB:-2048}" \
    -timeout=20 -seed=1 -print_final_stats=1 "$work/corpus" > "$work/log" 2>&1
code=$?
if [ "$code" -ne 0 ]; then
    cat "$work/log"
    echo "$(basename "$binary"): failed with exit code $code; its input, if one was kept, is crash-* in $PWD"
    exit 1
fi
tail -n 3 "$work/log"

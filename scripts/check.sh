#!/usr/bin/env bash
# The gate for every edit, about a minute after a build: format, floors, names, ratchets, lint, and the unit tests that are quick.
# usage: scripts/check.sh BUILD
set -uo pipefail
cd "$(dirname "$0")/.."
build=$1 failed=()

# step NAME COMMAND...: runs it, and shows what it printed where it fails
step() {
    local name=$1 start=$SECONDS out
    shift
    if out=$("$@" 2>&1); then
        printf '%-9s ok      %3d s\n' "$name" $((SECONDS - start))
    else
        printf '%-9s FAILED  %3d s\n%s\n' "$name" $((SECONDS - start)) "$out"
        failed+=("$name")
    fi
}
format() {
    command -v clang-format > /dev/null || { echo "no clang-format here"; return 0; }
    git ls-files '*.c' '*.h' '*.cu' '*.cuh' | xargs -P"$(nproc)" -n 100 clang-format --dry-run -Werror
}

step format format
step floors bash tests/floors.sh .
step names sh tests/names.sh .
step ratchets bash tests/ratchets.sh .
step lint scripts/lint.sh "$build" --changed
step tests ctest --test-dir "$build" -j "$(($(nproc) + 1))" -L quick --output-on-failure --no-tests=error
[ ${#failed[@]} -eq 0 ] || { echo "check: failed: ${failed[*]}"; exit 1; }
echo "check: all passed"

#!/usr/bin/env bash
# Static analysis: calls that nobody should make; cppcheck over all sources (it remembers what it has seen in
# BUILD/cppcheck); with --changed also clang-tidy (.clang-tidy) over the files that differ from the last commit or changed
# in it, with --all over every file, which takes minutes. Says which of the two is missing.
# usage: scripts/lint.sh BUILD [--changed | --all]
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 status=0

# Calls that check no size, hide errors or keep state between threads: base/number.h and base/str.h have better ones.
if grep -nE '\b(atoi|atol|atof|strcpy|strcat|sprintf|vsprintf|strtok|gets)\(' -r src include tools examples --include='*.[ch]'; then
    echo "lint: use snprintf, memcpy, strtok_r, ash_number_parse or struct ash_str instead of these"
    status=1
fi

if command -v cppcheck > /dev/null; then
    mkdir -p "$build/cppcheck"
    case $(uname -m) in aarch64) machine=(-D__aarch64__ -U__x86_64__) ;; *) machine=(-D__x86_64__ -U__aarch64__) ;; esac
    cppcheck --quiet -j"$(nproc)" --enable=warning,portability --inline-suppr --std=c11 --error-exitcode=1 "${machine[@]}" \
        -D_GNU_SOURCE -Isrc -Iinclude -Itools --cppcheck-build-dir="$build/cppcheck" --suppressions-list=tests/lint/cppcheck.txt \
        --template='{file}:{line}: {id}: {message}' $(find src -mindepth 1 -maxdepth 1 -type d ! -name compute | sort) tools || status=1
else
    echo "lint: no cppcheck here"
fi

[ -n "${2:-}" ] || exit $status
tidy=$(command -v clang-tidy || true)
if [ -n "$tidy" ] && [ -f "$build/compile_commands.json" ]; then
    if [ "${2:-}" = --all ]; then
        files=$(git ls-files 'src/*.c' 'tools/*.c')
    else
        files=$({ git diff --name-only --diff-filter=AM HEAD; git diff --name-only --diff-filter=AM HEAD~1 HEAD 2> /dev/null; } |
            grep -E '^(src|tools)/.*\.c$' | grep -v '^src/compute/cpu/' | sort -u | head -40 || true)
    fi
    if [ -n "$files" ]; then
        echo "$files" | xargs -P"$(nproc)" -n 8 "$tidy" -p "$build" --quiet 2> /dev/null || status=1
    fi
else
    echo "lint: no clang-tidy here, or no build in $build"
fi
exit $status

#!/usr/bin/env bash
# Line and branch coverage of src/ and tools/ by the whole suite, from gcov through lcov; the pages are in build-coverage/html.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v lcov > /dev/null; then
    command -v apt-get > /dev/null || { echo "ashlar: coverage needs lcov" >&2; exit 1; }
    apt-get install -y -qq --no-install-recommends lcov > /dev/null
fi
dir=build-coverage
cmake -S . -B $dir -G Ninja -DASHLAR_COVERAGE=ON -DCMAKE_C_COMPILER=gcc > /dev/null
cmake --build $dir > /dev/null
find $dir -name '*.gcda' -delete
ctest --test-dir $dir -j "$(nproc)" --output-on-failure -E 'e2e_.*_world'
lcov -q --capture --directory $dir --rc lcov_branch_coverage=1 --output-file $dir/all.info
lcov -q --extract $dir/all.info "$PWD/src/*" "$PWD/tools/*" --rc lcov_branch_coverage=1 --output-file $dir/src.info
genhtml -q --branch-coverage --output-directory $dir/html $dir/src.info
lcov --summary $dir/src.info --rc lcov_branch_coverage=1 2>&1 | grep -E 'lines|functions|branches'

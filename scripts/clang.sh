#!/usr/bin/env bash
# Prints the newest clang here that can build a sanitized fuzz target (one without its run-time library cannot); exits with 1 where
# that is none, or one before 16.
for cc in clang-{22..16} clang; do
    command -v $cc > /dev/null || continue
    echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n); int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return !d && n; }' |
        $cc -x c -fsanitize=address,undefined,fuzzer -o /dev/null - 2> /dev/null || continue
    echo $cc
    [ "$($cc -dumpversion | cut -d. -f1)" -ge 16 ]
    exit
done
exit 1

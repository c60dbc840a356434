#!/usr/bin/env bash
# libashlar as its users get it: installed into a prefix, found by pkg-config, compiled into examples/embed.c and run.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
cache() { sed -n "s/^$1:[A-Z]*=//p" "$BUILD/CMakeCache.txt"; }
prefix=$SCRATCH/prefix
cmake --install "$BUILD" --prefix "$prefix" > "$SCRATCH/log" 2>&1 || fail "install: $(tail -3 "$SCRATCH/log")"
[ -x "$prefix/bin/ashlar" ] || fail "no program was installed"
[ -f "$prefix/share/man/man1/ashlar.1" ] || fail "no man page was installed"

export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name ashlar.pc)")
cc=$(cache CMAKE_C_COMPILER)
flags=()
[ -z "$(cache ASHLAR_SANITIZE)" ] || flags+=("-fsanitize=$(cache ASHLAR_SANITIZE)")
[ "$(cache ASHLAR_COVERAGE)" != ON ] || flags+=(--coverage)
(cd "$SCRATCH" && "$cc" -std=c11 -Wall -Wextra -Werror "${flags[@]}" "$SOURCE/examples/embed.c" \
    $(pkg-config --cflags --libs ashlar) -o embed) || fail "examples/embed.c does not compile"
# The header is C++ too.
if command -v c++ > /dev/null; then
    echo '#include <ashlar/ashlar.h>' | c++ -x c++ -std=c++17 -Wall -Werror -fsyntax-only -I"$prefix/include" - ||
        fail "the header is not C++"
fi

leak_free "$SCRATCH/embed" "$stories" "Once upon a time"
expect 0 "embed"
expected="[5 tokens of at most 512]
Once upon a time$("$ASHLAR" generate --model "$stories" --prompt "Once upon a time" --max-tokens 50)
[length]"
same "what embed says" "$expected" "$(cat "$SCRATCH/out")"
try "$SCRATCH/embed" "$SCRATCH/nowhere" x
expect 1 "embed without a model"
grep -q nowhere "$SCRATCH/err" || fail "embed does not say what is missing"
finish

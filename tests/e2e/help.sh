#!/usr/bin/env bash
# Help: every command explains itself, the man page has it all, wrong words get one line and a suggestion.
. "$SOURCE/tests/e2e/lib.bash" || exit 1

names() { sed -n '/^commands:/,/^$/s/^  \([a-z_-]*\) .*/\1/p'; }
flags() { sed -n 's/^  \(--[a-z][a-z-]*\).*/\1/p; s/^  \([a-z]*\.[a-z_]*\) .*/\1/p'; }
page=$BUILD/generated/ashlar.1
tr -d '\\' < "$page" > "$SCRATCH/page.txt"
flag_count=0

explain() { # words of a command
    try "$ASHLAR" "$@" --help
    expect 0 "$* --help"
    grep -q "^usage: ashlar $*" "$SCRATCH/out" || fail "$* --help does not begin with its usage"
    [ ! -s "$SCRATCH/err" ] || fail "$* --help writes to standard error"
    grep -q "^.SH ASHLAR $(tr '[:lower:]' '[:upper:]' <<< "$*")$" "$page" || fail "the man page lacks $*"
    local sub flag help
    help=$(cat "$SCRATCH/out")
    for flag in $(flags <<< "$help"); do
        flag_count=$((flag_count + 1))
        grep -q -- "^ *$flag" "$SCRATCH/page.txt" || fail "the man page lacks $flag of $*"
    done
    for sub in $(names <<< "$help"); do explain "$@" "$sub"; done
}
try "$ASHLAR" --help
expect 0 "--help"
commands=$(names < "$SCRATCH/out")
for name in train data generate eval model version; do
    case " $(echo $commands) " in *" $name "*) ;; *) fail "--help does not list $name" ;; esac
done
for name in $commands; do explain "$name"; done
[ "$flag_count" -gt 60 ] || fail "only $flag_count flags were found in all help texts"
if command -v groff > /dev/null; then
    groff -man -Tascii -ww "$page" > /dev/null 2> "$SCRATCH/err" || fail "groff refuses the man page"
    [ ! -s "$SCRATCH/err" ] || fail "groff warns: $(head -3 "$SCRATCH/err")"
fi
try "$ASHLAR" help generate
expect 0 "help generate"
grep -q '^usage: ashlar generate' "$SCRATCH/out" || fail "help generate explains something else"

# Wrong words.
try "$ASHLAR"
expect 2 "no command"
try "$ASHLAR" genrate
expect_error 2 "misspelt command" "ashlar generate"
try "$ASHLAR" help genrate
expect_error 2 "help of a misspelt command" "ashlar generate"
try "$ASHLAR" xyzzy
expect_error 2 "no such command" "ashlar --help"
try "$ASHLAR" version extra
expect_error 2 "a word too many" "extra"

# version: of the build, of the header, and what it can run.
try "$ASHLAR" version
expect 0 "version"
header=$(sed -n 's/^#define ASHLAR_VERSION "\(.*\)"/\1/p' "$SOURCE/include/ashlar/ashlar.h")
same "version" "ashlar $header" "$(sed -n '1s/ (.*//p' "$SCRATCH/out")"
grep -q 'backends .*ref' "$SCRATCH/out" || fail "version lists no backends: $(cat "$SCRATCH/out")"
grep -q 'jansson' "$SCRATCH/out" || fail "version lists no libraries"
cp "$SCRATCH/out" "$SCRATCH/version"
try "$ASHLAR" --version
cmp -s "$SCRATCH/out" "$SCRATCH/version" || fail "--version differs from version"
leak_free "$ASHLAR" version --json
grep -q '"backends"' "$SCRATCH/out" || fail "version --json: $(cat "$SCRATCH/out")"

# What only some commands need is loaded by those: libfabric draws in libraries that sleep when they start.
! ldd "$ASHLAR" | grep -q libfabric || fail "the program is linked to libfabric"

# Every target that `make help` lists has a recipe; the last lines of `make test` list the slowest and the skipped tests.
if command -v make > /dev/null; then
    for target in $(make -s -C "$SOURCE" help | grep -oE '(^|; +)make [a-z-]+' | sed 's/.*make //'); do
        try make -s -n -C "$SOURCE" "$target"
        [ "$code" -eq 0 ] && [ -s "$SCRATCH/out" ] || fail "make $target does nothing: $(cat "$SCRATCH/err")"
    done
fi
printf '%s\n' '1/2 Testing: e2e_one' 'skipped: needs a thing (Debian: thing)' '2/2 Testing: e2e_two' 'passed' > "$SCRATCH/LastTest.log"
same "skipped tests" "skipped tests:   e2e_one: needs a thing (Debian: thing)" "$("$SOURCE/scripts/skipped.sh" "$SCRATCH/LastTest.log" | paste -sd ' ')"
mkdir -p "$SCRATCH/build/Testing/Temporary" && log=$SCRATCH/build/Testing/Temporary/LastTest.log
for i in {1..22}; do printf '%s\n' "$i/22 Testing: e2e_$i" "Test time =   $i.50 sec"; done > "$log"
printf '%s\n' "1/22 Testing: e2e_1" "Test time =  99.00 sec" >> "$log" # a second try, longer than the first
"$SOURCE/scripts/slowest.sh" "$log" > "$SCRATCH/out"
same "slowest tests" "20 99.0e2e_1(build) total build: 22 tests, 363 s one after the other" \
    "$(grep -c '(build)$' "$SCRATCH/out") $(sed -n '2s/ //gp' "$SCRATCH/out") $(tail -n 1 "$SCRATCH/out")"

# Output that cannot be written is an error; a reader that went away is not worth a word.
code=0
"$ASHLAR" version > /dev/full 2> "$SCRATCH/err" || code=$?
expect_error 1 "full disk" "No space left"
"$ASHLAR" generate --help 2> "$SCRATCH/err" | head -n 1 > /dev/null
same "broken pipe" "" "$(cat "$SCRATCH/err")"
finish

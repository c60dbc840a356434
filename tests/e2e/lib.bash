# What the end-to-end scripts share. Sourced: `. "$SOURCE/tests/e2e/lib.bash"`. Scratch space is emptied first.
set -u
. "$SOURCE/tests/e2e/lib/ports.bash" || exit 1
rm -rf "$SCRATCH"
mkdir -p "$SCRATCH"
stories=$SOURCE/tests/golden/stories260K
failures=0
# Under AddressSanitizer a check for leaks costs seconds at the end of every process: only leak_free pays for it.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
# A rank that a busy machine does not run for a while is not lost; tests of silence set their own.
export ASHLAR_GROUP_SILENT_TIMEOUT=60 ASHLAR_FABRIC_SILENCE_MS=60000

# `LONG=1 make test` asks for the long form: every drawn case and every layout. Else a test takes seconds.
is_long() { [ -n "${LONG:-}" ] && [ "$LONG" != 0 ]; }
fail() {
    echo "FAIL: $*" >&2
    failures=$((failures + 1))
}
# Run a command; its output, messages and exit code are in $SCRATCH/out, $SCRATCH/err and $code.
try() {
    code=0
    "$@" > "$SCRATCH/out" 2> "$SCRATCH/err" < /dev/null || code=$?
}
# The same, and under AddressSanitizer memory that was not freed makes it fail.
leak_free() { ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=1 try "$@"; }
# expect CODE WHAT: the last try ended so.
expect() {
    [ "$code" -eq "$1" ] || fail "$2: exit code $code instead of $1: $(head -c 500 "$SCRATCH/err")"
}
# A failed command says why in exactly one line, which begins with "ashlar: error: " and holds the given words.
expect_error() { # code, what, words...
    expect "$1" "$2"
    [ "$(wc -l < "$SCRATCH/err")" -eq 1 ] || fail "$2: not one line of error: $(cat "$SCRATCH/err")"
    grep -q '^ashlar: error: ' "$SCRATCH/err" || fail "$2: no error line: $(cat "$SCRATCH/err")"
    local what=$2 word
    shift 2
    for word in "$@"; do
        grep -qF -- "$word" "$SCRATCH/err" || fail "$what: '$word' is not in: $(cat "$SCRATCH/err")"
    done
}
same() { # what, expected, found
    [ "$2" = "$3" ] || fail "$1: expected '$2', found '$3'"
}
# wait_for WHAT COMMAND...: until it succeeds; two minutes at most, which only what hangs takes.
wait_for() {
    local what=$1 end=$((SECONDS + 120))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || { fail "waited two minutes for $what"; return 1; }
        sleep 0.02
    done
}
finish() {
    [ "$failures" -eq 0 ] || { echo "$failures failures" >&2; exit 1; }
    exit 0
}

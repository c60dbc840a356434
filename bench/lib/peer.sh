# Sourced by bench/GROUP.sh: finding peers, and saying why one is left out. A missing peer never fails a run.

# note WORDS...: to the person who reads the run.
note() { echo "bench: $*" >&2; }

# apt_get PACKAGE...: install with apt where this user may; otherwise, or when that fails, 1.
apt_get() {
    command -v apt-get > /dev/null && [ "$(id -u)" -eq 0 ] || return 1
    note "installing $*"
    { apt-get install -y -qq --no-install-recommends "$@" ||
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"; }; } > "$BUILD/bench-apt.log" 2>&1
}

# wanted ROW...: does the pattern of this run ask for any of these rows?
wanted() {
    [ -z "$BENCH_PATTERN" ] || printf '%s\n' "$@" | grep -qE "$BENCH_PATTERN"
}

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

# find_torch: the Python that has PyTorch.
find_torch() {
    local python
    for python in python3 /usr/bin/python3; do
        "$python" -c 'import torch.distributed' 2> /dev/null && echo "$python" && return 0
    done
    return 1
}

# OpenBLAS older than the processor does not know it and takes its kernels for SSE3 ("Prescott"), alone or under PyTorch: a peer
# held back by its package is none, so it is told what the processor can do.
if [ -z "${OPENBLAS_CORETYPE:-}" ] && grep -qw avx512bw /proc/cpuinfo; then export OPENBLAS_CORETYPE=SkylakeX; fi

# wanted ROW...: does the pattern of this run ask for any of these rows?
wanted() {
    [ -z "$BENCH_PATTERN" ] || grep -qE "$BENCH_PATTERN" <<< "$(printf '%s\n' "$@")"
}

# Processes that wait to be asked, so that two of them can take turns: each prints a line when it is ready, and a line of
# answer to each line that it reads. A process that dies or stays silent for ASK_LIMIT_S is given up.
ASK_LIMIT_S=300
declare -A ask_in ask_out ask_pid
trap '' PIPE # a dead process is noticed by its missing answer

# last_words NAME: what it said was wrong.
last_words() {
    local said=$BUILD/bench-ask/$1.err
    grep -m 1 -iE 'error|cannot' "$said" || tail -n 1 "$said"
}

# ask_open NAME COMMAND...: start it; its first line goes to $answer.
ask_open() {
    local name=$1 dir=$BUILD/bench-ask in out
    shift
    mkdir -p "$dir"
    rm -f "$dir/$name".*
    mkfifo "$dir/$name.in" "$dir/$name.out"
    "$@" < "$dir/$name.in" > "$dir/$name.out" 2> "$dir/$name.err" &
    ask_pid[$name]=$!
    exec {in}> "$dir/$name.in" {out}< "$dir/$name.out"
    ask_in[$name]=$in ask_out[$name]=$out
    read -r -t "$ASK_LIMIT_S" -u "$out" answer && return 0
    note "$name did not start: $(last_words "$name")"
    ask_close "$name"
    return 1
}

# ask NAME LINE: the answer goes to $answer.
ask() {
    echo "$2" >&"${ask_in[$1]}" 2> /dev/null && read -r -t "$ASK_LIMIT_S" -u "${ask_out[$1]}" answer && return 0
    note "$1 gave no answer to '$2': $(last_words "$1")"
    return 1
}

ask_close() {
    local in=${ask_in[$1]} out=${ask_out[$1]}
    exec {in}>&- {out}<&-
    kill "${ask_pid[$1]}" 2> /dev/null || true
    wait "${ask_pid[$1]}" 2> /dev/null || true
    unset "ask_in[$1]" "ask_out[$1]" "ask_pid[$1]"
}

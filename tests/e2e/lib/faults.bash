# What faults.sh is made of: injected faults that are taken back whatever happens, control groups of either version, verdicts.
undos=()
undo() { undos+=("$1"); }
undo_last() {
    eval "${undos[-1]}" 2> "$SCRATCH/undo"
    unset 'undos[-1]'
}
undo_all() {
    end_group
    while [ ${#undos[@]} -gt 0 ]; do undo_last; done
    wait 2> "$SCRATCH/undo"
}
not_here() { echo "not here: $*"; }

# ---- verdicts --------------------------------------------------------------------------------------------------------
# judge WHAT LAYER WHERE METRIC: is it among the findings of $SCRATCH/out? In the live part, its layer must be the first one.
judge() {
    local line first
    line=$(grep -E "^  (broken|slow) +$2 " "$SCRATCH/out" | grep -F -- "$3" | grep -F -m 1 -- " $4:")
    first=$(head -n 1 "$SCRATCH/out")
    if [ -z "$line" ]; then
        fail "$1: $2, $3, $4 is not named: $(head -n 12 "$SCRATCH/out")"
    elif [ "${FAULTS:-}" = live ] && [[ $first != "$2 is the first abnormal layer"* ]]; then
        fail "$1: another layer comes first: $first"
    fi
    printf '%-34s %s\n' "$1" "$(sed 's/  */ /g' <<< "$line" | cut -c 1-150)"
}
verdict() { # what, layer, where, metric, words of diagnose
    try "$ASHLAR" diagnose "${@:5}"
    expect 0 "$1"
    judge "$1" "$2" "$3" "$4"
}
look() { "$@" 2> "$SCRATCH/err"; }
here() { verdict "$@" --here --wait 0; } # this machine, at one moment
agent_start() {
    "$ASHLAR" agent --port 0 --state '' --pages '' > "$SCRATCH/agent.out" 2> "$SCRATCH/agent.err" &
    undo "kill -KILL $!"
    wait_for "the agent" grep -q http "$SCRATCH/agent.out"
    agent_url=$(grep -o 'http://[^ ]*' "$SCRATCH/agent.out")
    mkdir -p "$SCRATCH/before" "$SCRATCH/now"
}
snap() { # name
    sleep 0.15 # what was read less than a tenth of a second ago is shown again
    curl -s "${agent_url}metrics" > "$SCRATCH/$1/here.prom"
}
# twice COMMAND WHAT LAYER WHERE METRIC: what the agent says before and after a command.
twice() {
    snap before
    eval "$1" > "$SCRATCH/between" 2>&1
    snap now
    verdict "${@:2}" "$SCRATCH/now/here.prom" --before "$SCRATCH/before"
}

# ---- control groups --------------------------------------------------------------------------------------------------
group_job=9$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
group_path='' group_pids=()
# group cpu|memory: a group as Slurm makes them for a job, by either version.
group() {
    local root=/sys/fs/cgroup
    group_kind=$1 group_path=
    if [ -e $root/cgroup.controllers ]; then
        grep -qw "$1" $root/cgroup.subtree_control || echo "+$1" > $root/cgroup.subtree_control 2> "$SCRATCH/err" || return 1
        group_path=$root/job_$group_job
    else
        [ -d "$root/$1" ] || return 1
        group_path=$root/$1/job_$group_job
    fi
    mkdir -p "$group_path" 2> "$SCRATCH/err"
}
is_old_group() { [[ $group_path != /sys/fs/cgroup/job_* ]]; }
starve_cpu() { # share of a core
    local quota
    quota=$(awk "BEGIN { printf \"%d\", $1 * 100000 }")
    if is_old_group; then echo "$quota" > "$group_path/cpu.cfs_quota_us"; else echo "$quota 100000" > "$group_path/cpu.max"; fi
}
throttled_ms() { awk '/^throttled_time/ { printf "%d", $2 / 1e6 } /^throttled_usec/ { printf "%d", $2 / 1e3 }' "$group_path/cpu.stat"; }
limit_memory() { # bytes
    if is_old_group; then echo "$1" > "$group_path/memory.limit_in_bytes"; else echo "$1" > "$group_path/memory.max"; fi
}
enter_group() { echo "$BASHPID" > "$group_path/cgroup.procs"; }
in_group() { # command
    (enter_group; eval "$1") > "$SCRATCH/group" 2>&1 &
    group_pids+=($!)
}
end_group() {
    local pid
    for pid in "${group_pids[@]}"; do
        kill -KILL "$pid" 2> "$SCRATCH/undo"
        wait "$pid" 2> "$SCRATCH/undo"
    done
    group_pids=()
    [ -z "$group_path" ] || for ((i = 0; i < 100; i++)); do rmdir "$group_path" 2> "$SCRATCH/undo" && break || sleep 0.05; done
    group_path=
}

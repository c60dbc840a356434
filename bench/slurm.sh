#!/usr/bin/env bash
# What the supervisor costs under a real Slurm of four nodes on this machine, and how long a job that loses a node, or is told to leave, is
# not computing. Nodes have processes of their own and lose their power all at once. Needs Slurm and the right to make namespaces.
set -uo pipefail
rounds=${BENCH_ROUNDS:-3}
work=$(mktemp -d /tmp/bench-slurm.XXXXXX)
row() { "$BUILD/bench/row" "$BENCH_ROWS" "$@"; }
note() { echo "bench: slurm: $*" >&2; }
wants() { [ -z "${BENCH_PATTERN:-}" ] || grep -qE "$BENCH_PATTERN" <<< "slurm/$1"; }
now() { date +%s.%N; }
less() { awk "BEGIN { print ($1 - $2) * ${3:-1} }"; }
timed() { # COMMAND...: seconds that it takes
    local began
    began=$(now)
    "$@" > "$work/out" 2>&1 || note "$*: $(tail -n 1 "$work/out")"
    less "$(now)" "$began"
}
until_true() { for ((turn = 0; turn < 12000; turn++)); do ! "$@" > "$work/true" 2>&1 || return 0; sleep 0.005; done; note "waited in vain for: $*"; }
steps_of() { grep -c '"step"' "$work/$1/log.jsonl" 2> "$work/err" || true; }
has_steps() { [ "$(steps_of "$1")" -ge "$2" ]; }
is_over() { [ -z "$(squeue --noheader)" ]; }
submit() { # name, words...: its number into $job
    local name=$1
    shift
    "$ASHLAR" submit "$work/asked.yaml" --to slurm job.name="$name" job.out="$work/$name" "$@" > "$work/out" 2>&1 || note "$name: $(cat "$work/out")"
    job=$(sed -n 's/^submitted \([0-9]*\) to slurm$/\1/p' "$work/out")
}
place_of() { local i; for i in "${!nodes[@]}"; do [ "${nodes[i]}" != "$1" ] || echo "$i"; done; }
power_off() { # the last node of job $1, or with "first" its first: power_off JOB last|first
    local list name
    list=$(scontrol show hostnames "$(squeue --noheader --jobs="$1" --format=%N)")
    name=$([ "$2" = first ] && head -n 1 <<< "$list" || tail -n 1 <<< "$list")
    place=$(place_of "$name")
    slurm_kill_node "$place"
}
power_on() { # it comes back, as Slurm knows after a moment
    slurm_daemon "slurmd-${nodes[place]}" $NODE_WRAP slurmd -D -N "${nodes[place]}"
    slurm_node_pids[place]=${slurm_daemons[-1]}
    until_true slurm_is_ready 4
}
# The longest time between two steps, of those after step $2.
longest_gap() { python3 -c "
import json
times = [line['time_s'] for line in map(json.loads, open('$work/$1/log.jsonl')) if 'time_s' in line and line.get('step', 0) >= $2]
print(max(b - a for a, b in zip(times, times[1:])))"; }

supervisor() {
    local ours=() i
    for ((i = 0; i < rounds * 3; i++)); do
        local bare with
        bare=$(timed srun --quiet -N 1 -n 1 "$ASHLAR" version)
        with=$(timed srun --quiet -N 1 -n 1 "$ASHLAR" launch --procs 1 version)
        ours+=("$(less "$with" "$bare" 1000)")
    done
    row slurm/supervisor-more ms "goal: more than srun of the same program" 1 lower "${ours[@]}" -- 50
}
# Steps of two ranks on one node: started by srun, and by the supervisor that srun starts.
step_time() {
    local ours=() theirs=() words i
    words="$work/asked.yaml model.hidden=256 model.ffn=512 model.layers=4 train.steps=150 train.global_batch=16 data.seq=64 runtime.threads=1"
    middle() { python3 -c "
import json, statistics
times = [line['time_s'] for line in map(json.loads, open('$1/log.jsonl')) if 'time_s' in line][20:]
print(statistics.median(b - a for a, b in zip(times, times[1:])))"; }
    for ((i = 0; i < rounds; i++)); do
        timed srun --quiet -N 1 -n 2 "$ASHLAR" train $words --out "$work/bare-$i" > "$work/seconds"
        timed srun --quiet -N 1 -n 1 "$ASHLAR" launch --procs 2 train $words --out "$work/kept-$i" > "$work/seconds"
        theirs+=("$(middle "$work/bare-$i")")
        ours+=("$(middle "$work/kept-$i")")
    done
    row slurm/step s "ranks that srun starts" 0.995 lower "${ours[@]}" -- "${theirs[@]}"
}
spare() {
    local ours=() i from
    for ((i = 0; i < rounds; i++)); do
        submit "spare-$i" job.nodes=2 job.spares=1 train.steps=1000000
        until_true has_steps "spare-$i" 200
        from=$(steps_of "spare-$i")
        list=$(scontrol show hostnames "$(squeue --noheader --jobs="$job" --format=%N)")
        place=$(place_of "$(sed -n 2p <<< "$list")") # the spare is the last
        slurm_kill_node "$place"
        until_true has_steps "spare-$i" $((from + 1000))
        ours+=("$(longest_gap "spare-$i" $((from - 5)))")
        scancel "$job"
        until_true is_over
        power_on
    done
    row slurm/node-lost-spare s "goal" 1 lower "${ours[@]}" -- 1.5
}
# A bare batch job that Slurm itself queues again, and ours below job.min_nodes.
requeued() {
    local began theirs ours
    job=$(sbatch --parsable --requeue --nodes=2 --output="$work/bare" --wrap "echo x >> $work/starts; srun sleep 300")
    until_true test -s "$work/starts"
    began=$(now)
    power_off "$job" first
    twice() { [ "$(wc -l < "$work/starts")" -ge 2 ]; }
    until_true twice
    theirs=$(less "$(now)" "$began")
    scancel "$job"
    until_true is_over
    power_on
    submit requeued job.nodes=2 job.min_nodes=2 train.steps=1000000 train.save_every=100
    until_true has_steps requeued 500
    before=$(steps_of requeued)
    began=$(now)
    power_off "$job" last
    again() { grep -q 'resumed *at step' "$work"/requeued/slurm-*.out && has_steps requeued $((before + 200)); }
    until_true again
    ours=$(less "$(now)" "$began")
    scancel "$job"
    until_true is_over
    power_on
    row slurm/node-lost-requeued s "a batch job that Slurm queues again" 1 lower "$ours" -- "$theirs"
}
# Told to leave: saved, ended and queued again. What a save takes is in the run's own log.
notice() {
    local ours=() i began
    for ((i = 0; i < rounds; i++)); do
        submit "told-$i" job.nodes=2 train.steps=1000000
        until_true has_steps "told-$i" 200
        began=$(now)
        scancel --signal=TERM "$job"
        again() { scontrol show job "$job" | grep -q 'Restarts=1'; }
        until_true again
        ours+=("$(less "$(now)" "$began")")
        scancel "$job"
        until_true is_over
    done
    row slurm/notice-requeued s "goal" 1 lower "${ours[@]}" -- 0.5
}
all() (
    SCRATCH=$work/slurm
    mkdir -p "$SCRATCH"
    set +u
    . "$SOURCE/tests/e2e/lib/slurm.bash"
    slurm_with_namespaces
    EXTRA_CONF="SlurmdTimeout=10
MessageTimeout=5"
    slurm_start 4
    "$ASHLAR" data arithmetic --out "$work/train" --count 4000 > "$work/out"
    cat > "$work/asked.yaml" << YAML
job: {procs: 1, notice: 5s, env: {MASTER_ADDR: 127.0.0.1}}
model: {type: llama, hidden: 16, layers: 2, heads: 2, ffn: 32}
data: {train: $work/train, seq: 16}
train: {steps: 3, global_batch: 8, grains: 4, save_every: 0}
YAML
    ! wants supervisor-more || supervisor
    ! wants step || step_time
    ! wants node-lost-spare || spare
    ! wants notice-requeued || notice
    ! wants node-lost-requeued || requeued
    exit 0
)
all || note "no rows"
rm -rf "$work"

#!/usr/bin/env bash
# Scheduling: a million jobs simulated, one pass of a full cluster, the openb experiment; what a submission costs on this machine and under
# Slurm. Goals are figures of our own where no other program does the same.
set -euo pipefail
rounds=${BENCH_ROUNDS:-3} jobs=${BENCH_QUEUE_JOBS:-1e6}
work=$(mktemp -d /tmp/bench-queue.XXXXXX)
trap 'rm -rf "$work"' EXIT
row() { "$BUILD/bench/row" "$BENCH_ROWS" "$@"; }
note() { echo "bench: queue: $*" >&2; }
wants() { [ -z "${BENCH_PATTERN:-}" ] || grep -qE "$BENCH_PATTERN" <<< "queue/$1"; }
seconds() { # COMMAND...: how long it takes
    local began ended
    began=$(date +%s.%N)
    "$@" > "$work/out" 2> "$work/err" || { note "$1 $2 $3: $(tail -n 1 "$work/err")" && return 1; }
    ended=$(date +%s.%N)
    awk "BEGIN { print $ended - $began }"
}
repeat() { for ((i = 0; i < rounds; i++)); do "$@" || return 1; done; }
simulate() { seconds "$ASHLAR" plan queue --generate acme --jobs "$jobs" --load 0.9 --cluster 10000x8 --topology 16,160,1600 --policy "$1" --json; }

if wants simulate-1M-all; then row queue/simulate-1M-all s "goal" 1 lower $(repeat simulate ashlar) -- 60; fi
if wants simulate-1M-fifo; then row queue/simulate-1M-fifo s "goal" 1 lower $(repeat simulate fifo) -- 10; fi
if wants pass-p99; then row queue/pass-p99 ms "goal" 1 lower $(repeat "$BUILD/bench/queue_pass" 10000 10000 300 | awk '{ print $2 }') -- 20; fi

# The openb experiment, from the counts that the tests have.
openb() {
    local data=$SOURCE/tests/plan/queue
    awk -F, 'BEGIN { print "sn,cpu_milli,memory_mib,gpu,model" } NR > 1 { for (i = 0; i < $1; i++) printf "n%04d,%s,%s,%s,%s\n", n++, $2, $3, $4, $5 }' \
        "$data/openb_hosts.csv" > "$work/hosts.csv"
    awk -F, 'BEGIN { print "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time" }
        NR > 1 { for (i = 0; i < $1; i++) printf "p%d,%s,%s,%s,%s,,LS,Running,%d,%d,%d\n", n++, $2, $3, $4, $5, n, n + 1000, n }' \
        "$data/openb_requests.csv" > "$work/pods.csv"
    printf 'preset: greedy\nplacement: fgd_fit\n' > "$work/policy.yaml"
    fill() { seconds "$ASHLAR" plan queue "$work/pods.csv" --cluster "$work/hosts.csv" --policy "$work/policy.yaml" --fill --seed $((i + 1)) --json; }
    seconds "$ASHLAR" plan queue "$work/pods.csv" --cluster "$work/hosts.csv" --policy "$work/policy.yaml" --fill --seeds 10 --json > "$work/seconds"
    allocated=$(python3 -c "import json; print(100 * json.load(open('$work/out'))['policies'][0]['allocated_by_percent_arrived'][100])")
    row queue/openb-allocated % "FGD, as published; both means of 10 seeds" 1 higher "$allocated" -- 95.2
    row queue/openb-experiment s "its authors' simulator, as published" 600 lower $(repeat fill) -- 600
}
if wants openb-experiment || wants openb-allocated; then openb; fi

# From a submission to the first step: local, two ranks; then what Slurm itself takes for a batch job with one step.
first_step() { # back end, name: seconds until the log has a step
    local began
    began=$(date +%s.%N)
    "$ASHLAR" submit "$work/asked.yaml" job.name="$2" job.out="$work/$2" --to "$1" > "$work/out" 2>&1
    for ((i = 0; i < 3000; i++)); do ! grep -qs '"step":1,' "$work/$2/log.jsonl" || break; sleep 0.005; done
    awk "BEGIN { print $(date +%s.%N) - $began }"
    "$ASHLAR" jobs wait "$([ "$1" = slurm ] && sed -n 's/^submitted \([0-9]*\) .*/\1/p' "$work/out" || sed -n 's/^submitted \(.*\) to .*/\1/p' "$work/out")" --to "$1" > "$work/waited" 2>&1
}
make_job() {
    "$ASHLAR" data arithmetic --out "$work/train" --count 4000 > "$work/out"
    cat > "$work/asked.yaml" << YAML
job: {nodes: 1, procs: 2, env: {MASTER_ADDR: 127.0.0.1}}
model: {type: llama, hidden: 16, layers: 2, heads: 2, ffn: 32}
data: {train: $work/train, seq: 16}
train: {steps: 3, global_batch: 8, grains: 4, save_every: 0}
YAML
}
make_job
if wants submit-local; then
    ours=()
    for ((round = 0; round < rounds; round++)); do ours+=("$(XDG_STATE_HOME=$work/state first_step local "local-$round")"); done
    row queue/submit-local s "goal" 1 lower "${ours[@]}" -- 0.35
fi
under_slurm() (
    SCRATCH=$work/slurm
    mkdir -p "$SCRATCH"
    set +eu
    . "$SOURCE/tests/e2e/lib/slurm.bash"
    slurm_start 2
    ours=() theirs=()
    for ((round = 0; round < rounds; round++)); do
        began=$(date +%s.%N)
        sbatch --quiet --ntasks=1 --output="$work/bare" --wrap "srun touch $work/bare-$round" > "$work/out"
        for ((i = 0; i < 3000; i++)); do [ ! -e "$work/bare-$round" ] || break; sleep 0.005; done
        theirs+=("$(awk "BEGIN { print $(date +%s.%N) - $began }")")
        for ((i = 0; i < 1000; i++)); do [ -n "$(squeue --noheader)" ] || break; sleep 0.02; done
        ours+=("$(first_step slurm "slurm-$round")")
        for ((i = 0; i < 1000; i++)); do [ -n "$(squeue --noheader)" ] || break; sleep 0.02; done
    done
    row queue/submit-slurm s "sbatch, srun and a program that does nothing" 0 lower "${ours[@]}" -- "${theirs[@]}"
    exit 0
)
if wants submit-slurm; then under_slurm || note "no row of Slurm"; fi

#!/usr/bin/env bash
# ashlar submit and ashlar jobs on a real Slurm of three nodes: the bits of one process, undisturbed, with a killed rank and over a time limit;
# why a job waits; hold, release and stop. Skips where Slurm is not to be had or does not start.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/lib/slurm.bash"
EXTRA_CONF="PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightJobSize=10000
PriorityWeightPartition=500"
slurm_start 3
cd "$SCRATCH" || exit 1
hash_of() { grep -o '"state_hash":"[0-9a-f]*"' "$SCRATCH/$1/log.jsonl" | tail -n 1; }
job_of() { sed -n 's/^submitted \([0-9]*\) to slurm$/\1/p' "$SCRATCH/out"; }
state_of() { "$ASHLAR" jobs ls --all --json --to slurm | python3 -c "import json,sys; print(*[j['state'] for j in json.load(sys.stdin) if j['id'] == '$1'])"; }
is_state() { [ "$(state_of "$1")" = "$2" ]; }
cat "$SCRATCH/job.yaml" - > "$SCRATCH/asked.yaml" << YAML
job: {name: asked, nodes: 2, procs: 2, notice: 5s, env: {MASTER_ADDR: 127.0.0.1}}
YAML
train one
expect 0 "one process"

# Undisturbed, with its output.
try timeout 300 "$ASHLAR" submit "$SCRATCH/asked.yaml" job.out="$SCRATCH/plain" --to slurm --follow
expect 0 "a job of two nodes"
grep -q '^submitted [0-9]* to slurm$' "$SCRATCH/out" || fail "it does not say what was submitted: $(cat "$SCRATCH/out")"
grep -q 'step .*40/40' "$SCRATCH/out" || fail "--follow does not print what the job prints: $(tail -n 3 "$SCRATCH/out")"
same "the bits of one process" "$(hash_of one)" "$(hash_of plain)"
try "$ASHLAR" jobs ls --to slurm
grep -q 'no jobs of yours wait or run' "$SCRATCH/out" || fail "an ended job is listed: $(cat "$SCRATCH/out")"

# A rank is killed: the others continue, it is started again in its place and joins them, nothing is lost, and the job is done.
try "$ASHLAR" submit "$SCRATCH/asked.yaml" $endless job.out="$SCRATCH/hit" --to slurm
job=$(job_of)
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/hit/log.jsonl"
victim=$(pgrep -f "train .*--out $SCRATCH/hit" | tail -n 1)
kill -9 "$victim"
wait_for "the others" grep -qs 'has died.*continue from step' "$SCRATCH/hit/slurm-$job.out"
wait_for "the one that comes back" grep -qs '1 process joins; 4 ranks continue from step' "$SCRATCH/hit/slurm-$job.out"
stop_run hit
try timeout 300 "$ASHLAR" jobs wait "$job" --to slurm
expect 0 "a job that lost a rank"
check_bits hit

# A notice before the time is up: it saves, ends and is queued again, and continues.
try "$ASHLAR" submit "$SCRATCH/asked.yaml" $endless job.out="$SCRATCH/told" --to slurm
job=$(job_of)
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/told/log.jsonl"
scancel --signal=TERM "$job"
wait_for "the save" grep -qs 'saved at step' "$SCRATCH/told/slurm-$job.out"
requeued() { scontrol show job "$job" | grep -q 'Restarts=1'; }
wait_for "the requeue" requeued

# It waits: why, held, released, stopped.
try "$ASHLAR" jobs hold "$job" --to slurm
expect 0 "hold"
wait_for "held" is_state "$job" held
try "$ASHLAR" jobs why "$job" --to slurm
grep -q 'its user holds it\|an administrator holds it' "$SCRATCH/out" || fail "why is it held: $(cat "$SCRATCH/out")"
try "$ASHLAR" jobs release "$job" --to slurm
expect 0 "release"
wait_for "another start" is_state "$job" running
wait_for "more steps" grep -qs 'resumed *at step' "$SCRATCH/told/slurm-$job.out"
try "$ASHLAR" submit "$SCRATCH/asked.yaml" job.nodes=3 job.time=10m job.out="$SCRATCH/later" --to slurm
later=$(job_of)
try "$ASHLAR" jobs why "$later" --to slurm
grep -q "waits in partition all: .*(Resources)\|waits in partition all: .*(Priority)\|waits in partition all: .*(None)" "$SCRATCH/out" || fail "why does it wait: $(cat "$SCRATCH/out")"
grep -q "job $job (asked)" "$SCRATCH/out" || fail "it does not say who holds the nodes: $(cat "$SCRATCH/out")"
# Its priority and what that is the sum of, as sprio has it. Ages grow, so that both are asked until nothing came between.
agrees() {
    local before
    before=$(sprio --noheader --jobs "$later" --format='%Y %J %P' | tr -s ' ')
    "$ASHLAR" jobs why "$later" --to slurm > why.out
    [ "$before" = "$(sprio --noheader --jobs "$later" --format='%Y %J %P' | tr -s ' ')" ] || return 1
    set -- $before
    [ "$2" -gt 0 ] && grep -q "^priority $1 = .*size $2 + partition $3" why.out
}
wait_for "the factors that sprio has: $(cat "$SCRATCH/out")" agrees
awk '/^priority/ { for (i = 5; i <= NF; i++) if ($i ~ /^[0-9]+$/) sum += $i; exit !(sum >= $2 - 2 && sum <= $2 + 2) }' why.out || fail "factors do not add up: $(cat why.out)"
try "$ASHLAR" jobs stop "$later" --to slurm
expect 0 "stop of a waiting job"
try "$ASHLAR" jobs stop "$job" --to slurm
expect 0 "stop"
wait_for "its end" is_state "$job" stopped
grep -q 'saved at step' "$SCRATCH/told/slurm-$job.out" || fail "a stopped job has not saved"

# What cannot be is refused at once, with what would be possible.
try "$ASHLAR" submit "$SCRATCH/asked.yaml" job.nodes=30 --to slurm
expect_error 1 "more nodes than there are" "asks for 30 nodes" "partition all has 3"
try "$ASHLAR" submit "$SCRATCH/asked.yaml" job.queue=nowhere --to slurm
expect_error 1 "a partition that is not there" "nowhere"
try "$ASHLAR" submit "$SCRATCH/asked.yaml" train.stepz=3 --to slurm
expect_error 2 "a setting that is not there" "train.stepz"
try "$ASHLAR" jobs show 99999 --to slurm
expect_error 1 "a job that is not there" "99999"
finish

#!/usr/bin/env bash
# ashlar submit and ashlar jobs on a real Slurm of three nodes: the bits of one process, undisturbed, with a killed rank and over a time limit;
# why a job waits; hold, release and stop; folders with a history or a strange name, two jobs in one, arrays. Skips where Slurm is not to be had or does not start.
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
job: {name: asked, nodes: 2, procs: 2, notice: 20s}
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
wait_for "the one that comes back" grep -qs '4 ranks continue from step' "$SCRATCH/hit/slurm-$job.out"
stop_run hit
try timeout 300 "$ASHLAR" jobs wait "$job" --to slurm
expect 0 "a job that lost a rank"
check_bits hit

# A notice before the time is up: it saves, ends and is queued again, and continues. An older model in the folder changes nothing, and what
# others keep there stays.
mkdir -p "$SCRATCH/told/members"
echo mine > "$SCRATCH/told/members/list.txt"
cp -r "$SCRATCH/one/model" "$SCRATCH/told/model"
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
try "$ASHLAR" submit "$SCRATCH/asked.yaml" job.nodes=3 job.procs=1 job.time=10m job.out="$SCRATCH/later" --to slurm
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
# A run has its folder for itself.
try "$ASHLAR" submit "$SCRATCH/asked.yaml" job.out="$SCRATCH/told" --to slurm
expect_error 2 "a folder with a run" "another process is training into this folder"
# A stop leaves a job its notice, however short Slurm's own is (KillWait, one second here): a rank that is late by three still saves.
saves() { grep -c 'saved at step' "$SCRATCH/told/slurm-$job.out"; }
before=$(saves)
late=$(pgrep -f "train .*--out $SCRATCH/told" | tail -n 1)
kill -STOP "$late"
try "$ASHLAR" jobs stop "$job" --to slurm
expect 0 "stop"
sleep 3
kill -CONT "$late"
wait_for "its end" is_state "$job" stopped
[ "$(saves)" -gt "$before" ] || fail "a stopped job has not saved: $(tail -n 5 "$SCRATCH/told/slurm-$job.out")"
same "what others keep in the folder" mine "$(cat "$SCRATCH/told/members/list.txt")"
try "$ASHLAR" jobs stop "$job" --to slurm
expect_error 1 "a second stop" "does not run"
try "$ASHLAR" jobs stop 99999 --to slurm
expect_error 1 "stop of a job that never was" "knows no job 99999"

# A folder that holds a finished run: a job that cannot resume it has failed, and is not tried again. So has one without data.
try "$ASHLAR" submit "$SCRATCH/asked.yaml" train.steps=60 job.out="$SCRATCH/plain" --to slurm --wait
expect 2 "a job that cannot resume"
try "$ASHLAR" submit "$SCRATCH/asked.yaml" data.train=/nowhere job.out="$SCRATCH/nodata" job.nodes=1 --to slurm --wait
expect 2 "a job without data"
! grep -q 'started again' "$SCRATCH"/nodata/slurm-*.out || fail "bad settings are tried again: $(cat "$SCRATCH"/nodata/slurm-*.out)"
# Two jobs of one folder that are free to start: one has it, the other ends at once.
for name in first second; do
    try "$ASHLAR" submit "$SCRATCH/asked.yaml" $endless job.nodes=1 job.out="$SCRATCH/both" job.slurm=--hold --to slurm
    declare "$name=$(job_of)"
done
scontrol release "$first"
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/both/log.jsonl"
scontrol release "$second"
try timeout 300 "$ASHLAR" jobs wait "$second" --to slurm
expect 2 "the second job of a folder"
grep -q "job $first runs in" "$SCRATCH/both/slurm-$second.out" || fail "who has the folder: $(cat "$SCRATCH/both/slurm-$second.out")"
stop_run both
try timeout 300 "$ASHLAR" jobs wait "$first" --to slurm
expect 0 "the first job of a folder: $(tail -n 5 "$SCRATCH/both/slurm-$first.out")"
check_bits both
# Tasks of an array have a folder each. Names mean themselves in the script, whatever is in them.
odd="$SCRATCH/o d%j\$(touch pwned)\`touch pwned\`'q"
try timeout 300 "$ASHLAR" submit "$SCRATCH/asked.yaml" job.nodes=1 job.out="$odd" job.slurm=--array=0-1 job.env=WORD='$(touch pwned)' --to slurm --wait
expect 0 "an array: $(tail -n 3 "$odd"/slurm-*.out)"
for task in 0 1; do
    same "task $task" "$(hash_of one)" "$(grep -o '"state_hash":"[0-9a-f]*"' "$odd/task-$task/log.jsonl" | tail -n 1)"
done
[ -z "$(find "$SCRATCH" -name pwned -print -quit)" ] || fail "a name was run as a command"

# What cannot be is refused at once, with what would be possible.
try "$ASHLAR" submit "$SCRATCH/asked.yaml" job.spares=28 --to slurm
expect_error 1 "more nodes than there are" "asks for 30 nodes" "partition all has 3"
try "$ASHLAR" submit "$SCRATCH/asked.yaml" job.queue=nowhere --to slurm
expect_error 1 "a partition that is not there" "nowhere"
try "$ASHLAR" submit "$SCRATCH/asked.yaml" train.stepz=3 --to slurm
expect_error 2 "a setting that is not there" "train.stepz"
try "$ASHLAR" jobs show 99999 --to slurm
expect_error 1 "a job that is not there" "99999"
finish

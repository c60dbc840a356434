#!/usr/bin/env bash
# ashlar submit and ashlar jobs on this machine: the bits of one process, output, exit codes, stop and what can go wrong.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
export XDG_STATE_HOME=$SCRATCH/state
cd "$SCRATCH" || exit 1
hash_of() { grep -o '"state_hash":"[0-9a-f]*"' "$SCRATCH/$1/log.jsonl" | tail -n 1; }
cat "$SCRATCH/job.yaml" - > "$SCRATCH/asked.yaml" << YAML
job: {name: asked, nodes: 2, spares: 0, env: {GREETING: "hello there"}}
YAML
train one
expect 0 "one process"
train accepted job.nodes=7
expect 0 "train looks away from the section job"
try "$ASHLAR" train "$SCRATCH/asked.yaml" --out "$SCRATCH/direct"
expect 0 "train of a file with a section job"

# What would be sent, and what is.
try "$ASHLAR" submit asked.yaml --to local --dry-run train.steps=30
expect 0 "dry run"
grep -q "^'GREETING=hello there' .*/ashlar launch --procs 2 --nodes 2 .* train $SCRATCH/asked.yaml --out $SCRATCH/runs/asked --resume train.steps=30$" "$SCRATCH/out" ||
    fail "the words of a job: $(cat "$SCRATCH/out")"
[ -e "$SCRATCH/runs/asked" ] && fail "a dry run made a folder"
try timeout 300 "$ASHLAR" submit asked.yaml --to local --follow
expect 0 "a job"
grep -q '^submitted asked-1 to local$' "$SCRATCH/out" || fail "what was submitted: $(head -n 1 "$SCRATCH/out")"
grep -q 'step .*40/40' "$SCRATCH/out" || fail "--follow prints nothing of the job: $(tail -n 3 "$SCRATCH/out")"
same "the bits of one process" "$(hash_of one)" "$(hash_of runs/asked)"
try "$ASHLAR" jobs ls --to local
grep -q 'no jobs of yours wait or run' "$SCRATCH/out" || fail "an ended job is listed: $(cat "$SCRATCH/out")"
try "$ASHLAR" jobs ls --all --json --to local
grep -q '"state": "done"' "$SCRATCH/out" || fail "an ended job is not told: $(cat "$SCRATCH/out")"
try "$ASHLAR" jobs log asked-1 --to local
grep -q 'step .*40/40' "$SCRATCH/out" || fail "its log is not printed"

# Stopped: it saves, says 75, and can be submitted again to continue.
try "$ASHLAR" submit asked.yaml --to local job.out="$SCRATCH/long" train.steps=100000 train.valid_every=0
expect 0 "a long job"
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/long/log.jsonl"
try "$ASHLAR" jobs ls --to local
grep -q '^asked-2 .* running ' "$SCRATCH/out" || fail "it does not run: $(cat "$SCRATCH/out")"
try "$ASHLAR" jobs hold asked-2 --to local
expect_error 1 "hold on this machine" "nothing to hold"
try "$ASHLAR" jobs stop asked-2 --to local
expect 0 "stop"
try timeout 300 "$ASHLAR" jobs wait asked-2 --to local
expect 75 "the exit code of what was saved and stopped"
try "$ASHLAR" jobs show asked-2 --to local
grep -q 'stopped (saved and stopped)' "$SCRATCH/out" || fail "show: $(cat "$SCRATCH/out")"
try timeout 300 "$ASHLAR" submit asked.yaml --to local job.out="$SCRATCH/long" train.steps=90000 train.valid_every=0 job.name=other --follow
expect 2 "more steps than the run has"
grep -q 'cannot resume as the same run' "$SCRATCH/out" && ! grep -q 'started again' "$SCRATCH/out" || fail "what is refused, once: $(cat "$SCRATCH/out")"
try timeout 300 "$ASHLAR" submit asked.yaml --to local job.out="$SCRATCH/long" train.steps=100000 train.valid_every=0
wait_for "the resume" grep -qs 'resumed *at step' "$SCRATCH/long/asked-3.out"
# Its keeper is killed: the job ends with it, and that is said.
kill -9 "$(sed -n 's/.*"pid": \([0-9]*\).*/\1/p' "$SCRATCH/state/ashlar/jobs/asked-3/record.json")"
try timeout 300 "$ASHLAR" jobs wait asked-3 --to local
expect 1 "a job whose keeper was killed"
grep -q 'keeper.*was killed' "$SCRATCH/err" || fail "it does not say what happened: $(cat "$SCRATCH/err")"
has_ended() { ! pgrep -f "out $SCRATCH/long" > "$SCRATCH/out"; }
wait_for "the end of its processes" has_ended

# Its time is over: it is told before that, saves, says 75, and continues when it is submitted again.
try timeout 300 "$ASHLAR" submit asked.yaml --to local $endless job.name=timed job.out="$SCRATCH/timed" job.time=66s job.notice=60s --wait
expect 75 "a job whose time is over"
grep -q 'the time of job timed-1 (66s) ends in 60s' "$SCRATCH/timed/timed-1.out" && grep -q 'saved at step' "$SCRATCH/timed/timed-1.out" ||
    fail "what it says: $(tail -n 5 "$SCRATCH/timed/timed-1.out")"
try timeout 300 "$ASHLAR" submit asked.yaml --to local $endless job.name=timed job.out="$SCRATCH/timed"
wait_for "the resume" grep -qs 'resumed *at step' "$SCRATCH/timed/timed-2.out"
stop_run timed
try timeout 300 "$ASHLAR" jobs wait timed-2 --to local
expect 0 "the same job, continued"
check_bits timed

# A run that has ended gets more steps. A job that hangs is killed when its notice is over.
try timeout 300 "$ASHLAR" submit asked.yaml --to local $endless job.name=more job.out="$SCRATCH/timed" train.steps=$(($(steps_of timed) + 50)) --allow-change --follow
expect 0 "more steps"
grep -q 'resumed *at step' "$SCRATCH/out" || fail "more steps: $(cat "$SCRATCH/out")"
try "$ASHLAR" submit asked.yaml --to local $endless job.name=hung job.out="$SCRATCH/hung" job.time=4s job.notice=1s
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/hung/log.jsonl"
try "$ASHLAR" submit asked.yaml --to local $endless job.name=hung job.out="$SCRATCH/hung"
expect_error 2 "a second job in a folder" "another process is training into this folder"
pkill -STOP -f "^[^ ]* train .*--out $SCRATCH/hung" # its ranks, not what looks after them
try timeout 60 "$ASHLAR" jobs wait hung-1 --to local
expect 143 "a job that hangs"
grep -q 'have not ended in the 1 s' "$SCRATCH/hung/hung-1.out" || fail "a job that hangs: $(tail -n 5 "$SCRATCH/hung/hung-1.out")"

# What is refused at once.
try "$ASHLAR" submit asked.yaml mesh.tp=7 --to local
expect_error 2 "a mesh for other ranks" "tp=7"
try "$ASHLAR" submit asked.yaml job.gpus=2 job.procs=4 --to local
expect_error 2 "more ranks than GPUs" "runtime.ranks_per_gpu=2"
try "$ASHLAR" submit asked.yaml job.nodes=5 --to local
expect_error 2 "more ranks than grains" "grains"
try "$ASHLAR" submit asked.yaml job.min_nodes=5 --to local
expect_error 2 "more nodes at least than at most" "job.min_nodes is 5"
try "$ASHLAR" submit asked.yaml job.time=tomorrow --to local
expect_error 2 "a time that is none" "job.time is 'tomorrow'"
try "$ASHLAR" submit asked.yaml job.name=No/Name --to local
expect_error 2 "a name that is none" "job.name"
try "$ASHLAR" submit asked.yaml job.env=oops --to local
expect_error 2 "a variable without a value" "NAME=VALUE"
try "$ASHLAR" submit asked.yaml train.grains=7 --to local
expect_error 2 "settings that the nodes would refuse" "grains"
try "$ASHLAR" submit asked.yaml --to nowhere
expect_error 1 "a back end that is not there" "local, slurm or kubernetes"
try "$ASHLAR" jobs show nothing-9 --to local
expect_error 1 "a job that is not there" "nothing-9"
try "$ASHLAR" submit
expect 2 "no job file"
finish

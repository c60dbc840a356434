#!/usr/bin/env bash
# ashlar jobs balance on a real Slurm: an elastic job gives 2 of its 4 nodes to one of a higher class that waits, and gets them back; then gives
# those that it got. No step is lost, and the bits are those of one process. The budget holds. Skips where Slurm is not to be had.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/lib/slurm.bash"
slurm_select=cons_tres # as clusters with GPUs have it
slurm_start 4
cd "$SCRATCH" || exit 1
cat job.yaml - > asked.yaml << YAML
job: {elastic: {min: 2, max: 4}, procs: 1, cpus: 4, notice: 60s, env: {MASTER_ADDR: 127.0.0.1}}
YAML
try "$ASHLAR" submit asked.yaml --to slurm job.name=big job.out="$SCRATCH/big" $endless
expect 0 "submitting" && [ "$code" -eq 0 ] || finish # nothing to wait for
big=$(sed -n 's/^submitted \([0-9]*\) to slurm$/\1/p' out)
wait_for "some steps" grep -qs '"step":20,' big/log.jsonl || finish
balance() { try timeout 100 "$ASHLAR" jobs balance --once "$@"; }
ranks_are() { [ "$(sed -n 's/.*"ranks": *\([0-9]*\).*/\1/p' big/run.json)" = "$1" ]; }
is() { [ "$(squeue --noheader --jobs="$1" --states=all --format=%T 2> squeue)" = "$2" ]; }
waits_for_nodes() { squeue --noheader --jobs="$1" --format='%T %r' 2> squeue | grep -q 'PENDING \(Resources\|Priority\)'; }
now_ms() { date +%s%3N; }
balance
expect 0 "nobody waits"
same "nobody waits" "" "$(cat out)"
# Twice: first its own nodes, then those that it got back.
for round in 1 2; do
    other=$(sbatch --parsable --output=/dev/null --nodes=2 --ntasks-per-node=1 --cpus-per-task=4 --wrap "sleep 1000")
    wait_for "a job that waits" waits_for_nodes "$other"
    balance
    expect 0 "it is no higher class"
    same "what that changes" "" "$(cat out)"
    balance --give-to any --dry-run
    same "a dry run" "job $big gives 2 of 4 nodes to job $other" "$(cat out)"
    began=$(now_ms)
    balance --give-to any
    expect 0 "giving"
    wait_for "its start" is "$other" RUNNING || finish
    gave=$(($(now_ms) - began))
    wait_for "two ranks" ranks_are 2
    scancel "$other"
    is_gone() { ! squeue --noheader --format=%i | grep -q "^$other$"; }
    wait_for "its end" is_gone
    balance --quiet 3600
    same "so soon" "" "$(cat out)"
    has_idle() { [ "$(sinfo --noheader --partition=all --states=idle --format=%D)" = 2 ]; }
    wait_for "idle nodes" has_idle
    balance --budget $((2 * round - 1)) --quiet 0
    same "beyond the budget" "" "$(cat out)"
    began=$(now_ms)
    balance --quiet 0
    expect 0 "getting back"
    same "getting back" "job $big gets 2 nodes to its 2" "$(cat out)"
    wait_for "four ranks" ranks_are 4 || finish
    echo "round $round: $gave ms until the other job ran, $(($(now_ms) - began)) ms until it had four ranks again"
done
stop_run big
try timeout 300 "$ASHLAR" jobs wait "$big" --to slurm
expect 0 "the job: $(tail -n 5 big/slurm-*.out)"
check_bits big
grep -q '"lost_steps": 0' big/ledger.json || fail "steps are lost: $(cat big/ledger.json)"

# What is refused.
for words in "job.elastic.min=5" "job.nodes=3" "job.spares=1" "job.min_nodes=3"; do
    try "$ASHLAR" submit asked.yaml --to slurm --dry-run $words
    [ "$code" -ne 0 ] && [ "$(grep -c '^ashlar: error: job\.' err)" -eq 1 ] || fail "$words: $code $(cat err)"
done
try "$ASHLAR" submit asked.yaml --to local --dry-run
expect_error 1 "this machine" "job.elastic is for Slurm"
try "$ASHLAR" submit asked.yaml --to kubernetes --dry-run job.image=a job.out=/r job.mounts=claim:/r
expect_error 1 "Kubernetes" "job.elastic is for Slurm"
PATH=/nowhere try "$ASHLAR" jobs balance --once
expect_error 1 "no Slurm" squeue
finish

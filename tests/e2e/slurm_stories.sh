#!/usr/bin/env bash
# Two stories of the scheduling policy's tests (test_policy_stories.c) on a real Slurm of eight nodes below two switches. Preemption: a low job
# saves and makes room for research, and continues; a request above a cap is refused at submission. Backfill: what ends in time starts before
# a job that waits for six nodes, what would delay that job does not. Skips where Slurm is not to be had or does not start.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/lib/slurm.bash"
host=$(hostname -s)
EXTRA_CONF="TopologyPlugin=topology/tree
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=low Nodes=$host,$host-[2-4] PriorityTier=1 GraceTime=60 State=UP
PartitionName=research Nodes=$host,$host-[2-4] PriorityTier=2 State=UP
PartitionName=interactive Nodes=ALL MaxNodes=4 MaxTime=120 PriorityTier=2 State=UP"
slurm_topology="SwitchName=a Nodes=$host,$host-[2-4]
SwitchName=b Nodes=$host-[5-8]
SwitchName=top Switches=a,b"
slurm_start 8
cd "$SCRATCH" || exit 1
job_of() { sed -n 's/^submitted \([0-9]*\) to slurm$/\1/p' "$SCRATCH/out"; }
cat "$SCRATCH/job.yaml" - > "$SCRATCH/asked.yaml" << YAML
job: {nodes: 2, procs: 1, notice: 60s, env: {MASTER_ADDR: 127.0.0.1}}
YAML
submit() { # name, words...: its number into $job
    local name=$1
    shift
    try "$ASHLAR" submit asked.yaml --to slurm job.name="$name" job.out="$SCRATCH/$name" "$@"
    expect 0 "submitting $name"
    job=$(job_of)
}
is() { [ "$(squeue --noheader --jobs="$1" --states=all --format=%T 2> "$SCRATCH/squeue")" = "$2" ]; }

# A low job holds four nodes; research takes three of them.
submit low $endless job.queue=low job.nodes=4
low=$job
wait_for "some steps" grep -qs '"step":20,' low/log.jsonl
submit research job.queue=research job.nodes=3
try timeout 300 "$ASHLAR" jobs wait "$job" --to slurm
expect 0 "research: $(cat research/slurm-*.out | tail -n 5)"
grep -q 'saved at step' "low/slurm-$low.out" || fail "the low job has not saved: $(tail -n 5 "low/slurm-$low.out")"
wait_for "the low job" grep -qs 'resumed *at step' "low/slurm-$low.out"
before=$(steps_of low)
more_steps() { [ "$(steps_of low)" -gt $((before + 20)) ]; }
wait_for "its steps" more_steps
stop_run low
try timeout 300 "$ASHLAR" jobs wait "$low" --to slurm
expect 0 "low"
check_bits low
try "$ASHLAR" submit asked.yaml job.queue=interactive job.spares=3 --to slurm
expect_error 1 "a request above the cap" "asks for 5 nodes" "partition interactive gives a job 4 at most"
try "$ASHLAR" submit asked.yaml job.queue=interactive job.time=3h --to slurm
expect_error 1 "a time above the cap" "job.time is 3h" "partition interactive gives a job 02:00:00 at most"

# Three nodes are busy for half an hour at most, six of eight are asked for. On the free leaf a job of four that ends in time starts, and one
# of a node; one that would hold a node for longer does not.
batch() { sbatch --parsable --output=/dev/null --partition=all "$@" --wrap "sleep 600"; }
busy=$(batch --nodes=3 --time=30 --nodelist="${nodes[0]},${nodes[1]},${nodes[2]}")
wait_for "the busy ones" is "$busy" RUNNING
head=$(batch --nodes=6 --time=5)
leaf=$(batch --nodes=4 --time=10 --switches=1)
wait_for "a job of one leaf that ends in time" is "$leaf" RUNNING
late=$(batch --nodes=1 --time=60)
small=$(batch --nodes=1 --time=10)
wait_for "a job of one node that ends in time" is "$small" RUNNING
is "$head" PENDING || fail "six nodes are not free: $(squeue)"
is "$late" PENDING || fail "a job that would delay another has started: $(squeue)"
scontrol show job "$leaf" | grep -q " NodeList=$host-\[5-8\]" || fail "not on one leaf: $(scontrol show job "$leaf")"
finish

#!/usr/bin/env bash
# A line in a node's kernel log drains it in a real Slurm of two nodes, with the reason that HyperPod acts on; a job then runs on the
# other node and gives the same bits. The budget holds: a second node stays. Skips where Slurm is not to be had or does not start.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/lib/slurm.bash" || exit 1
# GPUs that are none: Slurm counts files.
EXTRA_CONF=GresTypes=gpu slurm_select=cons_tres slurm_node_words=Gres=gpu:2 slurm_gres='Name=gpu File=/dev/null,/dev/zero' slurm_start 2

train alone
bits_of alone > "$SCRATCH/expected"
for i in 0 1; do
    mkdir -p "$SCRATCH/tree$i/dev"
    echo '6,1,1,-;Linux version 6.1' > "$SCRATCH/tree$i/dev/kmsg"
    slurm_daemon "agent$i" "$ASHLAR" agent --port 0 --pages "$SCRATCH/pages" --root "$SCRATCH/tree$i" --state "$SCRATCH/agent$i.json" \
        --node "${nodes[i]}" --act drain --scheduler slurm --share 0.5 --slurm-queue 0.1
    wait_for "agent $i" grep -q http "$cluster/agent$i.out"
done
drained() { scontrol show node "${nodes[$1]}" | grep -q 'State=IDLE+DRAIN'; }
# HyperPod's own self-test line, as its documentation has it.
before=$(date +%s%N)
echo '4,2,2,-;NVRM: Xid (PCI:0000:b9:00): 79, pid=1384, name=python3' >> "$SCRATCH/tree0/dev/kmsg"
wait_for "the drain" drained 0 || exit 1
echo "kernel line to drained in Slurm: $((($(date +%s%N) - before) / 1000000)) ms"
scontrol show node "${nodes[0]}" | grep -q 'Reason=Action:Reboot' || fail "reason: $(scontrol show node "${nodes[0]}" | grep Reason)"
MASTER_ADDR=127.0.0.1 try timeout 300 srun --quiet -N 1 -n 2 "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/elsewhere" --pages ''
expect 0 "a job while a node is out"
bits_of elsewhere | cmp -s - "$SCRATCH/expected" || fail "other bits on the other node"
# Half of the nodes may be out, and one of two is.
echo '4,2,2,-;NVRM: Xid (PCI:0000:b9:00): 79, pid=1384, name=python3' >> "$SCRATCH/tree1/dev/kmsg"
refused() { grep -q 'nodes are out already' "$cluster/agent1.out"; }
wait_for "the budget" refused
! drained 1 || fail "the budget did not hold"

# ---- the queue: a job that has GPUs, one that is held, one that waits for nodes that are out ------------------------------------------
(cd "$SCRATCH" && sbatch --quiet -N 1 --gres=gpu:2 --wrap "exec sleep 600" && sbatch --quiet --hold --gpus=1 --array=1-2 --wrap true &&
    sbatch --quiet -N 2 --gres=gpu:1 --wrap true) > "$SCRATCH/out" 2>&1 || fail "sbatch: $(cat "$SCRATCH/out")"
# queue_has FAMILY LABELS VALUE: what an agent serves of it.
queue_has() {
    curl -sS "$(grep -o 'http://[^ ]*' "$cluster/agent1.out")metrics" > "$SCRATCH/metrics" && grep -qE "^ashlar_queue_$1\{$2\} $3\$" "$SCRATCH/metrics"
}
while read -r family labels value; do
    wait_for "ashlar_queue_$family{$labels} $value" queue_has "$family" "$labels" "$value" || grep '^ashlar_queue' "$SCRATCH/metrics"
done << 'END'
jobs partition="all",state="running",reason="" 1
jobs partition="all",state="pending",reason="JobHeldUser" 2
jobs partition="all",state="pending",reason="(Resources|ReqNodeNotAvail|Priority|Nodes_required_for_job_are_DOWN)" 1
job_gpus partition="all",state="running",reason="" 2
job_gpus partition="all",state="pending",reason="JobHeldUser" 2
job_gpus partition="all",state="pending",reason="(Resources|ReqNodeNotAvail|Priority|Nodes_required_for_job_are_DOWN)" 2
wait_max_seconds partition="all",state="pending",reason="JobHeldUser" [1-9][0-9]*
nodes partition="all",state="drained" 1
nodes partition="all",state="mixed" 1
gpus state="used" 2
gpus state="free" 0
gpus state="out" 2
END
promtool check metrics < "$SCRATCH/metrics" > "$SCRATCH/out" 2>&1 || ! command -v promtool > "$SCRATCH/kill" || fail "promtool: $(head -n 3 "$SCRATCH/out")"
scancel --user="$(id -un)"
gone() { [ -z "$(squeue --noheader)" ]; }
wait_for "an empty queue" gone

# ---- diagnose by job: the node that Slurm itself holds for drained is named, the job's log is read, its agent is asked --------------
scontrol update NodeName="${nodes[1]}" State=RESUME
job=$(sbatch --parsable -N 1 -w "${nodes[1]}" --output "$SCRATCH/job.log" --wrap "echo 'x: CUDA error 802: system not yet initialized'; exec sleep 600")
logged() { grep -q 802 "$SCRATCH/job.log" 2> "$SCRATCH/kill"; }
wait_for "the job" logged
try "$ASHLAR" diagnose --slurm "$job" --agent-port "$(grep -o '[0-9]*/$' "$cluster/agent1.out" | tr -d /)" --wait 0.1
expect 0 "a Slurm job"
grep -q "broken software job.log:1 .*CUDA error 802" "$SCRATCH/out" || fail "the job's log: $(cat "$SCRATCH/out")"
grep -q "broken GPU  *${nodes[1]} .*kernel log: .*Xid" "$SCRATCH/out" || fail "the job's agent: $(cat "$SCRATCH/out")"
try "$ASHLAR" diagnose --slurm "$job" --agent-port 1 --wait 0
grep -q "broken host  *${nodes[1]} .*agent: " "$SCRATCH/out" || fail "an agent that does not answer: $(cat "$SCRATCH/out")"
try "$ASHLAR" diagnose --slurm 99999
expect_error 1 "a job that is not there" "Slurm knows no job"
scancel "$job"
finish

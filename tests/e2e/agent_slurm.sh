#!/usr/bin/env bash
# A line in a node's kernel log drains it in a real Slurm of two nodes, with the reason that HyperPod acts on; a job then runs on the
# other node and gives the same bits. The budget holds: a second node stays. Skips where Slurm is not to be had or does not start.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/lib/slurm.bash" || exit 1
slurm_start 2

train alone
bits_of alone > "$SCRATCH/expected"
for i in 0 1; do
    mkdir -p "$SCRATCH/tree$i/dev"
    echo '6,1,1,-;Linux version 6.1' > "$SCRATCH/tree$i/dev/kmsg"
    slurm_daemon "agent$i" "$ASHLAR" agent --port 0 --pages "$SCRATCH/pages" --root "$SCRATCH/tree$i" --state "$SCRATCH/agent$i.json" \
        --node "${nodes[i]}" --act drain --scheduler slurm --share 0.5
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

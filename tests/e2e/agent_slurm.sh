#!/usr/bin/env bash
# A line in a node's kernel log drains it in a real Slurm of two nodes, with the reason that HyperPod acts on; a job then runs on the
# other node and gives the same bits. The budget holds: a second node stays. Skips where Slurm is not to be had or does not start.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
skip() {
    echo "skipped: $*"
    exit 77
}
for tool in slurmctld slurmd srun sinfo scontrol scancel munged; do
    command -v $tool > "$SCRATCH/out" || skip "needs Slurm's $tool (scripts/deps.sh test installs it)"
done
unset "${!SLURM_@}" "${!PMI@}" # of a cluster that this runs on
host=$(hostname -s)
nodes=("$host" "$host-second")
cluster=$SCRATCH/slurm
[ ${#cluster} -le 60 ] || cluster=$(mktemp -d) # names of sockets are short
mkdir -p "$cluster"/{state,spool,tmp}
chmod 755 "$cluster"
export SLURM_CONF=$cluster/slurm.conf
daemons=()
stop_cluster() {
    timeout 5 scancel --signal=KILL --user="$(id -un)" > "$cluster/scancel" 2>&1
    [ ${#daemons[@]} -eq 0 ] || kill "${daemons[@]}" 2> "$cluster/kill"
    local file
    for file in $(grep -lsz "^SLURM_CONF=$SLURM_CONF\$" /proc/[0-9]*/environ); do
        file=${file#/proc/}
        [ "${file%/environ}" = "$BASHPID" ] || kill -9 "${file%/environ}" 2> "$cluster/kill"
    done
    wait
    case $cluster in "$SCRATCH"/*) ;; *) rm -rf "$cluster" ;; esac
}
trap stop_cluster EXIT
trap 'exit 1' INT TERM
port=$((28000 + $$ % 1500))
cat > "$SLURM_CONF" << CONF
ClusterName=ashlar
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$cluster/munge.sock
StateSaveLocation=$cluster/state
SlurmdSpoolDir=$cluster/spool/%n
TmpFS=$cluster/tmp/%n
SlurmctldPidFile=$cluster/slurmctld.pid
SlurmdPidFile=$cluster/slurmd-%n.pid
SlurmctldLogFile=$cluster/slurmctld.log
SlurmdLogFile=$cluster/slurmd-%n.log
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SlurmdParameters=config_overrides
ReturnToService=1
KillWait=1
NodeName=${nodes[0]} NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=4
NodeName=${nodes[1]} NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=4
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
start() {
    local name=$1
    shift
    "$@" > "$cluster/$name.out" 2>&1 < /dev/null &
    daemons+=($!)
}
(umask 077 && head -c 128 /dev/urandom > "$cluster/munge.key")
start munged munged --foreground --force --socket="$cluster/munge.sock" --key-file="$cluster/munge.key" \
    --pid-file="$cluster/munged.pid" --seed-file="$cluster/munged.seed" --log-file="$cluster/munged.log"
for i in $(seq 250); do [ ! -S "$cluster/munge.sock" ] || break; sleep 0.02; done
start slurmctld slurmctld -D -c
for node in "${nodes[@]}"; do
    mkdir -p "$cluster/spool/$node" "$cluster/tmp/$node"
    start "slurmd-$node" slurmd -D -N "$node"
done
ready() { [ "$(timeout 5 sinfo --noheader --states=idle --format=%D 2> /dev/null)" = 2 ]; }
for i in $(seq 200); do ! ready || break; sleep 0.05; done
ready || skip "Slurm does not start: $(tail -n 2 "$cluster"/*.out)"

train alone
bits_of alone > "$SCRATCH/expected"
for i in 0 1; do
    mkdir -p "$SCRATCH/tree$i/dev"
    echo '6,1,1,-;Linux version 6.1' > "$SCRATCH/tree$i/dev/kmsg"
    start "agent$i" "$ASHLAR" agent --port 0 --pages "$SCRATCH/pages" --root "$SCRATCH/tree$i" --state "$SCRATCH/agent$i.json" \
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
MASTER_ADDR=127.0.0.1 try timeout 60 srun --quiet -N 1 -n 2 "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/elsewhere" --pages ''
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

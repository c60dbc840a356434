#!/usr/bin/env bash
# Under a real Slurm of two nodes on this machine: srun's ranks find each other and give the bits of one process, and a rank that is
# killed is named and ends the step. Skips where Slurm is not to be had or does not start.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
skip() {
    echo "skipped: $*"
    exit 77
}
for tool in slurmctld slurmd srun sinfo scancel munged; do
    command -v $tool > "$SCRATCH/out" || skip "needs Slurm's $tool (scripts/deps.sh test installs it)"
done

unset "${!SLURM_@}" "${!PMI@}" # of a cluster that this runs on

# ---- a cluster of two nodes: ranks meet at the first node's name, so that is this host's -------------------------------
host=$(hostname -s)
nodes=("$host" "$host-second")
cluster=$SCRATCH/slurm
[ ${#cluster} -le 60 ] || cluster=$(mktemp -d) # names of sockets are short
mkdir -p "$cluster"/{state,spool,tmp}
chmod 755 "$cluster"
export SLURM_CONF=$cluster/slurm.conf
daemons=()

# Daemons, and what they started: all that has this cluster's configuration in its environment.
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

# Ports of the controller and the nodes, which nobody listens on.
free_ports() {
    local try i
    for try in $(seq 20); do
        port=$((30000 + RANDOM % 2000))
        for i in 0 1 2; do
            if (: < "/dev/tcp/127.0.0.1/$((port + i))") 2> /dev/null; then continue 2; fi
        done
        return 0
    done
    return 1
}
free_ports || skip "no free ports"
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
ReturnToService=2
KillWait=1
NodeName=${nodes[0]} NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=4
NodeName=${nodes[1]} NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=4
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
# start NAME PROGRAM...
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

# ---- the bits of one process -------------------------------------------------------------------------------------------
words="train.grains=8 train.steps=20 train.micro_batch=1 model.hidden=64 model.heads=4 model.ffn=128 model.vocab=128"
train one $words
expect 0 "one process"
bits_of one > "$SCRATCH/expected"
# gives NAME [srun's flags] -- [words]: a step of 4 ranks on 2 nodes, into $SCRATCH/NAME. $as is put before the program.
as=()
gives() {
    local what=$* name=$1 flags=()
    shift
    while [ "$1" != -- ]; do flags+=("$1"); shift; done
    shift
    try timeout 100 srun --quiet -N 2 -n 4 "${flags[@]}" "${as[@]}" "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/$name" $words "$@"
    expect 0 "$what"
    bits_of "$name" | cmp -s - "$SCRATCH/expected" || fail "$what: other bits"
    [ ! -s "$SCRATCH/err" ] || fail "$what: $(cat "$SCRATCH/err")"
}
gives dp --
gives layout -- mesh.tp=2 mesh.fsdp=2
cmp -s "$SCRATCH/one/model/model.safetensors" "$SCRATCH/layout/model/model.safetensors" || fail "the models differ"
# The ranks' numbers a second time, from another interface.
gives pmi2 --mpi=pmi2 --
! timeout 20 srun --quiet -N 2 -n 2 --mpi=pmix true 2> "$SCRATCH/err" || gives pmix --mpi=pmix -- mesh.pp=2
# Nodes that reach each other through the network only, as on two machines.
if "$ASHLAR" version | grep -q 'libfabric [0-9]'; then
    as=(sh -c 'ASHLAR_GROUP_NODE=$SLURMD_NODENAME exec "$@"' sh)
    gives net -- mesh.tp=2 mesh.fsdp=2
fi

# ---- a rank is killed: the others name it, the step ends by itself, and a resume on other ranks has the bits of an undisturbed run -----
long="train.grains=8 train.steps=400 train.hash_every=100 train.valid_every=0"
train straight $long
expect 0 "a long run"
timeout 100 srun --quiet -N 2 -n 4 --kill-on-bad-exit=0 sh -c 'echo $$ > "$0.$SLURM_PROCID"; exec "$@"' "$SCRATCH/pid" \
    "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/hit" $long > "$SCRATCH/out" 2> "$SCRATCH/err" < /dev/null &
srun=$!
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/hit/log.jsonl"
victim=$(cat "$SCRATCH/pid.3")
kill -9 "$victim"
wait $srun
code=$?
[ "$code" -ne 0 ] && [ "$code" -ne 124 ] || fail "srun ends with $code after a rank was killed"
grep -q "rank 3.*process $victim.* has died" "$SCRATCH/err" || fail "nobody names rank 3, process $victim: $(cat "$SCRATCH/err")"
for rank in 0 1 2; do
    kill -0 "$(cat "$SCRATCH/pid.$rank")" 2> /dev/null && fail "rank $rank is left over"
done
try timeout 100 srun --quiet -N 2 -n 2 "$ASHLAR" train --resume --out "$SCRATCH/hit"
expect 0 "resume on two ranks"
same "hashes after a loss" "$(grep -o '"state_hash":"[0-9a-f]*"' "$SCRATCH/straight/log.jsonl" | tail -n 1)" \
    "$(grep -o '"state_hash":"[0-9a-f]*"' "$SCRATCH/hit/log.jsonl" | tail -n 1)"
finish

# A real Slurm on this machine, for tests. Sourced after lib.bash. slurm_start N makes N nodes, named after this host, and skips the
# test where Slurm is not to be had or does not start; EXTRA_CONF holds more lines of slurm.conf, slurm_parameters more of
# SchedulerParameters, slurm_node_words more of each node, slurm_select another plugin, slurm_topology and slurm_gres the lines of topology.conf and gres.conf;
# slurm_accounting is set where accounting is wanted (slurm_accounting.bash). All of
# it ends with the script.
. "$SOURCE/tests/e2e/lib/ports.bash" || exit 1
skip() {
    echo "skipped: $*"
    exit 77
}
unset "${!SLURM_@}" "${!PMI@}" # of a cluster that this runs on
slurm_daemons=() slurm_node_pids=()
# With NODE_WRAP="unshare ..." (set by slurm_with_namespaces) a node has processes of its own, which end together.
slurm_with_namespaces() {
    NODE_WRAP="unshare --pid --fork --kill-child --mount-proc"
    $NODE_WRAP true 2> "$SCRATCH/out" || skip "needs the right to make namespaces: $(cat "$SCRATCH/out")"
}
# The node at this place in nodes loses its power: all that runs on it is gone at once.
slurm_kill_node() { kill -9 "${slurm_node_pids[$1]}"; }

# Daemons, and what they started: all that has this cluster's configuration in its environment.
slurm_stop() {
    timeout 5 scancel --signal=KILL --user="$(id -un)" > "$cluster/scancel" 2>&1
    [ ${#slurm_daemons[@]} -eq 0 ] || kill "${slurm_daemons[@]}" 2> "$cluster/kill"
    local file
    for file in $(grep -lsz "^SLURM_CONF=$SLURM_CONF\$" /proc/[0-9]*/environ); do
        file=${file#/proc/}
        [ "${file%/environ}" = "$BASHPID" ] || kill -9 "${file%/environ}" 2> "$cluster/kill"
    done
    wait
    case $cluster in "$SCRATCH"/*) ;; *) rm -rf "$cluster" ;; esac
}
slurm_daemon() { # name, program...
    local name=$1
    shift
    "$@" > "$cluster/$name.out" 2>&1 < /dev/null &
    slurm_daemons+=($!)
}
slurm_is_ready() { [ "$(timeout 30 sinfo --noheader --states=idle --format=%D 2> /dev/null)" = "$1" ]; }
slurm_start() {
    local count=$1 tool host i
    for tool in slurmctld slurmd srun sbatch sinfo scancel munged; do
        command -v $tool > "$SCRATCH/out" || skip "needs Slurm's $tool (scripts/deps.sh test installs it)"
    done
    host=$(hostname -s)
    nodes=("$host") # ranks meet at the first node's name, so that is this host's
    for i in $(seq 2 "$count"); do nodes+=("$host-$i"); done
    cluster=$SCRATCH/slurm
    [ ${#cluster} -le 60 ] || cluster=$(mktemp -d) # names of sockets are short
    mkdir -p "$cluster"/{state,spool,tmp}
    chmod 755 "$cluster"
    export SLURM_CONF=$cluster/slurm.conf
    trap slurm_stop EXIT
    trap 'exit 1' INT TERM
    free_ports || exit 1
    cat > "$SLURM_CONF" << CONF
ClusterName=ashlar
FirstJobId=$((port - 10000 + 1)) # ranks meet at a port that follows from the job's number: two clusters of this host share none
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SrunPortRange=$((22000 + (port - 10000) * 4))-$((22000 + (port - 10000) * 4 + 79)) # a port of the system's could be one that another cluster still writes to
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$cluster/munge.sock,cred_expire=5
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
SelectType=select/${slurm_select:-linear}
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=0,sched_min_interval=0${slurm_parameters:+,$slurm_parameters}
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=1
${EXTRA_CONF:-}
CONF
    for i in $(seq "$count"); do
        echo "NodeName=${nodes[i - 1]} NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + i)) CPUs=4${slurm_node_words:+ $slurm_node_words}" >> "$SLURM_CONF"
    done
    echo "PartitionName=all Nodes=ALL Default=YES State=UP" >> "$SLURM_CONF"
    [ -z "${slurm_topology:-}" ] || echo "$slurm_topology" > "$cluster/topology.conf"
    [ -z "${slurm_gres:-}" ] || echo "$slurm_gres" > "$cluster/gres.conf"
    (umask 077 && head -c 128 /dev/urandom > "$cluster/munge.key")
    slurm_daemon munged munged --foreground --force --socket="$cluster/munge.sock" --key-file="$cluster/munge.key" \
        --pid-file="$cluster/munged.pid" --seed-file="$cluster/munged.seed" --log-file="$cluster/munged.log"
    for i in $(seq 6000); do [ ! -S "$cluster/munge.sock" ] || break; sleep 0.02; done
    [ -z "${slurm_accounting:-}" ] || slurm_accounting_start
    slurm_daemon slurmctld slurmctld -D -c
    for i in "${nodes[@]}"; do
        mkdir -p "$cluster/spool/$i" "$cluster/tmp/$i"
        slurm_daemon "slurmd-$i" ${NODE_WRAP:-} slurmd -D -N "$i"
        slurm_node_pids+=("${slurm_daemons[-1]}")
    done
    for i in $(seq 1200); do ! slurm_is_ready "$count" || break; sleep 0.05; done
    slurm_is_ready "$count" || skip "Slurm does not start: $(tail -n 2 "$cluster"/*.out)"
}

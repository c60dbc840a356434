#!/usr/bin/env bash
# What goes wrong with nodes of a real Slurm: one that is not fit before a job starts, one that loses its power below job.min_nodes, and the
# scripts of deploy/slurm. The job starts elsewhere, with the reason in its output, and gives the bits of one process; the third such start
# is the job's fault. Skips where Slurm is not to be had or does not start, and without the right to make namespaces.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/lib/slurm.bash"
slurm_with_namespaces
tree=$SCRATCH/tree # per node: what it can read of itself
# The program as nodes have it: each looks at its own kernel log.
cat > "$SCRATCH/ashlar" << SH
#!/bin/sh
[ "\$1" != check ] || exec "$ASHLAR" "\$@" --root "$tree/\$SLURMD_NODENAME"
exec "$ASHLAR" "\$@"
SH
for name in prolog health; do # Slurm hands neither PATH nor settings on
    printf '#!/bin/bash\nexport SLURM_CONF=%q ASHLAR_SLURM_ENV=%q\nexec %q\n' "$SCRATCH/slurm.conf" "$SCRATCH/slurm.env" \
        "$SOURCE/deploy/slurm/$name.sh" > "$SCRATCH/$name"
done
# Only jobs that are named for it have a prolog.
printf '#!/bin/bash\ncase $(SLURM_CONF=%q squeue --noheader --format=%%j --job="$SLURM_JOB_ID") in prolog*) exec %q ;; esac\n' "$SCRATCH/slurm.conf" \
    "$SCRATCH/prolog" > "$SCRATCH/by_name"
echo "ASHLAR=$SCRATCH/ashlar" > "$SCRATCH/slurm.env"
chmod +x "$SCRATCH"/{ashlar,prolog,health,by_name}
# Long enough that a machine that is busy loses no node that lives; the dead one is known after 15 to 25 s.
EXTRA_CONF="SlurmdTimeout=10
MessageTimeout=5
Prolog=$SCRATCH/by_name
PrologFlags=Alloc"
slurm_parameters=nohold_on_prolog_fail slurm_start 12
ln -sf "$SLURM_CONF" "$SCRATCH/slurm.conf" # a scratch folder with a long name has its cluster elsewhere
cd "$SCRATCH" || exit 1
hash_of() { grep -o '"state_hash":"[0-9a-f]*"' "$SCRATCH/$1/log.jsonl" | tail -n 1; }
job_of() { sed -n 's/^submitted \([0-9]*\) to slurm$/\1/p' "$SCRATCH/out"; }
said() { cat "$SCRATCH/$1"/slurm-*.out; }
good_node() { mkdir -p "$tree/$1/dev" && echo '6,1,1,-;Linux version 6.1' > "$tree/$1/dev/kmsg"; }
bad_node() { echo '4,2,2,-;NVRM: Xid (PCI:0000:b9:00): 79, pid=1384, name=python3' >> "$tree/$1/dev/kmsg"; }
for node in "${nodes[@]}"; do good_node "$node"; done
cat "$SCRATCH/job.yaml" - > "$SCRATCH/asked.yaml" << YAML
job: {nodes: 2, procs: 1, notice: 5s, check: quick, env: {MASTER_ADDR: 127.0.0.1}}
YAML
# submit NAME FIRST COUNT WORDS...: one of the scenes below, on its own part of the nodes. A requeue takes seconds: all scenes wait together.
submit() {
    local name=$1 part
    part=$(IFS=, && echo "${nodes[*]:$2:$3}")
    shift 3
    scontrol create PartitionName="$name" Nodes="$part" State=UP > "$SCRATCH/partition" 2>&1 || fail "partition $name: $(cat "$SCRATCH/partition")"
    try "$ASHLAR" submit "$SCRATCH/asked.yaml" --to slurm --program "$SCRATCH/ashlar" job.name="$name" job.queue="$name" job.out="$SCRATCH/$name" "$@"
    expect 0 "submitting $name" && [ "$code" -eq 0 ] || finish # nothing to wait for
    job=$(job_of)
}
ended() {
    try timeout 400 "$ASHLAR" jobs wait "$2" --to slurm
    expect "$1" "$3: $(said "$3" | tail -n 20)"
}

# Of three nodes the first is not fit, and two are asked for.
bad_node "${nodes[0]}"
submit unfit 0 3
unfit=$job
# Two starts have met such nodes; the third is the last.
bad_node "${nodes[3]}"
submit fault 3 1 job.nodes=1 job.slurm=--hold
fault=$job
printf 'other-1\nother-2,other-3\n' > "$SCRATCH/fault/unfit-$fault"
scontrol release "$fault"
# A node loses its power, and two are the fewest. The master's name is the first node's.
long="train.steps=1500 train.hash_every=500 train.valid_every=0 train.save_every=20"
submit power 4 3 $long job.min_nodes=2
power=$job
# deploy/slurm's prolog finds one of two nodes unfit.
bad_node "${nodes[7]}"
submit prologued 7 2 job.nodes=1 job.check=none
prologued=$job
# The first node loses its power, and with it the script and srun: the other continues, and the job does not stay behind.
submit first 9 3 $long
first=$job
has_save() { compgen -G "$SCRATCH/$1/checkpoints/step-*/manifest.json" > "$SCRATCH/out"; }
wait_for "a save" has_save power
slurm_kill_node 5
wait_for "a save" has_save first
slurm_kill_node 9
train one
train straight $long

# Left out with the reason; the job ran on others.
ended 0 "$unfit" unfit
said unfit | grep -q "^ashlar: node ${nodes[0]} is not fit: BAD kernel log .*Xid" || fail "the reason: $(said unfit)"
same "the bits of one process" "$(hash_of one)" "$(hash_of unfit)"
ended 78 "$fault" fault
said fault | grep -q 'it is the job, not the nodes' || fail "whose fault: $(said fault)"
# The prolog drained the node, and the job ran on the other.
ended 0 "$prologued" prologued
is_drained() { scontrol show node "$1" | grep -q 'Reason=ashlar check: .*Xid'; }
is_drained "${nodes[7]}" || fail "the prolog drained nothing: $(scontrol show node "${nodes[7]}")"
same "the bits of one process" "$(hash_of one)" "$(hash_of prologued)"
# The health check brings back what was drained for its reasons, once it is fit; what others drained stays.
health() { SLURMD_NODENAME=$1 "$SCRATCH/health"; }
is_idle() { [ "$(sinfo --noheader --nodes="$1" --format=%T | sort -u)" = idle ]; }
good_node "${nodes[7]}"
scontrol update NodeName="${nodes[8]}" State=DRAIN Reason=cable
health "${nodes[7]}"
health "${nodes[8]}"
wait_for "the way back" is_idle "${nodes[7]}"
scontrol show node "${nodes[8]}" | grep -q 'Reason=cable' || fail "what others drained came back"
bad_node "${nodes[7]}"
health "${nodes[7]}"
is_drained "${nodes[7]}" || fail "the health check drained nothing: $(scontrol show node "${nodes[7]}")"
# Queued again without the dead node, resumed from the last save, 0 finished steps lost.
ended 0 "$power" power
said power | grep -q "^ashlar: node ${nodes[5]} does not answer" || fail "the dead node: $(said power)"
said power | grep -q 'resumed *at step' || fail "it did not resume: $(said power | tail -n 20)"
same "its bits" "$(hash_of straight)" "$(hash_of power)"
ended 0 "$first" first
same "its bits" "$(hash_of straight)" "$(hash_of first)"
finish

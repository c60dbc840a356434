#!/usr/bin/env bash
# Under a real Slurm of two nodes on this machine: srun's ranks find each other and give the bits of one process, and a rank that is
# killed is named and ends the step. Skips where Slurm is not to be had or does not start.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/lib/slurm.bash"
slurm_start 2

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
    try timeout 400 srun --quiet -N 2 -n 4 "${flags[@]}" "${as[@]}" "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/$name" $words "$@"
    expect 0 "$what"
    bits_of "$name" | cmp -s - "$SCRATCH/expected" || fail "$what: other bits"
    [ ! -s "$SCRATCH/err" ] || fail "$what: $(cat "$SCRATCH/err")"
}
gives dp --
gives layout -- mesh.tp=2 mesh.fsdp=2
cmp -s "$SCRATCH/one/model/model.safetensors" "$SCRATCH/layout/model/model.safetensors" || fail "the models differ"
# The ranks' numbers a second time, from another interface.
gives pmi2 --mpi=pmi2 --
! timeout 60 srun --quiet -N 2 -n 2 --mpi=pmix true 2> "$SCRATCH/err" || gives pmix --mpi=pmix -- mesh.pp=2
# Nodes that reach each other through the network only, as on two machines.
if "$ASHLAR" version | grep -q 'libfabric [0-9]'; then
    as=(sh -c 'ASHLAR_GROUP_NODE=$SLURMD_NODENAME exec "$@"' sh)
    gives net -- mesh.tp=2 mesh.fsdp=2
fi

# ---- a rank is killed: the others name it and continue until they are told to stop, and a resume on other ranks has the bits of an undisturbed run -----
long="train.grains=8 $endless"
timeout 400 srun --quiet -N 2 -n 4 --kill-on-bad-exit=0 sh -c 'echo $$ > "$0.$SLURM_PROCID"; exec "$@"' "$SCRATCH/pid" \
    "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/hit" $long > "$SCRATCH/hit.out" 2> "$SCRATCH/hit.err" < /dev/null &
srun=$!
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/hit/log.jsonl"
victim=$(cat "$SCRATCH/pid.3")
kill -9 "$victim"
wait_for "the name of rank 3, process $victim" grep -q "rank 3.*process $victim.* has died" "$SCRATCH/hit.err" || cat "$SCRATCH/hit.err"
stop_run hit
wait $srun
code=$?
[ "$code" -ne 0 ] && [ "$code" -ne 124 ] || fail "srun ends with $code after a rank was killed"
for rank in 0 1 2; do
    kill -0 "$(cat "$SCRATCH/pid.$rank")" 2> /dev/null && fail "rank $rank is left over"
done
try timeout 400 srun --quiet -N 2 -n 2 "$ASHLAR" train --resume --out "$SCRATCH/hit" --allow-change train.steps=$(($(steps_of hit) + 50))
expect 0 "resume on two ranks"
check_bits hit train.grains=8
finish

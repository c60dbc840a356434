#!/usr/bin/env bash
# Ranks that share a GPU whose kernels run on the host, and read each other's memory there: one of three is killed and comes
# back, one leaves, and the others go on with the bits of one process. None of them waits for ever for a rank that is gone.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
[ -x "$BUILD/tests/ashlar_emulated" ] || exit 77
EMULATED=$BUILD/tests/ashlar_emulated

# survive NAME LAYOUT...: three ranks
survive() {
    local name=$1 launcher
    shift
    says() { grep -q -- "$1" "$SCRATCH/$name.err"; }
    "$EMULATED" launch --procs 3 --restarts 3 train "$SCRATCH/job.yaml" --out "$SCRATCH/$name" $endless runtime.threads=1 \
        runtime.backend=cuda runtime.ranks_per_gpu=3 "$@" > "$SCRATCH/$name.out" 2> "$SCRATCH/$name.err" < /dev/null &
    launcher=$!
    wait_for "some steps" grep -qs '"step":3,' "$SCRATCH/$name/log.jsonl"
    kill -9 "$(pgrep -P $launcher | sed -n 2p)"
    wait_for "one that comes back" says '3 ranks continue from step [0-9]*'
    kill -TERM "$(pgrep -P $launcher | sed -n 1p)"
    wait_for "what the others do" says '1 rank leaves; 2 ranks continue from step [0-9]*'
    kill -TERM $launcher
    wait $launcher
    same "$name: told to stop" 75 $?
    says 'go through host memory' && fail "$name: they do not read each other's memory"
    check_bits "$name" runtime.backend=ref
    grep -q '"lost_steps": 0' "$SCRATCH/$name/ledger.json" || fail "$name: steps are lost: $(cat "$SCRATCH/$name/ledger.json")"
}

# Drawn layouts of drawn models end in the state of one process.
RANDOM=${SEED:-23}
layouts=("2 mesh.dp=2" "2 mesh.fsdp=2 mesh.zero=1" "2 mesh.fsdp=2 mesh.zero=2" "3 mesh.fsdp=3 mesh.zero=3" "4 mesh.dp=2 mesh.fsdp=2 mesh.zero=3"
    "2 mesh.tp=2" "2 mesh.cp=2" "4 mesh.tp=2 mesh.dp=2" "4 mesh.pp=2 mesh.fsdp=2 mesh.zero=2")
draws=2
! is_long || draws=5
for draw in $(seq $draws); do
    words="train.steps=3 train.hash_every=1 train.valid_every=0 schedule.warmup=0 runtime.threads=1 model.vocab=64 model.heads=4 model.hidden=$((16 + RANDOM % 3 * 16))
        model.layers=$((2 + RANDOM % 3)) model.ffn=64 train.global_batch=8 train.grains=4 train.micro_batch=$((1 + RANDOM % 2))"
    layout=${layouts[RANDOM % ${#layouts[@]}]}
    rm -rf "$SCRATCH/one" "$SCRATCH/drawn"
    train one $words runtime.backend=ref
    expect 0 "draw $draw: one process"
    try "$EMULATED" launch --procs "${layout%% *}" train "$SCRATCH/job.yaml" --out "$SCRATCH/drawn" $words ${layout#* } \
        runtime.backend=cuda runtime.ranks_per_gpu="${layout%% *}"
    expect 0 "draw $draw: $layout"
    same "draw $draw: $layout" "$(bits_of one | md5sum)" "$(bits_of drawn | md5sum)"
done
# Queues that cannot wait for values: through host memory, and a warning.
STANDIN_NO_VALUES=1 try "$EMULATED" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/values" train.steps=1 train.valid_every=0 schedule.warmup=0 mesh.dp=2 \
    runtime.backend=cuda runtime.ranks_per_gpu=2
expect 0 "without values"
grep -q 'go through host memory, which is slower: .*cannot wait for values in memory' "$SCRATCH/err" || fail "no warning: $(cat "$SCRATCH/err")"
# A GPU that fails for one rank is a lost rank: the others continue, with the same bits.
cat > "$SCRATCH/trap.sh" << SH
[ "\$RANK" != 1 ] || export STANDIN_TRAP_AT=\$((120 + RANDOM % 100))
exec "$EMULATED" "\$@"
SH
words="train.steps=12 train.hash_every=1 train.valid_every=0 runtime.threads=1"
try "$EMULATED" launch --procs 3 --elastic 1 --program bash "$SCRATCH/trap.sh" train "$SCRATCH/job.yaml" --out "$SCRATCH/trap" $words mesh.dp=3 \
    runtime.backend=cuda runtime.ranks_per_gpu=3
expect 0 "a GPU that fails for one of three ranks"
grep -q '^\[1\].*error: GPU 0 (stand-in GPU): .*CUDA_ERROR_ILLEGAL_ADDRESS' "$SCRATCH/err" || fail "it does not say so: $(cat "$SCRATCH/err")"
grep -q 'CUDA_ERROR_ILLEGAL_ADDRESS.* 2 ranks continue from step [0-9]* as dp=2' "$SCRATCH/err" || fail "the others end: $(cat "$SCRATCH/err")"
train trap-one $words runtime.backend=ref
expect 0 "one process"
same "a GPU that fails" "$(bits_of trap-one | md5sum)" "$(bits_of trap | md5sum)"
survive sharded mesh.fsdp=3 mesh.zero=3
survive replicas mesh.dp=3
finish

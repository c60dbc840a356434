#!/usr/bin/env bash
# A rank dies in one of its grains: the grains that the others had finished are kept, whoever is there afterwards, and the bits are those of one
# process. Ranks, grains, layout, the rank, its grain and what follows are drawn: GRAINS_SEED=7 GRAINS_CASES=200 tests/e2e/train_grains.sh.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
RANDOM=${GRAINS_SEED:-1}
cases=${GRAINS_CASES:-4}
case $BUILD in *address* | *asan* | *thread*) cases=${GRAINS_CASES:-2} ;; esac
points=12 forward=1 backward=2 reduce=3 # base/fault_point.h

# draw NAME WORD...: NAME becomes one of the words.
draw() {
    local name=$1
    shift
    printf -v "$name" %s "${@:RANDOM % $# + 1:1}"
}
first_of() { echo $((grains * $1 / procs)); } # grain of a rank
for ((i = 0; i < cases; i++)); do
    draw procs 2 3 4
    draw grains 4 6 9 12
    draw way shrink spare restart
    draw axis mesh.dp "mesh.zero=1 mesh.fsdp"
    draw point $forward $backward $backward $reduce
    rank=$((RANDOM % procs))
    own=$(($(first_of $((rank + 1))) - $(first_of $rank)))
    passes=$((point == reduce ? 0 : RANDOM % own))
    words="train.grains=$grains train.global_batch=$grains train.steps=12 train.hash_every=1 train.valid_every=0 runtime.threads=1"
    launch="--procs $procs"
    case $way in
        spare) launch="--procs $((procs + 1))" words="$words recover.spares=1" ;;
        restart) launch="$launch --restarts 1" ;;
    esac
    nodes=1
    [ $((procs % 2)) -ne 0 ] || [ "$way" = spare ] || draw nodes 1 2
    what="$way: $nodes nodes, $axis=$procs, $grains grains, rank $rank at $point, $passes times before"
    rm -rf "$SCRATCH/one" "$SCRATCH/many"
    train one $words recover.spares=0
    expect 0 "$what: one process"
    mkdir "$SCRATCH/many"
    echo "{\"die\": $((1 + points * rank + point)), \"passes\": $passes}" > "$SCRATCH/many/request.json"
    try "$ASHLAR" launch $launch --nodes $nodes train "$SCRATCH/job.yaml" --out "$SCRATCH/many" $words $axis="$procs"
    expect 0 "$what: $(cat "$SCRATCH/err")"
    same "$what: bits" "$(bits_of one)" "$(bits_of many)"
    counts=$(sed -n 's/.*"kept_grains": \([0-9]*\),.*/\1/p; s/.*"redone_grains": \([0-9]*\),.*/\1/p' "$SCRATCH/many/ledger.json" | tr '\n' ' ')
    same "$what: grains of one step" "$grains" "$((${counts// /+}0))"
    [ $nodes -eq 1 ] || continue # layer by layer as it is computed, a last grain is reduced there: who has begun it depends
    grep -q "; kept $((grains - own)) of $grains grains of step " "$SCRATCH/err" || fail "$what: not all are kept: $(cat "$SCRATCH/err")"
    grep -q "\"kept_grains\": $((grains - own))," "$SCRATCH/many/ledger.json" || fail "$what: $(cat "$SCRATCH/many/ledger.json")"
    grep -q "\"redone_grains\": $own," "$SCRATCH/many/ledger.json" || fail "$what: $(cat "$SCRATCH/many/ledger.json")"
done
finish

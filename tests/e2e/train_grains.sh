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
all_kept=0
# On a busy machine others may not have begun when a rank dies. Not every time.
for ((i = 0; i < cases || (all_kept == 0 && i < 40); i++)); do
    draw procs 2 3 4
    draw grains 4 6 9 12
    draw way shrink spare restart
    draw axis mesh.dp "mesh.zero=1 mesh.fsdp"
    draw point $forward $backward $backward $reduce
    rank=$((RANDOM % procs))
    own=$(($(first_of $((rank + 1))) - $(first_of $rank)))
    passes=$((point == reduce ? 0 : RANDOM % own))
    words="train.grains=$grains train.global_batch=$grains train.steps=12 train.hash_every=1 train.valid_every=0 runtime.threads=1 group.silent_timeout=600"
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
    kept=$(sed -n 's/.*"kept_grains": \([0-9]*\),.*/\1/p' "$SCRATCH/many/ledger.json")
    grep -q "\"redone_grains\": $((grains - kept))," "$SCRATCH/many/ledger.json" || fail "$what: $(cat "$SCRATCH/many/ledger.json")"
    [ "$kept" -le $((grains - own)) ] || fail "$what: $kept are kept, also of the one that died"
    said=$(sed -n "s/.*; kept \([0-9]*\) of $grains grains of step [0-9]*$/\1/p" "$SCRATCH/err")
    same "$what: what is said" "$kept" "${said:-0}"
    all_kept=$((all_kept + kept))
done
echo "$all_kept grains kept in $i cases"
[ "$all_kept" -gt 0 ] || fail "no grain is ever kept"
finish

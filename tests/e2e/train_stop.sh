#!/usr/bin/env bash
# A rank that waits for one that does not come ends on SIGTERM and on Ctrl-C: it says for whom it waited, saves what is finished and leaves
# nothing behind.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
free_ports

# start NAME: two ranks by hand, patient with each other. Their ids in $first and $second.
start() {
    port=$((port + 1))
    local rank
    for rank in 0 1; do
        (export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port RANK=$rank
            exec "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/$1" train.steps=100000 train.valid_every=0 group.silent_timeout=600 \
                group.stop_grace=0.5) > "$SCRATCH/out$rank" 2> "$SCRATCH/err$rank" < /dev/null &
        [ $rank = 0 ] && first=$! || second=$!
    done
}

for signal in TERM INT; do
    start $signal
    wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/$signal/log.jsonl"
    kill -STOP $second
    sleep 0.3 # the first one waits by now
    kill -s $signal $first
    [ $signal = INT ] && sleep 0.7
    code=0
    wait $first || code=$?
    cp "$SCRATCH/err0" "$SCRATCH/err"
    expect $((128 + $(kill -l $signal))) "SIG$signal while it waits"
    grep -q '^ashlar: stopping after this step' "$SCRATCH/err0" || fail "SIG$signal: nothing is said at once: $(cat "$SCRATCH/err0")"
    grep -q '^ashlar: error: .*rank 1' "$SCRATCH/err0" || fail "SIG$signal: it does not say for whom it waited: $(cat "$SCRATCH/err0")"
    grep -q '^ended and saved at step' "$SCRATCH/out0" || fail "SIG$signal: it does not say what was saved: $(tail -n 2 "$SCRATCH/out0")"
    grep -q "train --resume --out $SCRATCH/$signal\$" "$SCRATCH/out0" || fail "SIG$signal: it does not say how to resume"
    [ -e "$SCRATCH/$signal/.lock" ] && fail "SIG$signal: the lock is left behind"
    kill -CONT $second
    wait $second 2> /dev/null && fail "SIG$signal: the other rank says that all is well"
    try "$ASHLAR" train --resume --out "$SCRATCH/$signal" --allow-change train.steps=$(($(steps_of $signal) + 5))
    expect 0 "SIG$signal: resumed"
done

# A rank under `ashlar launch` is stopped for good (or hangs): the others finish without it, and it is killed after the grace.
ASHLAR_GROUP_SILENT_TIMEOUT=3 "$ASHLAR" launch --procs 2 --grace 0.5 train "$SCRATCH/job.yaml" --out "$SCRATCH/hung" $endless > "$SCRATCH/out" 2> "$SCRATCH/err" &
launcher=$!
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/hung/log.jsonl"
kill -STOP "$(pgrep -P $launcher | tail -n 1)"
wait_for "the loss" grep -q 'rank 1 .* silent' "$SCRATCH/err"
try "$ASHLAR" run stop "$SCRATCH/hung" --wait 60
expect 0 "a run without its stopped rank is told to stop"
ended() { ! kill -0 $launcher 2> /dev/null; }
wait_for "the launcher's end" ended || kill -9 $launcher
wait $launcher
same "exit code without a rank that hangs" 0 $?
grep -q '1 of its processes did not end' "$SCRATCH/err" || fail "it does not say what it killed: $(cat "$SCRATCH/err")"

# A launcher that is killed leaves nothing in /tmp: its last rank, or the next launcher, removes its folder.
job_folder() { # of a launcher's ranks
    local rank
    rank=$(pgrep -P "$1" | head -n 1)
    tr '\0' '\n' < "/proc/$rank/environ" | sed -n 's/^ASHLAR_GROUP_JOB_DIR=//p'
}
"$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/killed" $endless > "$SCRATCH/out" 2> "$SCRATCH/err" &
launcher=$!
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/killed/log.jsonl"
folder=$(job_folder $launcher)
[ -d "$folder" ] || fail "no folder of the job: $folder"
# a job of one machine cannot be reached from others
python3 - $(pgrep -P $launcher) << 'PY' || fail "a rank listens for other machines"
import glob, os, re, sys
inodes = {m.group(1) for pid in sys.argv[1:] for fd in glob.glob(f"/proc/{pid}/fd/*") if (m := re.match(r"socket:\[(\d+)\]", os.readlink(fd)))}
rows = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}").readlines()[1:]]
heard = [row[1] for row in rows if row[3] == "0A" and row[9] in inodes]
sys.exit(not heard or any(not address.startswith("0100007F:") for address in heard))
PY
kill -9 $launcher
swept() { [ ! -e "$folder" ]; }
wait_for "the end of its ranks" swept || fail "a killed launcher leaves $folder"
"$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/all_killed" $endless > "$SCRATCH/out" 2> "$SCRATCH/err" &
launcher=$!
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/all_killed/log.jsonl"
folder=$(job_folder $launcher)
kill -9 $launcher $(pgrep -P $launcher)
[ -d "$folder" ] || fail "nothing is left to be removed: $folder"
try "$ASHLAR" launch --procs 2 version
[ -e "$folder" ] && fail "the next launcher leaves $folder"

# All ranks killed at once can say nothing: their launcher says how to continue.
for every in 0 10; do
    "$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/ranks_killed$every" $endless train.save_every=$every > "$SCRATCH/out" 2> "$SCRATCH/err" &
    ranks=$!
    wait_for "some steps" grep -qs '"step":30,' "$SCRATCH/ranks_killed$every/log.jsonl"
    kill -9 $(pgrep -P $ranks)
    wait $ranks
    same "ranks that are all killed" 137 $?
    words=('nothing was saved' "resume with: ashlar launch --procs 2 train --resume --out $SCRATCH/ranks_killed10")
    grep -qF "${words[every / 10]}" "$SCRATCH/out" || fail "save_every=$every, all ranks killed: $(tail -n 3 "$SCRATCH/out")"
done

# Nodes may share the run's own folder: nothing in it is removed.
port=$((port + 1))
train shared
echo notes > "$SCRATCH/shared/my-notes.txt"
try "$ASHLAR" launch --procs 1 --nodes 1 --node-rank 0 --job-dir "$SCRATCH/shared" --master 127.0.0.1:$port train "$SCRATCH/job.yaml" --resume --out "$SCRATCH/shared"
expect 0 "the run's folder as --job-dir"
grep -q 'step 40 of 40' "$SCRATCH/out" || fail "--job-dir: the run is not resumed: $(cat "$SCRATCH/out")"
[ -e "$SCRATCH/shared/my-notes.txt" ] || fail "--job-dir empties a folder of the user's"
mkdir -p "$SCRATCH/mine/.ashlar-members"
echo notes > "$SCRATCH/mine/.ashlar-members/list.txt"
try "$ASHLAR" launch --procs 1 --nodes 1 --node-rank 0 --job-dir "$SCRATCH/mine" --master 127.0.0.1:$port version
expect_error 1 "members that launch did not make" "mine/.ashlar-members" "choose another folder"

# Nobody comes to meet: a stop request ends that, too.
(export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 1)) RANK=0
    exec "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/alone") > "$SCRATCH/out" 2> "$SCRATCH/err" < /dev/null &
first=$!
listens() { grep -qsi "$(printf ':%04X 00000000' $((port + 1)))" /proc/net/tcp /proc/net/tcp6; }
wait_for "a rank that waits for others" listens
kill -TERM $first
code=0
wait $first || code=$?
expect 143 "SIGTERM before the ranks have met"
[ -e "$SCRATCH/alone" ] && fail "ranks that never met left a folder"
finish

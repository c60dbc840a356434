#!/usr/bin/env bash
# ashlar launch: processes with torchrun's variables, whose output, exit codes and ends are as promised; and nothing stays behind.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
mark=ashlar-launch-test-$$- # in the command line of everything started here

launch() { try "$ASHLAR" launch "$@"; }
left_over() { pgrep -f "$mark" > /dev/null; }

launch --procs 3 --program sh -c 'echo "$RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, $MASTER_ADDR"; echo "to stderr" >&2' $mark
expect 0 "three processes"
same "what they print" "0 of 3, 0 of 3, 127.0.0.1
[1] 1 of 3, 1 of 3, 127.0.0.1
[2] 2 of 3, 2 of 3, 127.0.0.1" "$(sort "$SCRATCH/out")"
same "their messages" "[1] to stderr
[2] to stderr
to stderr" "$(sort "$SCRATCH/err")"

launch --procs 4 --nodes 2 --program sh -c 'echo "$RANK $GROUP_RANK $LOCAL_RANK $ASHLAR_GROUP_NODE"' $mark
same "two nodes" "0 0 0 node0
[1] 1 0 1 node0
[2] 2 1 0 node1
[3] 3 1 1 node1" "$(sort "$SCRATCH/out")"

launch --procs 2 --program sh -c 'printf "a line without an end"' $mark
grep -q '\[1\] a line without an end' "$SCRATCH/out" || fail "an unfinished line is lost: $(cat "$SCRATCH/out")"

# The first failure decides, and the others are ended after the grace.
launch --procs 3 --grace 0.2 --program sh -c '[ "$RANK" = 1 ] && exit 7; exec sleep 100' $mark
expect 7 "one that fails"
grep -q 'rank 1 ended with exit code 7' "$SCRATCH/err" || fail "it does not say who failed: $(cat "$SCRATCH/err")"
launch --procs 2 --grace 0.2 --program sh -c '[ "$RANK" = 1 ] && kill -9 $$; exec sleep 100' $mark
expect 137 "one that is killed"
grep -q 'rank 1 was killed by signal 9' "$SCRATCH/err" || fail "it does not say who was killed: $(cat "$SCRATCH/err")"

# What all ranks refuse in the same words is told by the first one, and once for the others.
launch --procs 4 train nowhere.yaml --out "$SCRATCH/none"
expect 2 "a job file that is not there"
same "who says so" 2 "$(grep -c "cannot open 'nowhere.yaml'" "$SCRATCH/err")"
same "how they ended" 2 "$(grep -c 'ended with exit code 2' "$SCRATCH/err")"

# Some fail at the start and the others do well: that is no good end, and it says whose fault it was.
launch --procs 4 --nodes 4 --grace 60 launch --procs 1 --program sh -c 'case $ASHLAR_GROUP_NODE in node[12]) exit 7 ;; esac' $mark
expect 7 "two that fail while the others do well"
grep -q '^ashlar: error: ranks* [12] ended with exit code 7 too' "$SCRATCH/err" || fail "it does not say who else failed: $(cat "$SCRATCH/err")"
grep -q '2 of 4 ranks ended well, but rank [12] was not replaced: exit code 7' "$SCRATCH/err" || fail "it does not say why it failed: $(cat "$SCRATCH/err")"

# Ranks are called ashlar, for top, pgrep and people.
launch --procs 2 version
expect 0 "ranks of the program itself"
"$ASHLAR" launch --procs 2 agent --port 0 --state "" > "$SCRATCH/out" 2>&1 &
launcher=$!
named() { ps -o comm= -o args= --ppid $launcher > "$SCRATCH/names"; grep -q '^ashlar  *ashlar agent' "$SCRATCH/names"; }
wait_for "a name" named || fail "ranks are called: $(cat "$SCRATCH/names")"
kill -TERM $launcher
wait $launcher

# A child of a rank does not outlive the job.
launch --procs 2 --program sh -c "sh -c 'sleep 100; : $mark' & exit 0" $mark
expect 0 "ranks that leave children"
left_over && fail "a grandchild is still there"

# Ctrl-C reaches all; a launcher that is killed takes its ranks with it.
"$ASHLAR" launch --procs 3 --program sh -c 'touch "$0.$RANK"; exec sleep 100' "$SCRATCH/up" $mark > "$SCRATCH/out" 2> "$SCRATCH/err" &
launcher=$!
wait_for "three ranks" test -e "$SCRATCH/up.0" -a -e "$SCRATCH/up.1" -a -e "$SCRATCH/up.2"
kill -INT $launcher
wait $launcher
same "exit code after Ctrl-C" 130 $?
left_over && fail "Ctrl-C left something running"
rm -f "$SCRATCH"/up.*
"$ASHLAR" launch --procs 2 --program sh -c 'touch "$0.$RANK"; exec sleep 100' "$SCRATCH/up" $mark > "$SCRATCH/out" 2> "$SCRATCH/err" &
launcher=$!
wait_for "two ranks" test -e "$SCRATCH/up.0" -a -e "$SCRATCH/up.1"
kill -TERM $launcher
wait $launcher
same "exit code after SIGTERM" 143 $?
left_over && fail "SIGTERM left something running"
rm -f "$SCRATCH"/up.*
"$ASHLAR" launch --procs 2 --program sh -c 'touch "$0.$RANK"; exec sleep 100' "$SCRATCH/up" $mark > "$SCRATCH/out" 2> "$SCRATCH/err" &
launcher=$!
wait_for "two ranks" test -e "$SCRATCH/up.0" -a -e "$SCRATCH/up.1"
kill -9 $launcher
wait $launcher 2> /dev/null
gone() { ! left_over; }
wait_for "the end of a killed launcher's ranks" gone

launch --procs 2 --program /no/such/program
expect_error 1 "a program that is not there" /no/such/program
launch --procs 3 --nodes 2 version
expect_error 1 "three processes on two nodes" "evenly"
launch
expect_error 2 "nothing to run" "the command to run"
finish

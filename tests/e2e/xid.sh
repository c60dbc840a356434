#!/usr/bin/env bash
# `ashlar xid` as a user meets it: codes, a log by GPU, JSON, what flags change, and errors that help.
. "$SOURCE/tests/e2e/lib.bash"
xid() { "$ASHLAR" xid "$@"; }

cat > "$SCRATCH/kern.log" << 'LOG'
Nov 15 10:00:01 n7 kernel: [99.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=1896, name=python3, GPU has fallen off the bus.
Nov 15 10:00:01 n7 kernel: [99.2] NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)
Nov 15 10:00:02 n7 kernel: [99.3] NVRM: Xid (PCI:0000:5d:00): 63, pid=77, Row Remapper: New row marked for remapping
Nov 15 10:00:03 n7 kernel: [99.4] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
LOG
leak_free xid --log "$SCRATCH/kern.log" --gpu H100-SXM5-80GB
expect 0 "a log"
for words in "GPU 0000:3b:00: reboot the machine (XID 79); the job must end" "the driver itself asks for a reboot" \
    "GPU 0000:5d:00: monitor: keep it in service (XID 63); the job may continue" "four-code rule" "(SXid), not judged: 1" \
    "NVIDIA XID catalog: https://"; do
    grep -qF -- "$words" "$SCRATCH/out" || fail "log: '$words' is missing: $(cat "$SCRATCH/out")"
done

code=0
xid --log - --json < "$SCRATCH/kern.log" > "$SCRATCH/out" 2> "$SCRATCH/err" || code=$?
expect 0 "standard input as JSON"
for words in '"gpu": "0000:3b:00"' '"job_must_end": true' '"job_must_end": false' '"job_ends": "node"' '"switch_lines": 1'; do
    grep -qF -- "$words" "$SCRATCH/out" || fail "JSON: '$words' is missing: $(cat "$SCRATCH/out")"
done

code=0
xid --log <(cat "$SCRATCH/kern.log") > "$SCRATCH/out" 2> "$SCRATCH/err" || code=$?
expect 0 "a log from a pipe"
grep -q '^GPU 0000:3b:00: reboot' "$SCRATCH/out" || fail "a log from a pipe: $(cat "$SCRATCH/out" "$SCRATCH/err")"
try "$ASHLAR" plan xid 79
expect 0 "the command's old name"
grep -q '`ashlar xid`' "$SCRATCH/err" || fail "the old name does not say the new one"

verdict() { # what, expected, words...
    local what=$1 expected=$2
    shift 2
    try xid --json "$@"
    expect 0 "$what"
    same "$what" "\"verdict\": \"$expected\"" "$(grep -o '"verdict": "[a-z]*"' "$SCRATCH/out" | sort -u)"
}
verdict "95 on an A100" reboot 95 --gpu A100-SXM4-80GB
verdict "95 on an A100 with MIG" reset 95 --gpu A100-SXM4-80GB --mig
verdict "95 on an H100" reset 95 --gpu H100-SXM5-80GB
verdict "74" reset 74
verdict "74, strictly" isolate 74 --strict
verdict "159 with unified memory" reset 159 --uvm
verdict "a remap without rows left" isolate 63 --remaps-left 0
verdict "corrected errors" monitor 92 --remaps-left 8 --corrected-per-day 1000
verdict "an unknown code" unknown 4242
try xid 4242
expect 0 "an unknown code"
grep -q "not in the table, so no verdict" "$SCRATCH/out" || fail "an unknown code: $(cat "$SCRATCH/out")"

: > "$SCRATCH/empty.log"
try xid --log "$SCRATCH/empty.log"
expect 0 "an empty log"
grep -q "no XID was logged" "$SCRATCH/out" || fail "an empty log: $(cat "$SCRATCH/out")"
try xid
expect_error 2 "nothing" "--log"
try xid 79 --log "$SCRATCH/kern.log"
expect_error 2 "both" "not both"
try xid seventy-nine
expect_error 1 "no number" "48,63"
try xid 79 --gpu H1000
expect_error 1 "unknown GPU" "H1000"
try xid 79 --gpu MI300X
expect_error 1 "a GPU of another make" "NVIDIA"
try xid --log "$SCRATCH/none.log"
expect_error 1 "no log" "none.log"
finish

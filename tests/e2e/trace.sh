#!/usr/bin/env bash
# train.trace leaves steps, ops and calls of every rank in the run's folder; `ashlar trace RUN` makes one file of them, on one clock, with an
# arrow for every message; `ashlar flight --torch` writes the calls as PyTorch does.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
pages=(--pages "$SCRATCH/pages")
train alone
expect 0 "a run"
try "$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/run" "${pages[@]}" mesh.pp=2 train.trace=5-7
expect 0 "a run with a trace: $(cat "$SCRATCH/err")"
bits_of alone > "$SCRATCH/expected"
bits_of run | cmp -s - "$SCRATCH/expected" || fail "tracing changed bits"
leak_free "$ASHLAR" trace "$SCRATCH/run" --out "$SCRATCH/run.json"
expect 0 "trace: $(cat "$SCRATCH/err")"
python3 - "$SCRATCH/run.json" << 'END' || fail "the trace is not what it should be"
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
spans = [e for e in events if e["ph"] == "X"]
for rank in (0, 1):
    mine = [e for e in spans if e["pid"] == rank]
    steps = {int(e["name"].split()[1]): (e["ts"], e["ts"] + e["dur"]) for e in mine if e["cat"] == "step"}
    assert {5, 6, 7} <= set(steps), (rank, sorted(steps))
    ops = [e for e in mine if e["cat"] == "op"]
    assert len(ops) > 50, (rank, len(ops))
    slack = 2000.0
    for first, last, what in ((5, 7, ops),):
        inside = [e for e in what if steps[first][0] - slack <= e["ts"] <= steps[last][1] + slack]
        assert len(inside) == len(what), (rank, len(what) - len(inside), "ops lie outside of their steps")
    for step in (5, 6, 7):
        assert any(steps[step][0] <= e["ts"] <= steps[step][1] for e in ops), (rank, step, "no op")
    assert any("M" in e.get("args", {}) for e in ops), "no product"
    assert [e for e in mine if e["cat"] not in ("op", "step")], (rank, "no calls")
sent, taken = ([e["id"] for e in events if e["ph"] == kind] for kind in "sf")
assert len(sent) > 5 and len(set(sent)) == len(sent) and sorted(sent) == sorted(taken), ("arrows", len(sent), len(taken))
names = {e["args"]["name"] for e in events if e["ph"] == "M"}
assert {"rank 0", "rank 1", "steps", "collectives", "ops"} <= names, names
END
same "files of the trace" "rank-0.flight rank-0.ops.json rank-0.steps rank-1.flight rank-1.ops.json rank-1.steps" "$(ls "$SCRATCH/run/trace" | xargs)"
try "$ASHLAR" flight "$SCRATCH/run/trace" --torch "$SCRATCH/torch"
expect 0 "flight --torch: $(cat "$SCRATCH/err")"
python3 "$SOURCE/tests/e2e/lib/torch_flight.py" "$SCRATCH/torch" 2 || fail "PyTorch's format"
try "$ASHLAR" trace "$SCRATCH/alone"
expect_error 1 "a run without a trace" "train.trace"
train wrong train.trace=7-5
expect_error 2 "steps that run backwards" "train.trace=7-5" "100-105"
echo '{"traceEvents": [{"name": 1}, {"name": "a\"b", "ts": 1, "dur": 1}, 5, {"name": "x", "ts": -1, "dur": 1e99}], "otherData": 7}' > "$SCRATCH/run/trace/rank-1.ops.json"
try "$ASHLAR" trace "$SCRATCH/run" --out "$SCRATCH/odd.json"
expect 0 "ops that are none"
python3 -m json.tool "$SCRATCH/odd.json" > "$SCRATCH/out" || fail "odd ops make odd JSON"
finish

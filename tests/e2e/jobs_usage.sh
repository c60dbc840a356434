#!/usr/bin/env bash
# ashlar jobs usage on a real Slurm with its accounting (slurmdbd, MariaDB): hours equal sacct's own sums, by team, user and job; those of a run
# are split by its ledger; cents add up. What cannot be answered is one sentence. Skips where Slurm, slurmdbd or MariaDB is not to be had.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/lib/slurm.bash"
. "$SOURCE/tests/e2e/lib/slurm_accounting.bash"
slurm_needs_accounting
command -v python3 > "$SCRATCH/out" || skip "needs python3"
slurm_accounting=1 slurm_accounts='research serving'
slurm_start 2
cd "$SCRATCH" || exit 1
usage() { try "$ASHLAR" jobs usage --to slurm "$@"; }
cat job.yaml - > asked.yaml << YAML
job: {nodes: 2, procs: 1, notice: 5s, account: research, price: 72000, env: {MASTER_ADDR: 127.0.0.1}}
YAML
usage
expect 0 "nothing ran yet"
same "what that says" "no job ran in this time" "$(cat out)"

# A run of two nodes, one of whose names has a comma in it and that is queued again, and one that runs still.
try "$ASHLAR" submit asked.yaml --to slurm job.name=run job.out="$SCRATCH/a run|1"
expect 0 "submitting" && [ "$code" -eq 0 ] || finish # nothing to wait for
run=$(sed -n 's/^submitted \([0-9]*\) to slurm$/\1/p' out)
try timeout 300 "$ASHLAR" jobs wait "$run" --to slurm
expect 0 "the run: $(cat "a run|1"/slurm-*.out | tail -n 5)"
is() { [ "$(squeue --noheader --jobs="$1" --states=all --format=%T 2> squeue)" = "$2" ]; }
batch() { sbatch --parsable --output=/dev/null --account=serving "$@" --wrap "sleep 600"; }
again=$(batch --nodes=1 --job-name='two,"names"' --requeue)
wait_for "a start" is "$again" RUNNING
second=$(date +%s)
is_later() { [ "$(date +%s)" -gt $((second + 1)) ]; } # accounts count seconds
wait_for "two seconds" is_later
scontrol requeue "$again"
live=$(batch --nodes=1)
wait_for "a start" is "$live" RUNNING
second=$(date +%s)
wait_for "two seconds" is_later

# Accounting hears of it all a moment later. The live one grows: all is compared at one moment in the past.
knows_all() { # two ends and one that runs
    [ "$(SLURM_TIME_FORMAT=%s sacct -aDXnP --format=Start,End --starttime=now-1hour | grep '^[0-9]' | sed 's/.*|[0-9]*$/end/; s/.*|Unknown/runs/' | sort | xargs)" = \
        "end end runs" ]
}
wait_for "accounting" knows_all
until=$(date +%FT%T)
SLURM_TIME_FORMAT=%s sacct -aDXnP --format=Account,Start,End,AllocNodes,JobIDRaw --starttime=now-1hour > accounts
usage --from 1h --until "$until" --json
expect 0 "by team"
cat > check.py << 'PY'
import csv, json, sys, time
until = time.mktime(time.strptime(sys.argv[1], "%Y-%m-%dT%H:%M:%S"))
wanted = {}
for line in open("accounts"):
    team, start, end, nodes, _ = line.strip().split("|")
    if start.isdigit():
        end = min(float(end) if end.isdigit() else until, until)
        wanted[team] = wanted.get(team, 0) + max(0, end - float(start)) * int(nodes) / 3600
found = json.load(open("out"))
rows = {row["team"]: row for row in found["rows"]}
assert set(rows) == {t for t in wanted if wanted[t] > 0} == {"research", "serving"}, (wanted, rows)
for team, hours in wanted.items():
    assert abs(rows[team]["node_hours"] - hours) < 1e-6, (team, hours, rows[team])
research = rows["research"]
assert research["cents"] == round(research["node_hours"] * 72000 * 100), research
assert research["is_priced"] and not rows["serving"]["is_priced"]
for row in list(rows.values()) + [found["total"]]:
    assert sum(kind["cents"] for kind in row["kinds"].values()) == row["cents"], row
    assert abs(sum(kind["node_hours"] for kind in row["kinds"].values()) - row["node_hours"]) < 1e-6, row
assert sum(row["cents"] for row in rows.values()) == found["total"]["cents"]
# The split is the ledger's.
ledger = json.load(open("a run|1/ledger.json"))["rank_s"]
share = ledger["productive"] / sum(ledger.values())
assert abs(research["kinds"]["productive"]["node_hours"] / research["node_hours"] - share) < 1e-3, (share, research)
assert research["kinds"]["unknown"]["node_hours"] == 0 and rows["serving"]["kinds"]["unknown"]["node_hours"] > 0
PY
python3 check.py "$until" 2> err || fail "by team: $(tail -n 1 err) of $(cat accounts out)"
usage --from 1h --until "$until" --by job --csv
expect 0 "by job"
python3 - "$run" "$again" > err 2>&1 << 'PY' || fail "by job: $(tail -n 1 err) of $(cat out)"
import csv, sys
rows = {row["job"]: row for row in csv.DictReader(open("out"))}
assert len(rows) == 3 and all(row["jobs"] == "1" for row in rows.values()), rows
assert rows[sys.argv[1]]["name"] == "run" and rows[sys.argv[2]]["name"] == "two,`names`", rows # Slurm writes " so
PY
usage --by user --team research
expect 0 "of one team"
grep -q "^$(id -un) *1 " out || fail "of one team: $(cat out)"
usage --price 1
grep -q 'productive.*unknown.*dollars' out && [ "$(grep -c ' -$' out)" -eq 3 ] || fail "a price of GPUs where there are none: $(cat out)"

# What cannot be answered.
usage --team reserach
expect_error 1 "an unknown team" "no job of team reserach ran in this time"
usage --from yesterday
expect 2 "no time"
usage --from 1h --until 2h
expect 2 "no time in between"
usage --machine p99
expect_error 1 "an unknown machine" p99
try "$ASHLAR" jobs usage --to local
expect_error 1 "this machine" "no accounts are kept of jobs on this machine"
try "$ASHLAR" submit asked.yaml --to slurm job.name=other job.account=reserach
expect_error 1 "an unknown account" "Invalid account"
scancel "$live" "$again"
kill "$slurmdbd"
usage
expect_error 1 "no database" "Slurm's accounting does not answer"
finish

#!/usr/bin/env bash
# What `ashlar plan queue --export` writes for Kueue, Volcano and KAI passes the schemas and CEL rules of those projects; planted
# mistakes do not. Skips where Node.js or the npm registry is not to be had.
set -uo pipefail
. "$SOURCE/tests/e2e/lib/npm.sh"
need_npm queue_export ajv ajv-formats yaml @bufbuild/cel
modules=$(readlink "$SCRATCH/node_modules")
. "$SOURCE/tests/e2e/lib.bash"
ln -sfn "$modules" "$SCRATCH/node_modules"
cd "$SCRATCH" || exit 1
rm -f ./*.yaml
cp "$SOURCE/tests/kube/check.mjs" .
cat > policy.yaml << 'YAML'
preset: kueue
name: Teams & more
levels: [rack, block]
classes: [{name: inference, priority: 90}, {name: Fine Tuning, priority: 50, preemptible: true}]
queues:
  - {name: pool, gpus: 16}
  - {name: team A, parent: pool, gpus: 64, borrow: 32, lend: 16, weight: 2, cpus: 1000, memory_gib: 2000}
  - {name: team B, parent: pool, gpus: 48, strict: true}
  - {name: interactive, gpus: 8, max_user_gpus: 4, max_job_gpus: 4, max_gpus: 8}
preempt: {within: any, cohort: any, protect: 2h}
YAML
for scheduler in kueue volcano kai; do
    "$ASHLAR" plan queue --policy policy.yaml --cluster 64x8 --topology 8,32 --export $scheduler > $scheduler.yaml || fail "$scheduler: no export"
    for preset in fifo easy slurm kai ashlar; do
        "$ASHLAR" plan queue --policy $preset --cluster 4x8 --export $scheduler > $preset-$scheduler.yaml || fail "$scheduler: no export of $preset"
    done
done
node check.mjs --all "$SOURCE/tests/kube" kueue.yaml volcano.yaml kai.yaml ./*-kueue.yaml ./*-volcano.yaml ./*-kai.yaml || fail "refused"
grep -q '# not expressed: caps of queue interactive' kueue.yaml || fail "caps that Kueue lacks are not said"
# mistakes are found
sed 's/nominalQuota/nominalQota/' kueue.yaml > bad.yaml
node check.mjs --all "$SOURCE/tests/kube" bad.yaml > out && fail "a misspelt field passed"
sed '/cohortName/d' kueue.yaml > bad.yaml
node check.mjs --all "$SOURCE/tests/kube" bad.yaml > out && fail "a borrowing limit without a cohort passed"
grep -q 'borrowingLimit must be nil when cohort is empty' out || fail "the rule of Kueue did not speak"
sed '0,/exactMatch/s/exactMatch:/labelMatch: {}\n      exactMatch:/' volcano.yaml > bad.yaml
node check.mjs --all "$SOURCE/tests/kube" bad.yaml > out && fail "a HyperNode with two selectors passed"
finish

#!/usr/bin/env bash
# Manifests of every kind under every scheduler, held against the schemas and rules of the projects that read them; planted mistakes are
# refused. Then the client against a stand-in of the API: created, refused, busy, torn, gone. Skips without Node.js.
. "$SOURCE/tests/e2e/lib/npm.sh"
need_npm submit_kube ajv ajv-formats yaml @bufbuild/cel
modules=$(readlink "$SCRATCH/node_modules")
. "$SOURCE/tests/e2e/lib.bash" || exit 1
ln -sfn "$modules" "$SCRATCH/node_modules"
cp "$SOURCE/tests/kube/check.mjs" "$SOURCE/tests/e2e/lib/kube_api.mjs" "$SCRATCH"
cd "$SCRATCH" || exit 1
cat > job.yaml << YAML
job:
  {name: asked, nodes: 4, min_nodes: 2, spares: 2, gpus: 8, efa: 32, time: 24h, notice: 2m, queue: team-a, class: training, image: "registry/ashlar:1",
   out: /data/run, mounts: ["fsx:/data", "/opt/models:/models:ro"], env: {A: "b \$c", YES: "yes"}, service_account: trainer}
model: {hidden: 64, layers: 2, heads: 4, vocab: 128}
data: {train: /data/tokens}
train: {steps: 3, global_batch: 64, grains: 32}
runtime: {backend: ref} # ranks that leave GPUs alone
YAML
submit() { try "$ASHLAR" submit job.yaml --to kubernetes job.queue= "$@"; }
label=topology.k8s.aws/network-node-layer-1
for kind in job jobset trainjob pytorchjob hyperpod; do
    for scheduler in default kueue volcano kai; do
        for more in job.cpus=96 job.topology.required=$label "job.topology.preferred=$label job.topology.group=2"; do
            queue=job.queue=team-a
            [ $scheduler != default ] || queue=job.queue=
            submit --kind $kind --scheduler $scheduler --dry-run job.exclude=node-7 $queue $more
            case $scheduler-$more in # what they cannot do is refused; the tiers of Volcano are below
            volcano-*topology* | default-*group*)
                expect_error 1 "$kind under $scheduler with $more" job.topology
                continue ;;
            esac
            expect 0 "$kind under $scheduler with $more"
            cp out "$kind-$scheduler-${more//[^a-z]/}.yaml"
        done
    done
done
for more in job.cpus=96 job.topology.required=2 "job.topology.preferred=1 job.topology.group=2"; do
    submit --kind volcano --dry-run $more
    expect 0 "volcano with $more"
    cp out "volcano-${more//[^a-z]/}.yaml"
done
for kind in job jobset hyperpod; do
    submit --kind $kind --scheduler volcano --dry-run job.topology.required=2
    expect 0 "$kind with a tier of Volcano"
    cp out "$kind-volcano-tier.yaml"
done
# A server: three kinds, with what is in front of it and how many of it there are. Its settings are in the job file, or words.
submit --dry-run job.command=serve
expect_error 2 "a server without a model" "serve.model=/path"
cat > server.yaml << YAML
job: {name: chat, command: serve, nodes: 4, min_nodes: 2, gpus: 1, notice: 2m, queue: team-a, image: "registry/ashlar:1", mounts: ["models:/models:ro"]}
serve: {model: /models/chat, max_num_seqs: 8, served_model_name: [chat, gpt]}
YAML
serve() { try "$ASHLAR" submit server.yaml --to kubernetes --dry-run job.queue= "$@"; }
for kind in deployment statefulset leaderworkerset; do
    for scheduler in default kueue volcano kai; do
        queue=job.queue=team-a
        [ $scheduler != default ] || queue=job.queue=
        serve --kind $kind --scheduler $scheduler $queue
        expect 0 "$kind under $scheduler"
        cp out "$kind-$scheduler-serve.yaml"
        grep -q 'kind: HorizontalPodAutoscaler' out && grep -q 'kind: PodDisruptionBudget' out || fail "what goes with a $kind: $(grep kind: out)"
        grep -q 'group-name' out && fail "a $kind under $scheduler waits for a group that nobody makes"
    done
done
# Ranks of a server over several pods: groups of a LeaderWorkerSet, whose leaders answer.
for scheduler in default kai; do
    serve --kind leaderworkerset --scheduler $scheduler serve.tp=2 serve.pp=2 job.procs=1 job.notice=20s
    expect 0 "groups of pods under $scheduler"
    cp out "leaderworkerset-$scheduler-group-serve.yaml"
    same "pods of a group" "size: 4" "$(grep -o 'size: .*' out)"
    same "pods with probes" 1 "$(grep -c readinessProbe out)"
    same "services of leaders" 2 "$(grep -c 'worker-index: "0"' out)"
done
serve --kind leaderworkerset serve.tp=2 serve.pp=2 job.procs=3
expect_error 1 "ranks that pods cannot share" "job.procs is 3" "here 4"
serve serve.tp=2 job.procs=1
expect_error 1 "a Deployment of groups" "--kind leaderworkerset"
serve --kind leaderworkerset serve.tp=2 job.procs=1 serve.replicas=2
expect_error 1 "replicas in a group" "serve.replicas"
serve serve.port=9000 job.notice=20s --program /opt/ashlar
expect 0 "a deployment"
same "what it runs" "command: [/opt/ashlar] args: [serve, host=0.0.0.0, shutdown_timeout=10, model=/models/chat, max_num_seqs=8, 'served_model_name=chat,gpt', port=9000] env: []" \
    "$(grep -A3 command: out | xargs -d '\n' | tr -s ' ' | sed 's/^ //')"
grep -A2 preStop: out | grep -q "seconds: 5" && grep -q 'terminationGracePeriodSeconds: 20' out && grep -q 'containerPort: 9000' out || fail "how it drains: $(cat out)"
serve serve.max_num_seq=8
expect_error 2 "a setting that servers do not have" "did you mean 'max_num_seqs'"
serve --kind jobset
expect_error 1 "a server as a job" "deployment, statefulset or leaderworkerset"
submit --dry-run --kind statefulset
expect_error 1 "a job as a server" "are for serve"
try node check.mjs "$SOURCE/tests/kube" *-*.yaml
expect 0 "the projects' schemas and rules: $(cat out)"
grep -q ' 0 refused' out || fail "what the check says: $(tail -n 1 out)"
[ "$(sed -n 's/ objects judged.*//p' out)" -ge 111 ] || fail "too few are judged: $(tail -n 1 out)"
# deploy/kubernetes: every file is named by its kustomization, and passes too.
for part in agent router server; do
    same "files of $part" "$(sed -n 's/^resources: \[\(.*\)\]$/\1/p' "$SOURCE/deploy/kubernetes/$part/kustomization.yaml" | tr -d ' ' | tr , '\n' | LC_ALL=C sort)" \
        "$(cd "$SOURCE/deploy/kubernetes/$part" && ls | grep -v kustomization | LC_ALL=C sort)"
done
try node check.mjs "$SOURCE/tests/kube" "$SOURCE"/deploy/kubernetes/*/[!k]*.yaml
expect 0 "deploy/kubernetes: $(cat out)"
same "objects of deploy/kubernetes" "13 objects judged, 0 rules, 0 refused" "$(tail -n 1 out)"
sed 's/maxUnavailable: 10%/maxUnavailabel: 10%/' "$SOURCE/deploy/kubernetes/agent/daemonset.yaml" > wrong.yaml
try node check.mjs "$SOURCE/tests/kube" wrong.yaml
expect 1 "a misspelt field of a DaemonSet"
sed 's/verbs: \[patch\]/verb: [patch]/' "$SOURCE/deploy/kubernetes/marks/rbac.yaml" > wrong.yaml
try node check.mjs "$SOURCE/tests/kube" wrong.yaml
expect 1 "a rule of a role without verbs"
# The check can fail.
for wrong in 's/completionMode/completionmode/' 's/backoffLimitPerIndex: 10/backoffLimitPerIndex: many/' 's/action: Ignore/act: Ignore/'; do
    sed "$wrong" job-default-jobcpus.yaml > wrong.yaml
    try node check.mjs "$SOURCE/tests/kube" wrong.yaml
    expect 1 "a planted mistake: $wrong"
done
for wrong in "statefulset s/serviceName/servicename/" "leaderworkerset s/size: 1/size: one/" "leaderworkerset s/UniquePerReplica/Unique/"; do
    sed "${wrong#* }" "${wrong%% *}-default-serve.yaml" > wrong.yaml
    try node check.mjs "$SOURCE/tests/kube" wrong.yaml
    expect 1 "a planted mistake: $wrong"
done
# A quoted text stays one, a dollar is not a variable of Kubernetes'.
submit --dry-run
grep -q 'value: b \$\$c' out && grep -q 'value: "yes"' out || fail "texts: $(grep value: out)"

# What is missing or cannot be is said before anything is sent.
submit --dry-run job.image=
expect_error 1 "no image" "job.image"
sed 's/, image: "[^"]*"//; s/^ *out: [^,]*,//' job.yaml > bare.yaml
try "$ASHLAR" submit bare.yaml --to kubernetes --dry-run
expect_error 1 "no image" "job.image is missing"
submit --dry-run --kind volcano job.topology.required=$label
expect_error 1 "a level that Volcano does not know" "tiers of HyperNodes"
submit --dry-run --kind volcano --scheduler kueue
expect_error 1 "Volcano's job under Kueue" "scheduled by Volcano"
submit --dry-run job.mounts=nowhere
expect_error 1 "a mount that is none" "CLAIM:/path"
submit --dry-run runtime.backend= job.procs=16
expect_error 2 "more ranks than GPUs" "runtime.ranks_per_gpu=2"
submit --dry-run --kind cron
expect_error 1 "a kind that is not there" "--kind cron"

# ---- the API -----------------------------------------------------------------------------------------------------------
node kube_api.mjs > api.log 2>&1 &
api=$!
trap 'kill $api 2> /dev/null' EXIT
wait_for "the API" test -s api.log
url=$(head -n 1 api.log)
cat > kubeconfig << YAML
apiVersion: v1
kind: Config
clusters: [{name: k, cluster: {server: "$url"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: c, context: {cluster: k, user: u, namespace: research}}]
current-context: c
YAML
export KUBECONFIG=$SCRATCH/kubeconfig
submit
expect 0 "created"
grep -q '^submitted asked to kubernetes$' out || fail "what was submitted: $(cat out)"
submit
expect_error 1 "a name that is taken" "called asked already"
try "$ASHLAR" jobs ls --to kubernetes
grep -q '^asked .* waiting ' out || fail "it is not listed: $(cat out)"
curl -s "$url/_set?active=1" > /dev/null
try "$ASHLAR" jobs ls --to kubernetes
grep -q '^asked .* running ' out || fail "it does not run: $(cat out)"
curl -s "$url/_set?only=batch/v1" > /dev/null
try "$ASHLAR" jobs ls --to kubernetes
grep -q '^asked .* running ' out || fail "rights on Jobs alone list nothing: $(cat out err)"
curl -s "$url/_set?only=none" > /dev/null
try "$ASHLAR" jobs ls --to kubernetes
expect_error 1 "no rights at all" "is forbidden"
curl -s "$url/_set?only=" > /dev/null
try "$ASHLAR" jobs why asked --to kubernetes
grep -q '1 of 1 pods have no node: 0/4 nodes are available: insufficient nvidia.com/gpu' out || fail "why: $(cat out)"
try "$ASHLAR" jobs log asked --to kubernetes
same "its output" "step 1" "$(cat out)"
try "$ASHLAR" jobs hold asked --to kubernetes
expect 0 "hold"
try "$ASHLAR" jobs show asked --to kubernetes
grep -q 'suspend: true' out || fail "it is not suspended: $(cat out)"
for fault in busy down reset; do # answered 429 and 500 twice, and cut off: tried again
    curl -s "$url/_set?fault=$fault" > /dev/null
    try "$ASHLAR" jobs ls --to kubernetes
    expect 0 "a server that is $fault for a moment"
done
# A job is watched: listed once, then told. What breaks is taken up where it was, what is too old is listed anew.
seen() { curl -s "$url/_seen"; }
told() { curl -s "$url/_set?$1" > /dev/null; }
asks() { [[ "$(seen)" = $1 ]]; } # a pattern: open watches, then what was asked for
"$ASHLAR" jobs wait asked --to kubernetes > wait.out 2>&1 &
waiter=$!
wait_for "a watch" asks '1 list 100'
told watch=bookmark
told watch=cut
wait_for "the watch after a cut, from the bookmark" asks '1 list 100 101'
told active=1\&done=0
told watch=end
wait_for "the watch after its end, from the last change" asks '1 list 100 101 102'
told watch=expire
wait_for "a new list after an error that says 410" asks '1 list 100 101 102 list 103'
told watch=refuse
wait_for "a new list after a refusal that says 410" asks '1 list 100 101 102 list 103 103 list 103'
kill -0 $waiter || fail "the wait is over: $(cat wait.out)"
told done=1
wait $waiter
same "the end of a job that is watched" "0 " "$? $(cat wait.out)"
told done=0
"$ASHLAR" jobs wait asked --to kubernetes > wait.out 2>&1 &
waiter=$!
wait_for "a watch" asks '1 *'
told watch=delete
wait $waiter
same "a job that is deleted meanwhile" "1 ashlar: error: job asked was deleted" "$? $(cat wait.out)"
submit
told done=1
try "$ASHLAR" jobs wait asked --to kubernetes
expect 0 "the end of a job"
try "$ASHLAR" jobs stop asked --to kubernetes
expect 0 "stop"
try "$ASHLAR" jobs show asked --to kubernetes
expect_error 1 "a job that is gone" "no job 'asked' in namespace research"
# Another namespace than the context's, to its end.
submit job.name=there job.namespace=other --wait
expect 0 "a job of another namespace"
try "$ASHLAR" jobs show there --to kubernetes
expect_error 1 "a job of another namespace" "no job 'there' in namespace research"
try "$ASHLAR" jobs ls --all --to kubernetes --namespace other
grep -q '^there ' out || fail "jobs of a namespace: $(cat out err)"
try "$ASHLAR" jobs ls --to kubernetes --namespace 'a/b'
expect_error 1 "a namespace that is none" "'a/b' is no namespace"
try "$ASHLAR" jobs ls --to local --namespace other
expect_error 1 "a namespace of this machine" "a namespace is for Kubernetes"
# A server is looked at and stopped like a job; all that was created with it goes, so that its name is free again.
try "$ASHLAR" submit server.yaml --to kubernetes --kind statefulset job.queue=
try "$ASHLAR" jobs stop chat --to kubernetes
try "$ASHLAR" submit server.yaml --to kubernetes --kind statefulset job.queue=
expect 0 "a server whose name was used before"
try "$ASHLAR" jobs ls --to kubernetes
grep -q '^chat .* running .* 1 of 2 ready$' out || fail "a server in the list: $(cat out)"
try "$ASHLAR" jobs hold chat --to kubernetes
expect_error 1 "holding a server" "cannot be held"
try "$ASHLAR" jobs stop chat --to kubernetes
expect 0 "stopping a server"
sed -i 's/token: secret/token: wrong/' kubeconfig
try "$ASHLAR" jobs ls --to kubernetes
expect_error 1 "a wrong token" "401"
sed 's/current-context: c/current-context: d/' kubeconfig > other && KUBECONFIG=$SCRATCH/other try "$ASHLAR" jobs ls --to kubernetes
expect_error 1 "a context that is not there" "there is no context 'd'"
# A program that hands out tokens, as those of clouds do.
printf '#!/bin/sh\necho "{\\"status\\": {\\"token\\": \\"$TOKEN\\"}}"\n' > give && chmod +x give
sed "s|user: {token: wrong}|user: {exec: {command: $SCRATCH/give, env: [{name: TOKEN, value: secret}]}}|" kubeconfig > by_program
KUBECONFIG=$SCRATCH/by_program try "$ASHLAR" jobs ls --to kubernetes
expect 0 "a token from a program"
finish

#!/usr/bin/env bash
# Jobs on a real Kubernetes control plane: etcd, API server, controller manager and scheduler, with tests/e2e/lib/kubelet.mjs for nodes.
# Submitted, ranks meet; a pod is killed; a node is lost; a job of a higher class preempts; a job is stopped. The bits are those of one process.
# Runs where ASHLAR_TEST_KUBE names the folder of kube-apiserver, kube-controller-manager and kube-scheduler, with etcd beside them or installed.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
skip() { echo "skipped: $*" && exit 77; }
[ -n "${ASHLAR_TEST_KUBE:-}" ] || skip "ASHLAR_TEST_KUBE names no folder with kube-apiserver, kube-controller-manager and kube-scheduler. No package has \
them: they are built from Kubernetes' source (go build ./cmd/kube-apiserver ...), which is no part of this project"
PATH=$ASHLAR_TEST_KUBE:$ASHLAR_TEST_KUBE/root/usr/bin:$PATH
for tool in kube-apiserver kube-controller-manager kube-scheduler etcd node openssl curl; do
    command -v $tool > "$SCRATCH/out" || skip "needs $tool"
done
unshare --mount --uts --pid --fork true 2> "$SCRATCH/out" || skip "needs the right to make namespaces: $(cat "$SCRATCH/out")"
cd "$SCRATCH" || exit 1
declare -A daemons=()
stop_all() {
    kill -9 "${daemons[@]}" 2> "$SCRATCH/kill"
    wait
}
trap stop_all EXIT
trap 'exit 1' INT TERM
daemon() { # name, program...
    local name=$1
    shift
    "$@" > "$SCRATCH/$name.out" 2>&1 < /dev/null &
    daemons[$name]=$!
}
free_ports # of API, etcd and its peers
api=https://127.0.0.1:$port
openssl genrsa -out sa.key 2048 2> out
openssl req -x509 -newkey rsa:2048 -nodes -keyout kubelet.key -out kubelet.crt -days 2 -subj /CN=kubelet 2> out
echo 'secret,admin,admin,"system:masters"' > tokens.csv
daemon etcd etcd --data-dir etcd --listen-client-urls http://127.0.0.1:$((port + 1)) --advertise-client-urls http://127.0.0.1:$((port + 1)) \
    --listen-peer-urls http://127.0.0.1:$((port + 2)) --unsafe-no-fsync
daemon api kube-apiserver --etcd-servers=http://127.0.0.1:$((port + 1)) --service-account-key-file=sa.key --service-account-signing-key-file=sa.key \
    --service-account-issuer=https://k --token-auth-file=tokens.csv --authorization-mode=RBAC --secure-port=$port --bind-address=127.0.0.1 \
    --cert-dir=certs --service-cluster-ip-range=10.0.0.0/24
cat > kubeconfig << YAML
apiVersion: v1
kind: Config
clusters: [{name: k, cluster: {server: "$api", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: c, context: {cluster: k, user: u}}]
current-context: c
YAML
export KUBECONFIG=$SCRATCH/kubeconfig
ask() { curl -sk -H 'Authorization: Bearer secret' -H 'Content-Type: application/json' "$@"; }
is_ready() { [ "$(ask $api/readyz)" = ok ]; }
wait_for "the API" is_ready || { tail -n 5 api.out && exit 1; }
daemon cm kube-controller-manager --kubeconfig=kubeconfig --service-account-private-key-file=sa.key --leader-elect=false --secure-port=$((port + 3))
daemon scheduler kube-scheduler --kubeconfig=kubeconfig --leader-elect=false --authentication-skip-lookup --authorization-always-allow-paths='*' \
    --secure-port=$((port + 4))
for node in n1 n2 n3; do daemon $node node "$SOURCE/tests/e2e/lib/kubelet.mjs" $api secret $node "$SCRATCH/$node" kubelet.key kubelet.crt; done
for node in n1 n2 n3; do wait_for "$node" grep -q 'is ready' "$SCRATCH/$node.out"; done
has_account() { ask $api/api/v1/namespaces/default/serviceaccounts/default | grep -q '"uid"'; }
wait_for "the service account of pods" has_account # before it is there, no pod is made

hash_of() { grep -o '"state_hash":"[0-9a-f]*"' "$SCRATCH/$1/log.jsonl" | tail -n 1; }
cat "$SCRATCH/job.yaml" - > "$SCRATCH/asked.yaml" << YAML
job: {nodes: 2, procs: 1, cpus: 4, notice: 10s, image: "ashlar:test", mounts: ["$SCRATCH:$SCRATCH"]}
YAML
submit() { # name, words...
    local name=$1
    shift
    try "$ASHLAR" submit asked.yaml --to kubernetes --program "$ASHLAR" job.name="$name" job.out="$SCRATCH/$name" "$@"
    expect 0 "submitting $name"
}
ended() {
    try timeout 400 "$ASHLAR" jobs wait "$1" --to kubernetes
    expect 0 "$1: $(cat "$SCRATCH"/n?/"$1"-*/log | grep -v '^step' | tail -n 20)"
    same "bits of $1" "$(hash_of "$2")" "$(hash_of "$1")"
    try "$ASHLAR" jobs stop "$1" --to kubernetes
}
has_save() { compgen -G "$SCRATCH/$1/checkpoints/step-*/manifest.json" > "$SCRATCH/out"; }
pod_dir() { echo "$SCRATCH"/n?/"$1"-"$2"-*; }
long="train.steps=1500 train.hash_every=500 train.valid_every=0 train.save_every=20"
train one
train whole $long

# Ranks meet, and their output can be read through the API.
submit plain
try timeout 400 "$ASHLAR" jobs wait plain --to kubernetes
try "$ASHLAR" jobs log plain --to kubernetes
grep -q 'step .*40/40' out || fail "its output: $(cat out err)"
ended plain one
# A pod is killed, and another comes in its place: the others continue at once, and it joins them. Then the same with the first pod, at whose
# name the job began.
pods_say() { cat "$SCRATCH"/n?/"$1"-?-*/log | grep -q -- "$2"; }
pods_say_times() { [ "$(cat "$SCRATCH"/n?/"$1"-?-*/log | grep -c -- "$2")" -ge "$3" ]; }
kill_pod() { kill -9 "$(pgrep -f "^$ASHLAR launch .*--node-rank $2 --master $1-0")"; }
submit hit $endless
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/hit/log.jsonl"
kill_pod hit 1
wait_for "a pod that comes back" pods_say hit '2 ranks continue from step'
kill_pod hit 0
wait_for "the first pod that comes back" pods_say_times hit '2 ranks continue from step' 2
stop_run hit
try timeout 400 "$ASHLAR" jobs wait hit --to kubernetes
expect 0 "a job whose pods come back: $(cat "$SCRATCH"/n?/hit-*/log | grep -v '^step' | tail -n 20)"
check_bits hit
grep -q '"lost_steps": 0' "$SCRATCH/hit/ledger.json" || fail "steps are lost: $(cat "$SCRATCH/hit/ledger.json")"
try "$ASHLAR" jobs stop hit --to kubernetes
# A job of a higher class takes a node: all of the lower one saves, waits and continues.
ask -X POST $api/apis/scheduling.k8s.io/v1/priorityclasses -d '{"metadata": {"name": "urgent"}, "value": 1000}' > out
submit low $long job.nodes=3
wait_for "a save" has_save low
submit urgent job.nodes=1 job.class=urgent
ended urgent one
ended low whole
# The first pod's node is lost with all that runs on it, and its object removed, as clouds do. Pods are told of a lost rank by its node's end,
# and the job is done without its first pod, which has no room any more.
submit lost $long job.nodes=3
wait_for "a save" has_save lost
dir=$(pod_dir lost 0)
node=$(basename "$(dirname "$dir")")
kill -9 "${daemons[$node]}" $(pgrep -f "^unshare .*$SCRATCH/$node/") 2> kill
ask -X DELETE $api/api/v1/nodes/$node > out
ended lost whole
# Told to stop: saved.
submit stopped train.steps=100000 train.valid_every=0
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/stopped/log.jsonl"
try "$ASHLAR" jobs stop stopped --to kubernetes
expect 0 "stop"
wait_for "the save" has_save stopped
finish

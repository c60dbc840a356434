#!/usr/bin/env bash
# ashlar policy: shown, compared, applied and equal: on a stand-in of Kueue's API, which keeps what it is given and adds defaults, and on a
# stand-in of sacctmgr. Nothing changes without --yes. What is missing or refused is one sentence. (Real accounting: tests/unit has its lines.)
. "$SOURCE/tests/e2e/lib.bash"
cd "$SCRATCH" || exit 1
cat > teams.yaml << 'YAML'
preset: kueue
name: Teams
classes: [{name: inference, priority: 90}, {name: fine-tuning, priority: 50, preemptible: true}]
queues:
  - {name: pool, gpus: 16}
  - {name: team-a, parent: pool, gpus: 64, borrow: 32, lend: 16, weight: 2, cpus: 1000, memory_gib: 2000}
  - {name: team-b, parent: pool, gpus: 48}
  - {name: interactive, gpus: 8, max_user_gpus: 4, max_gpus: 8}
YAML
policy() { try "$ASHLAR" policy "$@"; }

# ---- Kueue -------------------------------------------------------------------------------------------------------------
cat > api.py << 'PY'
import http.server, json
store = {}
class Api(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def body(self): return json.loads(self.rfile.read(int(self.headers["Content-Length"])))
    def do_GET(self):
        if self.path == "/_store": return self.answer(200, store)
        found = store.get(self.path)
        self.answer(200 if found else 404, found or {"message": "not found"})
    def keep(self, path, thing, code):
        thing["metadata"]["resourceVersion"] = str(len(store) + int(thing["metadata"].get("resourceVersion", 0)) + 1)
        thing.setdefault("spec", {}).setdefault("stopPolicy", "None") # a default, and a quantity in the server's way
        store[path] = json.loads(json.dumps(thing).replace('"1000"', '"1k"').replace('"2048000Mi"', '"2000Gi"'))
        self.answer(code, thing)
    def do_POST(self):
        thing = self.body()
        path = self.path + "/" + thing["metadata"]["name"]
        if thing["metadata"]["name"] == "refused": return self.answer(422, {"message": "it is refused"})
        self.keep(path, thing, 201)
    def do_PUT(self):
        thing = self.body()
        if thing["metadata"]["resourceVersion"] != store[self.path]["metadata"]["resourceVersion"]: return self.answer(409, {"message": "conflict"})
        self.keep(self.path, thing, 200)
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
print(server.server_port, flush=True)
server.serve_forever()
PY
python3 api.py > api.port 2> api.log &
api=$!
trap 'kill $api 2> /dev/null' EXIT
wait_for "the API" test -s api.port
cat > kubeconfig << YAML
apiVersion: v1
kind: Config
clusters: [{name: k, cluster: {server: "http://127.0.0.1:$(cat api.port)"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: c, context: {cluster: k, user: u, namespace: research}}]
current-context: c
YAML
export KUBECONFIG=$SCRATCH/kubeconfig
policy show teams.yaml --to kueue
expect 0 "show"
grep -q 'kind: ClusterQueue' out && grep -q 'nominalQuota: "64"' out || fail "what is shown: $(cat out)"
policy diff teams.yaml --to kueue
expect 3 "an empty cluster"
same "what is added" "2 WorkloadPriorityClass 1 Cohort 3 ClusterQueue 3 LocalQueue" \
    "$(cut -d' ' -f2 out | uniq -c | xargs)"
policy apply teams.yaml --to kueue
expect 0 "a dry run"
grep -q '^9 changes, none made' out || fail "a dry run: $(tail -n 1 out)"
policy diff teams.yaml --to kueue
expect 3 "after a dry run"
policy apply teams.yaml --to kueue --yes
expect 0 "apply"
for again in diff apply; do
    policy $again teams.yaml --to kueue
    expect 0 "$again of what is equal"
done
same "what is left" "equal: 0 changes" "$(cat out)"
sed 's/borrow: 32/borrow: 40/; s/priority: 50/priority: 55/' teams.yaml > other.yaml
policy diff other.yaml --to kueue
expect 3 "another policy"
same "what is changed" "change WorkloadPriorityClass fine-tuning change ClusterQueue team-a" "$(xargs < out)"
policy apply other.yaml --to kueue --yes
expect 0 "another policy"
policy diff other.yaml --to kueue
expect 0 "another policy, applied"
sed 's/name: team-b/name: refused/' teams.yaml > refused.yaml
policy apply refused.yaml --to kueue --yes
expect_error 1 "a queue that is refused" "changes were made, then" "it is refused"
kill $api
KUBECONFIG=$SCRATCH/nowhere policy diff teams.yaml --to kueue
expect 1 "no cluster"

# ---- Slurm -------------------------------------------------------------------------------------------------------------
mkdir -p bin
cat > bin/sacctmgr << 'SH'
#!/bin/sh
echo "$*" >> asked
case "$*" in
*'show tres'*) cat tres ;;
*'show qos'*) cat qos ;;
*'show associations'*) cat accounts ;;
'-i '*) if [ -e broken ]; then echo "sacctmgr: error: it is broken" >&2; exit 1; fi; if [ -e next.qos ]; then mv next.qos qos; mv next.accounts accounts; fi ;;
esac
SH
chmod +x bin/sacctmgr
printf 'cpu|\ngres|gpu\n' > tres
printf 'normal|0|||\nfine-tuning|50||DenyOnLimit|\n' > qos
printf 'ashlar|root|||1|||normal|\nashlar|root|root||1|||normal|\nashlar|pool||root|1|||normal|\nashlar|team-b||root|2|||normal|\n' > accounts
export PATH=$SCRATCH/bin:$PATH
policy diff teams.yaml
expect 3 "Slurm differs"
cat > expected << 'TEXT'
sacctmgr -i add qos inference set Priority=90 Flags=DenyOnLimit Preempt=fine-tuning
sacctmgr -i add qos interactive-users set Priority=0 Flags=DenyOnLimit MaxTRESPerUser=gres/gpu=4
sacctmgr -i add account team-a parent=pool fairshare=1 GrpTRES=gres/gpu=96
sacctmgr -i add account interactive parent=root fairshare=1 GrpTRES=gres/gpu=8
sacctmgr -i modify account where name=interactive set qos+=interactive-users defaultqos=interactive-users
sacctmgr -i modify account where name=team-b set parent=pool fairshare=1
TEXT
cmp -s out expected || fail "the commands: $(diff expected out)"
! grep -q '^-i' asked || fail "a comparison changed something: $(grep -e '^-i' asked)"
echo 'cpu|' > tres
policy apply teams.yaml --yes
expect_error 1 "accounting without GPUs" "AccountingStorageTRES=gres/gpu"
! grep -q '^-i' asked || fail "something was changed first"
printf 'cpu|\ngres|gpu\n' > tres
touch broken
policy apply teams.yaml --yes
expect_error 1 "a command that fails" "0 of 6 changes were made, then" "it is broken"
rm broken
policy apply teams.yaml --yes
expect_error 1 "changes that are not kept" "6 differ still"
printf 'normal|0|||\nfine-tuning|50||DenyOnLimit|\ninference|90|fine-tuning|DenyOnLimit|\ninteractive-users|0||DenyOnLimit|gres/gpu=4\n' > next.qos
printf 'ashlar|root|||1|||normal|\nashlar|%s\n' 'interactive||root|1|gres/gpu=8||interactive-users,normal|interactive-users' > next.accounts
printf 'ashlar|%s\n' 'pool||root|1|||normal|' 'team-a||pool|1|gres/gpu=96||normal|' 'team-b||pool|1|||normal|' >> next.accounts
policy apply teams.yaml --yes
expect 0 "apply"
policy diff teams.yaml
expect 0 "equal: $(cat out)"
PATH=/nowhere policy diff teams.yaml
expect_error 1 "no sacctmgr" sacctmgr
policy diff nothing.yaml
expect 1 "no policy"
policy diff
expect_error 2 "no word" "it takes a policy"
finish

#!/usr/bin/env bash
# A real Prometheus scrapes agents, a trainer's ranks and a server: every query of every dashboard returns data, and so do those of the
# dashboards that people have for DCGM; rules are accepted, their tests pass, an alert reaches a webhook through Alertmanager.
command -v prometheus > /dev/null && command -v promtool > /dev/null || { echo "dashboards: skipped: no prometheus"; exit 77; }
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/serve_lib.bash"
pids=() launcher=
end() {
    stop_server KILL
    local pid
    kill "$launcher" 2> "$SCRATCH/kill" # its ranks end with it, and write nothing any more
    for pid in "${pids[@]}"; do kill -KILL "$pid" 2> "$SCRATCH/kill"; done
    wait 2> "$SCRATCH/kill"
}
trap end EXIT
cd "$SOURCE/deploy/prometheus" || exit 1
promtool check rules recording.yml alerts.yml > "$SCRATCH/out" 2>&1 || fail "rules: $(cat "$SCRATCH/out")"
promtool check config prometheus.yml > "$SCRATCH/out" 2>&1 || fail "config: $(cat "$SCRATCH/out")"
promtool test rules tests.yml > "$SCRATCH/out" 2>&1 || fail "tests of rules: $(cat "$SCRATCH/out")"
cd "$SCRATCH" || exit 1
for name in $(grep -o 'alert: .*' "$SOURCE/deploy/prometheus/alerts.yml" | cut -d' ' -f2); do
    grep -q "alertname: $name" "$SOURCE/deploy/prometheus/tests.yml" || fail "alert $name has no test"
done
python3 "$SOURCE/scripts/dashboards.py" "$SCRATCH"
for file in "$SOURCE"/deploy/grafana/*.json; do cmp -s "$file" "$SCRATCH/${file##*/}" || fail "$file: run scripts/dashboards.py deploy/grafana"; done

# ---- this machine with a job of two ranks, a recorded one with GPUs, and a server ---------------------------------------
"$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/watched" --pages "$SCRATCH/pages" --peak-tflops 0.1 train.steps=10000000 train.valid_every=0 > "$SCRATCH/train.out" 2>&1 &
launcher=$!
tree=$SCRATCH/tree
mkdir -p "$tree"/{proc/1,dev,sys/class/nvme/nvme0,sys/class/infiniband/efa_0/ports/1/hw_counters,sys/class/infiniband/mlx5_0/ports/1/counters} \
    "$tree"/proc/fs/lustre/{llite/scratch-ffff8a,mdc/scratch-MDT0000-mdc}
for name in rx_drops tx_bytes submitted_cmds retrans_timeout_events; do echo 12 > "$tree/sys/class/infiniband/efa_0/ports/1/hw_counters/$name"; done
for name in link_downed port_rcv_data; do echo 7 > "$tree/sys/class/infiniband/mlx5_0/ports/1/counters/$name"; done
printf 'read_bytes 5 samples [bytes] 4096 1048576 5242880\n' > "$tree/proc/fs/lustre/llite/scratch-ffff8a/stats"
printf ' - [ 1700000000, EVICTED ]\n' > "$tree/proc/fs/lustre/mdc/scratch-MDT0000-mdc/state"
head -c 512 /dev/zero > "$tree/dev/nvme0"
printf '4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1\n' > "$tree/dev/kmsg"
: > "$tree/proc/1/mounts"
# start_agent NAME [words]
start_agent() {
    local name=$1
    shift
    "$ASHLAR" agent --port 0 --judge-seconds 1 --state '' "$@" > "$SCRATCH/$name.out" 2>&1 &
    pids+=($!)
    wait_for "$name" grep -q http "$SCRATCH/$name.out"
}
# Slurm's programs, with what those of 22.05 printed (agent_slurm.sh has a real one).
mkdir -p "$SCRATCH/bin"
cat > "$SCRATCH/bin/squeue" << 'END'
#!/bin/sh
echo 'PENDING   all   2   120   cpu=2,mem=2M,node=2,billing=2,gres/gpu=16   gres:gpu:8   N/A   Resources'
echo 'PENDING   all   2   42    cpu=2,mem=2M,node=2,billing=2               N/A          N/A   JobHeldUser'
echo 'RUNNING   all   1   2     cpu=1,mem=1M,node=1,billing=1               gres:gpu:2   N/A   None'
END
cat > "$SCRATCH/bin/sinfo" << 'END'
#!/bin/sh
echo 'vm       all      mixed       gpu:8    gpu:2(IDX:0-1)'
echo 'vm-2     all      drained     gpu:8    gpu:0'
END
chmod +x "$SCRATCH"/bin/*
PATH=$SCRATCH/bin:$PATH start_agent live --pages "$SCRATCH/pages" --slurm-queue 1
start_agent recorded --pages '' --root "$tree" --nvml "$BUILD/standin/libnvidia-ml.so.1" --node recorded
start_server --model "$stories" --served-model-name stories || exit 1
for i in 1 2; do ask POST /v1/completions '{"prompt": "Once upon a time", "max_tokens": 8}'; done
address() { grep -o '127.0.0.1:[0-9]*' "$SCRATCH/$1.out"; }
served=$port
free_ports
hook=$port watch=$((port + 1)) manager=$((port + 2))
cat > "$SCRATCH/prometheus.yml" << END
global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: ["$SOURCE/deploy/prometheus/recording.yml", "$SOURCE/deploy/prometheus/alerts.yml"]
alerting: {alertmanagers: [{static_configs: [{targets: ["127.0.0.1:$manager"]}]}]}
scrape_configs:
  - {job_name: ashlar-agent, honor_labels: true, static_configs: [{targets: ["$(address live)", "$(address recorded)"]}]}
  - {job_name: ashlar-serve, static_configs: [{targets: ["127.0.0.1:$served"]}]}
END
prometheus --config.file="$SCRATCH/prometheus.yml" --storage.tsdb.path="$SCRATCH/tsdb" --web.listen-address="127.0.0.1:$watch" > "$SCRATCH/prometheus.log" 2>&1 &
pids+=($!)
if command -v prometheus-alertmanager > "$SCRATCH/out"; then
    printf 'route: {receiver: hook, group_wait: 0s}\nreceivers: [{name: hook, webhook_configs: [{url: "http://127.0.0.1:%d/"}]}]\n' "$hook" > "$SCRATCH/alertmanager.yml"
    prometheus-alertmanager --config.file="$SCRATCH/alertmanager.yml" --storage.path="$SCRATCH/alerts" --web.listen-address="127.0.0.1:$manager" --cluster.listen-address= > "$SCRATCH/alertmanager.log" 2>&1 &
    pids+=($!)
    python3 -c '
import http.server, sys
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        open(sys.argv[2], "ab").write(self.rfile.read(int(self.headers["Content-Length"])) + b"\n")
        self.send_response(200); self.end_headers()
    def log_message(self, *a): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Hook).serve_forever()' "$hook" "$SCRATCH/alerts.jsonl" &
    pids+=($!)
    : > "$SCRATCH/alerts.jsonl"
    wants_hook=yes
fi
python3 "$SOURCE/tests/e2e/lib/queries.py" "http://127.0.0.1:$watch" "$SOURCE"/deploy/grafana/*.json || fail "a dashboard has a panel without data"
reached() { grep -q NodeMustBeDrained "$SCRATCH/alerts.jsonl"; }
[ -z "${wants_hook:-}" ] || wait_for "the alert at the webhook" reached
# What Prometheus has is enough for a diagnosis.
try "$ASHLAR" diagnose --prometheus "http://127.0.0.1:$watch" --json
expect 0 "diagnose from Prometheus"
grep -q '"findings"' "$SCRATCH/out" || fail "no findings: $(head -c 300 "$SCRATCH/out")"
finish

#!/usr/bin/env bash
# Prometheus scrapes the server, and promtool finds nothing to say about its metrics. Skips where Prometheus is not installed.
command -v prometheus > /dev/null && command -v promtool > /dev/null || { echo "serve_prometheus: skipped: no prometheus"; exit 77; }
. "$SOURCE/tests/e2e/lib.bash"
. "$SOURCE/tests/e2e/serve_lib.bash"
prometheus=
trap 'stop_server KILL; [ -z "$prometheus" ] || kill -KILL "$prometheus"' EXIT

start_server --model "$stories" --served-model-name 'a "quoted" name' || exit 1
served=$port
for i in 1 2 3; do ask POST /v1/completions '{"prompt": "Once upon a time", "max_tokens": 8}'; same "status" 200 "$status"; done
ask GET /metrics
# vLLM's names have a colon, which promtool keeps for rules: it is the one thing that it may not say.
sed '1,/^\r*$/d' "$SCRATCH/answer" | sed 's/vllm:/vllm_/g' > "$SCRATCH/metrics.txt"
promtool check metrics < "$SCRATCH/metrics.txt" > "$SCRATCH/promtool.txt" 2>&1 || fail "promtool: $(cat "$SCRATCH/promtool.txt")"

cat > "$SCRATCH/prometheus.yml" << END
scrape_configs:
  - job_name: ashlar
    scrape_interval: 1s
    static_configs: [{targets: ["127.0.0.1:$served"]}]
END
free_ports
prometheus --config.file="$SCRATCH/prometheus.yml" --storage.tsdb.path="$SCRATCH/tsdb" --web.listen-address="127.0.0.1:$port" > "$SCRATCH/prometheus.log" 2>&1 &
prometheus=$!
for ((i = 0; i < 1200; i++)); do
    ask GET '/api/v1/query?query=vllm:generation_tokens_total' 2> /dev/null
    grep -q '"24"' "$SCRATCH/answer" && break
    kill -0 "$prometheus" || break
    sleep 0.1
done
grep -q '"model_name":"a \\"quoted\\" name".*"24"' "$SCRATCH/answer" || fail "Prometheus has: $(tail -c 400 "$SCRATCH/answer") $(tail -n 1 "$SCRATCH/prometheus.log")"
kill "$prometheus"; wait "$prometheus"; prometheus=
stop_server TERM
finish

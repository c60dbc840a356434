#!/usr/bin/env python3
"""Writes the Grafana dashboards: dashboards.py deploy/grafana. One list of panels per dashboard; every query is held against a real
Prometheus by tests/e2e/dashboards.sh."""
import json
import pathlib
import re
import sys

# title, [(query, legend)], unit, width of 24
BOARDS = {
    "cluster": ("Ashlar: cluster health", [
        ("Nodes by status", [("sum by (status) (ashlar_node_status)", "{{status}}")], "short", 12),
        ("Must be drained", [('sum(ashlar_node_status{status=~"drain.*"}) or vector(0)', "nodes")], "short", 6),
        ("Sources that do not answer", [("count(ashlar_collector_up == 0) or vector(0)", "sources")], "short", 6),
        ("Kernel events", [("sum by (kind) (increase(ashlar_kernel_events_total[1h]))", "{{kind}}")], "short", 12),
        ("Processor in use", [('1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[$__rate_interval]))', "{{instance}}")], "percentunit", 12),
        ("Memory available", [("node_memory_MemAvailable_bytes", "{{instance}}")], "bytes", 12),
        ("GPUs", [("sum(ashlar_gpus)", "GPUs")], "short", 12),
    ]),
    "node": ("Ashlar: node and GPU", [
        ("GPU temperature", [("DCGM_FI_DEV_GPU_TEMP", "{{instance}} GPU {{gpu}}")], "celsius", 12),
        ("GPU power", [("DCGM_FI_DEV_POWER_USAGE", "{{instance}} GPU {{gpu}}")], "watt", 12),
        ("SM clock", [("DCGM_FI_DEV_SM_CLOCK * 1000000", "{{instance}} GPU {{gpu}}")], "hertz", 12),
        ("GPU utilisation", [("DCGM_FI_DEV_GPU_UTIL", "{{instance}} GPU {{gpu}}")], "percent", 12),
        ("Tensor cores active", [("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "{{instance}} GPU {{gpu}}")], "percentunit", 12),
        ("Memory interface active", [("DCGM_FI_PROF_DRAM_ACTIVE", "{{instance}} GPU {{gpu}}")], "percentunit", 12),
        ("GPU memory used", [("DCGM_FI_DEV_FB_USED * 1048576", "{{instance}} GPU {{gpu}}")], "bytes", 12),
        ("Rows remapped, and failures", [("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "uncorrectable GPU {{gpu}}"), ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "failed GPU {{gpu}}")], "short", 12),
        ("Last XID (DCGM's meaning)", [("DCGM_FI_DEV_XID_ERRORS", "{{instance}} GPU {{gpu}}")], "short", 12),
        ("XIDs in the kernel log", [("sum by (code, pci_bus_id) (ashlar_xid_total) or vector(0)", "XID {{code}} {{pci_bus_id}}")], "short", 12),
        ("Load", [("node_load1", "{{instance}}")], "short", 12),
        ("Waiting for a processor", [("rate(node_pressure_cpu_waiting_seconds_total[$__rate_interval])", "{{instance}}")], "percentunit", 12),
    ]),
    "network": ("Ashlar: network", [
        ("Received", [('sum by (instance, device) (rate(node_network_receive_bytes_total{device!="lo"}[$__rate_interval]))', "{{instance}} {{device}}")], "Bps", 12),
        ("Sent", [('sum by (instance, device) (rate(node_network_transmit_bytes_total{device!="lo"}[$__rate_interval]))', "{{instance}} {{device}}")], "Bps", 12),
        ("EFA sent", [("sum by (instance, device) (rate(node_amazonefa_tx_bytes[$__rate_interval]))", "{{instance}} {{device}}")], "Bps", 12),
        ("EFA drops and timeouts", [("increase(node_amazonefa_rx_drops[10m])", "drops {{device}}"), ("increase(node_amazonefa_retrans_timeout_events[10m])", "timeouts {{device}}")], "short", 12),
        ("InfiniBand received", [("rate(node_infiniband_port_data_received_bytes_total[$__rate_interval])", "{{instance}} {{device}}")], "Bps", 12),
        ("InfiniBand links lost", [("increase(node_infiniband_link_downed_total[1h])", "{{instance}} {{device}}")], "short", 12),
        ("TCP timeouts", [("rate(node_netstat_TcpExt_TCPTimeouts[$__rate_interval])", "{{instance}}")], "short", 12),
        ("Link changes", [("increase(node_network_carrier_changes_total[1h])", "{{instance}} {{device}}")], "short", 12),
    ]),
    "storage": ("Ashlar: storage", [
        ("Free", [("node_filesystem_avail_bytes / node_filesystem_size_bytes", "{{instance}} {{mountpoint}}")], "percentunit", 12),
        ("Time to answer", [("ashlar_mount_probe_seconds", "{{instance}} {{mountpoint}}")], "s", 12),
        ("Does not answer", [("node_filesystem_device_error", "{{instance}} {{mountpoint}}")], "short", 12),
        ("Read", [("sum by (instance, device) (rate(node_disk_read_bytes_total[$__rate_interval]))", "{{instance}} {{device}}")], "Bps", 12),
        ("Written", [("sum by (instance, device) (rate(node_disk_written_bytes_total[$__rate_interval]))", "{{instance}} {{device}}")], "Bps", 12),
        ("Stalled on storage", [("rate(node_pressure_io_stalled_seconds_total[$__rate_interval])", "{{instance}}")], "percentunit", 12),
        ("Lustre", [("sum by (fs, op) (rate(ashlar_lustre_bytes_total[$__rate_interval]))", "{{fs}} {{op}}")], "Bps", 12),
        ("Lustre evictions", [("ashlar_lustre_evictions", "{{target}}")], "short", 12),
        ("Drive media errors", [("ashlar_nvme_media_errors_total", "{{instance}} {{device}}")], "short", 12),
        ("Drive heat", [("ashlar_nvme_temperature_celsius", "{{instance}} {{device}}")], "celsius", 12),
    ]),
    "training": ("Ashlar: training run", [
        ("Loss", [("ashlar_train_loss", "{{run}}")], "short", 12),
        ("Tokens per second", [("ashlar_train_tokens_per_second", "{{run}}")], "short", 12),
        ("Learning rate", [("ashlar_train_learning_rate", "{{run}}")], "short", 8),
        ("Gradient norm", [("ashlar_train_gradient_norm", "{{run}}")], "short", 8),
        ("Step", [("max by (run) (ashlar_rank_step)", "{{run}}")], "short", 8),
        ("Parts of a rank's time", [("sum by (part) (rate(ashlar_rank_part_seconds_total[$__rate_interval]))", "{{part}}")], "s", 12),
        ("Own work by rank", [("ashlar_rank_own_seconds", "rank {{rank}}")], "s", 12),
        ("Time in collectives by axis", [("sum by (axis, op) (rate(ashlar_collective_seconds_total[$__rate_interval]))", "{{axis}} {{op}}")], "percentunit", 12),
        ("Bytes in collectives by axis", [("sum by (axis, op) (rate(ashlar_collective_bytes_total[$__rate_interval]))", "{{axis}} {{op}}")], "Bps", 12),
        ("Ranks that were killed", [("count(ashlar_process_up == 0) or vector(0)", "ranks")], "short", 12),
        ("MFU", [("ashlar:run_mfu:share1m", "{{run}}")], "percentunit", 12),
    ]),
    "goodput": ("Ashlar: goodput", [
        ("Share of time that computes", [('sum by (run) (rate(ashlar_rank_part_seconds_total{part="compute"}[$__rate_interval])) / sum by (run) (rate(ashlar_rank_part_seconds_total[$__rate_interval]))', "{{run}}")], "percentunit", 12),
        ("Waiting for data", [('sum by (run) (rate(ashlar_rank_part_seconds_total{part="data"}[$__rate_interval])) / sum by (run) (rate(ashlar_rank_part_seconds_total[$__rate_interval]))', "{{run}}")], "percentunit", 12),
        ("Exposed communication", [('sum by (run) (rate(ashlar_rank_part_seconds_total{part="comm"}[$__rate_interval])) / sum by (run) (rate(ashlar_rank_part_seconds_total[$__rate_interval]))', "{{run}}")], "percentunit", 12),
        ("Between steps", [('sum by (run) (rate(ashlar_rank_part_seconds_total{part="other"}[$__rate_interval])) / sum by (run) (rate(ashlar_rank_part_seconds_total[$__rate_interval]))', "{{run}}")], "percentunit", 12),
    ]),
    "queue": ("Ashlar: queue", [
        ("Jobs by state", [("sum by (state) (ashlar_queue_jobs)", "{{state}}")], "short", 12),
        ("Jobs that wait, by reason", [('sum by (reason) (ashlar_queue_jobs{state="pending"})', "{{reason}}")], "short", 12),
        ("Jobs by partition", [("sum by (partition) (ashlar_queue_jobs)", "{{partition}}")], "short", 12),
        ("Longest wait, without jobs that are held", [('max by (partition) (ashlar_queue_wait_max_seconds{reason!~"JobHeld.*|Dependency.*|BeginTime"})', "{{partition}}")], "s", 12),
        ("Mean wait by reason", [("avg by (reason) (ashlar_queue_wait_mean_seconds)", "{{reason}}")], "s", 12),
        ("GPUs", [("ashlar_queue_gpus", "{{state}}")], "short", 12),
        ("GPUs that jobs have and ask for", [("sum by (state) (ashlar_queue_job_gpus)", "{{state}}")], "short", 12),
        ("Free GPUs while jobs wait for them", [('sum(ashlar_queue_gpus{state="free"}) * on () (sum(ashlar_queue_job_gpus{state="pending",reason=~"Resources|Priority|.*[Nn]ode.*"}) > bool 0)', "GPUs")], "short", 12),
        ("Nodes by state", [("sum by (state) (ashlar_queue_nodes)", "{{state}}")], "short", 12),
        ("Age of the answer", [("ashlar_queue_age_seconds", "{{instance}}")], "s", 12),
    ]),
    "serving": ("Ashlar: serving", [
        ("Requests running", [("vllm:num_requests_running", "{{model_name}}")], "short", 12),
        ("Requests waiting", [("vllm:num_requests_waiting", "{{model_name}}")], "short", 12),
        ("Tokens written per second", [("rate(vllm:generation_tokens_total[$__rate_interval])", "{{model_name}}")], "short", 12),
        ("Time to first token, 95th percentile", [("histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))", "p95")], "s", 12),
        ("KV cache in use", [("vllm:kv_cache_usage_perc", "{{model_name}}")], "percentunit", 12),
        ("Engine steps", [("rate(ashlar_engine_steps_total[$__rate_interval])", "steps")], "short", 12),
    ]),
}

# label, a metric whose values of it are offered, the metrics that it selects (a regular expression)
VARIABLES = {
    "cluster": [("instance", "ashlar_node_status", ".*")],
    "node": [("instance", "ashlar_node_status", ".*"), ("gpu", "DCGM_FI_DEV_GPU_TEMP", "DCGM_.*")],
    "network": [("instance", "node_load1", ".*")],
    "storage": [("instance", "node_load1", ".*")],
    "training": [("run", "ashlar_rank_step", ".*")],
    "goodput": [("run", "ashlar_rank_step", ".*")],
    "queue": [("partition", "ashlar_queue_jobs", "ashlar_queue_(jobs|wait_.*)")],
    "serving": [("model_name", "vllm:num_requests_running", "vllm:.*")],
}
METRIC = re.compile(r"\b((?:ashlar|node|DCGM|vllm)[_:][A-Za-z0-9_:]+)(?:\{([^}]*)\})?")


def select(query, variables):
    """The query with a matcher for each variable; a metric without the label stays, unless a value is chosen."""
    def one(found):
        matchers = [found[2]] if found[2] else []
        matchers += [f'{label}=~"${label}"' for label, _, metrics in variables if re.fullmatch(metrics, found[1])]
        return found[1] + ("{" + ",".join(matchers) + "}" if matchers else "")
    return METRIC.sub(one, query)


def variable(label, metric):
    return {"name": label, "type": "query", "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "query": {"query": f"label_values({metric}, {label})", "refId": label}, "refresh": 2, "sort": 1, "multi": True,
            "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}


def panel(number, title, queries, unit, width, x, y):
    return {"id": number, "type": "timeseries", "title": title, "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "gridPos": {"x": x, "y": y, "w": width, "h": 8},
            "fieldConfig": {"defaults": {"unit": unit, "custom": {"lineWidth": 1, "fillOpacity": 8}}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}, "tooltip": {"mode": "multi", "sort": "desc"}},
            "targets": [{"refId": chr(65 + i), "expr": query, "legendFormat": legend, "datasource": {"type": "prometheus", "uid": "${datasource}"}}
                        for i, (query, legend) in enumerate(queries)]}


def dashboard(name, title, rows):
    panels, x, y = [], 0, 0
    for number, (head, queries, unit, width) in enumerate(rows, 1):
        if x + width > 24:
            x, y = 0, y + 8
        selected = [(select(query, VARIABLES[name]), legend) for query, legend in queries]
        panels.append(panel(number, head, selected, unit, width, x, y))
        x += width
    return {"uid": f"ashlar-{name}", "title": title, "tags": ["ashlar"], "schemaVersion": 39, "editable": True, "refresh": "15s",
            "time": {"from": "now-1h", "to": "now"}, "timezone": "browser", "annotations": {"list": []}, "links": [],
            "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]
                                    + [variable(label, metric) for label, metric, _ in VARIABLES[name]]},
            "panels": panels}


def main():
    folder = pathlib.Path(sys.argv[1])
    for name, (title, rows) in BOARDS.items():
        (folder / f"{name}.json").write_text(json.dumps(dashboard(name, title, rows), indent=1) + "\n")


main()

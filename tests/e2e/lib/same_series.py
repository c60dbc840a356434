"""Compares what two exporters of one machine say: every series of the first under a name that the second has too must be there and
agree. What only moves (counters, load) may differ a little. The second is asked before and after the first, which must lie between
its two answers. Other programs change the machine meanwhile, so a series that differs is asked for again: it must agree once.
usage: same_series.py OUR_URL THEIR_URL"""
import re
import sys
import urllib.request

ROUNDS = 20
MOVING = ("node_load", "node_memory_", "node_sockstat_", "node_netstat_Tcp_CurrEstab", "node_filefd_", "node_cpu_scaling_frequency")


def read(url):
    series, types = {}, {}
    for line in urllib.request.urlopen(url, timeout=60).read().decode("utf-8").split("\n"):
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split(" ", 3)
            types[name] = kind
        if line and not line.startswith("#"):
            key, value = line.rsplit(" ", 1)
            name, _, labels = key.partition("{")
            series[name, tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)))] = float(value)
    return series, types


def slack_of(name, value, other):
    if name in ("node_procs_running", "node_procs_blocked"):
        return float("inf")  # a moment's count
    if name.endswith(("_bytes_total", "_octets", "Octets")) or "node_vmstat" in name or name in ("node_context_switches_total", "node_intr_total"):
        return 0.1 * max(value, other) + 1e6
    if name.startswith(MOVING):
        return 0.3 * max(abs(value), abs(other), 20)
    return 0.02 * max(abs(value), abs(other)) + 5


def agrees(name, value, before, after):
    if before is None or after is None:
        return False
    low, high = min(before, after), max(before, after)
    return low - slack_of(name, value, low) <= value <= high + slack_of(name, value, high)


agreed, bad = set(), {}
for _ in range(ROUNDS):
    before, their_types = read(sys.argv[2])
    ours, our_types = read(sys.argv[1])
    after, _ = read(sys.argv[2])
    names = {name for name, _ in after}
    bad = {}
    for (name, labels), value in ours.items():
        if not name.startswith("node_") or name not in names or (name, labels) in agreed:
            continue
        if dict(labels).get("device") == "lo" or dict(labels).get("fstype") == "tmpfs":
            continue  # node_exporter sees namespaces and mounts of its own
        pair = before.get((name, labels)), after.get((name, labels))
        if our_types.get(name) != their_types.get(name):
            bad[name, labels] = f"{our_types.get(name)} and {their_types.get(name)}"
        elif agrees(name, value, *pair):
            agreed.add((name, labels))
        else:
            bad[name, labels] = f"{value} and {pair}"
    if not bad:
        break
print(f"{len(agreed)} series agree with node_exporter, {len(bad)} differ")
print("\n".join(f"{name}{dict(labels)}: {why}" for (name, labels), why in list(bad.items())[:20]))
sys.exit(bool(bad) or len(agreed) < 100)

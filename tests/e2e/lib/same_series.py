"""Compares two scrapes of one machine, taken at almost the same time: every series of the first under a name that the second has
too must be there and agree. What only moves (counters, load) may differ a little. usage: same_series.py OURS THEIRS"""
import re
import sys

MOVING = ("node_load", "node_memory_", "node_sockstat_", "node_netstat_Tcp_CurrEstab", "node_filefd_")


def read(path):
    series, types = {}, {}
    for line in open(path, encoding="utf-8"):
        line = line.rstrip("\n")
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split(" ", 3)
            types[name] = kind
        if line and not line.startswith("#"):
            key, value = line.rsplit(" ", 1)
            name, _, labels = key.partition("{")
            series[name, tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)))] = float(value)
    return series, types


ours, our_types = read(sys.argv[1])
theirs, their_types = read(sys.argv[2])
names = {name for name, _ in theirs}
bad, compared = [], 0
for (name, labels), value in ours.items():
    if not name.startswith("node_") or name not in names:
        continue
    if dict(labels).get("device") == "lo" or dict(labels).get("fstype") == "tmpfs":
        continue  # node_exporter sees namespaces and mounts of its own
    other = theirs.get((name, labels))
    compared += 1
    slack = 0.3 * max(abs(value), abs(other or 0), 20) if name.startswith(MOVING) else 0.02 * max(abs(value), abs(other or 0)) + 5
    if name.endswith(("_bytes_total", "_octets", "Octets")) or "node_vmstat" in name or name in ("node_context_switches_total", "node_intr_total"):
        slack = 0.1 * max(value, other or 0) + 1e6
    if name in ("node_procs_running", "node_procs_blocked", "node_memory_Dirty_bytes", "node_memory_Writeback_bytes"):
        slack = float("inf")  # a moment's count
    if name.startswith(("node_memory_", "node_filesystem_")) and "Total" not in name and "size" not in name:
        slack = max(slack, 0.5 * max(abs(value), abs(other or 0)) + 2e9)  # other tests take and give meanwhile
    if name.startswith(("node_sockstat_", "node_netstat_", "node_filefd_", "node_processes_", "node_load")):
        slack = max(slack, 0.5 * max(abs(value), abs(other or 0)) + 200)
    if other is None or abs(value - other) > slack:
        bad.append(f"{name}{dict(labels)}: {value} and {other}")
    if our_types.get(name) != their_types.get(name):
        bad.append(f"{name}: {our_types.get(name)} and {their_types.get(name)}")
print(f"{compared} series compared with node_exporter, {len(bad)} differ")
print("\n".join(bad[:20]))
sys.exit(bool(bad) or compared < 100)

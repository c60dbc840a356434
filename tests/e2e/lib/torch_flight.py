"""Reads the files of `ashlar flight --torch` as torchfrtrace does: pickled, ranks of a group alike on all its members, records counted from
0, calls of a group paired by number, both ends of a message of one size.
usage: torch_flight.py DIR RANKS"""
import ast
import glob
import pickle
import sys

KNOWN = {"all_reduce", "_reduce_scatter_base", "_all_gather_base", "broadcast", "all_to_all", "send", "recv"}
dumps = {int(path.rsplit("_", 1)[1]): pickle.load(open(path, "rb")) for path in glob.glob(f"{sys.argv[1]}/rank_*")}
assert sorted(dumps) == list(range(int(sys.argv[2]))), sorted(dumps)
members, calls = {}, {}
for rank, dump in dumps.items():
    assert dump["version"] == "2.10"
    assert [entry["record_id"] for entry in dump["entries"]] == list(range(len(dump["entries"])))
    for group, facts in dump["pg_config"].items():
        ranks = ast.literal_eval(facts["ranks"])
        assert rank in ranks and members.setdefault(group, ranks) == ranks, (group, ranks)
    for entry in dump["entries"]:
        backend, name = entry["profiling_name"].split(":")
        assert backend == "nccl" and name.split(" ")[0] in KNOWN, name
        assert entry["state"] in ("scheduled", "started", "completed")
        key = entry["process_group"][0], entry["collective_seq_id"]
        assert rank not in calls.setdefault(key, {}), key
        calls[key][rank] = entry
messages = 0
for (group, number), entries in calls.items():
    assert sorted(entries) == sorted(members[group]), (group, number, sorted(entries), members[group])
    if not any(entry["is_p2p"] for entry in entries.values()):
        names = {entry["profiling_name"] for entry in entries.values()}
        assert len(names) == 1, (group, number, names)
        continue
    (send,) = [entry for entry in entries.values() if entry["profiling_name"].startswith("nccl:send ")]
    (receive,) = [entry for entry in entries.values() if entry["profiling_name"].startswith("nccl:recv ")]
    assert send["profiling_name"].split(" ")[1].split("->") == receive["profiling_name"].split(" ")[1].split("<-")[::-1]
    assert send["input_sizes"] == receive["output_sizes"]
    messages += 1
assert len(calls) > messages > 0, (len(calls), messages)

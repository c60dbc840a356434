"""Every query of dashboards returns data from a Prometheus, within two minutes. usage: queries.py PROMETHEUS DASHBOARD.json..."""
import json
import re
import sys
import time
import urllib.parse
import urllib.request

# What the dashboards that people have for DCGM ask (12239, and AWS's copy).
KNOWN = ["DCGM_FI_DEV_GPU_TEMP", "avg(DCGM_FI_DEV_GPU_TEMP)", "DCGM_FI_DEV_POWER_USAGE", "sum(DCGM_FI_DEV_POWER_USAGE)",
         "DCGM_FI_DEV_SM_CLOCK * 1000000", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_FB_USED",
         'DCGM_FI_DEV_GPU_TEMP{Hostname=~".+", gpu=~"0|1"}', 'DCGM_FI_DEV_FB_USED{instance=~".+", gpu=~".+"}']


def has_data(base, query):
    url = base + "/api/v1/query?query=" + urllib.parse.quote(query)
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return len(json.load(answer)["data"]["result"]) > 0
    except (urllib.error.URLError, ConnectionError):
        return False


def values_of(base, asked):
    """The values that a variable offers, within a minute: label_values(METRIC, LABEL)."""
    metric, label = re.fullmatch(r"label_values\((.*), (.*)\)", asked).groups()
    url = f"{base}/api/v1/label/{label}/values?match[]=" + urllib.parse.quote(metric)
    for _ in range(200):
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                values = json.load(answer)["data"]
            if values:
                return values
        except (urllib.error.URLError, ConnectionError):
            pass
        time.sleep(0.3)
    sys.exit("no values: " + asked)


def shown(query, chosen):
    """As Grafana asks: one run or model is chosen, else all."""
    query = query.replace("$__rate_interval", "1m")
    for name, values in chosen.items():
        query = query.replace("$" + name, values[0] if name in ("run", "model_name") else ".*")
    return query


queries = [("known", query) for query in KNOWN]
for path in sys.argv[2:]:
    board = json.load(open(path, encoding="utf-8"))
    offered = {v["name"]: values_of(sys.argv[1], v["query"]["query"]) for v in board["templating"]["list"] if v["type"] == "query"}
    if not offered:
        sys.exit(path + ": a picture of the whole cluster, without a variable")
    for panel in board["panels"]:
        queries += [(path.rsplit("/", 1)[1] + ": " + panel["title"], shown(target["expr"], offered)) for target in panel["targets"]]
total, end = len(queries), time.time() + 120
while queries and time.time() < end:
    queries = [(where, query) for where, query in queries if not has_data(sys.argv[1], query)]
    if queries:
        time.sleep(0.3)
print(f"{total} queries, {len(queries)} without data")
for where, query in queries:
    print("no data:", where, query)
sys.exit(bool(queries))

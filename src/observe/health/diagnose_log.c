/* What broken software leaves in logs: a fabric manager that is not ready, NCCL on sockets, a plugin or library that is
 * not the one that was meant, a rank that the others wait for. Exporters see none of that. */
#include "observe/health/diagnose_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define NEEDLES_MAX 7
#define XIDS_MAX 512

struct trace {
    enum ash_health_layer layer;
    enum ash_severity severity;
    const char *needles[NEEDLES_MAX]; /* any of them */
    const char *normal, *means, *action, *source;
    bool is_mutual; /* ranks blame each other: the line names none that is wrong for sure */
};

static const struct trace traces[] = {
    {ASH_HEALTH_SOFTWARE,
     ASH_BROKEN,
     {"CUDA error 802", "error code 802", "system not yet initialized", "cudaErrorSystemNotReady",
      "CUDA_ERROR_SYSTEM_NOT_READY", "nvidia-fabricmanager.service: Failed"},
     "no CUDA error 802",
     "the fabric manager is not ready: no process can use the NVSwitch GPUs",
     "systemctl restart nvidia-fabricmanager (of the driver's version), then wait until it has trained the links",
     "CUDA's list of errors; seen on new p5 nodes",
     false},
    {ASH_HEALTH_SOFTWARE,
     ASH_SLOW,
     {"Using network Socket", "via NET/Socket"},
     "Using network AWS Libfabric (or IB)",
     "NCCL talks over TCP sockets: many times slower than EFA",
     "put aws-ofi-nccl's folder into LD_LIBRARY_PATH; unset NCCL_NET=Socket if a test left it",
     "NCCL INFO lines",
     false},
    {ASH_HEALTH_SOFTWARE,
     ASH_SLOW,
     {"NET/Plugin: Could not find", "No plugin found (libnccl-net", "Plugin load (libnccl-net",
      "Unable to load libnccl-net"},
     "the plugin is found",
     "NCCL's network plugin was not loaded: wrong or missing library",
     "see that libnccl-net.so of aws-ofi-nccl is in LD_LIBRARY_PATH inside the container too",
     "NCCL INFO lines",
     false},
    {ASH_HEALTH_SOFTWARE,
     ASH_SLOW,
     {"Selected provider is tcp", "Selected Provider is tcp", "Selected provider is sockets",
      "Selected Provider is sockets"},
     "Selected provider is efa",
     "libfabric found no EFA device and took TCP: wrong libfabric, or devices that the container does not see",
     "use the EFA installer's libfabric (/opt/amazon/efa); give the container /dev/infiniband",
     "aws-ofi-nccl's INFO lines",
     false},
    {ASH_HEALTH_SOFTWARE,
     ASH_BROKEN,
     {"undefined symbol:", "CUDA driver version is insufficient", "cudaErrorInsufficientDriver", "NVRM: API mismatch",
      "Driver/library version mismatch", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "cudaErrorSystemDriverMismatch"},
     "no such line",
     "a library of another version was picked up",
     "see which one with ldd and LD_DEBUG=libs; remove the other from LD_LIBRARY_PATH",
     "the dynamic loader",
     false},
    {ASH_HEALTH_NETWORK,
     ASH_SLOW,
     {"the link from the node of rank "},
     "no such line",
     "the link from a node is slow: the job timed it, when all its ranks had to wait",
     "look at cable, switch port and speed of that node",
     "Ashlar's output",
     false},
    {ASH_HEALTH_STEP,
     ASH_SLOW,
     {"times as slow as its peers, for "},
     "no such line",
     "a rank became slower, and all others wait for it",
     "look at its node: ashlar check node --deep",
     "Ashlar's output",
     false},
    {ASH_HEALTH_STEP,
     ASH_BROKEN,
     {": all ranks must make the same calls"},
     "no such line",
     "ranks make different calls: their programs or jobs differ",
     "ashlar flight says which rank does not do what most do",
     "Ashlar's output",
     true},
    {ASH_HEALTH_STEP,
     ASH_BROKEN,
     {"Watchdog caught collective operation timeout", "ran for longer than the timeout"},
     "no time-out",
     "a rank did not come to a collective: a straggler that hangs, or one that died",
     "find the rank that is missing from the lines: its own log, its node's findings",
     "PyTorch's NCCL watchdog",
     false},
};

static const char *const good_signs[] = {"Using network AWS Libfabric", "Using network Libfabric", "Using network IB",
                                         "Selected provider is efa", "Selected Provider is efa"};

struct log {
    const char *text, *end, *name;
};

/* Lines that hold a needle, and the first of them. */
struct hits {
    size_t lines;
    const char *first;
};

static const char *end_of_line(const struct log *log, const char *at)
{
    const char *end = memchr(at, '\n', (size_t)(log->end - at));

    return end == NULL ? log->end : end;
}

static const char *start_of_line(const struct log *log, const char *at)
{
    while (at > log->text && at[-1] != '\n')
        at--;
    return at;
}

static const char *find(const struct log *log, const char *from, const char *needle)
{
    return from < log->end ? memmem(from, (size_t)(log->end - from), needle, strlen(needle)) : NULL;
}

/* Does the line around at hold one of the needles? */
static bool line_holds(const struct log *log, const char *at, const char *const *needles, size_t count)
{
    const char *start = start_of_line(log, at);
    size_t bytes = (size_t)(end_of_line(log, at) - start);

    for (size_t i = 0; i < count; i++) {
        if (memmem(start, bytes, needles[i], strlen(needles[i])) != NULL) return true;
    }
    return false;
}

/* Lines that hold any of the needles, each counted once. NULL ends the needles before count. */
static struct hits count_lines(const struct log *log, const char *const *needles, size_t count)
{
    struct hits hits = {0};

    for (size_t i = 0; i < count && needles[i] != NULL; i++) {
        for (const char *at = find(log, log->text, needles[i]); at != NULL;
             at = find(log, end_of_line(log, at), needles[i])) {
            if (line_holds(log, at, needles, i)) continue;
            if (hits.first == NULL || at < hits.first) hits.first = at;
            hits.lines++;
        }
    }
    return hits;
}

static size_t line_number(const struct log *log, const char *at)
{
    size_t line = 1;

    for (const char *end = log->text; (end = memchr(end, '\n', (size_t)(at - end))) != NULL; end++)
        line++;
    return line;
}

/* The position of "rank 3 (host node7" in a line, its length in *bytes_out; NULL: none. */
static const char *find_rank(const char *start, const char *end, int *bytes_out)
{
    for (const char *at = start; (at = memmem(at, (size_t)(end - at), "rank ", 5)) != NULL; at += 5) {
        const char *digits = at + 5, *host;

        while (digits < end && *digits >= '0' && *digits <= '9')
            digits++;
        if (digits == at + 5 || end - digits < 8 || memcmp(digits, " (host ", 7) != 0) continue;
        for (host = digits + 7; host < end && *host != ')' && *host != ',';)
            host++;
        *bytes_out = (int)(host - at);
        return at;
    }
    return NULL;
}

/* "LOG:LINE", and the node and GPU or rank if the line names them: NCCL begins with "HOST:PID:TID [GPU] NCCL". */
static void name_place(const struct log *log, const char *at, char *where, size_t where_bytes)
{
    const char *start = start_of_line(log, at), *end = end_of_line(log, at);
    const char *colon = memchr(start, ':', (size_t)(end - start));
    const char *open = memchr(start, '[', (size_t)(end - start)),
               *close = memmem(start, (size_t)(end - start), "] NCCL ", 7);
    size_t line = line_number(log, at);
    int rank_bytes = 0;
    const char *rank = find_rank(start, end, &rank_bytes);

    if (rank != NULL)
        snprintf(where, where_bytes, "%s:%zu %.*s)", log->name, line, rank_bytes, rank);
    else if (colon != NULL && open != NULL && close != NULL && colon < open && open < close && close - open < 8)
        snprintf(where, where_bytes, "%s:%zu %.*s gpu %.*s", log->name, line, (int)(colon - start), start,
                 (int)(close - open - 1), open + 1);
    else
        snprintf(where, where_bytes, "%s:%zu", log->name, line);
}

static int report_trace(struct ash_diagnose *diagnose, const struct log *log, const struct trace *trace)
{
    struct ash_finding finding = {.layer = trace->layer,
                                  .severity = trace->severity,
                                  .metric = "log",
                                  .normal = trace->normal,
                                  .means = trace->means,
                                  .action = trace->action,
                                  .source = trace->source};
    struct hits hits = count_lines(log, trace->needles, NEEDLES_MAX);
    const char *first;

    if (hits.lines == 0) return 0;
    finding.excess = (double)hits.lines;
    first = trace->is_mutual ? start_of_line(log, hits.first) : hits.first;
    if (trace->is_mutual)
        snprintf(finding.where, sizeof(finding.where), "%s:%zu", log->name, line_number(log, first));
    else
        name_place(log, first, finding.where, sizeof(finding.where));
    snprintf(finding.value, sizeof(finding.value), "lines: %zu, first: %.*s", hits.lines,
             (int)(end_of_line(log, first) - first), first);
    return ash_diagnose_report(diagnose, &finding);
}

/* The code of "NVRM: Xid (PCI:0000:10:1c): 79, ..."; 0: there is none. */
static int xid_of_line(const char *at, const char *end)
{
    const char *close = memmem(at, (size_t)(end - at), "): ", 3);
    int code = 0;

    for (at = close == NULL ? end : close + 3; at < end && *at >= '0' && *at <= '9' && code < XIDS_MAX; at++)
        code = 10 * code + (*at - '0');
    return code < XIDS_MAX ? code : 0;
}

static int report_xid(struct ash_diagnose *diagnose, const struct log *log, int code, const struct hits *hits)
{
    struct ash_finding finding = {.layer = ASH_HEALTH_GPU,
                                  .severity = ASH_BROKEN,
                                  .metric = "log",
                                  .normal = "no XID, or one that is only watched",
                                  .means = "the driver reported an error of a GPU that no source lists",
                                  .action = "drain the node and ask support",
                                  .source = "ashlar xid --log says more",
                                  .excess = (double)hits->lines};
    const char *start = start_of_line(log, hits->first),
               *verdict = ash_diagnose_explain_xid(&finding, code, start, (size_t)(end_of_line(log, start) - start));

    snprintf(finding.where, sizeof(finding.where), "%s:%zu", log->name, line_number(log, hits->first));
    snprintf(finding.value, sizeof(finding.value), "XID %d (%s), lines: %zu, first: %.*s", code, verdict, hits->lines,
             (int)(end_of_line(log, hits->first) - hits->first), hits->first);
    return ash_diagnose_report(diagnose, &finding);
}

static int report_xids(struct ash_diagnose *diagnose, const struct log *log)
{
    struct hits *hits = calloc(XIDS_MAX, sizeof(hits[0]));
    int rc = 0;

    if (hits == NULL) return -ENOMEM;
    for (const char *at = find(log, log->text, "NVRM: Xid"), *end; at != NULL; at = find(log, end, "NVRM: Xid")) {
        struct hits *hit;

        end = end_of_line(log, at);
        hit = &hits[xid_of_line(at, end)];
        if (hit->lines++ == 0) hit->first = at;
    }
    for (int code = 1; code < XIDS_MAX && rc == 0; code++) {
        if (hits[code].lines > 0) rc = report_xid(diagnose, log, code, &hits[code]);
    }
    free(hits);
    return rc;
}

int ash_diagnose_log(struct ash_diagnose *diagnose, const char *text, size_t size_bytes, const char *name,
                     struct ash_err *err)
{
    const struct log log = {text, text + size_bytes, name};
    int rc = 0;

    if (size_bytes == 0) return 0;
    for (size_t i = 0; i < ASH_COUNT(traces) && rc == 0; i++)
        rc = report_trace(diagnose, &log, &traces[i]);
    if (rc == 0) rc = report_xids(diagnose, &log);
    if (rc == 0) rc = ash_diagnose_kernel(diagnose, text, size_bytes, name, true);
    if (rc < 0) return ash_err_set(err, rc, "diagnose: out of memory");
    diagnose->log_lines += line_number(&log, log.end) - (log.end[-1] == '\n');
    diagnose->log_good += count_lines(&log, good_signs, ASH_COUNT(good_signs)).lines;
    return 0;
}

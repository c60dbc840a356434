/* Agents and this machine are sampled twice, so that counters become growth; verdicts, ranks' steps and calls and a
 * run's folder become findings. */
#include "observe/live/live.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "http/fetch.h"
#include "observe/agent/kmsg.h"
#include "observe/agent/sources.h"
#include "observe/collect/collector.h"
#include "observe/health/kernel_log.h"
#include "observe/health/missing.h"
#include "observe/health/rank_health.h"
#include "observe/health/run_health.h"
#include "observe/ranks/run_id.h"
#include "record/metrics_page.h"

#define ANSWER_BYTES_MAX ((size_t)256 << 20)
#define ANSWER_S 10.0
#define KERNEL_LOG_BYTES_MAX ((size_t)64 << 20)

bool ash_diagnose_live_is_given(const struct ash_diagnose_live *live)
{
    return live->agents.count > 0 || live->ranks.count > 0 || live->prometheus != NULL || live->run != NULL ||
           live->here;
}

/* ---- agents ------------------------------------------------------------------------------------------------------ */

/* "node1=10.0.0.7:9470": its address. */
static const char *address_of(const char *agent)
{
    size_t name_bytes = strcspn(agent, "=:/");

    return agent[name_bytes] == '=' ? agent + name_bytes + 1 : agent;
}

/* ... and its name: without one, its address. */
static void name_node(const char *agent, char *buf, size_t buf_bytes)
{
    const char *scheme = strstr(agent, "://"), *start = scheme != NULL ? scheme + 3 : agent;

    snprintf(buf, buf_bytes, "%.*s", (int)strcspn(start, "=/"), start);
}

/* An agent that does not answer is the first finding about its node. A machine that refuses is up. */
static int report_silence(const char *node, int rc, const struct ash_err *why, struct ash_diagnose *diagnose)
{
    bool is_far = rc == -EHOSTUNREACH || rc == -ENETUNREACH || rc == -EHOSTDOWN;
    struct ash_finding finding = {.layer = is_far ? ASH_HEALTH_NETWORK : ASH_HEALTH_HOST,
                                  .severity = ASH_BROKEN,
                                  .metric = "agent",
                                  .normal = "answers",
                                  .means = is_far ? "the node cannot be reached: its link is cut, or it is down"
                                                  : "its agent was not started, or it ended",
                                  .action = is_far ? "look whether the node is up, then at its cable and switch port"
                                                   : "start ashlar agent there; see its log",
                                  .source = "Ashlar"};

    snprintf(finding.where, sizeof(finding.where), "%.150s", node);
    snprintf(finding.value, sizeof(finding.value), "%.150s", why->text);
    return ash_diagnose_report(diagnose, &finding);
}

static int add_metrics(const struct ash_diagnose_live *live, const char *address, bool before,
                       struct ash_diagnose *diagnose, struct ash_err *err)
{
    struct ash_scrape *scrape = NULL;
    struct ash_str body = {0};
    char url[512], node[256];
    int rc;

    snprintf(url, sizeof(url), "%s/metrics", address_of(address));
    name_node(address, node, sizeof(node));
    rc = ash_fetch(url, live->token, ANSWER_S, ANSWER_BYTES_MAX, &body, err);
    if (rc == 0) rc = ash_scrape_parse(body.data != NULL ? body.data : "", body.size_bytes, node, &scrape, err);
    ash_str_fini(&body);
    return rc < 0 ? rc : ash_diagnose_add(diagnose, scrape, node, before, err);
}

static enum ash_health_layer layer_named(const char *name)
{
    for (int i = 0; i < ASH_HEALTH_COUNT; i++)
        if (strcmp(ash_health_layer_name((enum ash_health_layer)i), name) == 0) return (enum ash_health_layer)i;
    return ASH_HEALTH_SOFTWARE;
}

/* What an agent holds against its node, from its kernel log. */
static int add_findings(const json_t *node, const char *name, struct ash_diagnose *diagnose)
{
    const json_t *findings = json_object_get(node, "findings");
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < json_array_size(findings); i++) {
        const json_t *one = json_array_get(findings, i);
        const char *source = json_string_value(json_object_get(one, "source")),
                   *remedy = json_string_value(json_object_get(one, "remedy"));
        const char *evidence = json_string_value(json_object_get(one, "evidence")),
                   *layer = json_string_value(json_object_get(one, "layer"));
        const char *key = json_string_value(json_object_get(one, "key"));
        bool is_hard = remedy != NULL && strcmp(remedy, "watch") != 0 && strcmp(remedy, "none") != 0;
        enum ash_kernel_kind kind = key != NULL ? ash_kernel_kind_named(key, strcspn(key, " ")) : ASH_KERNEL_NONE;
        struct ash_finding finding = {.severity =
                                          ash_kernel_severity(kind, is_hard ? ASH_REMEDY_REBOOT : ASH_REMEDY_WATCH),
                                      .metric = "kernel log",
                                      .normal = "no such line",
                                      .means = is_hard ? "the node must be taken out" : "to be watched",
                                      .action = "see the agent's verdict",
                                      .source = "the node's agent"};

        if (!json_is_true(json_object_get(one, "active")) || source == NULL || strcmp(source, "kernel log") != 0)
            continue;
        finding.layer = layer_named(layer != NULL ? layer : "");
        snprintf(finding.where, sizeof(finding.where), "%.150s", name);
        snprintf(finding.value, sizeof(finding.value), "%.150s", evidence != NULL ? evidence : "");
        rc = ash_diagnose_report(diagnose, &finding);
    }
    return rc;
}

/* Nodes and ranks of all boards. */
static int read_board(const struct ash_diagnose_live *live, const char *address, struct ash_rank_list *ranks,
                      struct ash_diagnose *diagnose)
{
    struct ash_str body = {0};
    json_t *board = NULL;
    char url[512], node[256];
    int rc;

    snprintf(url, sizeof(url), "%s/v1/board", address_of(address));
    name_node(address, node, sizeof(node));
    rc = ash_fetch(url, live->token, ANSWER_S, ANSWER_BYTES_MAX, &body, NULL);
    if (rc == 0) rc = ash_json_parse(body.data != NULL ? body.data : "", body.size_bytes, url, &board, NULL);
    ash_str_fini(&body);
    if (rc < 0) return 0; /* an exporter that is no agent has no board */
    rc = ash_rank_list_add_board(ranks, json_object_get(board, "ranks"), node);
    if (rc == 0) rc = add_findings(json_array_get(json_object_get(board, "nodes"), 0), node, diagnose);
    json_decref(board);
    return rc;
}

static int add_agents(const struct ash_diagnose_live *live, struct ash_diagnose *diagnose, struct ash_rank_list *ranks)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < live->agents.count; i++) {
        struct ash_err why = {0};
        char node[256];

        name_node(live->agents.items[i], node, sizeof(node));
        rc = add_metrics(live, live->agents.items[i], false, diagnose, &why);
        if (rc < 0 && rc != -ENOMEM)
            rc = report_silence(node, rc, &why, diagnose);
        else if (rc == 0)
            rc = read_board(live, live->agents.items[i], ranks, diagnose);
    }
    return rc;
}

/* ---- this machine ------------------------------------------------------------------------------------------------ */

/* This machine, or the tree that stands for one. */
struct here {
    struct ash_host_files files;
    struct ash_sources *sources; /* NULL: not read */
    struct ash_parts_wanted wanted;
    char name[256];
};

static int report_missing(const struct here *here, const char *text, struct ash_diagnose *diagnose)
{
    struct ash_missing missing[ASH_MISSING_MAX];
    size_t count = ash_missing_find(text, &here->wanted, missing);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct ash_finding finding = {.layer = missing[i].layer,
                                      .severity = ASH_BROKEN,
                                      .metric = missing[i].metric,
                                      .normal = "as many as the machine has",
                                      .means = missing[i].means,
                                      .action = missing[i].action,
                                      .source = "the catalog"};

        snprintf(finding.where, sizeof(finding.where), "%.150s", here->name);
        snprintf(finding.value, sizeof(finding.value), "%s", missing[i].evidence);
        rc = ash_diagnose_report(diagnose, &finding);
    }
    return rc;
}

static int add_here(const struct here *here, bool before, struct ash_diagnose *diagnose, struct ash_err *err)
{
    struct ash_scrape *scrape = NULL;
    struct ash_str text = {0};
    int rc = ash_sources_scrape(here->sources, &text);

    if (rc == 0 && !before && text.data != NULL) rc = report_missing(here, text.data, diagnose);
    if (rc == 0) rc = ash_scrape_parse(text.data != NULL ? text.data : "", text.size_bytes, here->name, &scrape, err);
    if (rc == 0) rc = ash_diagnose_add(diagnose, scrape, here->name, before, err);
    ash_str_fini(&text);
    return rc;
}

/* The kernel log that was named, or that of the tree. This machine's own is not read by default: it goes back to the
 * boot, and agents have the new entries. */
static int add_kernel_log(const struct ash_diagnose_live *live, const struct here *here, struct ash_diagnose *diagnose,
                          struct ash_err *err)
{
    char path[PATH_MAX], line[ASH_KMSG_LINE_BYTES];
    const char *log = live->kernel_log;
    struct ash_kmsg *kmsg = NULL;
    struct ash_str text = {0};
    uint64_t number;
    int rc;

    if (log == NULL && here->files.root[0] == '\0') return 0;
    if (log == NULL) log = ash_host_path(&here->files, "/dev/kmsg", path, sizeof(path));
    if (log == NULL || (live->kernel_log == NULL && !ash_path_exists(log))) return 0;
    rc = ash_kmsg_open(log, 0, &kmsg, err);
    if (rc < 0) return rc;
    while (rc == 0 && text.size_bytes < KERNEL_LOG_BYTES_MAX && ash_kmsg_next(kmsg, 0, -1, line, &number) == 1)
        rc = ash_str_addf(&text, "%s\n", line);
    ash_kmsg_close(kmsg);
    if (rc == 0 && text.data != NULL) rc = ash_diagnose_kernel(diagnose, text.data, text.size_bytes, here->name, false);
    ash_str_fini(&text);
    return rc < 0 ? ash_err_set(err, rc, "no memory for the kernel log") : 0;
}

static int open_here(const struct ash_diagnose_live *live, const char *run_id, struct here *here, struct ash_err *err)
{
    here->files = (struct ash_host_files){.root = live->root, .nvml = live->nvml, .run_id = run_id};
    if (live->root[0] == '\0') here->files.pages = ASH_METRICS_PAGE_DIR;
    here->wanted = live->wanted_here;
    ash_host_name(&here->files, here->name, sizeof(here->name));
    return ash_sources_open(ash_collectors, ash_collector_count, &here->files, &here->sources, err);
}

/* ---- Prometheus -------------------------------------------------------------------------------------------------- */

static void add_series(const json_t *metric, const char *value, struct ash_str *text)
{
    const char *name = json_string_value(json_object_get(metric, "__name__")), *key;
    struct ash_str labels = {0};
    const json_t *label;

    if (name == NULL) return;
    json_object_foreach((json_t *)(uintptr_t)metric, key, label) {
        if (strcmp(key, "__name__") != 0 && json_is_string(label))
            ash_str_addf(&labels, "%s%s=\"", labels.size_bytes > 0 ? "," : "", key);
        else
            continue;
        for (const char *at = json_string_value(label); *at != '\0'; at++)
            ash_str_addf(&labels, "%s%c", *at == '\\' || *at == '"' ? "\\" : "", *at == '\n' ? ' ' : *at);
        ash_str_adds(&labels, "\"");
    }
    ash_str_addf(text, "%s{%s} %s\n", name, labels.data != NULL ? labels.data : "", value);
    ash_str_fini(&labels);
}

/* All series of a moment. */
static int add_moment(const struct ash_diagnose_live *live, const char *time, bool before,
                      struct ash_diagnose *diagnose, struct ash_err *err)
{
    struct ash_str body = {0}, text = {0};
    struct ash_scrape *scrape = NULL;
    const json_t *results;
    json_t *answer = NULL;
    char url[1024];
    int rc;

    snprintf(url, sizeof(url),
             "%s/api/v1/query?query=%%7B__name__%%3D~%%22(node_%%7CDCGM_%%7Cashlar_)%%2B.*%%22%%7D%s%s",
             live->prometheus, time != NULL ? "&time=" : "", time != NULL ? time : "");
    rc = ash_fetch(url, live->token, ANSWER_S, ANSWER_BYTES_MAX, &body, err);
    if (rc == 0)
        rc = ash_json_parse(body.data != NULL ? body.data : "", body.size_bytes, "Prometheus's answer", &answer, err);
    results = json_object_get(json_object_get(answer, "data"), "result");
    for (size_t i = 0; rc == 0 && i < json_array_size(results); i++) {
        const json_t *one = json_array_get(results, i);
        const char *value = json_string_value(json_array_get(json_object_get(one, "value"), 1));

        if (value != NULL) add_series(json_object_get(one, "metric"), value, &text);
    }
    if (rc == 0) rc = ash_scrape_parse(text.data != NULL ? text.data : "", text.size_bytes, "Prometheus", &scrape, err);
    if (rc == 0) rc = ash_diagnose_add(diagnose, scrape, "prometheus", before, err);
    json_decref(answer);
    ash_str_fini(&body);
    ash_str_fini(&text);
    return rc;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* Where ranks left their rings: the folders that were named, or, for a run, this machine's. */
static struct ash_opt_list rings_of(const struct ash_diagnose_live *live)
{
    static const char *own[] = {ASH_METRICS_PAGE_DIR};
    bool is_own = live->ranks.count == 0 && live->run != NULL && ash_path_exists(ASH_METRICS_PAGE_DIR);

    return is_own ? (struct ash_opt_list){own, 1} : live->ranks;
}

/* Pages that the processes of a folder publish; of one run if run_id is set. */
static int add_pages(const char *dir, const char *run_id, struct ash_diagnose *diagnose, struct ash_err *err)
{
    const struct ash_host_files files = {.root = "", .pages = dir, .run_id = run_id};
    struct ash_scrape *scrape = NULL;
    struct ash_str text = {0};
    char node[256] = "";
    void *state = NULL;
    int rc = ash_collect_pages.open(&files, &state, err);

    gethostname(node, sizeof(node) - 1);
    if (rc == 0) rc = ash_collect_pages.collect(state, &text, err);
    if (rc == 0 && text.size_bytes > 0) rc = ash_scrape_parse(text.data, text.size_bytes, dir, &scrape, err);
    if (rc == 0 && scrape != NULL) rc = ash_diagnose_add(diagnose, scrape, node, false, err);
    ash_collect_pages.close(state);
    ash_str_fini(&text);
    return rc;
}

/* Calls are compared where they lie: of the job whose ranks were found, or of the last one. */
static int judge_calls(const struct ash_diagnose_live *live, const struct ash_opt_list *rings, const char *run_id,
                       const struct ash_rank_list *ranks, struct ash_diagnose *diagnose)
{
    const char *job = live->job != NULL ? live->job : ranks->count > 0 ? ranks->records[0].job : NULL;
    int rc = 0;

    if (live->run != NULL && ranks->count == 0) return 0; /* none of them is the run's */
    for (size_t i = 0; rc == 0 && i < rings->count; i++)
        rc = ash_calls_judge(rings->items[i], live->run != NULL ? job : live->job, run_id, diagnose);
    return rc;
}

static int judge_ranks(const struct ash_diagnose_live *live, const struct ash_run_record *run,
                       struct ash_rank_list *ranks, struct ash_diagnose *diagnose, struct ash_err *err)
{
    struct ash_opt_list rings = rings_of(live);
    char id[ASH_RUN_ID_BYTES];
    const char *run_id = live->run != NULL ? ash_run_id(live->run, id) : NULL;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < rings.count; i++)
        rc = ash_rank_list_add_dir(ranks, rings.items[i], "", err);
    for (size_t i = 0; rc == 0 && i < live->ranks.count; i++)
        rc = add_pages(live->ranks.items[i], run_id, diagnose, err);
    ash_rank_list_keep(ranks, live->job, run_id);
    if (live->run != NULL)
        ash_rank_list_keep_last(ranks, run->count > 0 ? run->steps[run->count - 1].step : 0, run->end_s);
    if (rc == 0) rc = ash_rank_list_judge(ranks, diagnose);
    if (rc == 0) rc = judge_calls(live, &rings, run_id, ranks, diagnose);
    return rc == -ENOMEM ? ash_err_set(err, rc, "no memory for the ranks") : rc;
}

/* A run's ranks, then its folder: a rank that is slow explains slow steps. */
static int judge_runs(const struct ash_diagnose_live *live, struct ash_rank_list *ranks, struct ash_diagnose *diagnose,
                      struct ash_err *err)
{
    struct ash_run_record run = {0};
    int rc = live->run != NULL ? ash_run_record_read(&run, live->run, err) : 0;

    if (rc == -ENOENT) ash_err_set(err, rc, "'%s' is no run: it has no log.jsonl", live->run);
    if (rc == 0) rc = judge_ranks(live, &run, ranks, diagnose, err);
    if (rc == 0 && live->run != NULL) ash_run_record_share(&run, ranks);
    if (rc == 0 && live->run != NULL && ash_run_record_judge(&run, diagnose) < 0)
        rc = ash_err_set(err, -ENOMEM, "no memory for the run");
    ash_run_record_fini(&run);
    return rc;
}

/* Everything twice, --wait apart: first the values to subtract. */
static int add_before(const struct ash_diagnose_live *live, const struct here *here, struct ash_diagnose *diagnose)
{
    struct timespec pause = {.tv_sec = (time_t)live->wait_s, .tv_nsec = (long)(fmod(live->wait_s, 1) * 1e9)};

    if (!(live->wait_s > 0)) return 0;
    for (size_t i = 0; i < live->agents.count; i++) /* one that does not answer is reported the second time */
        if (add_metrics(live, live->agents.items[i], true, diagnose, NULL) == -ENOMEM) return -ENOMEM;
    if (here->sources != NULL && add_here(here, true, diagnose, NULL) == -ENOMEM) return -ENOMEM;
    if (live->agents.count > 0 || here->sources != NULL) nanosleep(&pause, NULL);
    return 0;
}

int ash_diagnose_live_add(const struct ash_diagnose_live *live, struct ash_diagnose *diagnose, struct ash_err *err)
{
    char id[ASH_RUN_ID_BYTES];
    struct here here = {0};
    struct ash_rank_list ranks = {0};
    int rc = live->here ? open_here(live, live->run != NULL ? ash_run_id(live->run, id) : NULL, &here, err) : 0;

    if (rc == 0) rc = add_before(live, &here, diagnose);
    if (rc == 0) rc = add_agents(live, diagnose, &ranks);
    if (rc == 0 && here.sources != NULL) rc = add_here(&here, false, diagnose, err);
    if (rc == 0 && here.sources != NULL) rc = add_kernel_log(live, &here, diagnose, err);
    if (rc == 0) rc = judge_runs(live, &ranks, diagnose, err);
    if (rc == 0 && live->prometheus != NULL && live->from != NULL)
        rc = add_moment(live, live->from, true, diagnose, err);
    if (rc == 0 && live->prometheus != NULL) rc = add_moment(live, live->to, false, diagnose, err);
    ash_sources_close(here.sources);
    ash_rank_list_fini(&ranks);
    return rc;
}

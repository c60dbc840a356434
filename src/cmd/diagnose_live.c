/* Agents are asked twice, so that counters become growth; their verdicts and their ranks' steps become findings. */
#include "cmd/diagnose_live.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/math.h"
#include "observe/fetch.h"
#include "observe/rank_steps.h"
#include "observe/straggler.h"

#define ANSWER_BYTES_MAX ((size_t)256 << 20)
#define ANSWER_S 10.0
#define STRAGGLERS_MAX 16
#define STEPS_MAX 4096

bool ash_diagnose_live_is_given(const struct ash_diagnose_live *live)
{
    return live->agents.count > 0 || live->ranks.count > 0 || live->prometheus != NULL;
}

/* ---- stragglers -------------------------------------------------------------------------------------------------- */

/* Steps of ranks that are gathered from several places. */
struct table {
    size_t ranks, steps;
    size_t *numbers; /* [ranks] */
    uint64_t first;  /* step of row 0 */
    double *own, *data;
};

static void fini_table(struct table *table)
{
    free(table->numbers);
    free(table->own);
    free(table->data);
    *table = (struct table){0};
}

/* Room for ranks and the steps first ... last; of many, the last ones. */
static int init_table(struct table *table, size_t ranks, uint64_t first, uint64_t last)
{
    if (last - first >= STEPS_MAX) first = last - STEPS_MAX + 1;
    *table = (struct table){.ranks = ranks, .steps = (size_t)(last - first + 1), .first = first};
    table->numbers = calloc(ranks, sizeof(*table->numbers));
    table->own = malloc(ranks * table->steps * sizeof(*table->own));
    table->data = malloc(ranks * table->steps * sizeof(*table->data));
    if (table->numbers == NULL || table->own == NULL || table->data == NULL) return -ENOMEM;
    for (size_t i = 0; i < ranks * table->steps; i++)
        table->own[i] = table->data[i] = NAN;
    return 0;
}

static void set_step(struct table *table, size_t column, uint64_t step, double own_s, double data_s)
{
    if (step < table->first || step - table->first >= table->steps) return;
    table->own[(step - table->first) * table->ranks + column] = own_s;
    table->data[(step - table->first) * table->ranks + column] = data_s;
}

static int report_stragglers(const struct table *table, const char *run, struct ash_diagnose *diagnose)
{
    struct ash_straggler found[STRAGGLERS_MAX];
    uint64_t *steps = malloc(table->steps * sizeof(*steps));
    struct ash_work work = {
        .ranks = table->ranks, .steps = table->steps, .own = table->own, .data = table->data, .step = steps};
    int count, rc = 0;

    for (size_t i = 0; steps != NULL && i < table->steps; i++)
        steps[i] = table->first + i;
    count = steps != NULL ? ash_straggler_find(&work, found, STRAGGLERS_MAX) : -ENOMEM;
    for (int i = 0; i < count && rc == 0; i++) {
        struct ash_finding finding = {
            .layer = ASH_HEALTH_STEP,
            .severity = ASH_SLOW,
            .metric = found[i].is_data ? "data wait by step" : "own work by step",
            .normal = "as its peers, within 5 %",
            .means = found[i].is_data      ? "this rank waits for its data, and all others for it"
                     : found[i].was_always ? "this rank has been slower than its peers from the start"
                                           : "this rank became slower, and all others wait for it",
            .action = found[i].is_data ? "look at the storage of its node, and at data.prefetch"
                                       : "look at its node: ashlar check node --deep",
            .source = "change points of every rank's own work",
            .excess = found[i].slower};

        snprintf(finding.where, sizeof(finding.where), "rank %zu%s%.80s", table->numbers[found[i].rank],
                 run[0] != '\0' ? " of " : "", run);
        snprintf(finding.value, sizeof(finding.value), "%.0f %% slower since step %llu; %.3g s lost",
                 found[i].slower * 100, (unsigned long long)found[i].since, found[i].lost_s);
        rc = ash_diagnose_report(diagnose, &finding);
    }
    free(steps);
    return count < 0 ? count : rc;
}

/* The ranks of one run in a folder. */
static int judge_run(const struct ash_rank_steps *ranks, size_t count, struct ash_diagnose *diagnose)
{
    uint64_t first = UINT64_MAX, last = 0;
    struct table table;
    int rc;

    for (size_t r = 0; r < count; r++) {
        if (ranks[r].view.count == 0) continue;
        first = ranks[r].view.count > 0 && ash_rank_step(&ranks[r], 0)->step < first ? ash_rank_step(&ranks[r], 0)->step
                                                                                     : first;
        if (ash_rank_step(&ranks[r], ranks[r].view.count - 1)->step > last)
            last = ash_rank_step(&ranks[r], ranks[r].view.count - 1)->step;
    }
    if (count < 2 || first > last) return 0;
    rc = init_table(&table, count, first, last);
    for (size_t r = 0; rc == 0 && r < count; r++) {
        table.numbers[r] = ranks[r].rank;
        for (size_t i = 0; i < ranks[r].view.count; i++) {
            const struct ash_step_record *step = ash_rank_step(&ranks[r], i);

            set_step(&table, r, step->step, (double)(step->ns[ASH_METER_COMPUTE] + step->ns[ASH_METER_DATA]) * 1e-9,
                     (double)step->ns[ASH_METER_DATA] * 1e-9);
        }
    }
    if (rc == 0) rc = report_stragglers(&table, ranks[0].run, diagnose);
    fini_table(&table);
    return rc;
}

static int add_ranks(const char *dir, struct ash_diagnose *diagnose, struct ash_err *err)
{
    struct ash_rank_set set = {0};
    int rc = ash_rank_set_load(&set, dir, err);

    for (size_t from = 0; rc == 0 && from < set.count;) {
        size_t end = from + 1;

        while (end < set.count && strcmp(set.ranks[end].job, set.ranks[from].job) == 0 &&
               strcmp(set.ranks[end].run, set.ranks[from].run) == 0)
            end++;
        rc = judge_run(set.ranks + from, end - from, diagnose);
        from = end;
    }
    ash_rank_set_fini(&set);
    return rc == -ENOMEM ? ash_err_set(err, rc, "no memory for the ranks of '%s'", dir) : rc;
}

/* ---- agents ------------------------------------------------------------------------------------------------------ */

static void name_node(const char *address, char *buf, size_t buf_bytes)
{
    const char *start = strncmp(address, "http://", 7) == 0 ? address + 7 : address;

    snprintf(buf, buf_bytes, "%.*s", (int)strcspn(start, "/"), start);
}

/* An agent that does not answer is the first thing to know about its node. */
static int report_silence(const char *node, const struct ash_err *why, struct ash_diagnose *diagnose)
{
    struct ash_finding finding = {.layer = ASH_HEALTH_HOST,
                                  .severity = ASH_BROKEN,
                                  .metric = "agent",
                                  .normal = "answers",
                                  .means = "the node is down, cut off, or nobody started its agent",
                                  .action = "look whether the node is up",
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

    snprintf(url, sizeof(url), "%s/metrics", address);
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
        bool is_hard = remedy != NULL && strcmp(remedy, "watch") != 0 && strcmp(remedy, "none") != 0;
        struct ash_finding finding = {.severity = is_hard ? ASH_BROKEN : ASH_WATCH,
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
static int read_board(const struct ash_diagnose_live *live, const char *address, json_t *ranks,
                      struct ash_diagnose *diagnose)
{
    struct ash_str body = {0};
    json_t *board = NULL;
    char url[512], node[256];
    int rc;

    snprintf(url, sizeof(url), "%s/v1/board", address);
    name_node(address, node, sizeof(node));
    rc = ash_fetch(url, live->token, ANSWER_S, ANSWER_BYTES_MAX, &body, NULL);
    if (rc == 0) rc = ash_json_parse(body.data != NULL ? body.data : "", body.size_bytes, url, &board, NULL);
    ash_str_fini(&body);
    if (rc < 0) return 0; /* an exporter that is no agent has no board */
    json_array_extend(ranks, json_object_get(board, "ranks"));
    rc = add_findings(json_array_get(json_object_get(board, "nodes"), 0), node, diagnose);
    json_decref(board);
    return rc;
}

static double number_at(const json_t *row, size_t index)
{
    const json_t *value = json_array_get(row, index);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* The ranks of all agents, taken as one job. */
static int judge_boards(const json_t *ranks, struct ash_diagnose *diagnose)
{
    uint64_t first = UINT64_MAX, last = 0;
    struct table table = {0};
    int rc;

    for (size_t r = 0; r < json_array_size(ranks); r++) {
        const json_t *steps = json_object_get(json_array_get(ranks, r), "steps");

        for (size_t i = 0; i < json_array_size(steps); i++) {
            double step = number_at(json_array_get(steps, i), 0);

            if (!(step >= 0 && step < 1e15)) continue;
            first = (uint64_t)step < first ? (uint64_t)step : first;
            last = (uint64_t)step > last ? (uint64_t)step : last;
        }
    }
    if (json_array_size(ranks) < 2 || first > last) return 0;
    rc = init_table(&table, json_array_size(ranks), first, last);
    for (size_t r = 0; rc == 0 && r < table.ranks; r++) {
        const json_t *rank = json_array_get(ranks, r), *steps = json_object_get(rank, "steps");

        table.numbers[r] = (size_t)json_integer_value(json_object_get(rank, "rank"));
        for (size_t i = 0; i < json_array_size(steps); i++) {
            const json_t *row = json_array_get(steps, i);
            double step = number_at(row, 0);

            if (step >= 0 && step < 1e15)
                set_step(&table, r, (uint64_t)step, (number_at(row, 1) + number_at(row, 2)) * 1e-3,
                         number_at(row, 2) * 1e-3);
        }
    }
    if (rc == 0) rc = report_stragglers(&table, "", diagnose);
    fini_table(&table);
    return rc;
}

static int add_agents(const struct ash_diagnose_live *live, struct ash_diagnose *diagnose, struct ash_err *err)
{
    struct timespec pause = {.tv_sec = (time_t)live->wait_s, .tv_nsec = (long)(fmod(live->wait_s, 1) * 1e9)};
    json_t *ranks = json_array();
    bool *is_silent = calloc(live->agents.count, sizeof(*is_silent));
    int rc = ranks != NULL && is_silent != NULL ? 0 : ash_err_set(err, -ENOMEM, "no memory for the agents");

    for (size_t i = 0; rc == 0 && live->wait_s > 0 && i < live->agents.count; i++)
        is_silent[i] = add_metrics(live, live->agents.items[i], true, diagnose, NULL) < 0;
    if (rc == 0 && live->wait_s > 0) nanosleep(&pause, NULL);
    for (size_t i = 0; rc == 0 && i < live->agents.count; i++) {
        struct ash_err why = {0};
        char node[256];

        name_node(live->agents.items[i], node, sizeof(node));
        if (add_metrics(live, live->agents.items[i], false, diagnose, &why) < 0)
            rc = report_silence(node, &why, diagnose);
        else
            rc = read_board(live, live->agents.items[i], ranks, diagnose);
    }
    if (rc == 0) rc = judge_boards(ranks, diagnose);
    json_decref(ranks);
    free(is_silent);
    return rc;
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

int ash_diagnose_live_add(const struct ash_diagnose_live *live, struct ash_diagnose *diagnose, struct ash_err *err)
{
    int rc = live->agents.count > 0 ? add_agents(live, diagnose, err) : 0;

    for (size_t i = 0; rc == 0 && i < live->ranks.count; i++)
        rc = add_ranks(live->ranks.items[i], diagnose, err);
    if (rc == 0 && live->prometheus != NULL && live->from != NULL)
        rc = add_moment(live, live->from, true, diagnose, err);
    if (rc == 0 && live->prometheus != NULL) rc = add_moment(live, live->to, false, diagnose, err);
    return rc;
}

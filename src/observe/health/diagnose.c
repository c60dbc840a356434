/* A diagnosis: scrapes of two moments, the rules, one after the other, and the findings in order. */
#include "observe/health/diagnose_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static const struct ash_rule rules[] = {
#include "observe/health/diagnose_list.h"
#include "observe/health/diagnose_network_list.h"
#include "observe/health/diagnose_node_list.h"
};

int ash_diagnose_open(struct ash_diagnose **diagnose_out, struct ash_err *err)
{
    struct ash_diagnose *diagnose = calloc(1, sizeof(*diagnose));

    if (diagnose != NULL) diagnose->checks = calloc(ASH_COUNT(rules) + ASH_DIAGNOSE_NOTES, sizeof(diagnose->checks[0]));
    if (diagnose == NULL || diagnose->checks == NULL) {
        ash_diagnose_close(diagnose);
        return ash_err_set(err, -ENOMEM, "diagnose: out of memory");
    }
    *diagnose_out = diagnose;
    return 0;
}

void ash_diagnose_close(struct ash_diagnose *diagnose)
{
    if (diagnose == NULL) return;
    for (size_t i = 0; i < diagnose->scrape_count; i++) {
        ash_scrape_close(diagnose->scrapes[i]);
        free(diagnose->names[i]);
    }
    free(diagnose->scrapes);
    free(diagnose->names);
    free(diagnose->now.items);
    free(diagnose->before.items);
    free(diagnose->findings);
    free(diagnose->checks);
    free(diagnose);
}

/* ---- scrapes ----------------------------------------------------------------------------------------------------- */

/* Take over a scrape and a copy of its name. */
static int keep(struct ash_diagnose *diagnose, struct ash_scrape *scrape, const char *name)
{
    size_t count = diagnose->scrape_count + 1;
    struct ash_scrape **scrapes = realloc(diagnose->scrapes, count * sizeof(struct ash_scrape *));
    char **names, *copy;

    if (scrapes == NULL) return -ENOMEM;
    diagnose->scrapes = scrapes;
    names = realloc(diagnose->names, count * sizeof(char *));
    if (names == NULL) return -ENOMEM;
    diagnose->names = names;
    copy = strndup(name, 256);
    if (copy == NULL) return -ENOMEM;
    scrapes[count - 1] = scrape;
    names[count - 1] = copy;
    diagnose->scrape_count = count;
    return 0;
}

int ash_diagnose_add(struct ash_diagnose *diagnose, struct ash_scrape *scrape, const char *node, bool before,
                     struct ash_err *err)
{
    const char *name;

    if (keep(diagnose, scrape, node) < 0) {
        ash_scrape_close(scrape);
        return ash_err_set(err, -ENOMEM, "diagnose: out of memory");
    }
    name = diagnose->names[diagnose->scrape_count - 1];
    diagnose->skipped += ash_scrape_skipped(scrape);
    if (ash_series_add(before ? &diagnose->before : &diagnose->now, scrape, name) < 0)
        return ash_err_set(err, -ENOMEM, "diagnose: out of memory");
    return 0;
}

static int worst_first(const void *left, const void *right)
{
    const struct ash_finding *a = left, *b = right;

    if (a->severity != b->severity) return (int)b->severity - (int)a->severity;
    if (a->layer != b->layer) return (int)a->layer - (int)b->layer;
    if (a->excess != b->excess) return a->excess < b->excess ? 1 : -1;
    return strverscmp(a->where, b->where); /* line 2 before line 11 */
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static int compare_nodes(const void *left, const void *right)
{
    return ash_node_compare(*(const struct ash_node_name *)left, *(const struct ash_node_name *)right);
}

static int count_nodes(struct ash_diagnose *diagnose)
{
    const struct ash_series_set *set = &diagnose->now;
    struct ash_node_name *nodes;

    if (set->count == 0) return 0;
    nodes = calloc(set->count, sizeof(nodes[0]));
    if (nodes == NULL) return -ENOMEM;
    for (size_t i = 0; i < set->count; i++)
        nodes[i] = set->items[i].node;
    qsort(nodes, set->count, sizeof(nodes[0]), compare_nodes);
    diagnose->nodes = 1;
    for (size_t i = 1; i < set->count; i++)
        diagnose->nodes += ash_node_compare(nodes[i - 1], nodes[i]) != 0;
    free(nodes);
    return 0;
}

/* Seconds between the scrapes by the first node whose own clock is in both; 0: none. */
static double seconds_by_clock(const struct ash_diagnose *diagnose)
{
    size_t count;
    const struct ash_series *clocks = ash_series_range(&diagnose->now, "node_time_seconds", &count);

    for (size_t i = 0; i < count; i++) {
        const struct ash_series *before = ash_series_find(&diagnose->before, "node_time_seconds", &clocks[i]);
        double seconds = before == NULL ? 0 : clocks[i].sample->value - before->sample->value;

        if (seconds > 0 && seconds < 1e9) return seconds;
    }
    return 0;
}

int ash_diagnose_run(struct ash_diagnose *diagnose, double seconds, struct ash_err *err)
{
    int rc;

    ash_series_sort(&diagnose->now);
    ash_series_sort(&diagnose->before);
    diagnose->seconds = seconds > 0 ? seconds : seconds_by_clock(diagnose);
    rc = count_nodes(diagnose);
    for (size_t i = 0; i < ASH_COUNT(rules) && rc == 0; i++) {
        diagnose->checks[i].rule = &rules[i];
        rc = ash_diagnose_judge(diagnose, &rules[i], &diagnose->checks[i]);
    }
    if (rc < 0) return ash_err_set(err, rc, "diagnose: out of memory");
    diagnose->check_count = ASH_COUNT(rules);
    ash_diagnose_excuse(diagnose);
    ash_assert(diagnose->note_count <= ASH_DIAGNOSE_NOTES); /* checks[] has room for the rules and these */
    for (size_t i = 0; i < diagnose->note_count; i++)
        diagnose->checks[diagnose->check_count++] = diagnose->notes[i];
    if (diagnose->finding_count > 0)
        qsort(diagnose->findings, diagnose->finding_count, sizeof(diagnose->findings[0]), worst_first);
    return 0;
}

size_t ash_diagnose_finding_count(const struct ash_diagnose *diagnose)
{
    return diagnose->finding_count;
}

const struct ash_finding *ash_diagnose_finding(const struct ash_diagnose *diagnose, size_t index)
{
    return &diagnose->findings[index];
}

const struct ash_finding *ash_diagnose_first(const struct ash_diagnose *diagnose)
{
    const struct ash_finding *first = NULL;

    for (size_t i = 0; i < diagnose->finding_count; i++) {
        const struct ash_finding *finding = &diagnose->findings[i];

        if (finding->severity == ASH_WATCH) continue;
        if (first == NULL || finding->layer < first->layer) first = finding;
    }
    return first;
}

size_t ash_diagnose_check_count(const struct ash_diagnose *diagnose)
{
    return diagnose->check_count;
}

const struct ash_check *ash_diagnose_check(const struct ash_diagnose *diagnose, size_t index)
{
    return &diagnose->checks[index];
}

size_t ash_diagnose_nodes(const struct ash_diagnose *diagnose)
{
    return diagnose->nodes;
}

size_t ash_diagnose_series(const struct ash_diagnose *diagnose)
{
    return diagnose->now.count;
}

size_t ash_diagnose_skipped(const struct ash_diagnose *diagnose)
{
    return diagnose->skipped;
}

size_t ash_diagnose_log_lines(const struct ash_diagnose *diagnose)
{
    return diagnose->log_lines;
}

size_t ash_diagnose_log_good(const struct ash_diagnose *diagnose)
{
    return diagnose->log_good;
}

const char *ash_health_layer_name(enum ash_health_layer layer)
{
    static const char *const names[] = {"GPU", "NVLink", "network", "storage", "host", "step", "software"};
    _Static_assert(ASH_COUNT(names) == ASH_HEALTH_COUNT, "each layer has a name");

    ash_assert((size_t)layer < ASH_COUNT(names));
    return names[layer];
}

const char *ash_severity_name(enum ash_severity severity)
{
    static const char *const names[] = {"watch", "slow", "broken"};

    ash_assert((size_t)severity < ASH_COUNT(names));
    return names[severity];
}

const char *ash_check_state_text(enum ash_check_state state)
{
    static const char *const texts[] = {"normal",
                                        "abnormal",
                                        "not in the scrapes",
                                        "needs a second scrape (--before)",
                                        "needs the time between the scrapes (--seconds)",
                                        "needs four peers or more",
                                        "nothing runs there",
                                        "a metric that it is compared with is missing",
                                        "needs more steps",
                                        "another finding is the cause"};

    ash_assert((size_t)state < ASH_COUNT(texts));
    return texts[state];
}

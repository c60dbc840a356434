/* Inputs of a diagnosis: the series of two moments in sorted sets, so that a rule finds its own in a cluster's
 * millions; the rules, one after the other; and the findings in order. */
#include "observe/health/diagnose_priv.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/utf8.h"

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

/* ---- nodes and series -------------------------------------------------------------------------------------------- */

int ash_node_compare(struct ash_node_name a, struct ash_node_name b)
{
    int order = memcmp(a.text, b.text, (size_t)(a.bytes < b.bytes ? a.bytes : b.bytes));

    return order != 0 ? order : a.bytes - b.bytes;
}

/* Without the ":9100" of an instance. */
static int without_port(const char *text)
{
    size_t bytes = strlen(text), digits = 0;

    while (digits < bytes && isdigit((unsigned char)text[bytes - digits - 1]))
        digits++;
    if (digits > 0 && bytes > digits + 1 && text[bytes - digits - 1] == ':') bytes -= digits + 1;
    return (int)(bytes < 256 ? bytes : 256);
}

/* The node in a sample's labels; no bytes: it has none. */
static struct ash_node_name node_of(const struct ash_scrape_sample *sample)
{
    const char *name = ash_scrape_label_of(sample, "Hostname");

    if (name[0] == '\0') name = ash_scrape_label_of(sample, "instance");
    return (struct ash_node_name){name, without_port(name)};
}

/* The one node that all samples with a name agree on, or else the given one. */
static struct ash_node_name node_of_file(const struct ash_scrape *scrape, const char *name)
{
    struct ash_node_name fallback = {name, (int)strlen(name)}, agreed = {0};

    for (size_t i = 0; i < ash_scrape_count(scrape); i++) {
        struct ash_node_name node = node_of(ash_scrape_at(scrape, i));

        if (node.bytes == 0) continue;
        if (agreed.bytes > 0 && ash_node_compare(node, agreed) != 0) return fallback;
        agreed = node;
    }
    return agreed.bytes > 0 ? agreed : fallback;
}

static int add_series(struct ash_series_set *set, const struct ash_scrape *scrape, struct ash_node_name file)
{
    size_t count = ash_scrape_count(scrape);
    struct ash_series *items = realloc(set->items, (set->count + count) * sizeof(items[0]));

    if (items == NULL) return -ENOMEM;
    set->items = items;
    for (size_t i = 0; i < count; i++) {
        const struct ash_scrape_sample *sample = ash_scrape_at(scrape, i);
        struct ash_node_name node = node_of(sample);

        items[set->count++] = (struct ash_series){node.bytes > 0 ? node : file, sample};
    }
    return 0;
}

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
    struct ash_node_name file;

    if (keep(diagnose, scrape, node) < 0) {
        ash_scrape_close(scrape);
        return ash_err_set(err, -ENOMEM, "diagnose: out of memory");
    }
    file = node_of_file(scrape, diagnose->names[diagnose->scrape_count - 1]);
    diagnose->skipped += ash_scrape_skipped(scrape);
    if (add_series(before ? &diagnose->before : &diagnose->now, scrape, file) < 0)
        return ash_err_set(err, -ENOMEM, "diagnose: out of memory");
    return 0;
}

static int compare_labels(const struct ash_scrape_sample *a, const struct ash_scrape_sample *b)
{
    for (size_t i = 0; i < a->label_count && i < b->label_count; i++) {
        int order = strcmp(a->labels[i].name, b->labels[i].name);

        if (order == 0) order = strcmp(a->labels[i].value, b->labels[i].value);
        if (order != 0) return order;
    }
    return (a->label_count > b->label_count) - (a->label_count < b->label_count);
}

static int compare_who(const struct ash_series *a, const struct ash_series *b)
{
    int order = ash_node_compare(a->node, b->node);

    return order != 0 ? order : compare_labels(a->sample, b->sample);
}

static int compare_series(const void *left, const void *right)
{
    const struct ash_series *a = left, *b = right;
    int order = strcmp(a->sample->name, b->sample->name);

    return order != 0 ? order : compare_who(a, b);
}

/* The first series that does not come before (metric, like); like NULL: before any of the metric. */
static size_t lower_bound(const struct ash_series_set *set, const char *metric, const struct ash_series *like)
{
    size_t low = 0, high = set->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(set->items[middle].sample->name, metric);

        if (order == 0 && like != NULL) order = compare_who(&set->items[middle], like);
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct ash_series *ash_series_range(const struct ash_series_set *set, const char *metric, size_t *count_out)
{
    size_t first = lower_bound(set, metric, NULL), end = first;

    while (end < set->count && strcmp(set->items[end].sample->name, metric) == 0)
        end++;
    *count_out = end - first;
    return end > first ? set->items + first : NULL;
}

bool ash_series_has(const struct ash_series_set *set, const char *metric)
{
    size_t at = lower_bound(set, metric, NULL);

    return at < set->count && strcmp(set->items[at].sample->name, metric) == 0;
}

const struct ash_series *ash_series_of_node(const struct ash_series_set *set, const char *metric,
                                            struct ash_node_name node, size_t *count_out)
{
    static const struct ash_scrape_sample bare = {.name = ""}; /* no labels: before any of the node */
    size_t low = lower_bound(set, metric, &(struct ash_series){node, &bare}), end;

    for (end = low; end < set->count && strcmp(set->items[end].sample->name, metric) == 0 &&
                    ash_node_compare(set->items[end].node, node) == 0;)
        end++;
    *count_out = end - low;
    return set->items + low;
}

const struct ash_series *ash_series_find(const struct ash_series_set *set, const char *metric,
                                         const struct ash_series *like)
{
    size_t at = lower_bound(set, metric, like);

    if (at == set->count || strcmp(set->items[at].sample->name, metric) != 0) return NULL;
    return compare_who(&set->items[at], like) == 0 ? &set->items[at] : NULL;
}

static void sort_set(struct ash_series_set *set)
{
    if (set->count > 0) qsort(set->items, set->count, sizeof(set->items[0]), compare_series);
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */

/* Labels and logs are other people's: no control bytes, and UTF-8 or ASCII. */
static void make_printable(char *text)
{
    size_t bytes = strlen(text);
    bool utf8;

    bytes -= ash_utf8_incomplete_tail(text, bytes);
    text[bytes] = '\0';
    utf8 = ash_utf8_valid_prefix(text, bytes) == bytes;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];

        if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !utf8)) text[i] = '?';
    }
}

int ash_diagnose_report(struct ash_diagnose *diagnose, const struct ash_finding *finding)
{
    if (ash_array_reserve(&diagnose->findings, &diagnose->finding_capacity, diagnose->finding_count + 1,
                          sizeof(*diagnose->findings)) < 0)
        return -ENOMEM;
    diagnose->findings[diagnose->finding_count] = *finding;
    make_printable(diagnose->findings[diagnose->finding_count].where);
    make_printable(diagnose->findings[diagnose->finding_count].value);
    diagnose->finding_count++;
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

/* From the weakest state to the strongest. */
static int weight_of(enum ash_check_state state)
{
    if (state == ASH_CHECK_FOUND) return 3;
    if (state == ASH_CHECK_CAUSED) return 2;
    return state == ASH_CHECK_NORMAL;
}

void ash_diagnose_note(struct ash_diagnose *diagnose, const struct ash_rule *rule, enum ash_check_state state,
                       size_t series)
{
    struct ash_check *note = diagnose->notes;

    while (note < diagnose->notes + diagnose->note_count && note->rule != rule)
        note++;
    if (note == diagnose->notes + diagnose->note_count) {
        if (diagnose->note_count == ASH_DIAGNOSE_NOTES) return;
        diagnose->note_count++;
        *note = (struct ash_check){.rule = rule, .state = state};
    }
    if (weight_of(state) > weight_of(note->state)) note->state = state;
    note->series += series;
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

    sort_set(&diagnose->now);
    sort_set(&diagnose->before);
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

    return names[layer];
}

const char *ash_severity_name(enum ash_severity severity)
{
    static const char *const names[] = {"watch", "slow", "broken"};

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

    return texts[state];
}

/* Series of one moment in a sorted set, so that a rule finds its own in a cluster's millions. */
#include "observe/health/series.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

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

int ash_series_add(struct ash_series_set *set, const struct ash_scrape *scrape, const char *name)
{
    struct ash_node_name file = node_of_file(scrape, name);
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

/* ---- order ------------------------------------------------------------------------------------------------------- */

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

void ash_series_sort(struct ash_series_set *set)
{
    if (set->count > 0) qsort(set->items, set->count, sizeof(set->items[0]), compare_series);
}

void ash_series_name(const struct ash_series *series, char *where, size_t where_bytes)
{
    static const char *const parts[] = {"gpu",        "device", "port", "mountpoint", "cpu",     "package", "rank",
                                        "controller", "job",    "fs",   "collector",  "kernels", "core",    "kind"};
    size_t used = (size_t)snprintf(where, where_bytes, "%.*s", series->node.bytes, series->node.text);

    for (size_t i = 0; i < ASH_COUNT(parts) && used < where_bytes; i++) {
        const char *value = ash_scrape_label_of(series->sample, parts[i]);

        if (value[0] != '\0') used += (size_t)snprintf(where + used, where_bytes - used, " %s %s", parts[i], value);
    }
    if (ash_scrape_label_of(series->sample, "gpu")[0] == '\0' && used < where_bytes &&
        ash_scrape_label_of(series->sample, "pci_bus_id")[0] != '\0')
        snprintf(where + used, where_bytes - used, " GPU at %s", ash_scrape_label_of(series->sample, "pci_bus_id"));
}

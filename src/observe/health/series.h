/* series - the samples of scrapes, with their nodes. */
#ifndef ASH_OBSERVE_HEALTH_SERIES_H
#define ASH_OBSERVE_HEALTH_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include "observe/health/scrape.h"

/* A borrowed piece of text: node names are cut out of labels ("10.0.0.7:9100"). */
struct ash_node_name {
    const char *text;
    int bytes;
};

struct ash_series {
    struct ash_node_name node;
    const struct ash_scrape_sample *sample;
};

/* Series of one moment, sorted by metric, node and labels once all are there. */
struct ash_series_set {
    struct ash_series *items;
    size_t count;
};

/* Append the samples of a scrape. The set borrows it, and name. A sample without a node in its labels is of the one
 * node that the others agree on, else of name. Returns 0 or -ENOMEM. */
int ash_series_add(struct ash_series_set *set, const struct ash_scrape *scrape, const char *name);
/* Sort a set to which all are added. */
void ash_series_sort(struct ash_series_set *set);
/* "node gpu 3": the node and the labels of a series' part, in where. */
void ash_series_name(const struct ash_series *series, char *where, size_t where_bytes);
/* The series of a metric: *count_out of them from the returned one on. */
const struct ash_series *ash_series_range(const struct ash_series_set *set, const char *metric, size_t *count_out);
/* Those of a node. */
const struct ash_series *ash_series_of_node(const struct ash_series_set *set, const char *metric,
                                            struct ash_node_name node, size_t *count_out);
/* Is there any of a metric? */
bool ash_series_has(const struct ash_series_set *set, const char *metric);
/* The series of a metric with the node and labels of like, or NULL. */
const struct ash_series *ash_series_find(const struct ash_series_set *set, const char *metric,
                                         const struct ash_series *like);
/* The order of node names: below, at or above 0, as strcmp. */
int ash_node_compare(struct ash_node_name a, struct ash_node_name b);

#endif

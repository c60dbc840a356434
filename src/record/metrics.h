/* metrics - instruments that any code may bump, from any thread, for a few nanoseconds: counters, gauges, histograms.
 * An instrument is a static object; the first bump registers it. Where labels are known at run time only, it is a
 * family, and ash_metric_with gives the instrument of one set of labels. `ash_metrics_write` renders all as Prometheus
 * text. */
#ifndef ASH_RECORD_METRICS_H
#define ASH_RECORD_METRICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "base/str.h"

enum ash_metric_type { ASH_METRIC_COUNTER, ASH_METRIC_GAUGE, ASH_METRIC_HISTOGRAM };

#define ASH_METRIC_BUCKETS_MAX 24

struct ash_metric {
    const char *name; /* Prometheus name: a counter ends in _total, units are spelt out (_seconds, _bytes) */
    const char *help;
    enum ash_metric_type type;
    const char *labels;   /* path="shm"; NULL: none. Instruments of one name share help and type */
    const double *bounds; /* histogram: ascending upper bounds, bound_count of them */
    int bound_count;
    /* The words that are bumped: [0] a double's bits, of a histogram the sum's, [1 + i] the count of bucket i. NULL
     * before the first bump, then `own` or words of the process's page (metrics_page.h). */
    _Atomic(_Atomic uint64_t *) words;
    _Atomic uint64_t own[ASH_METRIC_BUCKETS_MAX + 2];
};

#define ASH_COUNTER(var, metric_name, metric_help)                                                                     \
    static struct ash_metric var = {.name = metric_name, .help = metric_help, .type = ASH_METRIC_COUNTER}
#define ASH_GAUGE(var, metric_name, metric_help)                                                                       \
    static struct ash_metric var = {.name = metric_name, .help = metric_help, .type = ASH_METRIC_GAUGE}
#define ASH_HISTOGRAM(var, metric_name, metric_help, bound_array)                                                      \
    static struct ash_metric var = {.name = metric_name,                                                               \
                                    .help = metric_help,                                                               \
                                    .type = ASH_METRIC_HISTOGRAM,                                                      \
                                    .bounds = bound_array,                                                             \
                                    .bound_count = sizeof(bound_array) / sizeof((bound_array)[0])}

/* Add value >= 0 to a counter. Calling this or the next two on another type is a programmer error. */
void ash_metric_add(struct ash_metric *metric, double value);
/* Set a gauge to value. */
void ash_metric_set(struct ash_metric *metric, double value);
/* Count value in its bucket of a histogram. */
void ash_metric_observe(struct ash_metric *metric, double value);

/* The instrument with these labels (path="shm",rank="0") of a family: a static instrument without labels that is not
 * bumped itself. It is created on first use and lives as long as the program: keep the pointer, the look-up takes a
 * lock. Labels must come from a small fixed set, never from a client. The family itself without memory. */
struct ash_metric *ash_metric_with(struct ash_metric *family, const char *labels);
/* Append name="value" to labels, after a comma if it is not the first, with value escaped. Returns 0 or -ENOMEM. */
int ash_metric_add_label(struct ash_str *labels, const char *name, const char *value);

/* Prometheus text format 0.0.4 of every instrument bumped so far, sorted by name. */
void ash_metrics_write(FILE *out);

#endif

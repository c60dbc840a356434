/* metrics - instruments that any code may bump, from any thread, for a few nanoseconds: counters, gauges, histograms.
 * An instrument is a static object; the first bump registers it. `ash_metrics_write` renders all as Prometheus text. */
#ifndef ASH_BASE_METRICS_H
#define ASH_BASE_METRICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum ash_metric_type { ASH_METRIC_COUNTER, ASH_METRIC_GAUGE, ASH_METRIC_HISTOGRAM };

#define ASH_METRIC_BUCKETS_MAX 24

struct ash_metric {
    const char *name; /* Prometheus name: a counter ends in _total, units are spelt out (_seconds, _bytes) */
    const char *help;
    enum ash_metric_type type;
    const char *labels;   /* counter and gauge: path="shm"; NULL: none. Instruments of one name share help and type */
    const double *bounds; /* histogram: ascending upper bounds, bound_count of them */
    int bound_count;
    _Atomic int registered;
    struct ash_metric *next;
    _Atomic uint64_t bits; /* counter and gauge: a double's bits; histogram: the sum's */
    _Atomic uint64_t buckets[ASH_METRIC_BUCKETS_MAX + 1];
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

/* Prometheus text format 0.0.4 of every instrument bumped so far, sorted by name. */
void ash_metrics_write(FILE *out);

#endif

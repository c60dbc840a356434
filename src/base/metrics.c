/* Metrics: each instrument is a few atomic words that anyone may bump; a list without locks remembers those that
 * were. */
#include "base/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/number.h"

static struct ash_metric *_Atomic instruments; /* newest first; an instrument is never taken out */

static double to_double(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint64_t to_bits(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* By name, then by labels. */
static int compare(const struct ash_metric *a, const struct ash_metric *b)
{
    int order = strcmp(a->name, b->name);

    return order != 0 ? order : strcmp(a->labels != NULL ? a->labels : "", b->labels != NULL ? b->labels : "");
}

static void check_new(const struct ash_metric *metric)
{
    ash_assert(metric->labels == NULL || metric->type != ASH_METRIC_HISTOGRAM);
    ash_assert(metric->bound_count >= 0 && metric->bound_count <= ASH_METRIC_BUCKETS_MAX);
    for (int i = 1; i < metric->bound_count; i++)
        ash_assert(metric->bounds[i - 1] < metric->bounds[i]);
    for (const struct ash_metric *other = atomic_load(&instruments); other != NULL; other = other->next)
        ash_assert(compare(other, metric) != 0); /* two instruments of one name would hide each other */
}

static void register_once(struct ash_metric *metric)
{
    int expected = 0;
    struct ash_metric *head;

    if (atomic_load_explicit(&metric->registered, memory_order_relaxed) != 0) return;
    if (!atomic_compare_exchange_strong(&metric->registered, &expected, 1)) return; /* another thread does it */
    check_new(metric);
    head = atomic_load(&instruments);
    do
        metric->next = head;
    while (!atomic_compare_exchange_weak(&instruments, &head, metric));
}

static void add_to(_Atomic uint64_t *bits, double value)
{
    uint64_t before = atomic_load_explicit(bits, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(bits, &before, to_bits(to_double(before) + value),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void ash_metric_add(struct ash_metric *metric, double value)
{
    ash_assert(metric->type == ASH_METRIC_COUNTER && value >= 0);
    register_once(metric);
    add_to(&metric->bits, value);
}

void ash_metric_set(struct ash_metric *metric, double value)
{
    ash_assert(metric->type == ASH_METRIC_GAUGE);
    register_once(metric);
    atomic_store_explicit(&metric->bits, to_bits(value), memory_order_relaxed);
}

void ash_metric_observe(struct ash_metric *metric, double value)
{
    int bucket = 0;

    ash_assert(metric->type == ASH_METRIC_HISTOGRAM);
    register_once(metric);
    while (bucket < metric->bound_count && !(value <= metric->bounds[bucket])) /* NaN goes to the last one */
        bucket++;
    atomic_fetch_add_explicit(&metric->buckets[bucket], 1, memory_order_relaxed);
    add_to(&metric->bits, value);
}

/* ---- Prometheus text --------------------------------------------------------------------------------------------- */

static void write_number(double value, FILE *out)
{
    struct ash_str text = {0};

    if (isnan(value))
        fputs("NaN", out);
    else if (isinf(value))
        fputs(value > 0 ? "+Inf" : "-Inf", out);
    else if (ash_number_add(&text, value) == 0)
        fputs(text.data, out);
    ash_str_fini(&text);
}

static void write_help(const char *help, FILE *out)
{
    for (; *help != '\0'; help++) {
        if (*help == '\\')
            fputs("\\\\", out);
        else if (*help == '\n')
            fputs("\\n", out);
        else
            fputc(*help, out);
    }
}

static void write_histogram(const struct ash_metric *metric, FILE *out)
{
    uint64_t count = 0;

    for (int i = 0; i <= metric->bound_count; i++) {
        count += atomic_load_explicit(&metric->buckets[i], memory_order_relaxed);
        fprintf(out, "%s_bucket{le=\"", metric->name);
        write_number(i < metric->bound_count ? metric->bounds[i] : INFINITY, out);
        fprintf(out, "\"} %llu\n", (unsigned long long)count);
    }
    fprintf(out, "%s_sum ", metric->name);
    write_number(to_double(atomic_load_explicit(&metric->bits, memory_order_relaxed)), out);
    fprintf(out, "\n%s_count %llu\n", metric->name, (unsigned long long)count);
}

static void write_head(const struct ash_metric *metric, FILE *out)
{
    static const char *const types[] = {
        [ASH_METRIC_COUNTER] = "counter", [ASH_METRIC_GAUGE] = "gauge", [ASH_METRIC_HISTOGRAM] = "histogram"};

    fprintf(out, "# HELP %s ", metric->name);
    write_help(metric->help, out);
    fprintf(out, "\n# TYPE %s %s\n", metric->name, types[metric->type]);
}

static void write_metric(const struct ash_metric *metric, FILE *out)
{
    if (metric->type == ASH_METRIC_HISTOGRAM) {
        write_histogram(metric, out);
        return;
    }
    fputs(metric->name, out);
    if (metric->labels != NULL) fprintf(out, "{%s}", metric->labels);
    fputc(' ', out);
    write_number(to_double(atomic_load_explicit(&metric->bits, memory_order_relaxed)), out);
    fputc('\n', out);
}

/* The first by name among those after `after` (NULL: of all). There are a few dozen: no need to sort. */
static const struct ash_metric *next_by_name(const struct ash_metric *head, const struct ash_metric *after)
{
    const struct ash_metric *next = NULL;

    for (const struct ash_metric *metric = head; metric != NULL; metric = metric->next) {
        if (after != NULL && compare(metric, after) <= 0) continue;
        if (next == NULL || compare(metric, next) < 0) next = metric;
    }
    return next;
}

void ash_metrics_write(FILE *out)
{
    const struct ash_metric *head = atomic_load(&instruments), *metric = NULL, *before = NULL;

    while ((metric = next_by_name(head, metric)) != NULL) {
        if (before == NULL || strcmp(before->name, metric->name) != 0) write_head(metric, out);
        write_metric(metric, out);
        before = metric;
    }
}

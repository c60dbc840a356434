/* Metrics: each instrument is a few atomic words that any thread may bump. Those that were are in an array sorted by
 * name and labels, so that writing all of them is one walk; its lock is taken by the first bump of an instrument
 * only. */
#include "record/metrics_priv.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/number.h"

/* Sorted by name, then by labels; an instrument is never taken out. */
static struct {
    pthread_mutex_t lock;
    struct ash_metric **items;
    size_t count, capacity;
} instruments = {.lock = PTHREAD_MUTEX_INITIALIZER};

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
static int compare(const struct ash_metric *metric, const char *name, const char *labels)
{
    int order = strcmp(metric->name, name);

    return order != 0 ? order : strcmp(metric->labels != NULL ? metric->labels : "", labels != NULL ? labels : "");
}

/* The place of name and labels in the array, whose lock is held: of the first instrument that is not before them. */
static size_t place_of(const char *name, const char *labels)
{
    size_t begin = 0, end = instruments.count;

    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;

        if (compare(instruments.items[middle], name, labels) < 0)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* The instrument at a place, if it is the one of name and labels. */
static struct ash_metric *at_place(size_t place, const char *name, const char *labels)
{
    bool is_it = place < instruments.count && compare(instruments.items[place], name, labels) == 0;

    return is_it ? instruments.items[place] : NULL;
}

static int insert(size_t place, struct ash_metric *metric)
{
    if (ash_array_reserve(&instruments.items, &instruments.capacity, instruments.count + 1,
                          sizeof(*instruments.items)) < 0)
        return -ENOMEM;
    memmove(instruments.items + place + 1, instruments.items + place,
            (instruments.count - place) * sizeof(*instruments.items));
    instruments.items[place] = metric;
    instruments.count++;
    return 0;
}

static void check_bounds(const struct ash_metric *metric)
{
    ash_assert(metric->bound_count >= 0 && metric->bound_count <= ASH_METRIC_BUCKETS_MAX);
    for (int i = 1; i < metric->bound_count; i++)
        ash_assert(metric->bounds[i - 1] < metric->bounds[i]);
}

/* The words of an instrument whose lock is held and that no thread bumps yet. */
static _Atomic uint64_t *place_words(struct ash_metric *metric)
{
    _Atomic uint64_t *words = ash_metrics_page_place(metric);

    return words != NULL ? words : metric->own;
}

/* The words of an instrument, which is registered on first use. */
static _Atomic uint64_t *words_of(struct ash_metric *metric)
{
    _Atomic uint64_t *words = atomic_load_explicit(&metric->words, memory_order_acquire);
    size_t place;

    if (words != NULL) return words;
    pthread_mutex_lock(&instruments.lock);
    words = atomic_load(&metric->words);
    if (words == NULL) {
        check_bounds(metric);
        place = place_of(metric->name, metric->labels);
        ash_assert(at_place(place, metric->name, metric->labels) == NULL); /* two of one name would hide each other */
        words = metric->own;
        if (insert(place, metric) == 0) {
            words = place_words(metric);
            atomic_store(&metric->words, words);
        }
    }
    pthread_mutex_unlock(&instruments.lock);
    return words;
}

void ash_metrics_move(void)
{
    pthread_mutex_lock(&instruments.lock);
    for (size_t i = 0; i < instruments.count; i++) {
        struct ash_metric *metric = instruments.items[i];
        _Atomic uint64_t *from = atomic_load(&metric->words), *to = place_words(metric);

        for (int word = 0; to != from && word < metric->bound_count + 2; word++)
            atomic_store(&to[word], atomic_load(&from[word]));
        atomic_store(&metric->words, to);
    }
    pthread_mutex_unlock(&instruments.lock);
}

/* A new instrument of a family, or NULL. */
static struct ash_metric *make(const struct ash_metric *family, const char *labels)
{
    struct ash_metric *metric = calloc(1, sizeof(*metric));

    if (metric == NULL) return NULL;
    metric->labels = strdup(labels);
    if (metric->labels == NULL) {
        free(metric);
        return NULL;
    }
    metric->name = family->name;
    metric->help = family->help;
    metric->type = family->type;
    metric->bounds = family->bounds;
    metric->bound_count = family->bound_count;
    return metric;
}

struct ash_metric *ash_metric_with(struct ash_metric *family, const char *labels)
{
    struct ash_metric *metric;
    size_t place;

    ash_assert(family->labels == NULL && labels != NULL);
    check_bounds(family);
    pthread_mutex_lock(&instruments.lock);
    place = place_of(family->name, labels);
    metric = at_place(place, family->name, labels);
    if (metric == NULL) {
        metric = make(family, labels);
        if (metric != NULL && insert(place, metric) < 0) {
            free((char *)(uintptr_t)metric->labels);
            free(metric);
            metric = NULL;
        }
        if (metric != NULL) atomic_store(&metric->words, place_words(metric));
    }
    pthread_mutex_unlock(&instruments.lock);
    return metric != NULL ? metric : family;
}

int ash_metric_add_label(struct ash_str *labels, const char *name, const char *value)
{
    int rc = ash_str_addf(labels, "%s%s=\"", labels->size_bytes > 0 ? "," : "", name);

    for (; rc == 0 && *value != '\0'; value++) {
        if (*value == '\n')
            rc = ash_str_adds(labels, "\\n");
        else
            rc = ash_str_addf(labels, "%s%c", *value == '\\' || *value == '"' ? "\\" : "", *value);
    }
    return rc == 0 ? ash_str_adds(labels, "\"") : rc;
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
    add_to(words_of(metric), value);
}

void ash_metric_set(struct ash_metric *metric, double value)
{
    ash_assert(metric->type == ASH_METRIC_GAUGE);
    atomic_store_explicit(words_of(metric), to_bits(value), memory_order_relaxed);
}

void ash_metric_observe(struct ash_metric *metric, double value)
{
    _Atomic uint64_t *words;
    int bucket = 0;

    ash_assert(metric->type == ASH_METRIC_HISTOGRAM);
    words = words_of(metric);
    while (bucket < metric->bound_count && !(value <= metric->bounds[bucket])) /* NaN goes to the last one */
        bucket++;
    atomic_fetch_add_explicit(&words[1 + bucket], 1, memory_order_relaxed);
    add_to(words, value);
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

/* name and suffix, and labels in braces if there are any. */
static void write_name(const struct ash_metric *metric, const char *suffix, FILE *out)
{
    fprintf(out, "%s%s", metric->name, suffix);
    if (metric->labels != NULL) fprintf(out, "{%s}", metric->labels);
    fputc(' ', out);
}

static void write_histogram(const struct ash_metric *metric, FILE *out)
{
    _Atomic uint64_t *words = atomic_load(&metric->words);
    uint64_t count = 0;

    for (int i = 0; i <= metric->bound_count; i++) {
        count += atomic_load_explicit(&words[1 + i], memory_order_relaxed);
        fprintf(out, "%s_bucket{%s%sle=\"", metric->name, metric->labels != NULL ? metric->labels : "",
                metric->labels != NULL ? "," : "");
        write_number(i < metric->bound_count ? metric->bounds[i] : INFINITY, out);
        fprintf(out, "\"} %llu\n", (unsigned long long)count);
    }
    write_name(metric, "_sum", out);
    write_number(to_double(atomic_load_explicit(words, memory_order_relaxed)), out);
    fputc('\n', out);
    write_name(metric, "_count", out);
    fprintf(out, "%llu\n", (unsigned long long)count);
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
    write_name(metric, "", out);
    write_number(to_double(atomic_load_explicit(atomic_load(&metric->words), memory_order_relaxed)), out);
    fputc('\n', out);
}

/* A copy of the array, so that a slow reader holds no lock. NULL if there are none, or no memory. */
static struct ash_metric **copy_all(size_t *count_out)
{
    struct ash_metric **items;

    pthread_mutex_lock(&instruments.lock);
    items = instruments.count > 0 ? malloc(instruments.count * sizeof(struct ash_metric *)) : NULL;
    *count_out = items != NULL ? instruments.count : 0;
    if (items != NULL) memcpy(items, instruments.items, instruments.count * sizeof(*items));
    pthread_mutex_unlock(&instruments.lock);
    return items;
}

void ash_metrics_write(FILE *out)
{
    size_t count = 0;
    struct ash_metric **items = copy_all(&count);

    for (size_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(items[i - 1]->name, items[i]->name) != 0) write_head(items[i], out);
        write_metric(items[i], out);
    }
    free(items);
}

/* Mapped pages of Ashlar's processes on this machine, served together: a family's samples of all processes are one
 * block. A page is its owner's word and may hold anything: what is no well-formed sample of ours is left out. */
#include "base/metrics_page.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "observe/collect/collector.h"
#include "observe/collect/exposition.h"
#include "observe/run_id.h"

#define PAGES_MAX 1024
#define SERIES_MAX 200000
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"

/* An instrument of a page, with the labels of both. */
struct series {
    char *name, *labels;
    struct ash_metrics_page_metric metric; /* its strings live as long as the page */
};

struct all {
    struct ash_metrics_page *pages;
    struct series *series;
    size_t page_count, series_count, series_capacity;
};

/* ---- what is well-formed ----------------------------------------------------------------------------------------- */

/* One of our names: nobody may speak for the host. */
static bool is_name(const char *name, size_t bytes)
{
    if (bytes > 200 || (strncmp(name, "ashlar_", 7) != 0 && strncmp(name, "vllm:", 5) != 0)) return false;
    return strspn(name, LETTERS "0123456789:") == bytes;
}

/* The end of a value that begins at text: its closing quote, or NULL where it is not well-formed. */
static const char *value_end(const char *text)
{
    for (; *text != '"'; text++) {
        if (*text == '\0' || *text == '\n') return NULL;
        if (*text == '\\' && (*++text == '\0' || strchr("\\\"n", *text) == NULL)) return NULL;
    }
    return text;
}

/* name="value",name="value", with values escaped. */
static bool are_labels(const char *text)
{
    while (*text != '\0') {
        size_t bytes = strspn(text, LETTERS "0123456789");

        if (bytes == 0 || (*text >= '0' && *text <= '9') || strncmp(text + bytes, "=\"", 2) != 0) return false;
        text = value_end(text + bytes + 2);
        if (text == NULL) return false;
        if (*++text == '\0') return true;
        if (*text++ != ',' || *text == '\0') return false;
    }
    return true;
}

/* Both with a comma between. */
static char *join_labels(const char *process, const struct ash_metrics_page_metric *metric)
{
    char *labels = NULL;
    int used = asprintf(&labels, "%s%s%.*s", process, process[0] != '\0' && metric->labels_bytes > 0 ? "," : "",
                        (int)metric->labels_bytes, metric->labels);

    return used >= 0 ? labels : NULL;
}

/* ---- gathering --------------------------------------------------------------------------------------------------- */

static int keep_series(struct all *all, const struct series *series)
{
    if (all->series_count >= SERIES_MAX) return -1;
    if (all->series_count == all->series_capacity) {
        size_t capacity = ash_max(256, 2 * all->series_capacity);
        struct series *list = realloc(all->series, capacity * sizeof(*list));

        if (list == NULL) return -1;
        all->series = list;
        all->series_capacity = capacity;
    }
    all->series[all->series_count++] = *series;
    return 0;
}

static void add_page(struct all *all, const struct ash_metrics_page *page)
{
    struct series series = {0};
    size_t cursor = 0;

    if (!are_labels(page->labels)) return;
    while (ash_metrics_page_next(page, &cursor, &series.metric) == 1) {
        series.name = strndup(series.metric.name, series.metric.name_bytes);
        series.labels = join_labels(page->labels, &series.metric);
        if (series.name == NULL || series.labels == NULL || !is_name(series.name, series.metric.name_bytes) ||
            !are_labels(series.labels) || keep_series(all, &series) < 0) {
            free(series.name);
            free(series.labels);
        }
    }
}

static void open_pages(const struct ash_host_files *source, struct all *all)
{
    struct ash_host_files outside = {.root = ""};
    struct ash_names names = {0};
    char path[PATH_MAX], wanted[64]; /* a quote inside of a label's value has a backslash before it */

    snprintf(wanted, sizeof(wanted), ASH_RUN_ID_LABEL "=\"%.32s\"", source->run_id != NULL ? source->run_id : "");
    ash_names_list(&outside, source->pages, &names);
    all->pages = calloc(ash_min(names.count, PAGES_MAX) + 1, sizeof(*all->pages));
    for (size_t i = 0; i < names.count && all->page_count < PAGES_MAX && all->pages != NULL; i++) {
        size_t bytes = strlen(names.items[i]), suffix = strlen(ASH_METRICS_PAGE_SUFFIX);

        if (bytes <= suffix || strcmp(names.items[i] + bytes - suffix, ASH_METRICS_PAGE_SUFFIX) != 0) continue;
        snprintf(path, sizeof(path), "%s/%s", source->pages, names.items[i]);
        if (ash_metrics_page_open(path, &all->pages[all->page_count], NULL) < 0) continue;
        if (source->run_id == NULL || strstr(all->pages[all->page_count].labels, wanted) != NULL)
            all->page_count++;
        else
            ash_metrics_page_close(&all->pages[all->page_count]);
    }
    ash_names_fini(&names);
}

static int compare(const void *a, const void *b)
{
    const struct series *left = a, *right = b;
    int order = strcmp(left->name, right->name);

    return order != 0 ? order : strcmp(left->labels, right->labels);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void write_head(const struct series *series, struct ash_str *out)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    char help[256];
    size_t used = 0;

    for (size_t i = 0; i < series->metric.help_bytes && used + 1 < sizeof(help); i++)
        if ((unsigned char)series->metric.help[i] >= ' ' && series->metric.help[i] != '\\')
            help[used++] = series->metric.help[i];
    help[used] = '\0';
    ash_exp_family(out, series->name, types[series->metric.type], help);
}

static void write_histogram(const struct series *series, struct ash_str *out)
{
    const struct ash_metrics_page_metric *metric = &series->metric;
    char name[256], bound[64];
    struct ash_str labels = {0};
    uint64_t count = 0;

    snprintf(name, sizeof(name), "%s_bucket", series->name);
    for (size_t i = 0; i <= metric->bound_count; i++) {
        count += metric->buckets[i];
        snprintf(bound, sizeof(bound), "+Inf");
        if (i < metric->bound_count) snprintf(bound, sizeof(bound), "%.15g", metric->bounds[i]);
        ash_str_clear(&labels);
        ash_str_addf(&labels, "%s%sle=\"%s\"", series->labels, series->labels[0] != '\0' ? "," : "", bound);
        ash_exp_count(out, name, labels.data, count);
    }
    ash_str_fini(&labels);
    snprintf(name, sizeof(name), "%s_sum", series->name);
    ash_exp_value(out, name, series->labels, metric->value);
    snprintf(name, sizeof(name), "%s_count", series->name);
    ash_exp_count(out, name, series->labels, count);
}

static void write_series(const struct all *all, struct ash_str *out)
{
    const struct series *head = NULL;

    for (size_t i = 0; i < all->series_count; i++) {
        const struct series *series = &all->series[i];
        bool is_new = head == NULL || strcmp(head->name, series->name) != 0;

        if (is_new) {
            head = series;
            write_head(series, out);
        } else if (series->metric.type != head->metric.type || compare(series, series - 1) == 0) {
            continue; /* another meaning, or said twice */
        }
        if (series->metric.type == ASH_METRIC_HISTOGRAM)
            write_histogram(series, out);
        else
            ash_exp_value(out, series->name, series->labels, series->metric.value);
    }
}

/* Which processes there are: killed ones too, whose values are not served. */
static void write_processes(const struct all *all, struct ash_str *out)
{
    bool has_head = false;

    for (size_t i = 0; i < all->page_count; i++) {
        const struct ash_metrics_page *page = &all->pages[i];
        char labels[ASH_METRICS_PAGE_LABELS_BYTES + 32];

        if (!are_labels(page->labels)) continue;
        if (!has_head)
            ash_exp_family(out, "ashlar_process_up", "gauge", "1 for a process that runs, 0 for one that was killed.");
        has_head = true;
        snprintf(labels, sizeof(labels), "%s%spid=\"%u\"", page->labels, page->labels[0] != '\0' ? "," : "", page->pid);
        ash_exp_value(out, "ashlar_process_up", labels, page->is_alive);
    }
}

static int collect_pages(void *state, struct ash_str *out, struct ash_err *err)
{
    const struct ash_host_files *source = state;
    struct all all = {0};

    (void)err;
    if (source->pages == NULL) return 0;
    open_pages(source, &all);
    for (size_t i = 0; i < all.page_count; i++)
        if (all.pages[i].is_alive) add_page(&all, &all.pages[i]);
    if (all.series_count > 1) qsort(all.series, all.series_count, sizeof(*all.series), compare);
    write_processes(&all, out);
    write_series(&all, out);
    for (size_t i = 0; i < all.series_count; i++) {
        free(all.series[i].name);
        free(all.series[i].labels);
    }
    for (size_t i = 0; i < all.page_count; i++)
        ash_metrics_page_close(&all.pages[i]);
    free(all.series);
    free(all.pages);
    return 0;
}

const struct ash_collector_ops ash_collect_pages = {.name = "pages",
                                                    .deadline_s = 1,
                                                    .open = ash_collector_open_plain,
                                                    .collect = collect_pages,
                                                    .close = ash_collector_close_plain};

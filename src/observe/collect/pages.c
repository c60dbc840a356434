/* Mapped pages of Ashlar's processes on this machine, served together: a family's samples of all processes are one
 * block. A page is untrusted input: all but well-formed samples of our names is left out. */
#include "record/metrics_page.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/math.h"
#include "observe/collect/collector.h"
#include "observe/collect/exposition.h"
#include "observe/ranks/run_id.h"

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

/* ---- validation -------------------------------------------------------------------------------------------------- */

/* One of our names: a page must not contain the host's metrics. */
static bool is_name(const char *name, size_t bytes)
{
    if (bytes > 200 || (strncmp(name, "ashlar_", 7) != 0 && strncmp(name, "vllm:", 5) != 0)) return false;
    return strspn(name, LETTERS "0123456789:") == bytes;
}

/* The end of a value that begins at text: its closing quote, or NULL if it is not well-formed. */
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
    if (ash_array_reserve(&all->series, &all->series_capacity, all->series_count + 1, sizeof(*all->series)) < 0)
        return -1;
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

/* A file of the folder, which is world-writable: pages of running processes come first, and then each user's in turn,
 * so that none can fill the list. */
struct file {
    const char *name;
    uint32_t owner;
    bool is_running; /* the process that its name has is there, and its user's is the file */
    size_t nth;      /* of its user's files */
};

static int by_user(const void *a, const void *b)
{
    const struct file *left = a, *right = b;

    if (left->is_running != right->is_running) return left->is_running ? -1 : 1;
    if (left->owner != right->owner) return left->owner < right->owner ? -1 : 1;
    return strcmp(left->name, right->name);
}

static int in_turn(const void *a, const void *b)
{
    const struct file *left = a, *right = b;

    if (left->is_running != right->is_running) return left->is_running ? -1 : 1;
    if (left->nth != right->nth) return left->nth < right->nth ? -1 : 1;
    return left->owner < right->owner ? -1 : left->owner > right->owner;
}

static bool is_page_file(const char *pages, const char *name, struct file *file_out)
{
    size_t bytes = strlen(name), suffix = strlen(ASH_METRICS_PAGE_SUFFIX);
    struct stat facts, process;
    char path[PATH_MAX];

    if (bytes <= suffix || strcmp(name + bytes - suffix, ASH_METRICS_PAGE_SUFFIX) != 0) return false;
    snprintf(path, sizeof(path), "%s/%s", pages, name);
    if (lstat(path, &facts) < 0 || !S_ISREG(facts.st_mode)) return false;
    snprintf(path, sizeof(path), "/proc/%lu", strtoul(name, NULL, 10));
    *file_out = (struct file){name, facts.st_uid, stat(path, &process) == 0 && process.st_uid == facts.st_uid, 0};
    return true;
}

/* The files in the order in which they are read. The caller frees the list; NULL: no memory. */
static struct file *list_files(const char *pages, const struct ash_names *names, size_t *count_out)
{
    struct file *files = calloc(names->count + 1, sizeof(*files));
    size_t count = 0;

    for (size_t i = 0; files != NULL && i < names->count; i++)
        count += is_page_file(pages, names->items[i], &files[count]);
    if (count > 1) qsort(files, count, sizeof(*files), by_user);
    for (size_t i = 1; i < count; i++)
        if (files[i].owner == files[i - 1].owner && files[i].is_running == files[i - 1].is_running)
            files[i].nth = files[i - 1].nth + 1;
    if (count > 1) qsort(files, count, sizeof(*files), in_turn);
    *count_out = count;
    return files;
}

/* Does it match its file name, and is it the first page of its process? */
static bool is_believed(const struct all *all, const struct ash_metrics_page *page, const char *name)
{
    if (strtoul(name, NULL, 10) != page->pid) return false;
    for (size_t i = 0; i < all->page_count; i++)
        if (all->pages[i].pid == page->pid &&
            (all->pages[i].is_alive == page->is_alive || strcmp(all->pages[i].labels, page->labels) == 0))
            return false;
    return true;
}

static void open_pages(const struct ash_host_files *source, struct all *all)
{
    struct ash_host_files outside = {.root = ""};
    struct ash_names names = {0};
    struct file *files;
    size_t count = 0;
    char path[PATH_MAX], wanted[64]; /* a quote inside of a label's value has a backslash before it */

    snprintf(wanted, sizeof(wanted), ASH_RUN_ID_LABEL "=\"%.32s\"", source->run_id != NULL ? source->run_id : "");
    ash_names_list(&outside, source->pages, &names);
    files = list_files(source->pages, &names, &count);
    all->pages = calloc(ash_min(count, PAGES_MAX) + 1, sizeof(*all->pages));
    for (size_t i = 0; files != NULL && all->pages != NULL && i < count && all->page_count < PAGES_MAX; i++) {
        struct ash_metrics_page *page = &all->pages[all->page_count];

        snprintf(path, sizeof(path), "%s/%s", source->pages, files[i].name);
        if (ash_metrics_page_open(path, page, NULL) < 0) continue;
        if (is_believed(all, page, files[i].name) && (source->run_id == NULL || strstr(page->labels, wanted) != NULL))
            all->page_count++;
        else
            ash_metrics_page_close(page);
    }
    free(files);
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

    ash_assert((size_t)series->metric.type < ASH_COUNT(types)); /* ash_metrics_page_next() refuses others */
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
            continue; /* another meaning, or a duplicate */
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

/* metrics_page - the instruments of a process in a mapped file, so that others on the machine can read them at any
 * time: while it runs, while it hangs, and after it was killed. Bumping stays an atomic operation in memory. A page
 * belongs to a living process as long as its file is locked. */
#ifndef ASH_RECORD_METRICS_PAGE_H
#define ASH_RECORD_METRICS_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "record/metrics.h"

#define ASH_METRICS_PAGE_DIR "/dev/shm/ashlar" /* the default folder */
#define ASH_METRICS_PAGE_KIND "metrics"        /* the end of their files' names */
#define ASH_METRICS_PAGE_SUFFIX "." ASH_METRICS_PAGE_KIND
#define ASH_METRICS_PAGE_BYTES ((size_t)1 << 20) /* of a page; memory is taken as instruments come */
#define ASH_METRICS_PAGE_LABELS_BYTES 512

/* Publish this process's instruments in a new file of dir, which is created if missing. labels (job="7",rank="0")
 * are those of the process and stand before an instrument's own. Instruments that were bumped before are taken over: no
 * other thread may bump meanwhile. Once per process; later calls are -EEXIST. Returns 0 or a negative errno. */
int ash_metrics_page_publish(const char *dir, const char *labels, struct ash_err *err);
/* Remove the page: an orderly end. The instruments live on in memory. A no-op if there is none. */
void ash_metrics_page_withdraw(void);

/* One instrument of a page. Strings are not NUL-terminated. */
struct ash_metrics_page_metric {
    const char *name, *help, *labels;
    size_t name_bytes, help_bytes, labels_bytes;
    enum ash_metric_type type;
    const double *bounds;
    size_t bound_count;
    double value;                                 /* of a histogram: the sum */
    uint64_t buckets[ASH_METRIC_BUCKETS_MAX + 1]; /* counts, one after the other, not added up */
};

/* A copy of the page of another process. */
struct ash_metrics_page {
    const uint8_t *base;
    size_t size_bytes, used_bytes;
    char labels[ASH_METRICS_PAGE_LABELS_BYTES];
    uint32_t pid;
    double started_s; /* since 1970 */
    uint64_t dropped; /* instruments that did not fit */
    bool is_alive;
    bool owns_data;
};

/* Read and check the page of a file. Returns 0, -EINVAL (it is none, or damaged) or a negative errno. */
int ash_metrics_page_open(const char *path, struct ash_metrics_page *page_out, struct ash_err *err);
/* The same of bytes in memory, borrowed: for tests. is_alive is false. */
int ash_metrics_page_view(const void *data, size_t size_bytes, struct ash_metrics_page *page_out, struct ash_err *err);
/* A zeroed page is fine. */
void ash_metrics_page_close(struct ash_metrics_page *page);
/* The next instrument, from *cursor (0: the first), which advances. Returns 1, or 0 at the end; a damaged page ends at
 * the damage. */
int ash_metrics_page_next(const struct ash_metrics_page *page, size_t *cursor,
                          struct ash_metrics_page_metric *metric_out);

#endif

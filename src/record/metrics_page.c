/* The page: a header, then one entry after the other, each a multiple of 8 bytes: its sizes, the words that are bumped,
 * bounds, name, labels, help. An entry is complete before the header counts it, so a reader never sees half of one,
 * whenever the writer dies. Nothing in it is a pointer. */
#include "record/metrics_page.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/math.h"
#include "record/metrics_priv.h"

#define MAGIC "ashpage1"
#define NAME_TRIES 100

struct page_head {
    char magic[8];
    uint32_t size_bytes; /* of the whole page */
    uint32_t pid;
    double started_s;
    _Atomic uint64_t used_bytes; /* header and whole entries */
    _Atomic uint64_t dropped;
    char labels[ASH_METRICS_PAGE_LABELS_BYTES]; /* NUL-terminated */
};

struct page_entry {
    uint32_t size_bytes; /* of the entry */
    uint16_t type, bound_count;
    uint16_t name_bytes, labels_bytes, help_bytes, unused;
};

/* ---- the writer -------------------------------------------------------------------------------------------------- */

static struct {
    struct page_head *head; /* NULL: no page */
    int fd;
    char path[PATH_MAX];
} own = {.fd = -1};

static size_t entry_bytes(const struct page_entry *entry)
{
    size_t words = 2 + (size_t)entry->bound_count, bounds = entry->bound_count;
    size_t text = (size_t)entry->name_bytes + entry->labels_bytes + entry->help_bytes;

    return sizeof(*entry) + 8 * (words + bounds) + (text + 7) / 8 * 8;
}

static size_t bounded_length(const char *text)
{
    return text != NULL ? strnlen(text, UINT16_MAX) : 0;
}

_Atomic uint64_t *ash_metrics_page_place(const struct ash_metric *metric)
{
    struct page_entry entry = {.type = (uint16_t)metric->type,
                               .bound_count = (uint16_t)metric->bound_count,
                               .name_bytes = (uint16_t)bounded_length(metric->name),
                               .labels_bytes = (uint16_t)bounded_length(metric->labels),
                               .help_bytes = (uint16_t)bounded_length(metric->help)};
    uint64_t used;
    uint8_t *at;

    if (own.head == NULL) return NULL;
    used = atomic_load(&own.head->used_bytes);
    entry.size_bytes = (uint32_t)entry_bytes(&entry);
    if (entry.size_bytes > ASH_METRICS_PAGE_BYTES - used) {
        atomic_fetch_add(&own.head->dropped, 1);
        return NULL;
    }
    at = (uint8_t *)own.head + used;
    memcpy(at, &entry, sizeof(entry));
    uint8_t *text = at + sizeof(entry) + 8 * (2 + 2 * (size_t)entry.bound_count);
    if (entry.bound_count > 0)
        memcpy(at + sizeof(entry) + 8 * (2 + (size_t)entry.bound_count), metric->bounds, 8 * (size_t)entry.bound_count);
    memcpy(text, metric->name, entry.name_bytes);
    if (entry.labels_bytes > 0) memcpy(text + entry.name_bytes, metric->labels, entry.labels_bytes);
    if (entry.help_bytes > 0) memcpy(text + entry.name_bytes + entry.labels_bytes, metric->help, entry.help_bytes);
    atomic_store(&own.head->used_bytes, used + entry.size_bytes); /* from here on readers see it */
    return (_Atomic uint64_t *)(void *)(at + sizeof(entry));
}

/* The folder is world-writable with the sticky bit, like /tmp. */
static int open_dir(const char *dir, struct ash_err *err)
{
    int fd;

    if (mkdir(dir, 0777) == 0) chmod(dir, S_ISVTX | 0777); /* whatever the umask */
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 ? fd : ash_err_set(err, -errno, "cannot publish metrics in '%s': %s", dir, strerror(errno));
}

/* A new file in the folder, locked. Returns its descriptor. */
static int create_file(int dir_fd, const char *dir, struct ash_err *err)
{
    char name[64];

    for (int i = 0; i < NAME_TRIES; i++) {
        int used = snprintf(name, sizeof(name), "%ld-%d" ASH_METRICS_PAGE_SUFFIX, (long)getpid(), i);
        int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

        if (fd < 0 && errno == EEXIST) continue;
        if (fd < 0) return ash_err_set(err, -errno, "cannot make '%s/%s': %s", dir, name, strerror(errno));
        used = snprintf(own.path, sizeof(own.path), "%s/%s", dir, name);
        if (used > 0 && (size_t)used < sizeof(own.path) && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
        unlinkat(dir_fd, name, 0);
        close(fd);
        return ash_err_set(err, -ENOLCK, "cannot lock '%s/%s'", dir, name);
    }
    return ash_err_set(err, -EEXIST, "'%s' is full of pages of process %ld: remove them", dir, (long)getpid());
}

/* The file's page, mapped, with its header. */
static int map_page(int fd, const char *labels, struct ash_err *err)
{
    struct page_head *head;

    if (ftruncate(fd, (off_t)ASH_METRICS_PAGE_BYTES) < 0)
        return ash_err_set(err, -errno, "cannot publish metrics: %s", strerror(errno));
    head = mmap(NULL, ASH_METRICS_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (head == MAP_FAILED) return ash_err_set(err, -errno, "cannot map the page of metrics: %s", strerror(errno));
    head->size_bytes = (uint32_t)ASH_METRICS_PAGE_BYTES;
    head->pid = (uint32_t)getpid();
    head->started_s = ash_clock_wall_s();
    snprintf(head->labels, sizeof(head->labels), "%s", labels);
    atomic_store(&head->used_bytes, sizeof(*head));
    memcpy(head->magic, MAGIC, sizeof(head->magic)); /* from here on it is a page */
    own.head = head;
    return 0;
}

int ash_metrics_page_publish(const char *dir, const char *labels, struct ash_err *err)
{
    int dir_fd, rc;

    if (own.head != NULL) return ash_err_set(err, -EEXIST, "this process publishes its metrics already");
    if (strlen(labels) >= ASH_METRICS_PAGE_LABELS_BYTES)
        return ash_err_set(err, -ENAMETOOLONG, "the labels are too long");
    dir_fd = open_dir(dir, err);
    if (dir_fd < 0) return dir_fd;
    own.fd = create_file(dir_fd, dir, err);
    close(dir_fd);
    if (own.fd < 0) return own.fd;
    rc = map_page(own.fd, labels, err);
    if (rc < 0) goto fail;
    ash_metrics_move();
    return 0;

fail:
    unlink(own.path);
    close(own.fd);
    own.fd = -1;
    return rc;
}

void ash_metrics_page_withdraw(void)
{
    if (own.fd < 0) return;
    unlink(own.path); /* the memory stays: other threads may bump until the process has ended */
    close(own.fd);
    own.fd = -1;
}

/* ---- readers ----------------------------------------------------------------------------------------------------- */

int ash_metrics_page_view(const void *data, size_t size_bytes, struct ash_metrics_page *page_out, struct ash_err *err)
{
    const struct page_head *head = data;
    struct ash_metrics_page page = {.base = data, .size_bytes = size_bytes};

    if (size_bytes < sizeof(*head) || memcmp(head->magic, MAGIC, sizeof(head->magic)) != 0)
        return ash_err_set(err, -EINVAL, "this is no page of metrics");
    page.used_bytes = atomic_load((_Atomic uint64_t *)(uintptr_t)&head->used_bytes);
    if (page.used_bytes < sizeof(*head) || page.used_bytes > size_bytes)
        return ash_err_set(err, -EINVAL, "the page of metrics is damaged");
    page.pid = head->pid;
    page.started_s = isfinite(head->started_s) ? head->started_s : 0;
    page.dropped = atomic_load((_Atomic uint64_t *)(uintptr_t)&head->dropped);
    memcpy(page.labels, head->labels, sizeof(page.labels));
    page.labels[sizeof(page.labels) - 1] = '\0';
    *page_out = page;
    return 0;
}

/* What of the file is used, into memory of our own. The owner may cut the file at any moment: a read then comes short,
 * where a mapping would kill us. */
static int read_page(int fd, struct ash_metrics_page *page_out, struct ash_err *err)
{
    struct page_head head = {0};
    size_t used;
    uint8_t *data;
    int rc;

    if (pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
        memcmp(head.magic, MAGIC, sizeof(head.magic)) != 0)
        return ash_err_set(err, -EINVAL, "this is no page of metrics");
    used = ash_min((size_t)atomic_load(&head.used_bytes), ASH_METRICS_PAGE_BYTES);
    used = ash_max(used, sizeof(head));
    data = malloc(used);
    if (data == NULL) return ash_err_set(err, -ENOMEM, "no memory for a page of metrics");
    rc = pread(fd, data, used, 0) == (ssize_t)used ? 0 : ash_err_set(err, -EINVAL, "the page of metrics is cut off");
    if (rc == 0) {
        atomic_store(&((struct page_head *)(void *)data)->used_bytes, used); /* it may have grown meanwhile */
        rc = ash_metrics_page_view(data, used, page_out, err);
    }
    if (rc < 0) {
        free(data);
        return rc;
    }
    page_out->owns_data = true;
    return 0;
}

int ash_metrics_page_open(const char *path, struct ash_metrics_page *page_out, struct ash_err *err)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), rc;
    struct stat facts;
    bool is_alive;

    if (fd < 0) return ash_err_set(err, -errno, "cannot open '%s': %s", path, strerror(errno));
    is_alive = flock(fd, LOCK_SH | LOCK_NB) < 0;
    rc = fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) ? read_page(fd, page_out, err)
                                                          : ash_err_set(err, -EINVAL, "this is no page of metrics");
    close(fd);
    if (rc < 0) return ash_err_prefix(err, rc, "%s", path);
    page_out->is_alive = is_alive;
    return 0;
}

void ash_metrics_page_close(struct ash_metrics_page *page)
{
    if (page->owns_data) free((void *)(uintptr_t)page->base);
    *page = (struct ash_metrics_page){0};
}

/* Its entry, if it is whole. */
static bool entry_at(const struct ash_metrics_page *page, size_t cursor, struct page_entry *entry_out)
{
    size_t left = page->used_bytes - cursor;

    if (left < sizeof(*entry_out)) return false;
    memcpy(entry_out, page->base + cursor, sizeof(*entry_out));
    return entry_out->bound_count <= ASH_METRIC_BUCKETS_MAX && entry_out->type <= ASH_METRIC_HISTOGRAM &&
           entry_out->name_bytes > 0 && entry_out->size_bytes == entry_bytes(entry_out) &&
           entry_out->size_bytes <= left;
}

int ash_metrics_page_next(const struct ash_metrics_page *page, size_t *cursor,
                          struct ash_metrics_page_metric *metric_out)
{
    size_t at = *cursor == 0 ? sizeof(struct page_head) : *cursor;
    struct ash_metrics_page_metric metric = {0};
    struct page_entry entry;
    const _Atomic uint64_t *words;
    uint64_t bits;

    if (at > page->used_bytes || at % 8 != 0 || !entry_at(page, at, &entry)) return 0;
    words = (const _Atomic uint64_t *)(const void *)(page->base + at + sizeof(entry));
    metric.type = (enum ash_metric_type)entry.type;
    metric.bound_count = entry.bound_count;
    metric.bounds = (const double *)(const void *)(words + 2 + entry.bound_count);
    metric.name = (const char *)(metric.bounds + entry.bound_count);
    metric.labels = metric.name + entry.name_bytes;
    metric.help = metric.labels + entry.labels_bytes;
    metric.name_bytes = entry.name_bytes;
    metric.labels_bytes = entry.labels_bytes;
    metric.help_bytes = entry.help_bytes;
    bits = atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)words, memory_order_relaxed);
    memcpy(&metric.value, &bits, sizeof(bits));
    for (size_t i = 0; i <= metric.bound_count; i++)
        metric.buckets[i] = atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)&words[1 + i], memory_order_relaxed);
    *metric_out = metric;
    *cursor = at + entry.size_bytes;
    return 1;
}

/* A header, then the records. A writer takes the next number, marks the place as being written, copies the record and
 * stores the number last. */
#include "record/ring_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/math.h"

#define MAGIC "ashring1"
#define NAME_TRIES 100
#define SWEEP_AGE_S 3600.0
#define NS_PER_S 1e9
#define CLOCK_LOOKS 16 /* at both clocks */

struct ring_head {
    char magic[8];
    uint32_t record_bytes, capacity;
    uint32_t pid, unused;
    int64_t wall_ns;
    _Atomic uint64_t added;
    char kind[ASH_RING_KIND_BYTES];
    char labels[ASH_RING_LABELS_BYTES];
};

struct ash_ring_file {
    struct ring_head *head;
    uint8_t *records;
    size_t size_bytes;
    int fd;
    char path[PATH_MAX];
};

/* ---- the writer -------------------------------------------------------------------------------------------------- */

static int create_file(struct ash_ring_file *ring, const struct ash_ring_opts *opts, struct ash_err *err)
{
    if (mkdir(opts->dir, 0777) == 0) chmod(opts->dir, S_ISVTX | 0777); /* whatever the umask */
    for (int i = 0; i < NAME_TRIES; i++) {
        int used = snprintf(ring->path, sizeof(ring->path), "%s/%ld-%d.%s", opts->dir, (long)getpid(), i, opts->kind);

        if (used < 0 || (size_t)used >= sizeof(ring->path)) return -ENAMETOOLONG;
        ring->fd = open(ring->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (ring->fd < 0 && errno == EEXIST) continue;
        if (ring->fd < 0) return ash_err_set(err, -errno, "cannot make '%s': %s", ring->path, strerror(errno));
        if (flock(ring->fd, LOCK_EX | LOCK_NB) < 0) return ash_err_set(err, -errno, "cannot lock '%s'", ring->path);
        return 0;
    }
    return ash_err_set(err, -EEXIST, "'%s' is full of files of process %ld: remove them", opts->dir, (long)getpid());
}

/* What makes a time since 1970 of ash_clock_ns: one value for all rings of a process, so that their times fit together.
 * Between looks at the two clocks a busy machine may do something else: the shortest look counts. */
static int64_t wall_ns;
static pthread_once_t wall_once = PTHREAD_ONCE_INIT;

static void compare_clocks(void)
{
    uint64_t shortest_ns = UINT64_MAX;

    for (int i = 0; i < CLOCK_LOOKS; i++) {
        uint64_t before_ns = ash_clock_ns();
        int64_t now_ns = (int64_t)(ash_clock_wall_s() * NS_PER_S);
        uint64_t look_ns = ash_clock_ns() - before_ns;

        if (look_ns >= shortest_ns) continue;
        shortest_ns = look_ns;
        wall_ns = now_ns - (int64_t)(before_ns + look_ns / 2);
    }
}

static int map_file(struct ash_ring_file *ring, const struct ash_ring_opts *opts, struct ash_err *err)
{
    struct ring_head *head;

    ring->size_bytes = sizeof(*head) + opts->record_bytes * opts->capacity;
    if (ftruncate(ring->fd, (off_t)ring->size_bytes) < 0)
        return ash_err_set(err, -errno, "cannot size '%s': %s", ring->path, strerror(errno));
    head = mmap(NULL, ring->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
    if (head == MAP_FAILED) return ash_err_set(err, -errno, "cannot map '%s': %s", ring->path, strerror(errno));
    head->record_bytes = (uint32_t)opts->record_bytes;
    head->capacity = (uint32_t)opts->capacity;
    head->pid = (uint32_t)getpid();
    pthread_once(&wall_once, compare_clocks);
    head->wall_ns = wall_ns;
    snprintf(head->kind, sizeof(head->kind), "%s", opts->kind);
    snprintf(head->labels, sizeof(head->labels), "%s", opts->labels);
    memcpy(head->magic, MAGIC, sizeof(head->magic));
    ring->head = head;
    ring->records = (uint8_t *)(head + 1);
    return 0;
}

int ash_ring_open(const struct ash_ring_opts *opts, struct ash_ring_file **ring_out, struct ash_err *err)
{
    struct ash_ring_file *ring = calloc(1, sizeof(*ring));
    int rc;

    ash_assert(opts->record_bytes >= 16 && opts->record_bytes % 8 == 0 && opts->capacity > 0 &&
               (opts->capacity & (opts->capacity - 1)) == 0);
    if (ring == NULL) return ash_err_set(err, -ENOMEM, "no memory for a ring of records");
    ring->fd = -1;
    rc = create_file(ring, opts, err);
    if (rc == 0) rc = map_file(ring, opts, err);
    if (rc < 0) goto fail;
    *ring_out = ring;
    return 0;

fail:
    ash_ring_close(ring, false);
    return rc;
}

void ash_ring_close(struct ash_ring_file *ring, bool keeps)
{
    if (ring == NULL) return;
    if (ring->head != NULL) munmap(ring->head, ring->size_bytes);
    if (ring->fd >= 0 && !keeps) unlink(ring->path);
    if (ring->fd >= 0) close(ring->fd);
    free(ring);
}

int ash_ring_copy(const struct ash_ring_file *ring, const char *path, struct ash_err *err)
{
    return ash_file_replace(path, ring->head, ring->size_bytes, err);
}

static _Atomic uint64_t *place_of(struct ash_ring_file *ring, uint64_t number)
{
    size_t index = (size_t)((number - 1) & (ring->head->capacity - 1));

    return (_Atomic uint64_t *)(void *)(ring->records + index * ring->head->record_bytes);
}

uint64_t ash_ring_add(struct ash_ring_file *ring, const void *record)
{
    uint64_t number = atomic_fetch_add_explicit(&ring->head->added, 1, memory_order_relaxed) + 1;
    _Atomic uint64_t *place = place_of(ring, number);
    const uint64_t *words = record;

    atomic_store_explicit(place, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (size_t i = 1; i < ring->head->record_bytes / 8; i++)
        atomic_store_explicit(&place[i], words[i], memory_order_relaxed);
    atomic_store_explicit(place, number, memory_order_release);
    return number;
}

void ash_ring_set(struct ash_ring_file *ring, uint64_t number, size_t offset, uint64_t value)
{
    _Atomic uint64_t *place = place_of(ring, number);

    ash_assert(offset >= 8 && offset % 8 == 0 && offset < ring->head->record_bytes);
    if (atomic_load_explicit(place, memory_order_relaxed) == number)
        atomic_store_explicit(&place[offset / 8], value, memory_order_relaxed);
}

/* A file of a process that is gone is marked by its mode, at a time that its times keep. */
static void sweep_file(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat facts;

    if (fd < 0) return;
    if (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0) {
        if ((facts.st_mode & S_IWUSR) != 0) {
            if (fchmod(fd, 0444) == 0) futimens(fd, NULL);
        } else if (ash_clock_wall_s() - (double)facts.st_mtim.tv_sec > SWEEP_AGE_S) {
            unlinkat(dir_fd, name, 0);
        }
    }
    close(fd);
}

void ash_ring_sweep(const char *dir, const char *const *kinds)
{
    DIR *folder = opendir(dir);
    struct dirent *entry;

    if (folder == NULL) return;
    while ((entry = readdir(folder)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');

        for (size_t i = 0; dot != NULL && kinds[i] != NULL; i++)
            if (strcmp(dot + 1, kinds[i]) == 0) sweep_file(dirfd(folder), entry->d_name);
    }
    closedir(folder);
}

/* ---- readers ----------------------------------------------------------------------------------------------------- */

/* Whole records, oldest first. */
static void take_records(const struct ring_head *head, const uint8_t *records, struct ash_ring_view *view)
{
    uint64_t first = view->added > head->capacity ? view->added - head->capacity + 1 : 1;

    for (uint64_t number = first; number <= view->added; number++) {
        const uint8_t *from = records + ((number - 1) & (head->capacity - 1)) * view->record_bytes;
        uint64_t found;

        memcpy(&found, from, sizeof(found));
        if (found != number) continue; /* it is being written, or was overwritten since */
        memcpy(view->records + view->count * view->record_bytes, from, view->record_bytes);
        view->count++;
    }
}

int ash_ring_parse(const void *data, size_t size_bytes, struct ash_ring_view *view_out, struct ash_err *err)
{
    struct ash_ring_view view = {0};
    struct ring_head head;

    if (size_bytes < sizeof(head)) return ash_err_set(err, -EINVAL, "this is no ring of records");
    memcpy(&head, data, sizeof(head));
    if (memcmp(head.magic, MAGIC, sizeof(head.magic)) != 0)
        return ash_err_set(err, -EINVAL, "this is no ring of records");
    if (head.record_bytes < 16 || head.record_bytes % 8 != 0 || head.record_bytes > 4096 || head.capacity == 0 ||
        (head.capacity & (head.capacity - 1)) != 0 ||
        (size_t)head.record_bytes * head.capacity != size_bytes - sizeof(head))
        return ash_err_set(err, -EINVAL, "the ring of records is damaged");
    memcpy(view.kind, head.kind, sizeof(view.kind));
    memcpy(view.labels, head.labels, sizeof(view.labels));
    view.kind[sizeof(view.kind) - 1] = view.labels[sizeof(view.labels) - 1] = '\0';
    view.pid = head.pid;
    view.wall_ns = head.wall_ns;
    view.record_bytes = head.record_bytes;
    view.added = atomic_load(&head.added);
    if (view.added > UINT64_MAX / 2) return ash_err_set(err, -EINVAL, "the ring of records is damaged");
    view.records = malloc((size_t)head.record_bytes * head.capacity);
    if (view.records == NULL) return ash_err_set(err, -ENOMEM, "no memory for a ring of records");
    take_records(&head, (const uint8_t *)data + sizeof(head), &view);
    *view_out = view;
    return 0;
}

int ash_ring_read(const char *path, const char *kind, struct ash_ring_view *view_out, struct ash_err *err)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), rc;
    struct ash_ring_view view = {0};
    size_t size_bytes = 0;
    char *data = NULL;
    bool is_alive;

    if (fd < 0) return ash_err_set(err, -errno, "cannot open '%s': %s", path, strerror(errno));
    is_alive = flock(fd, LOCK_SH | LOCK_NB) < 0;
    close(fd);
    rc = ash_file_read(path, ASH_RING_BYTES_MAX, &data, &size_bytes, err);
    if (rc < 0) return rc;
    rc = ash_ring_parse(data, size_bytes, &view, err);
    free(data);
    if (rc < 0) return ash_err_prefix(err, rc, "%s", path);
    if (kind != NULL && strcmp(view.kind, kind) != 0) {
        ash_ring_view_fini(&view);
        return ash_err_set(err, -EINVAL, "'%s' holds no %s records", path, kind);
    }
    view.is_alive = is_alive;
    *view_out = view;
    return 0;
}

void ash_ring_view_fini(struct ash_ring_view *view)
{
    free(view->records);
    *view = (struct ash_ring_view){0};
}

/* Append a view, growing the array if it is full. Returns 0 or -ENOMEM. */
static int add_view(struct ash_ring_view **views, size_t count, struct ash_ring_view view)
{
    if (count == 0 || (count >= 16 && (count & (count - 1)) == 0)) { /* full: 16, 32, 64, ... */
        struct ash_ring_view *grown = realloc(*views, ash_max(16, 2 * count) * sizeof(*grown));

        if (grown == NULL) return -ENOMEM;
        *views = grown;
    }
    (*views)[count] = view;
    return 0;
}

int ash_ring_read_dir(const char *dir, const char *kind, size_t record_bytes, struct ash_ring_view **views_out,
                      size_t *count_out, struct ash_err *err)
{
    struct ash_ring_view *views = NULL;
    DIR *folder = opendir(dir);
    struct dirent *entry;
    char path[PATH_MAX];
    size_t count = 0;
    int rc = 0;

    if (folder == NULL) return ash_err_set(err, -errno, "cannot read '%s': %s", dir, strerror(errno));
    while (rc == 0 && count < ASH_RING_FILES_MAX && (entry = readdir(folder)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        struct ash_ring_view view = {0};

        if (dot == NULL || strcmp(dot + 1, kind) != 0) continue;
        if (ash_path_join(path, sizeof(path), dir, entry->d_name) < 0) continue;
        if (ash_ring_read(path, kind, &view, NULL) < 0) continue;
        rc = view.record_bytes == record_bytes ? add_view(&views, count, view) : -ESTALE;
        if (rc < 0) ash_ring_view_fini(&view);
        count += rc == 0;
        if (rc == -ESTALE) rc = 0; /* of another version */
    }
    closedir(folder);
    if (rc < 0) {
        for (size_t i = 0; i < count; i++)
            ash_ring_view_fini(&views[i]);
        free(views);
        return ash_err_set(err, rc, "no memory for the records of '%s'", dir);
    }
    *views_out = views;
    *count_out = count;
    return 0;
}

int ash_ring_label(const struct ash_ring_view *view, const char *name, char *buf, size_t buf_bytes)
{
    size_t name_bytes = strlen(name);

    for (const char *at = view->labels; (at = strstr(at, name)) != NULL; at += name_bytes) {
        const char *value = at + name_bytes + 2;
        size_t bytes;

        if ((at != view->labels && at[-1] != ',') || strncmp(at + name_bytes, "=\"", 2) != 0) continue;
        bytes = strcspn(value, "\"");
        snprintf(buf, buf_bytes, "%.*s", (int)bytes, value);
        return 0;
    }
    return -ENOENT;
}

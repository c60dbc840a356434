/* Each thread reads a range through its own I/O queue, delivers it, then reads the next: while some deliver, others
 * keep the disk busy. O_DIRECT, if the file system supports it and the disk is fast; else plain reads, through the page
 * cache. */
#include "storage/io/direct_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "base/thread.h"
#include "storage/io/io_queue.h"
#include "storage/io/remote_file.h"

#define THREADS 4
#define REMOTE_THREADS 8                      /* where ranges are remote: a request's way there and back takes long */
#define HUGE_BYTES ((size_t)2 << 20)          /* a buffer of whole huge pages is few pieces to the disk */
#define CACHE_CHUNK_BYTES ((size_t)128 << 10) /* of one request: the smallest read-ahead of systems */
#define TRIAL_RANGES 16                       /* how often the speed of the disk is judged */
#define STALL_SECONDS 60                      /* without a range: the disk, or the file server, is gone */

struct ash_direct_reader {
    pthread_t threads[REMOTE_THREADS];
    int thread_count;
    pthread_mutex_t mutex; /* over done, taken, rc and disk_* */
    pthread_cond_t more;
    _Atomic size_t next; /* first range that was not begun */
    atomic_bool stop;
    uint64_t cache_if_slower_than_bytes_s;
    size_t disk_ranges; /* read so far, their bytes, and how long the threads waited for them */
    uint64_t disk_bytes, disk_ns;
    atomic_bool is_disk_slow;
    int *direct_fds; /* [count] descriptors with O_DIRECT; -1: none, or as the range before */
    ash_direct_read_fn take;
    void *ctx;
    size_t range_bytes_max; /* of the largest one, with its alignment */
    bool *done;             /* [count] was it taken? */
    _Atomic size_t taken;   /* ranges before this one are done */
    int rc;
    struct ash_err remote_err; /* why a remote range could not be read */
    bool is_remote;            /* some range is */
    size_t count;
    struct ash_direct_range ranges[];
};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Open the files of the ranges again, with O_DIRECT if the file system supports it. */
static void open_direct(struct ash_direct_reader *reader)
{
    for (size_t i = 0; i < reader->count; i++) {
        const struct ash_map *map = reader->ranges[i].map;
        char path[64];

        reader->direct_fds[i] = -1;
        if (map == NULL || map->remote != NULL || (i > 0 && map == reader->ranges[i - 1].map)) continue;
        if ((fcntl(map->fd, F_GETFL) & O_ACCMODE) == O_WRONLY) continue; /* not to be read, then */
        snprintf(path, sizeof(path), "/proc/self/fd/%d", map->fd);
        reader->direct_fds[i] = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    }
}

static void close_direct(struct ash_direct_reader *reader)
{
    for (size_t i = 0; reader->direct_fds != NULL && i < reader->count; i++)
        if (reader->direct_fds[i] >= 0) close(reader->direct_fds[i]);
    free(reader->direct_fds);
}

static int find_direct(const struct ash_direct_reader *reader, size_t index)
{
    ash_assert(index < reader->count);
    while (index > 0 && reader->ranges[index].map == reader->ranges[index - 1].map)
        index--;
    return reader->direct_fds[index];
}

/* The bytes of a remote range into buf. The first error is kept. */
static int read_remote(struct ash_direct_reader *reader, const struct ash_direct_range *range, void *buf)
{
    const struct ash_remote_file *file = range->map->remote;
    struct ash_err err = {0};
    int rc = file->ops->read(file->ctx, (size_t)((const uint8_t *)range->data - range->map->base), buf,
                             range->size_bytes, &err);

    if (rc == 0) return 0;
    pthread_mutex_lock(&reader->mutex);
    if (reader->remote_err.code == 0) reader->remote_err = err;
    pthread_mutex_unlock(&reader->mutex);
    return rc;
}

/* Returns where the range's bytes are: in buf, or where they were all the time. -ENODATA: the file is shorter. */
static int read_range(struct ash_direct_reader *reader, size_t index, struct ash_io_queue *queue, char *buf,
                      const void **bytes_out)
{
    const struct ash_direct_range *range = &reader->ranges[index];
    struct ash_io_request request = {.kind = ASH_IO_READ, .data = buf};
    size_t offset, needed;

    *bytes_out = range->data;
    if (range->map == NULL || range->size_bytes == 0) return 0;
    if (range->map->remote != NULL) {
        *bytes_out = buf;
        return read_remote(reader, range, buf);
    }
    offset = (size_t)((const uint8_t *)range->data - range->map->base);
    request.offset = offset / ASH_IO_BLOCK_BYTES * ASH_IO_BLOCK_BYTES;
    needed = offset + range->size_bytes - request.offset;
    request.size_bytes = ash_round_up(needed, ASH_IO_BLOCK_BYTES);
    request.plain_fd = range->map->fd;
    request.fd = atomic_load(&reader->is_disk_slow) ? -1 : find_direct(reader, index);
    if (request.fd < 0) request.fd = request.plain_fd;
    ash_assert(request.size_bytes <= reader->range_bytes_max); /* what buf holds */
    ash_io_queue_submit(queue, &request);
    ash_io_queue_wait(queue);
    *bytes_out = buf + (offset - request.offset);
    if (request.rc < 0) return request.rc;
    return request.done_bytes >= needed ? 0 : -ENODATA;
}

/* A range was read in ns. All threads read at once, or could: each gets its share of the disk's rate. */
static void judge_disk(struct ash_direct_reader *reader, const struct ash_direct_range *range, uint64_t ns)
{
    if (range->map == NULL || range->map->remote != NULL) return;
    reader->disk_bytes += range->size_bytes;
    reader->disk_ns += ns;
    if (++reader->disk_ranges % TRIAL_RANGES != 0 || atomic_load(&reader->is_disk_slow)) return;
    atomic_store(&reader->is_disk_slow, (double)reader->disk_bytes * THREADS * 1e9 <
                                            (double)reader->cache_if_slower_than_bytes_s * (double)reader->disk_ns);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void finish_range(struct ash_direct_reader *reader, size_t index, int rc, uint64_t read_ns)
{
    size_t taken;

    pthread_mutex_lock(&reader->mutex);
    judge_disk(reader, &reader->ranges[index], read_ns);
    ash_assert(!reader->done[index]); /* each range is read once */
    reader->done[index] = rc == 0;
    taken = atomic_load(&reader->taken);
    while (taken < reader->count && reader->done[taken])
        taken++;
    ash_assert(taken <= reader->count);
    atomic_store(&reader->taken, taken);
    if (rc < 0 && reader->rc == 0) reader->rc = rc;
    if (rc < 0) atomic_store(&reader->stop, true);
    pthread_cond_broadcast(&reader->more);
    pthread_mutex_unlock(&reader->mutex);
}

static bool is_on_disk(const struct ash_direct_range *range)
{
    return range->map != NULL && range->map->remote == NULL;
}

/* Read the ranges into the page cache, at idle priority. */
static void cache_ranges(const struct ash_direct_reader *reader)
{
    const struct sched_param none = {0};

    pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
    for (size_t i = 0; i < reader->count; i++) {
        const struct ash_direct_range *range = &reader->ranges[i];

        for (size_t at = 0; is_on_disk(range) && at < range->size_bytes; at += CACHE_CHUNK_BYTES) {
            if (atomic_load(&reader->stop)) return;
            ash_map_want((const char *)range->data + at, ash_min(range->size_bytes - at, CACHE_CHUNK_BYTES));
        }
    }
}

static void *reader_main(void *arg)
{
    struct ash_direct_reader *reader = arg;
    size_t buf_bytes = ash_round_up(reader->range_bytes_max, HUGE_BYTES);
    char *buf = aligned_alloc(HUGE_BYTES, buf_bytes);
    struct ash_io_queue *queue = NULL;
    int started = buf == NULL ? -ENOMEM : ash_io_queue_open(1, true, &queue, NULL);
    bool last = false;
    size_t index;

    if (buf != NULL) madvise(buf, buf_bytes, MADV_HUGEPAGE);
    while (!atomic_load(&reader->stop) && (index = atomic_fetch_add(&reader->next, 1)) < reader->count) {
        const void *bytes = NULL;
        uint64_t began_ns = ash_clock_ns(), read_ns;
        int rc = started < 0 ? started : read_range(reader, index, queue, buf, &bytes);

        read_ns = ash_clock_ns() - began_ns;
        if (rc == 0) reader->take(reader->ctx, index, bytes);
        finish_range(reader, index, rc, read_ns);
        last = index + 1 == reader->count;
    }
    ash_io_queue_close(queue);
    free(buf);
    if (last && reader->cache_if_slower_than_bytes_s > 0) cache_ranges(reader);
    return NULL;
}

static int start_threads(struct ash_direct_reader *reader)
{
    int rc = 0, wanted = reader->is_remote ? REMOTE_THREADS : THREADS;

    ash_assert(wanted > 0 && (size_t)wanted <= ASH_COUNT(reader->threads));
    while (rc == 0 && reader->thread_count < wanted) {
        rc = ash_thread_start(&reader->threads[reader->thread_count], reader_main, reader);
        if (rc == 0) reader->thread_count++;
    }
    return reader->thread_count > 0 ? 0 : rc; /* fewer do, too */
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int reader_init(struct ash_direct_reader *reader)
{
    int rc = ash_cond_init(&reader->more);

    if (rc == 0) pthread_mutex_init(&reader->mutex, NULL);
    return rc;
}

static void reader_free(struct ash_direct_reader *reader)
{
    close_direct(reader);
    free(reader->done);
    free(reader);
}

static void look_at_ranges(struct ash_direct_reader *reader)
{
    for (size_t i = 0; i < reader->count; i++) {
        const struct ash_direct_range *range = &reader->ranges[i];

        reader->is_remote = reader->is_remote || (range->map != NULL && range->map->remote != NULL);
        reader->range_bytes_max = ash_max(reader->range_bytes_max, range->size_bytes + 2 * ASH_IO_BLOCK_BYTES);
    }
}

int ash_direct_reader_open(const struct ash_direct_range *ranges, size_t count, uint64_t cache_if_slower_than_bytes_s,
                           ash_direct_read_fn take, void *ctx, struct ash_direct_reader **reader_out,
                           struct ash_err *err)
{
    struct ash_direct_reader *reader = calloc(1, sizeof(*reader) + count * sizeof(*ranges));
    int rc = -ENOMEM;

    ash_assert(take != NULL && (count == 0 || ranges != NULL));
    if (reader != NULL) reader->done = calloc(count + 1, sizeof(*reader->done));
    if (reader != NULL) reader->direct_fds = calloc(count + 1, sizeof(*reader->direct_fds));
    if (reader == NULL || reader->done == NULL || reader->direct_fds == NULL) goto fail;
    rc = reader_init(reader);
    if (rc < 0) goto fail;
    reader->cache_if_slower_than_bytes_s = cache_if_slower_than_bytes_s;
    reader->take = take;
    reader->ctx = ctx;
    reader->count = count;
    if (count > 0) memcpy(reader->ranges, ranges, count * sizeof(*ranges));
    look_at_ranges(reader);
    open_direct(reader);
    rc = start_threads(reader);
    if (rc == 0) {
        *reader_out = reader;
        return 0;
    }
    pthread_cond_destroy(&reader->more);
    pthread_mutex_destroy(&reader->mutex);

fail:
    if (reader != NULL) reader_free(reader);
    return ash_err_set(err, rc, "cannot start to read %zu ranges: %s", count, strerror(-rc));
}

/* Fill err with the reason why the reader stopped. */
static int reader_error(const struct ash_direct_reader *reader, struct ash_err *err)
{
    if (reader->remote_err.code != 0) return ash_err_set(err, reader->rc, "%s", reader->remote_err.text);
    if (reader->rc == -ENODATA)
        return ash_err_set(err, -ENODATA, "the file has become shorter while it was being read");
    if (reader->rc == -ETIMEDOUT)
        return ash_err_set(err, -ETIMEDOUT, "nothing could be read for %d s: is the disk still there?", STALL_SECONDS);
    return ash_err_set(err, reader->rc, "cannot read on: %s", strerror(-reader->rc));
}

int ash_direct_reader_wait(struct ash_direct_reader *reader, size_t count, struct ash_err *err)
{
    struct timespec until;
    size_t seen;
    int rc = 0;

    ash_assert(reader == NULL || count <= reader->count);
    if (reader == NULL || atomic_load(&reader->taken) >= count) return 0;
    pthread_mutex_lock(&reader->mutex);
    while ((seen = atomic_load(&reader->taken)) < count && reader->rc == 0) {
        until = ash_cond_deadline(STALL_SECONDS * 1000000000ull);
        rc = pthread_cond_timedwait(&reader->more, &reader->mutex, &until);
        if (reader->is_remote) continue; /* whose requests have a limit of their own */
        if (rc == ETIMEDOUT && seen == atomic_load(&reader->taken) && reader->rc == 0) {
            reader->rc = -ETIMEDOUT;
            atomic_store(&reader->stop, true);
        }
    }
    rc = atomic_load(&reader->taken) >= count ? 0 : reader_error(reader, err);
    pthread_mutex_unlock(&reader->mutex);
    return rc;
}

bool ash_direct_reader_is_direct(const struct ash_direct_reader *reader)
{
    bool has_any = false;

    for (size_t i = 0; i < reader->count; i++)
        has_any = has_any || reader->direct_fds[i] >= 0;
    return has_any && !atomic_load(&reader->is_disk_slow);
}

void ash_direct_reader_close(struct ash_direct_reader *reader)
{
    if (reader == NULL) return;
    atomic_store(&reader->stop, true);
    for (int i = 0; i < reader->thread_count; i++)
        pthread_join(reader->threads[i], NULL);
    pthread_cond_destroy(&reader->more);
    pthread_mutex_destroy(&reader->mutex);
    reader_free(reader);
}

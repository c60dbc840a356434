/* Threads that read a part each and hand it on, before they read the next: while some do the second, others keep the
 * disk busy. O_DIRECT, where the file system knows it and the disk is fast; else plain reads, through the cache. */
#include "base/intake.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

#define THREADS 4
#define BLOCK_BYTES ((size_t)4096)     /* what O_DIRECT wants addresses, offsets and sizes to be multiples of */
#define HUGE_BYTES ((size_t)2 << 20)   /* a buffer of whole huge pages is few pieces to the disk */
#define KEEP_BYTES ((size_t)128 << 10) /* asked for at once: the least that systems read ahead */
#define TRIAL_PARTS 16                 /* after so many, each time, it shows how fast the disk is */
#define STALL_SECONDS 60               /* without a part: the disk, or the server behind it, is gone */

struct ash_intake {
    pthread_t threads[THREADS];
    int thread_count;
    pthread_mutex_t mutex; /* over done, taken, rc and disk_* */
    pthread_cond_t more;
    _Atomic size_t next; /* first part that nobody has begun */
    atomic_bool stop;
    uint64_t keep_below;
    size_t disk_parts; /* read so far, their bytes, and how long the threads waited for them */
    uint64_t disk_bytes, disk_ns;
    bool disk_slow;
    ash_intake_fn take;
    void *ctx;
    size_t part_bytes;    /* of the largest one, with what is read around it */
    bool *done;           /* [count] */
    _Atomic size_t taken; /* parts before this one are done */
    int rc;
    size_t count;
    struct ash_intake_part parts[];
};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool set_direct(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

static void set_all_direct(const struct ash_intake *intake, bool on)
{
    for (size_t i = 0; i < intake->count; i++) {
        const struct ash_map *map = intake->parts[i].map;

        if (map != NULL && (i == 0 || map != intake->parts[i - 1].map)) set_direct(map->fd, on);
    }
}

/* size_bytes from offset on, and up to room_bytes where the file goes on. -ENODATA: it ends before. */
static int read_bytes(int fd, char *buf, size_t offset, size_t size_bytes, size_t room_bytes)
{
    size_t done = 0;
    bool plain = false;

    while (done < size_bytes) {
        ssize_t got = pread(fd, buf + done, room_bytes - done, (off_t)(offset + done));

        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EINVAL && !plain) { /* of O_DIRECT, unless it comes again */
            plain = set_direct(fd, false);
            if (plain) continue;
        }
        if (got < 0) return -errno;
        if (got == 0) return -ENODATA;
        done += (size_t)got;
    }
    return 0;
}

/* Returns where the part's bytes are: in buf, or where they were all the time. */
static int read_part(const struct ash_intake_part *part, char *buf, const void **bytes_out)
{
    size_t offset, begin, end;
    int rc;

    *bytes_out = part->data;
    if (part->map == NULL || part->size_bytes == 0) return 0;
    offset = (size_t)((const uint8_t *)part->data - part->map->base);
    begin = offset / BLOCK_BYTES * BLOCK_BYTES;
    end = (offset + part->size_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    rc = read_bytes(part->map->fd, buf, begin, offset + part->size_bytes - begin, end - begin);
    *bytes_out = buf + (offset - begin);
    return rc;
}

/* A part was read in ns. All threads read at once, or could: each gets its share of what the disk gives. */
static void judge_disk(struct ash_intake *intake, const struct ash_intake_part *part, uint64_t ns)
{
    if (part->map == NULL) return;
    intake->disk_bytes += part->size_bytes;
    intake->disk_ns += ns;
    if (++intake->disk_parts % TRIAL_PARTS != 0 || intake->disk_slow) return;
    intake->disk_slow =
        (double)intake->disk_bytes * THREADS * 1e9 < (double)intake->keep_below * (double)intake->disk_ns;
    if (intake->disk_slow) set_all_direct(intake, false);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void note_part(struct ash_intake *intake, size_t index, int rc, uint64_t read_ns)
{
    size_t taken;

    pthread_mutex_lock(&intake->mutex);
    judge_disk(intake, &intake->parts[index], read_ns);
    intake->done[index] = rc == 0;
    taken = atomic_load(&intake->taken);
    while (taken < intake->count && intake->done[taken])
        taken++;
    atomic_store(&intake->taken, taken);
    if (rc < 0 && intake->rc == 0) intake->rc = rc;
    if (rc < 0) atomic_store(&intake->stop, true);
    pthread_cond_broadcast(&intake->more);
    pthread_mutex_unlock(&intake->mutex);
}

/* Read the parts into the page cache, as long as nobody else wants the processor. */
static void keep_parts(const struct ash_intake *intake)
{
    const struct sched_param none = {0};

    pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
    for (size_t i = 0; i < intake->count; i++) {
        const struct ash_intake_part *part = &intake->parts[i];

        for (size_t at = 0; part->map != NULL && at < part->size_bytes; at += KEEP_BYTES) {
            size_t left = part->size_bytes - at;

            if (atomic_load(&intake->stop)) return;
            ash_map_want((const char *)part->data + at, left < KEEP_BYTES ? left : KEEP_BYTES);
        }
    }
}

static void *intake_main(void *arg)
{
    struct ash_intake *intake = arg;
    size_t buf_bytes = (intake->part_bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    char *buf = aligned_alloc(HUGE_BYTES, buf_bytes);
    bool last = false;
    size_t index;

    if (buf != NULL) madvise(buf, buf_bytes, MADV_HUGEPAGE);
    while (!atomic_load(&intake->stop) && (index = atomic_fetch_add(&intake->next, 1)) < intake->count) {
        const void *bytes = NULL;
        uint64_t began_ns = ash_clock_ns(), read_ns;
        int rc = buf == NULL ? -ENOMEM : read_part(&intake->parts[index], buf, &bytes);

        read_ns = ash_clock_ns() - began_ns;
        if (rc == 0) intake->take(intake->ctx, index, bytes);
        note_part(intake, index, rc, read_ns);
        last = index + 1 == intake->count;
    }
    free(buf);
    if (last && intake->keep_below > 0) keep_parts(intake);
    return NULL;
}

static int start_threads(struct ash_intake *intake)
{
    int rc = 0;

    while (rc == 0 && intake->thread_count < THREADS) {
        rc = ash_thread_start(&intake->threads[intake->thread_count], intake_main, intake);
        if (rc == 0) intake->thread_count++;
    }
    return intake->thread_count > 0 ? 0 : rc; /* fewer do, too */
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int intake_init(struct ash_intake *intake)
{
    int rc = ash_cond_init(&intake->more);

    if (rc == 0) pthread_mutex_init(&intake->mutex, NULL);
    return rc;
}

static void intake_free(struct ash_intake *intake)
{
    set_all_direct(intake, false); /* as whoever comes next expects it */
    free(intake->done);
    free(intake);
}

int ash_intake_open(const struct ash_intake_part *parts, size_t count, uint64_t keep_below, ash_intake_fn take,
                    void *ctx, struct ash_intake **intake_out, struct ash_err *err)
{
    struct ash_intake *intake = calloc(1, sizeof(*intake) + count * sizeof(*parts));
    int rc = -ENOMEM;

    if (intake != NULL) intake->done = calloc(count + 1, sizeof(*intake->done));
    if (intake == NULL || intake->done == NULL || (rc = intake_init(intake)) < 0) goto fail;
    intake->keep_below = keep_below;
    intake->take = take;
    intake->ctx = ctx;
    intake->count = count;
    if (count > 0) memcpy(intake->parts, parts, count * sizeof(*parts));
    for (size_t i = 0; i < count; i++) {
        size_t bytes = parts[i].size_bytes + 2 * BLOCK_BYTES;

        if (bytes > intake->part_bytes) intake->part_bytes = bytes;
    }
    set_all_direct(intake, true);
    rc = start_threads(intake);
    if (rc == 0) {
        *intake_out = intake;
        return 0;
    }
    pthread_cond_destroy(&intake->more);
    pthread_mutex_destroy(&intake->mutex);

fail:
    if (intake != NULL) intake_free(intake);
    return ash_err_set(err, rc, "cannot start to read %zu parts: %s", count, strerror(-rc));
}

/* err says what became of the intake. */
static int intake_error(const struct ash_intake *intake, struct ash_err *err)
{
    if (intake->rc == -ENODATA)
        return ash_err_set(err, -ENODATA, "the file has become shorter while it was being read");
    if (intake->rc == -ETIMEDOUT)
        return ash_err_set(err, -ETIMEDOUT, "nothing could be read for %d s: is the disk still there?", STALL_SECONDS);
    return ash_err_set(err, intake->rc, "cannot read on: %s", strerror(-intake->rc));
}

int ash_intake_wait(struct ash_intake *intake, size_t count, struct ash_err *err)
{
    struct timespec until;
    size_t seen;
    int rc = 0;

    if (intake == NULL || atomic_load(&intake->taken) >= count) return 0;
    pthread_mutex_lock(&intake->mutex);
    while ((seen = atomic_load(&intake->taken)) < count && intake->rc == 0) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += STALL_SECONDS;
        rc = pthread_cond_timedwait(&intake->more, &intake->mutex, &until);
        if (rc == ETIMEDOUT && seen == atomic_load(&intake->taken) && intake->rc == 0) {
            intake->rc = -ETIMEDOUT;
            atomic_store(&intake->stop, true);
        }
    }
    rc = atomic_load(&intake->taken) >= count ? 0 : intake_error(intake, err);
    pthread_mutex_unlock(&intake->mutex);
    return rc;
}

void ash_intake_close(struct ash_intake *intake)
{
    if (intake == NULL) return;
    atomic_store(&intake->stop, true);
    for (int i = 0; i < intake->thread_count; i++)
        pthread_join(intake->threads[i], NULL);
    pthread_cond_destroy(&intake->more);
    pthread_mutex_destroy(&intake->mutex);
    intake_free(intake);
}

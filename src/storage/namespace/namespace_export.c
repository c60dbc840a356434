/* Objects that are written here first and exported in the background. A put is durable on this machine when it returns:
 * file flushed, then its line in the journal. An export ends with its line in the journal; if a process dies before
 * that, the object is exported again, which is idempotent. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "base/math.h"
#include "base/thread.h"
#include "record/metrics.h"
#include "storage/io/io_priv.h"
#include "storage/namespace/namespace_priv.h"

#define WAIT_NS ((uint64_t)200 * 1000 * 1000)

ASH_GAUGE(waiting_metric, "ashlar_namespace_waiting_bytes",
          "bytes of objects that are on this machine alone and wait for their export");
ASH_GAUGE(age_metric, "ashlar_namespace_waiting_seconds", "how long the oldest of them has waited");
ASH_COUNTER(exported_metric, "ashlar_namespace_exported_bytes_total", "bytes of objects that were exported");

/* Under the lock. */
static void measure_queue(const struct ash_namespace *space)
{
    const struct ash_journal_entry *entry;
    double bytes = 0, oldest_s = 0, now_s = ash_clock_wall_s();

    for (size_t i = 0; (entry = ash_journal_at(space->journal, i)) != NULL; i++) {
        bytes += (double)entry->size_bytes;
        if (now_s - entry->put_s > oldest_s) oldest_s = now_s - entry->put_s;
    }
    ash_metric_set(&waiting_metric, bytes);
    ash_metric_set(&age_metric, oldest_s);
}

/* ---- put --------------------------------------------------------------------------------------------------------- */

/* Read fd in extents: each to `to` (-1: nowhere), their hashes into one. */
static int copy_bytes(int fd, int to, uint64_t *size_out, uint64_t *hash_out)
{
    char *window = malloc(ASH_EXTENT_BYTES);
    uint64_t size_bytes = 0, sum = 0;
    int rc = window != NULL ? 0 : -ENOMEM;

    while (rc == 0) {
        size_t filled = 0;
        uint64_t hash;

        while (rc == 0 && filled < ASH_EXTENT_BYTES) {
            ssize_t bytes = pread(fd, window + filled, ASH_EXTENT_BYTES - filled, (off_t)(size_bytes + filled));

            if (bytes < 0 && errno == EINTR) continue;
            if (bytes < 0) rc = -errno;
            if (bytes <= 0) break;
            filled += (size_t)bytes;
        }
        if (rc < 0 || filled == 0) break;
        hash = ash_hash_bytes(window, filled, 0);
        sum = ash_hash_bytes(&hash, sizeof(hash), sum);
        if (to >= 0) rc = ash_io_write(to, window, filled);
        size_bytes += filled;
    }
    free(window);
    *size_out = size_bytes;
    *hash_out = sum;
    return rc;
}

/* Bring the bytes of path to `to`, flushed. */
static int take_file(const char *path, const char *to, bool wants_move, struct ash_journal_entry *entry,
                     struct ash_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), out = -1, rc;

    if (fd < 0) return ash_io_fail(err, -errno, path, "read");
    if (!wants_move) out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    rc = !wants_move && out < 0 ? -errno : copy_bytes(fd, out, &entry->size_bytes, &entry->hash);
    if (rc == 0 && wants_move && fsync(fd) < 0) rc = -errno;
    if (rc == 0 && wants_move && link(path, to) < 0) rc = -errno; /* under both names until the journal has it */
    if (out >= 0) {
        int flushed = ash_io_flush_close(out);

        rc = rc < 0 ? rc : flushed;
    }
    close(fd);
    return rc < 0 ? ash_io_fail(err, rc, to, "write") : 0;
}

int ash_namespace_put(struct ash_namespace *space, const char *name, const char *path, bool wants_move,
                      struct ash_err *err)
{
    static _Atomic unsigned serial;
    struct ash_journal_entry entry = {.put_s = ash_clock_wall_s()}, older;
    char to[PATH_MAX], folder[PATH_MAX], file[64], older_file[64], key[ASH_TIER_KEY_BYTES];
    bool is_replaced;
    int rc = ash_namespace_full_key(space, name, key, err);

    if (rc < 0) return rc;
    entry.key = key;
    is_replaced = ash_namespace_waits(space, key, &older, older_file);
    snprintf(file, sizeof(file), "%d-%016" PRIx64 "-%u", (int)getpid(), ash_hash_mix(ash_clock_ns()), serial++);
    entry.file = file;
    rc = ash_namespace_put_path(space, file, to, err);
    if (rc == 0) rc = take_file(path, to, wants_move, &entry, err);
    if (rc == 0) rc = ash_io_parent(folder, sizeof(folder), to);
    if (rc == 0) rc = ash_dir_sync(folder, err);
    if (rc < 0) return rc;
    pthread_mutex_lock(&space->lock);
    rc = ash_journal_put(space->journal, &entry, err);
    measure_queue(space);
    pthread_cond_broadcast(&space->changed);
    pthread_mutex_unlock(&space->lock);
    if (rc == 0 && wants_move && unlink(path) < 0) rc = ash_io_fail(err, -errno, path, "remove");
    if (rc == 0 && is_replaced && ash_namespace_put_path(space, older_file, to, NULL) == 0) unlink(to);
    return rc;
}

/* ---- export ------------------------------------------------------------------------------------------------------ */

/* An export that is under way. */
struct export
{
    struct ash_namespace *space;
    struct ash_tier *tier;
    const struct ash_namespace_watch *watch;
    struct ash_journal_entry entry; /* its strings are in the buffers below */
    char key[ASH_TIER_KEY_BYTES], file[64];
    uint64_t *hashes; /* of its extents */
};

static int tell(struct export *export, uint64_t done_bytes, struct ash_err *err)
{
    struct ash_namespace *space = export->space;
    bool is_stopping;

    pthread_mutex_lock(&space->lock);
    space->exported_bytes = done_bytes;
    is_stopping = space->is_stopping;
    pthread_mutex_unlock(&space->lock);
    if (is_stopping) return ash_err_set(err, -EINTR, "stopped");
    if (export->watch == NULL) return 0;
    if (ash_interrupt_requested()) return ash_err_set(err, -EINTR, "stopped; what waits is exported next time");
    return export->watch->progress(export->watch->ctx, export->key, done_bytes, export->entry.size_bytes, err);
}

/* Send the file; the bytes must be those that were put. */
static int send_file(struct export *export, int fd, struct ash_tier_write *write, struct ash_err *err)
{
    char *window = malloc(ASH_EXTENT_BYTES);
    uint64_t sum = 0, size_bytes = export->entry.size_bytes;
    int rc = window != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory");

    for (uint64_t at = 0; rc == 0 && at < size_bytes;) {
        size_t bytes = ash_min(ASH_EXTENT_BYTES, (size_t)(size_bytes - at));
        uint64_t *hash = &export->hashes[at / ASH_EXTENT_BYTES];
        ssize_t got = pread(fd, window, bytes, (off_t)at);

        if (got != (ssize_t)bytes) {
            rc = ash_io_fail(err, got < 0 ? -errno : -EIO, export->key, "read what waits for its export");
            break;
        }
        *hash = ash_hash_bytes(window, bytes, 0);
        sum = ash_hash_bytes(hash, sizeof(*hash), sum);
        rc = ash_tier_write_add(export->tier, write, window, bytes, err);
        at += bytes;
        if (rc == 0) rc = tell(export, at, err);
    }
    free(window);
    if (rc == 0 && sum != export->entry.hash)
        rc = ash_err_set(err, -EBADMSG, "%.200s has been damaged on this machine before it was exported: put it again",
                         export->key);
    return rc;
}

static int upload(struct export *export, const char *path, struct ash_tier_object *remote_out, struct ash_err *err)
{
    struct ash_tier_write *write = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

    if (fd < 0) return ash_io_fail(err, -errno, path, "read");
    rc = ash_tier_write_open(export->tier, export->key, export->entry.size_bytes, true, &write, err);
    if (rc == 0) rc = send_file(export, fd, write, err);
    if (rc == 0) rc = ash_tier_write_finish(export->tier, write, err);
    ash_tier_write_close(export->tier, write, rc != -EBADMSG);
    close(fd);
    if (rc == 0) rc = ash_tier_stat(export->tier, export->key, remote_out, err);
    if (rc == 0 && remote_out->size_bytes != export->entry.size_bytes)
        rc = ash_err_set(err, -EIO, "%.200s: the place says that the object has another size than was sent",
                         export->key);
    return rc;
}

/* The exported file becomes the cached copy. A failure here costs a fetch later, no more. */
static void keep_copy(const struct export *export, const char *path, const struct ash_tier_object *remote)
{
    struct ash_namespace *space = export->space;
    struct ash_extents_head head = {.size_bytes = remote->size_bytes};
    struct ash_extents *extents = NULL;
    char log[PATH_MAX], to[PATH_MAX];
    int fd = ash_namespace_open_file(space, remote, export->key, &head.is_odd, NULL), rc;

    if (fd < 0) return;
    close(fd);
    memcpy(head.key, export->key, sizeof(head.key));
    memcpy(head.version, remote->version, sizeof(head.version));
    rc = ash_namespace_log_path(space, export->key, log, NULL);
    if (rc == 0) rc = ash_namespace_file_path(space, export->key, head.is_odd, to, NULL);
    if (rc == 0) rc = ash_extents_open(log, &head, &extents, NULL);
    /* under both names until the journal records the export */
    if (rc == 0 && ((unlink(to) < 0 && errno != ENOENT) || link(path, to) < 0)) rc = -errno;
    for (uint64_t at = 0; rc == 0 && at < head.size_bytes; at += ASH_EXTENT_BYTES)
        rc = ash_extents_add_hash(extents, at, ash_min(ASH_EXTENT_BYTES, (size_t)(head.size_bytes - at)),
                                  export->hashes[at / ASH_EXTENT_BYTES]);
    ash_extents_close(extents);
}

static int export_one(struct export *export, struct ash_err *err)
{
    struct ash_namespace *space = export->space;
    struct ash_tier_object remote = {0};
    char path[PATH_MAX];
    int rc = ash_namespace_put_path(space, export->file, path, err);

    if (rc < 0) return rc;
    export->hashes = calloc(export->entry.size_bytes / ASH_EXTENT_BYTES + 1, sizeof(*export->hashes));
    if (export->hashes == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = upload(export, path, &remote, err);
    if (rc == 0) {
        keep_copy(export, path, &remote);
        pthread_mutex_lock(&space->lock);
        rc = ash_journal_done(space->journal, export->key, export->file, err);
        space->exported_bytes = 0;
        measure_queue(space);
        pthread_cond_broadcast(&space->changed);
        pthread_mutex_unlock(&space->lock);
        if (rc == 0) unlink(path);
        ash_metric_add(&exported_metric, (double)export->entry.size_bytes);
    }
    free(export->hashes);
    export->hashes = NULL;
    return rc;
}

/* The oldest in the queue. Returns false if there is none. */
static bool take_next(struct export *export)
{
    struct ash_namespace *space = export->space;
    const struct ash_journal_entry *entry;

    pthread_mutex_lock(&space->lock);
    ash_journal_refresh(space->journal, NULL);
    entry = ash_journal_at(space->journal, 0);
    if (entry != NULL) {
        export->entry = *entry;
        snprintf(export->key, sizeof(export->key), "%s", entry->key);
        snprintf(export->file, sizeof(export->file), "%s", entry->file);
    }
    measure_queue(space);
    pthread_mutex_unlock(&space->lock);
    return entry != NULL;
}

static int export_all(struct ash_namespace *space, const struct ash_namespace_watch *watch, struct ash_err *err)
{
    struct export *export = calloc(1, sizeof(*export));
    int rc = export != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory");

    if (rc == 0) {
        export->space = space;
        export->watch = watch;
        rc = ash_tier_open(space->url, &space->s3, &export->tier, err);
    }
    while (rc == 0 && take_next(export))
        rc = export_one(export, err);
    if (export != NULL) ash_tier_close(export->tier);
    free(export);
    return rc;
}

int ash_namespace_export(struct ash_namespace *space, const struct ash_namespace_watch *watch, struct ash_err *err)
{
    ash_assert(!space->is_exporting);
    return export_all(space, watch, err);
}

/* ---- in the background ------------------------------------------------------------------------------------------- */

static void *export_main(void *arg)
{
    struct ash_namespace *space = arg;

    pthread_mutex_lock(&space->lock);
    while (!space->is_stopping) {
        struct ash_err err = {0};
        int rc;

        if (ash_journal_at(space->journal, 0) == NULL || space->export_rc < 0) {
            pthread_cond_wait(&space->changed, &space->lock);
            continue;
        }
        pthread_mutex_unlock(&space->lock);
        rc = export_all(space, NULL, &err);
        pthread_mutex_lock(&space->lock);
        space->export_rc = rc;
        space->export_err = err;
        pthread_cond_broadcast(&space->changed);
    }
    pthread_mutex_unlock(&space->lock);
    return NULL;
}

int ash_namespace_export_start(struct ash_namespace *space, struct ash_err *err)
{
    int rc;

    if (space->is_exporting) return 0;
    rc = ash_thread_start(&space->exporter, export_main, space);
    if (rc < 0) return ash_err_set(err, rc, "cannot start the thread that exports: %s", strerror(-rc));
    space->is_exporting = true;
    return 0;
}

/* Under the lock: queued bytes without those sent already. */
static uint64_t waiting_bytes(const struct ash_namespace *space)
{
    const struct ash_journal_entry *entry;
    uint64_t bytes = 0;

    for (size_t i = 0; (entry = ash_journal_at(space->journal, i)) != NULL; i++)
        bytes += entry->size_bytes;
    return bytes - ash_min(bytes, space->exported_bytes);
}

int ash_namespace_export_wait(struct ash_namespace *space, const struct ash_namespace_watch *watch, struct ash_err *err)
{
    uint64_t total_bytes, left;
    int rc = 0;

    ash_assert(space->is_exporting);
    pthread_mutex_lock(&space->lock);
    space->export_rc = 0; /* an export that gave up is retried for a waiter */
    pthread_cond_broadcast(&space->changed);
    total_bytes = waiting_bytes(space);
    while (rc == 0 && ash_journal_at(space->journal, 0) != NULL) {
        const struct timespec deadline = ash_cond_deadline(WAIT_NS);

        pthread_cond_timedwait(&space->changed, &space->lock, &deadline);
        if (space->export_rc < 0) rc = ash_err_set(err, space->export_rc, "%s", space->export_err.text);
        left = waiting_bytes(space);
        pthread_mutex_unlock(&space->lock);
        if (rc == 0 && ash_interrupt_requested())
            rc = ash_err_set(err, -EINTR, "stopped; what waits is exported next time");
        if (rc == 0 && watch != NULL)
            rc = watch->progress(watch->ctx, space->url, total_bytes - ash_min(left, total_bytes), total_bytes, err);
        pthread_mutex_lock(&space->lock);
    }
    pthread_mutex_unlock(&space->lock);
    return rc;
}

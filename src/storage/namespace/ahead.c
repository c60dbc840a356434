/* Fetching ahead. The thread has its own namespace, the readers share another: readers find the thread's data in the
 * folder. Ranges are few enough at a time to look through a list of them. */
#include "storage/namespace/ahead.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#define BATCH_MAX 32 /* ranges that are fetched together */
#define BATCH_BYTES ((size_t)8 << 20)
#define WANTS_MAX 4096
#define KEEP_SHARE 2 /* of the cache may be kept ranges that are fetched and not read yet: others must fit too */
#define TELL_NS ((uint64_t)10 * 1000 * 1000 * 1000)

enum want_state { WANT_QUEUED, WANT_BUSY, WANT_READY };

struct want {
    struct ash_ahead_range range;
    uint64_t order;
    enum want_state state;
    bool is_kept, is_used, is_urgent;
    void *data; /* NULL: kept, or not fetched yet */
};

/* One side's view of the objects. */
struct side {
    struct ash_namespace *space;
    struct ash_object **objects;
};

struct ash_ahead {
    char *url;
    size_t object_count, memory_bytes, keep_bytes; /* keep_bytes: of kept ranges that are not read yet */
    struct side readers, fetcher;
    struct ash_namespace_guard guard;
    pthread_mutex_t reading; /* of readers */

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    struct want *wants;
    size_t want_count, held_bytes;
    uint64_t read_bytes, wanted;
    uint64_t now; /* the current read position: kept ranges before it are consumed */
    pthread_t thread;
    bool is_running, is_stopping;
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int open_side(struct ash_ahead *ahead, struct side *side, const char *const *keys,
                     const struct ash_namespace_settings *settings, struct ash_err *err)
{
    int rc = ash_namespace_open(ahead->url, &settings->cache, &settings->s3, &side->space, err);

    if (rc < 0) return rc;
    side->objects = calloc(ahead->object_count + 1, sizeof(*side->objects));
    if (side->objects == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; rc == 0 && i < ahead->object_count; i++) /* the second side takes the first one's version */
        rc = ash_object_open(side->space, keys[i], side == &ahead->readers, &side->objects[i], err);
    return rc;
}

static void close_side(struct ash_ahead *ahead, struct side *side)
{
    for (size_t i = 0; side->objects != NULL && i < ahead->object_count; i++)
        ash_object_close(side->objects[i]);
    free(side->objects);
    ash_namespace_close(side->space);
}

static void *fetch_main(void *arg);

/* A kept range that has been fetched, or is on its way, and will be read. Under the lock. */
static bool is_outstanding(const struct ash_ahead *ahead, const struct want *want)
{
    return want->is_kept && want->state != WANT_QUEUED && want->order >= ahead->now;
}

/* For the guard: ranges that will be read stay where they are. */
static bool needs(void *ctx, const char *key, uint64_t offset, size_t size_bytes)
{
    struct ash_ahead *ahead = ctx;
    bool is_needed = false;

    pthread_mutex_lock(&ahead->lock);
    for (size_t i = 0; !is_needed && i < ahead->want_count; i++) {
        const struct want *want = &ahead->wants[i];

        is_needed = is_outstanding(ahead, want) && offset < want->range.offset + want->range.size_bytes &&
                    want->range.offset < offset + size_bytes &&
                    strcmp(ash_object_key(ahead->fetcher.objects[want->range.object]), key) == 0;
    }
    pthread_mutex_unlock(&ahead->lock);
    return is_needed;
}

int ash_ahead_open(const struct ash_ahead_opts *opts, struct ash_ahead **ahead_out, struct ash_err *err)
{
    const struct ash_namespace_settings *settings = opts->settings;
    struct ash_ahead *ahead = calloc(1, sizeof(*ahead));
    int rc;

    if (ahead == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_mutex_init(&ahead->reading, NULL);
    ash_cond_init(&ahead->changed);
    ahead->object_count = opts->count;
    ahead->memory_bytes = opts->memory_bytes;
    ahead->url = strdup(opts->url);
    ahead->wants = calloc(WANTS_MAX, sizeof(*ahead->wants));
    rc = ahead->url == NULL || ahead->wants == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : 0;
    if (rc == 0) rc = open_side(ahead, &ahead->readers, opts->keys, opts->settings, err);
    if (rc == 0) rc = open_side(ahead, &ahead->fetcher, opts->keys, opts->settings, err);
    ahead->keep_bytes = settings->cache.bytes > 0 ? (size_t)settings->cache.bytes / KEEP_SHARE : SIZE_MAX;
    if (rc == 0) {
        ahead->guard = (struct ash_namespace_guard){needs, ahead};
        ash_namespace_set_guard(ahead->readers.space, &ahead->guard);
        ash_namespace_set_guard(ahead->fetcher.space, &ahead->guard);
        rc = ash_thread_start(&ahead->thread, fetch_main, ahead);
        if (rc < 0) ash_err_set(err, rc, "cannot start the thread that fetches ahead: %s", strerror(-rc));
        ahead->is_running = rc == 0;
    }
    if (rc < 0) {
        ash_ahead_close(ahead);
        return rc;
    }
    *ahead_out = ahead;
    return 0;
}

void ash_ahead_close(struct ash_ahead *ahead)
{
    if (ahead == NULL) return;
    if (ahead->is_running) {
        pthread_mutex_lock(&ahead->lock);
        ahead->is_stopping = true;
        pthread_cond_broadcast(&ahead->changed);
        pthread_mutex_unlock(&ahead->lock);
        pthread_join(ahead->thread, NULL);
    }
    close_side(ahead, &ahead->readers);
    close_side(ahead, &ahead->fetcher);
    for (size_t i = 0; i < ahead->want_count; i++)
        free(ahead->wants[i].data);
    pthread_cond_destroy(&ahead->changed);
    pthread_mutex_destroy(&ahead->reading);
    pthread_mutex_destroy(&ahead->lock);
    free(ahead->wants);
    free(ahead->url);
    free(ahead);
}

uint64_t ash_ahead_size(const struct ash_ahead *ahead, size_t object)
{
    ash_assert(object < ahead->object_count);
    return ash_object_size(ahead->readers.objects[object]);
}

struct ash_ahead_totals ash_ahead_get_totals(const struct ash_ahead *ahead)
{
    return (struct ash_ahead_totals){.read_bytes = ahead->read_bytes,
                                     .fetched_bytes = ash_namespace_fetched_bytes(ahead->readers.space) +
                                                      ash_namespace_fetched_bytes(ahead->fetcher.space),
                                     .wanted = ahead->wanted};
}

/* ---- the list, under the lock ------------------------------------------------------------------------------------ */

static bool holds(const struct ash_ahead_range *outer, const struct ash_ahead_range *inner)
{
    return outer->object == inner->object && outer->offset <= inner->offset &&
           inner->offset + inner->size_bytes <= outer->offset + outer->size_bytes;
}

static struct want *find_want(struct ash_ahead *ahead, const struct ash_ahead_range *range)
{
    for (size_t i = 0; i < ahead->want_count; i++)
        if (holds(&ahead->wants[i].range, range)) return &ahead->wants[i];
    return NULL;
}

static size_t held_by(const struct want *want)
{
    return want->is_kept ? 0 : want->range.size_bytes;
}

static void forget(struct ash_ahead *ahead, struct want *want)
{
    ash_assert(want->state != WANT_BUSY && ahead->want_count > 0 &&
               ahead->held_bytes >= held_by(want)); /* the fetcher writes into a busy one */
    ahead->held_bytes -= held_by(want);
    free(want->data);
    *want = ahead->wants[--ahead->want_count];
}

/* Of two wants, the one that is missed less: read already, else wanted later. */
static bool goes_before(const struct want *a, const struct want *b)
{
    if (a->is_used != b->is_used) return a->is_used;
    return a->is_used ? a->order < b->order : a->order > b->order;
}

/* Make room for a want of this order; false where all others are wanted sooner. */
static bool make_room(struct ash_ahead *ahead, size_t bytes, uint64_t order)
{
    while (ahead->want_count == WANTS_MAX || (bytes > 0 && ahead->held_bytes + bytes > ahead->memory_bytes)) {
        struct want *worst = NULL;

        for (size_t i = 0; i < ahead->want_count; i++) {
            struct want *want = &ahead->wants[i];

            if (want->state == WANT_BUSY || (!want->is_used && want->order <= order)) continue;
            if (ahead->want_count < WANTS_MAX && held_by(want) == 0) continue; /* would free nothing */
            if (worst == NULL || goes_before(want, worst)) worst = want;
        }
        if (worst == NULL) return false;
        forget(ahead, worst);
    }
    return true;
}

void ash_ahead_want(struct ash_ahead *ahead, const struct ash_ahead_range *range, uint64_t order, bool is_kept)
{
    struct want want = {.range = *range, .order = order, .is_kept = is_kept}, *known;

    ash_assert(range->object < ahead->object_count && range->size_bytes > 0);
    pthread_mutex_lock(&ahead->lock);
    ahead->wanted++;
    known = find_want(ahead, range);
    if (known != NULL && known->is_kept && known->state == WANT_READY && known->order != order) {
        forget(ahead, known); /* of an earlier time: it may have been released */
        known = NULL;
    }
    if (known == NULL && make_room(ahead, held_by(&want), order)) {
        ahead->held_bytes += held_by(&want);
        ahead->wants[ahead->want_count++] = want;
        pthread_cond_broadcast(&ahead->changed);
    }
    pthread_mutex_unlock(&ahead->lock);
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

struct batch {
    struct ash_ahead_range ranges[BATCH_MAX];
    struct ash_object_range reads[BATCH_MAX];
    size_t count, bytes;
};

/* Bytes of kept ranges that wait to be read. */
static size_t outstanding_bytes(const struct ash_ahead *ahead)
{
    size_t bytes = 0;

    for (size_t i = 0; i < ahead->want_count; i++)
        if (is_outstanding(ahead, &ahead->wants[i])) bytes += ahead->wants[i].range.size_bytes;
    return bytes;
}

/* The next range to fetch. Of kept ranges no more than fit, except for one that is waited for, or will be next. */
static struct want *soonest(struct ash_ahead *ahead)
{
    size_t bytes = outstanding_bytes(ahead);
    struct want *best = NULL;

    for (size_t i = 0; i < ahead->want_count; i++) {
        struct want *want = &ahead->wants[i];

        if (want->state != WANT_QUEUED || (best != NULL && best->is_urgent)) continue;
        if (best == NULL || want->is_urgent || want->order < best->order) best = want;
    }
    if (best != NULL && best->is_kept && !best->is_urgent && best->order > ahead->now && bytes > 0 &&
        bytes + best->range.size_bytes > ahead->keep_bytes)
        return NULL;
    return best;
}

/* Take the ranges that are wanted soonest. Under the lock. */
static void take_batch(struct ash_ahead *ahead, struct batch *batch)
{
    batch->count = batch->bytes = 0;
    while (batch->count < BATCH_MAX && batch->bytes < BATCH_BYTES) {
        struct want *want = soonest(ahead);
        void *data = want != NULL ? malloc(want->range.size_bytes) : NULL;

        if (data == NULL) return; /* out of memory: readers read for themselves */
        ash_assert(want->state == WANT_QUEUED);
        want->state = WANT_BUSY;
        batch->ranges[batch->count] = want->range;
        batch->reads[batch->count++] = (struct ash_object_range){ahead->fetcher.objects[want->range.object],
                                                                 want->range.offset, want->range.size_bytes, data};
        batch->bytes += want->range.size_bytes;
    }
}

/* Record fetched ranges. Failed ones are forgotten: their reader fetches them itself, and gets the error. Under the
 * lock. */
static void end_batch(struct ash_ahead *ahead, const struct batch *batch, int rc)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct want *want = find_want(ahead, &batch->ranges[i]);

        ash_assert(want != NULL);
        if (rc == 0 && !want->is_kept)
            want->data = batch->reads[i].data;
        else
            free(batch->reads[i].data);
        want->state = WANT_READY;
        if (rc < 0) forget(ahead, want);
    }
    pthread_cond_broadcast(&ahead->changed);
}

static void *fetch_main(void *arg)
{
    struct ash_ahead *ahead = arg;
    struct batch batch;

    pthread_mutex_lock(&ahead->lock);
    while (!ahead->is_stopping) {
        int rc;

        take_batch(ahead, &batch);
        if (batch.count == 0) {
            pthread_cond_wait(&ahead->changed, &ahead->lock);
            continue;
        }
        pthread_mutex_unlock(&ahead->lock);
        rc = ash_namespace_read(ahead->fetcher.space, batch.reads, batch.count, NULL);
        pthread_mutex_lock(&ahead->lock);
        end_batch(ahead, &batch, rc);
    }
    pthread_mutex_unlock(&ahead->lock);
    return NULL;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Wait while the range is being fetched; report a long wait. Returns 1 if its bytes were copied, else 0. */
static int take_fetched(struct ash_ahead *ahead, const struct ash_ahead_range *range, void *data)
{
    uint64_t began_ns = ash_clock_ns(), told_ns = began_ns;
    struct want *want;
    int taken = 0;

    pthread_mutex_lock(&ahead->lock);
    ahead->read_bytes += range->size_bytes;
    while ((want = find_want(ahead, range)) != NULL && want->state != WANT_READY) {
        const struct timespec deadline = ash_cond_deadline(TELL_NS / 10);

        want->is_urgent = true;
        pthread_cond_timedwait(&ahead->changed, &ahead->lock, &deadline);
        if (ash_clock_ns() - told_ns < TELL_NS) continue;
        told_ns = ash_clock_ns();
        ash_log(ASH_LOG_WARN, "waiting for data from %s for %.0f s", ahead->url, (double)(told_ns - began_ns) / 1e9);
    }
    if (want != NULL && want->data != NULL) {
        ash_assert(range->offset >= want->range.offset && range->size_bytes <= want->range.size_bytes);
        memcpy(data, (const char *)want->data + (range->offset - want->range.offset), range->size_bytes);
        taken = 1;
    }
    if (want != NULL) want->is_used = true;
    if (want != NULL && want->is_kept && want->order > ahead->now) {
        ahead->now = want->order;
        pthread_cond_broadcast(&ahead->changed); /* there is room for more */
    }
    pthread_mutex_unlock(&ahead->lock);
    return taken;
}

int ash_ahead_read(struct ash_ahead *ahead, const struct ash_ahead_range *range, void *data, struct ash_err *err)
{
    struct ash_object_range read = {ahead->readers.objects[range->object], range->offset, range->size_bytes, data};
    int rc;

    ash_assert(range->object < ahead->object_count);
    if (range->size_bytes == 0 || take_fetched(ahead, range, data) == 1) return 0;
    pthread_mutex_lock(&ahead->reading);
    rc = ash_namespace_read(ahead->readers.space, &read, 1, err);
    pthread_mutex_unlock(&ahead->reading);
    return rc;
}

/* copier: one step waits at most; a newer one takes its turn. */
#include "train/save/copier.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "record/metrics.h"
#include "train/save/lease.h"
#include "train/save/place.h"

#define WAITING_NS 1000000000u
#define HELD_NS 5000000000u /* period without another check of a bucket's lease during a copy */

ASH_COUNTER(copies_metric, "ashlar_train_copies_total", "Checkpoints copied to further places.");
ASH_COUNTER(copy_errors_metric, "ashlar_train_copy_errors_total", "Checkpoints that could not be copied.");

struct ash_copier {
    const struct ash_places *places;
    pthread_t thread;
    struct ash_lease leases[ASH_PLACES_MAX]; /* of buckets; the thread's, and so is: */
    struct ash_lease *lease;                 /* of the place that a copy is on its way to */
    uint64_t held_ns;                        /* when that was looked at */
    bool is_own[ASH_PLACES_MAX];             /* places that held nothing of another run */
    pthread_mutex_t mutex;                   /* over all below */
    pthread_cond_t changed;
    uint64_t waiting, copying; /* steps; UINT64_MAX: none */
    size_t waiting_from;
    const char *target; /* NULL: nothing is copied */
    struct ash_fence fence;
    bool is_new_epoch; /* the fence was set, and leases have not been taken since */
    bool is_stopping;
    bool has_failed[ASH_PLACES_MAX]; /* the last copy to each */
    int rc;                          /* of the last copy */
    struct ash_err err;
    atomic_bool is_given_up;
};

static int check_fence(struct ash_copier *copier, struct ash_err *err)
{
    struct ash_fence fence;

    pthread_mutex_lock(&copier->mutex);
    fence = copier->fence;
    pthread_mutex_unlock(&copier->mutex);
    return ash_fence_check(&fence, err);
}

/* May this process write there? */
static int check_all(struct ash_copier *copier, struct ash_err *err)
{
    int rc = check_fence(copier, err);

    copier->held_ns = ash_clock_ns();
    return rc < 0 ? rc : ash_lease_hold(copier->lease, err);
}

static int look_up(void *ctx, uint64_t bytes, struct ash_err *err)
{
    struct ash_copier *copier = ctx;

    if (atomic_load(&copier->is_given_up)) return ash_err_set(err, -ECANCELED, "the copy was given up");
    if (bytes > 0 && ash_clock_ns() - copier->held_ns < HELD_NS) return check_fence(copier, err);
    return check_all(copier, err);
}

/* To one place. */
static int copy_to(struct ash_copier *copier, struct ash_place *from, size_t index, uint64_t step, struct ash_err *err)
{
    const struct ash_places *places = copier->places;
    struct ash_place *to = NULL;
    struct ash_place_manifest there = {0};
    int rc = ash_place_open(places->urls[index], &places->settings.s3, &to, err);

    ash_assert(index < copier->places->count);
    if (rc < 0) return rc;
    copier->lease = &copier->leases[index];
    rc = check_all(copier, err);
    if (rc == 0 && !copier->is_own[index]) rc = ash_place_check_run(to, places->run, err);
    if (rc == 0) copier->is_own[index] = true;
    if (rc == 0 && ash_place_read_manifest(to, step, &there, NULL) < 0)
        rc = ash_place_copy(from, to, step, look_up, copier, err);
    ash_place_manifest_fini(&there);
    if (rc == 0) rc = check_all(copier, err);
    if (rc == 0) rc = ash_place_prune(to, places->keep[index], places->run, NULL, err);
    ash_place_close(to);
    return rc;
}

static void set_target(struct ash_copier *copier, const char *target)
{
    pthread_mutex_lock(&copier->mutex);
    copier->target = target;
    pthread_mutex_unlock(&copier->mutex);
}

static void set_failed(struct ash_copier *copier, size_t place, bool has_failed)
{
    ash_assert(place < copier->places->count);
    pthread_mutex_lock(&copier->mutex);
    copier->has_failed[place] = has_failed;
    pthread_mutex_unlock(&copier->mutex);
}

bool ash_copier_has_failed(struct ash_copier *copier, size_t place)
{
    bool has_failed;

    ash_assert(place < copier->places->count);
    pthread_mutex_lock(&copier->mutex);
    has_failed = copier->has_failed[place];
    pthread_mutex_unlock(&copier->mutex);
    return has_failed;
}

/* To all locations but its own. */
static int copy_step(struct ash_copier *copier, size_t from, uint64_t step, struct ash_err *err)
{
    const struct ash_places *places = copier->places;
    struct ash_place *source = NULL;
    int rc = ash_place_open(places->urls[from], &places->settings.s3, &source, err), worst = rc;

    ash_assert(from < copier->places->count);
    for (size_t i = 0; rc == 0 && i < places->count; i++) {
        struct ash_err why = {0};
        int copied = 0;

        set_target(copier, i == from ? NULL : places->urls[i]);
        if (i != from) copied = copy_to(copier, source, i, step, &why);
        ash_metric_add(copied < 0 ? &copy_errors_metric : &copies_metric, i != from);
        set_failed(copier, i, copied < 0);
        if (copied == 0) continue;
        ash_log(ASH_LOG_WARN, "step %" PRIu64 " was not copied to %s: %s", step, places->urls[i], why.text);
        worst = copied;
        if (err != NULL) *err = why;
    }
    set_target(copier, NULL);
    ash_place_close(source);
    return worst;
}

/* An epoch has begun: take the buckets' leases before anything is copied to them. Called and returns with the mutex. */
static void begin_epoch(struct ash_copier *copier)
{
    const struct ash_places *places = copier->places;
    uint64_t word = copier->fence.word;

    copier->is_new_epoch = false;
    pthread_mutex_unlock(&copier->mutex);
    for (size_t i = 0; i < places->count; i++) {
        if (!ash_tier_is_url(places->urls[i])) continue;
        set_target(copier, places->urls[i]); /* if it does not answer, it is the one that is waited for */
        ash_lease_begin(&copier->leases[i], places->urls[i], &places->settings.s3, word);
    }
    set_target(copier, NULL);
    pthread_mutex_lock(&copier->mutex);
}

static void *copier_main(void *arg)
{
    struct ash_copier *copier = arg;

    pthread_mutex_lock(&copier->mutex);
    while (!copier->is_stopping) {
        struct ash_err err = {0};
        size_t from = copier->waiting_from;
        int rc;

        if (copier->is_new_epoch) {
            begin_epoch(copier);
            continue;
        }
        if (copier->waiting == UINT64_MAX) {
            pthread_cond_wait(&copier->changed, &copier->mutex);
            continue;
        }
        copier->copying = copier->waiting;
        copier->waiting = UINT64_MAX;
        pthread_mutex_unlock(&copier->mutex);
        rc = copy_step(copier, from, copier->copying, &err);
        pthread_mutex_lock(&copier->mutex);
        copier->copying = UINT64_MAX;
        copier->rc = rc;
        copier->err = err;
        pthread_cond_broadcast(&copier->changed);
    }
    pthread_mutex_unlock(&copier->mutex);
    return NULL;
}

int ash_copier_open(const struct ash_places *places, struct ash_copier **copier_out, struct ash_err *err)
{
    struct ash_copier *copier = calloc(1, sizeof(*copier));
    int rc;

    if (copier == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    copier->places = places;
    copier->waiting = copier->copying = UINT64_MAX;
    pthread_mutex_init(&copier->mutex, NULL);
    rc = ash_cond_init(&copier->changed);
    if (rc == 0) rc = ash_thread_start(&copier->thread, copier_main, copier);
    if (rc < 0) {
        free(copier);
        return ash_err_set(err, rc, "cannot start the thread that copies checkpoints: %s", strerror(-rc));
    }
    *copier_out = copier;
    return 0;
}

void ash_copier_close(struct ash_copier *copier)
{
    if (copier == NULL) return;
    atomic_store(&copier->is_given_up, true);
    pthread_mutex_lock(&copier->mutex);
    copier->is_stopping = true;
    pthread_cond_broadcast(&copier->changed);
    pthread_mutex_unlock(&copier->mutex);
    pthread_join(copier->thread, NULL);
    for (size_t i = 0; i < ASH_PLACES_MAX; i++)
        ash_lease_fini(&copier->leases[i]);
    pthread_cond_destroy(&copier->changed);
    pthread_mutex_destroy(&copier->mutex);
    free(copier);
}

void ash_copier_set_fence(struct ash_copier *copier, const struct ash_fence *fence)
{
    pthread_mutex_lock(&copier->mutex);
    copier->fence = *fence;
    copier->is_new_epoch = true;
    pthread_cond_broadcast(&copier->changed);
    pthread_mutex_unlock(&copier->mutex);
}

void ash_copier_add(struct ash_copier *copier, size_t from, uint64_t step)
{
    ash_assert(from < copier->places->count);
    pthread_mutex_lock(&copier->mutex);
    copier->waiting = step;
    copier->waiting_from = from;
    pthread_cond_broadcast(&copier->changed);
    pthread_mutex_unlock(&copier->mutex);
}

uint64_t ash_copier_pinned(struct ash_copier *copier)
{
    uint64_t pinned;

    pthread_mutex_lock(&copier->mutex);
    pinned = copier->copying != UINT64_MAX ? copier->copying : copier->waiting;
    pthread_mutex_unlock(&copier->mutex);
    return pinned;
}

const char *ash_copier_target(struct ash_copier *copier)
{
    const char *target;

    pthread_mutex_lock(&copier->mutex);
    target = copier->target;
    pthread_mutex_unlock(&copier->mutex);
    return target;
}

int ash_copier_finish(struct ash_copier *copier, bool (*waiting)(void *ctx), void *ctx, struct ash_err *err)
{
    int rc;

    pthread_mutex_lock(&copier->mutex);
    while (copier->waiting != UINT64_MAX || copier->copying != UINT64_MAX) {
        struct timespec until = ash_cond_deadline(WAITING_NS);

        if (pthread_cond_timedwait(&copier->changed, &copier->mutex, &until) != ETIMEDOUT || waiting == NULL) continue;
        pthread_mutex_unlock(&copier->mutex);
        if (!waiting(ctx)) atomic_store(&copier->is_given_up, true);
        pthread_mutex_lock(&copier->mutex);
    }
    rc = copier->rc;
    if (rc < 0 && err != NULL) *err = copier->err;
    pthread_mutex_unlock(&copier->mutex);
    return rc;
}

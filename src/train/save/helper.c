/* helper: one checkpoint at a time, the newest. It is looked for in its folder, then in the bucket, now and then. */
#include "train/save/helper.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "train/save/place.h"

#define LOOK_NS 250000000u      /* between two looks */
#define PATIENCE_NS 60000000000 /* without anything to do, for one checkpoint */
#define RETRY_S 3.0             /* of retries with a server: the first rank retries longer */
#define NONE UINT64_MAX

struct ash_helper {
    const struct ash_places *places;
    struct ash_s3_opts s3;
    size_t index, count;
    pthread_t thread;
    pthread_mutex_t mutex; /* over all below */
    pthread_cond_t changed;
    uint64_t step; /* NONE: nothing to do */
    size_t from;
    atomic_bool is_stopping;
};

/* To one bucket. Returns as ash_place_help. */
static int help_place(struct ash_helper *helper, size_t from, size_t to, uint64_t step, struct ash_place_share *help)
{
    struct ash_place *source = NULL, *target = NULL;
    size_t before = help->share_count;
    int rc = ash_place_open(helper->places->urls[from], &helper->s3, &source, NULL);

    ash_assert(from < helper->places->count);
    ash_assert(to < helper->places->count);
    if (rc == 0) rc = ash_place_open(helper->places->urls[to], &helper->s3, &target, NULL);
    if (rc == 0) rc = ash_place_help(source, target, step, help, NULL);
    if (help->share_count > before)
        ash_log(ASH_LOG_DEBUG, "sent its share of step %" PRIu64 " to %s", step, helper->places->urls[to]);
    ash_place_close(source);
    ash_place_close(target);
    return rc;
}

/* One look at all buckets. Returns whether there may be something to do later. */
static bool look(struct ash_helper *helper, size_t from, uint64_t step, struct ash_place_share *helps)
{
    bool is_later = false;

    for (size_t i = 0; i < helper->places->count; i++) {
        int rc;

        if (i == from || !ash_tier_is_url(helper->places->urls[i])) continue;
        rc = help_place(helper, from, i, step, &helps[i]);
        is_later |= rc == -EAGAIN || rc == -ENOENT;
    }
    return is_later;
}

/* Called and returns with the mutex. */
static void help_step(struct ash_helper *helper)
{
    struct ash_place_share helps[ASH_PLACES_MAX] = {0};
    uint64_t step = helper->step, until_ns = ash_clock_ns() + PATIENCE_NS;
    size_t from = helper->from;
    bool is_later = true;

    for (size_t i = 0; i < ASH_PLACES_MAX; i++)
        helps[i] = (struct ash_place_share){
            .index = helper->index, .count = helper->count, .is_stopping = &helper->is_stopping};
    while (is_later && helper->step == step && !helper->is_stopping && ash_clock_ns() < until_ns) {
        struct timespec deadline;

        pthread_mutex_unlock(&helper->mutex);
        is_later = look(helper, from, step, helps);
        pthread_mutex_lock(&helper->mutex);
        deadline = ash_cond_deadline(LOOK_NS);
        if (is_later && helper->step == step && !helper->is_stopping)
            pthread_cond_timedwait(&helper->changed, &helper->mutex, &deadline);
    }
    if (helper->step == step) helper->step = NONE;
}

static void *helper_main(void *arg)
{
    struct ash_helper *helper = arg;

    pthread_mutex_lock(&helper->mutex);
    while (!helper->is_stopping) {
        if (helper->step == NONE)
            pthread_cond_wait(&helper->changed, &helper->mutex);
        else
            help_step(helper);
    }
    pthread_mutex_unlock(&helper->mutex);
    return NULL;
}

int ash_helper_open(const struct ash_places *places, size_t index, size_t count, struct ash_helper **helper_out,
                    struct ash_err *err)
{
    struct ash_helper *helper = calloc(1, sizeof(*helper));
    int rc;

    if (helper == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    helper->places = places;
    helper->s3 = places->settings.s3;
    helper->s3.retry_s = helper->s3.retry_s < RETRY_S ? helper->s3.retry_s : RETRY_S;
    helper->s3.on_retry = NULL;
    helper->index = index;
    helper->count = count;
    helper->step = NONE;
    pthread_mutex_init(&helper->mutex, NULL);
    ash_cond_init(&helper->changed);
    rc = ash_thread_start(&helper->thread, helper_main, helper);
    if (rc < 0) {
        pthread_cond_destroy(&helper->changed);
        pthread_mutex_destroy(&helper->mutex);
        free(helper);
        return ash_err_set(err, rc, "cannot start a thread");
    }
    *helper_out = helper;
    return 0;
}

void ash_helper_add(struct ash_helper *helper, size_t from, uint64_t step)
{
    ash_assert(from < helper->places->count);
    pthread_mutex_lock(&helper->mutex);
    helper->from = from;
    helper->step = step;
    pthread_cond_signal(&helper->changed);
    pthread_mutex_unlock(&helper->mutex);
}

void ash_helper_close(struct ash_helper *helper)
{
    if (helper == NULL) return;
    pthread_mutex_lock(&helper->mutex);
    helper->is_stopping = true;
    pthread_cond_signal(&helper->changed);
    pthread_mutex_unlock(&helper->mutex);
    pthread_join(helper->thread, NULL);
    pthread_cond_destroy(&helper->changed);
    pthread_mutex_destroy(&helper->mutex);
    free(helper);
}

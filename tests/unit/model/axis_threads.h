/* axis_threads - axes for tests: ranks are threads (harness/ranks.h) that put copies of what they send into each
 * other's queues. Waits have no time limit: a test that hangs is ended by ctest. */
#ifndef ASH_TESTS_AXIS_THREADS_H
#define ASH_TESTS_AXIS_THREADS_H

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "harness/ranks.h"
#include "model/axis.h"

#define THREAD_GROUP_MAX 8
#define THREAD_GROUP_WINDOWS_MAX 8

struct thread_group_message {
    struct thread_group_message *next;
    size_t count;
    float data[];
};

/* What one rank has in flight to another: as many messages as an axis promises room for; of calls that all make, any
 * number. */
struct thread_group_queue {
    struct thread_group_message *first, *last;
    size_t count;
};
enum thread_group_traffic { THREAD_GROUP_CALLS, THREAD_GROUP_MESSAGES, THREAD_GROUP_TRAFFICS };

/* Memory that all see. */
struct thread_group_window {
    float *data;
    uint64_t signals[THREAD_GROUP_MAX][ASH_AXIS_COUNTERS];
};

struct thread_group {
    size_t size;
    bool same_node; /* its ranks share memory, and read each other's weights: */
    const void *weights[THREAD_GROUP_MAX];
    size_t lost_after; /* not 0: after this many more messages a rank is lost */
    bool lost;         /* every wait returns an error */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct thread_group_queue queues[THREAD_GROUP_TRAFFICS][THREAD_GROUP_MAX]
                                    [THREAD_GROUP_MAX]; /* [traffic][from][to] */
    struct thread_group_window windows[THREAD_GROUP_WINDOWS_MAX];
};

struct thread_rank {
    struct thread_group *group;
    size_t rank;
    size_t windows; /* that it has opened */
};

static void thread_group_open(struct thread_group *group, size_t size)
{
    memset(group, 0, sizeof(*group));
    group->size = size;
    pthread_mutex_init(&group->lock, NULL);
    pthread_cond_init(&group->changed, NULL);
}

/* Every message must have been taken, unless a rank was lost. */
static void thread_group_close(struct thread_group *group)
{
    for (size_t i = 0; i < THREAD_GROUP_TRAFFICS * THREAD_GROUP_MAX * THREAD_GROUP_MAX; i++) {
        struct thread_group_message *message = (&group->queues[0][0][0])[i].first, *next;

        ash_assert(message == NULL || group->lost);
        for (; message != NULL; message = next) {
            next = message->next;
            free(message);
        }
    }
    for (size_t i = 0; i < THREAD_GROUP_WINDOWS_MAX; i++)
        free(group->windows[i].data);
    pthread_cond_destroy(&group->changed);
    pthread_mutex_destroy(&group->lock);
}

static int thread_group_put(struct thread_rank *me, enum thread_group_traffic traffic, size_t to, const float *data,
                            size_t count, struct ash_err *err)
{
    struct thread_group *group = me->group;
    struct thread_group_queue *queue = &group->queues[traffic][me->rank][to];
    struct thread_group_message *message = malloc(sizeof(*message) + count * sizeof(float));
    bool lost;

    ash_assert(message != NULL && to < group->size);
    message->next = NULL;
    message->count = count;
    if (count > 0) memcpy(message->data, data, count * sizeof(float));
    pthread_mutex_lock(&group->lock);
    if (group->lost_after > 0 && --group->lost_after == 0) group->lost = true;
    while (traffic == THREAD_GROUP_MESSAGES && queue->count == ASH_AXIS_PENDING && !group->lost)
        pthread_cond_wait(&group->changed, &group->lock);
    lost = group->lost;
    if (!lost) {
        if (queue->last != NULL)
            queue->last->next = message;
        else
            queue->first = message;
        queue->last = message;
        queue->count++;
    }
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->lock);
    if (!lost) return 0;
    free(message);
    return ash_err_set(err, -ECONNRESET, "a rank is lost");
}

static int thread_group_take(struct thread_rank *me, enum thread_group_traffic traffic, size_t from, float *data,
                             size_t count, struct ash_err *err)
{
    struct thread_group *group = me->group;
    struct thread_group_queue *queue = &group->queues[traffic][from][me->rank];
    struct thread_group_message *message;

    pthread_mutex_lock(&group->lock);
    while ((message = queue->first) == NULL && !group->lost)
        pthread_cond_wait(&group->changed, &group->lock);
    if (message != NULL) {
        queue->first = message->next;
        if (message->next == NULL) queue->last = NULL;
        queue->count--;
        pthread_cond_broadcast(&group->changed);
    }
    pthread_mutex_unlock(&group->lock);
    if (message == NULL) return ash_err_set(err, -ECONNRESET, "a rank is lost");
    ash_assert(message->count == count);
    if (count > 0) memcpy(data, message->data, count * sizeof(float));
    free(message);
    return 0;
}

static int thread_group_send(void *ctx, size_t to, const float *data, size_t count, struct ash_err *err)
{
    ash_assert(count <= ASH_AXIS_MESSAGE);
    return thread_group_put(ctx, THREAD_GROUP_MESSAGES, to, data, count, err);
}

static int thread_group_recv(void *ctx, size_t from, float *data, size_t count, struct ash_err *err)
{
    return thread_group_take(ctx, THREAD_GROUP_MESSAGES, from, data, count, err);
}

/* What has been started is sent at once and taken when it is waited for. */
struct thread_group_started {
    float *out;
    size_t recv[THREAD_GROUP_MAX];
};

static int thread_group_exchange_start(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                                       void **started_out, struct ash_err *err)
{
    struct thread_rank *me = ctx;
    struct thread_group_started *started = malloc(sizeof(*started));
    int rc = 0;

    ash_assert(started != NULL);
    started->out = out;
    memcpy(started->recv, recv, me->group->size * sizeof(*recv));
    for (size_t r = 0; rc == 0 && r < me->group->size; in += send[r++])
        rc = thread_group_put(me, THREAD_GROUP_CALLS, r, in, send[r], err);
    if (rc < 0)
        free(started);
    else
        *started_out = started;
    return rc;
}

static int thread_group_exchange_wait(void *ctx, void *handle, struct ash_err *err)
{
    struct thread_rank *me = ctx;
    struct thread_group_started *started = handle;
    float *out = started->out;
    int rc = 0;

    for (size_t r = 0; rc == 0 && r < me->group->size; out += started->recv[r++])
        rc = thread_group_take(me, THREAD_GROUP_CALLS, r, out, started->recv[r], err);
    free(started);
    return rc;
}

static int thread_group_exchange(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                                 struct ash_err *err)
{
    void *started = NULL;
    int rc = thread_group_exchange_start(ctx, in, send, out, recv, &started, err);

    return rc < 0 ? rc : thread_group_exchange_wait(ctx, started, err);
}

static int thread_group_gather(void *ctx, float *data, const size_t *counts, struct ash_err *err)
{
    struct thread_rank *me = ctx;
    float *own = data;
    int rc = 0;

    for (size_t r = 0; r < me->rank; r++)
        own += counts[r];
    for (size_t r = 0; rc == 0 && r < me->group->size; r++)
        if (r != me->rank) rc = thread_group_put(me, THREAD_GROUP_CALLS, r, own, counts[me->rank], err);
    for (size_t r = 0; rc == 0 && r < me->group->size; data += counts[r++])
        if (r != me->rank) rc = thread_group_take(me, THREAD_GROUP_CALLS, r, data, counts[r], err);
    return rc;
}

static int thread_group_broadcast(void *ctx, size_t root, float *data, size_t count, struct ash_err *err)
{
    struct thread_rank *me = ctx;
    int rc = 0;

    if (me->rank != root) return thread_group_take(me, THREAD_GROUP_CALLS, root, data, count, err);
    for (size_t r = 0; rc == 0 && r < me->group->size; r++)
        if (r != root) rc = thread_group_put(me, THREAD_GROUP_CALLS, r, data, count, err);
    return rc;
}

static int thread_group_window_open(void *ctx, size_t count, struct ash_shared_floats *window_out, struct ash_err *err)
{
    struct thread_rank *me = ctx;
    struct thread_group_window *window = &me->group->windows[me->windows];

    (void)err;
    ash_assert(me->windows++ < THREAD_GROUP_WINDOWS_MAX);
    pthread_mutex_lock(&me->group->lock);
    if (window->data == NULL) window->data = calloc(count, sizeof(float));
    pthread_mutex_unlock(&me->group->lock);
    ash_assert(window->data != NULL);
    *window_out = (struct ash_shared_floats){window->data, window};
    return 0;
}

static void thread_group_window_close(void *ctx, struct ash_shared_floats *window)
{
    (void)ctx;
    *window = (struct ash_shared_floats){0};
}

static void thread_group_signal(void *ctx, const struct ash_shared_floats *window, size_t counter, uint64_t value)
{
    struct thread_rank *me = ctx;
    struct thread_group_window *place = window->handle;

    pthread_mutex_lock(&me->group->lock);
    ash_assert(value > place->signals[me->rank][counter]);
    place->signals[me->rank][counter] = value;
    if (me->group->lost_after > 0 && --me->group->lost_after == 0) me->group->lost = true;
    pthread_cond_broadcast(&me->group->changed);
    pthread_mutex_unlock(&me->group->lock);
}

static int thread_group_wait(void *ctx, const struct ash_shared_floats *window, size_t rank, size_t counter,
                             uint64_t value, struct ash_err *err)
{
    struct thread_rank *me = ctx;
    const struct thread_group_window *place = window->handle;
    bool reached;

    pthread_mutex_lock(&me->group->lock);
    while (!(reached = place->signals[rank][counter] >= value) && !me->group->lost)
        pthread_cond_wait(&me->group->changed, &me->group->lock);
    pthread_mutex_unlock(&me->group->lock);
    return reached ? 0 : ash_err_set(err, -ECONNRESET, "a rank is lost");
}

static const struct ash_axis_ops thread_group_ops = {.all_gather = thread_group_gather,
                                                     .all_to_all = thread_group_exchange,
                                                     .all_to_all_start = thread_group_exchange_start,
                                                     .all_to_all_wait = thread_group_exchange_wait,
                                                     .broadcast = thread_group_broadcast,
                                                     .send = thread_group_send,
                                                     .recv = thread_group_recv,
                                                     .shared_open = thread_group_window_open,
                                                     .shared_close = thread_group_window_close,
                                                     .signal = thread_group_signal,
                                                     .wait = thread_group_wait};

/* The axis as a rank sees it. */
static inline struct ash_axis thread_group_axis(struct thread_rank *me)
{
    return (struct ash_axis){.rank = me->rank,
                             .size = me->group->size,
                             .ops = &thread_group_ops,
                             .ctx = me,
                             .same_node = me->group->same_node,
                             .weights = me->group->weights};
}

#endif

/* Axes for tests: the ranks are threads of one process that put copies of what they send into each other's queues.
 * Waits have no time limit: a test that hangs is ended by ctest. */
#ifndef ASH_TESTS_AXIS_THREADS_H
#define ASH_TESTS_AXIS_THREADS_H

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "model/axis.h"

#define PARTY_MAX 8
#define PARTY_COMMONS_MAX 8

struct party_message {
    struct party_message *next;
    size_t count;
    float data[];
};

/* What one rank has on the way to another: as many messages as an axis promises room for; of calls that all make, any
 * number. */
struct party_queue {
    struct party_message *first, *last;
    size_t count;
};
enum party_lane { PARTY_CALLS, PARTY_MESSAGES, PARTY_LANES };

/* Memory that all see. */
struct party_common {
    float *data;
    uint64_t said[PARTY_MAX][ASH_AXIS_COUNTERS];
};

struct party {
    size_t size;
    bool near; /* its members share memory, and read each other's weights: */
    const void *weights[PARTY_MAX];
    size_t fuse; /* not 0: with so many more messages a rank is lost */
    bool lost;   /* whoever waits is told so */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct party_queue queues[PARTY_LANES][PARTY_MAX][PARTY_MAX]; /* [lane][from][to] */
    struct party_common commons[PARTY_COMMONS_MAX];
};

struct party_member {
    struct party *party;
    size_t rank;
    size_t commons; /* that it has opened */
};

static void party_open(struct party *party, size_t size)
{
    memset(party, 0, sizeof(*party));
    party->size = size;
    pthread_mutex_init(&party->lock, NULL);
    pthread_cond_init(&party->changed, NULL);
}

/* Every message must have been taken, unless a rank was lost. */
static void party_close(struct party *party)
{
    for (size_t i = 0; i < PARTY_LANES * PARTY_MAX * PARTY_MAX; i++) {
        struct party_message *message = (&party->queues[0][0][0])[i].first, *next;

        ash_assert(message == NULL || party->lost);
        for (; message != NULL; message = next) {
            next = message->next;
            free(message);
        }
    }
    for (size_t i = 0; i < PARTY_COMMONS_MAX; i++)
        free(party->commons[i].data);
    pthread_cond_destroy(&party->changed);
    pthread_mutex_destroy(&party->lock);
}

static int party_put(struct party_member *me, enum party_lane lane, size_t to, const float *data, size_t count,
                     struct ash_err *err)
{
    struct party *party = me->party;
    struct party_queue *queue = &party->queues[lane][me->rank][to];
    struct party_message *message = malloc(sizeof(*message) + count * sizeof(float));
    bool lost;

    ash_assert(message != NULL && to < party->size);
    message->next = NULL;
    message->count = count;
    if (count > 0) memcpy(message->data, data, count * sizeof(float));
    pthread_mutex_lock(&party->lock);
    if (party->fuse > 0 && --party->fuse == 0) party->lost = true;
    while (lane == PARTY_MESSAGES && queue->count == ASH_AXIS_PENDING && !party->lost)
        pthread_cond_wait(&party->changed, &party->lock);
    lost = party->lost;
    if (!lost) {
        if (queue->last != NULL)
            queue->last->next = message;
        else
            queue->first = message;
        queue->last = message;
        queue->count++;
    }
    pthread_cond_broadcast(&party->changed);
    pthread_mutex_unlock(&party->lock);
    if (!lost) return 0;
    free(message);
    return ash_err_set(err, -ECONNRESET, "a rank is lost");
}

static int party_take(struct party_member *me, enum party_lane lane, size_t from, float *data, size_t count,
                      struct ash_err *err)
{
    struct party *party = me->party;
    struct party_queue *queue = &party->queues[lane][from][me->rank];
    struct party_message *message;

    pthread_mutex_lock(&party->lock);
    while ((message = queue->first) == NULL && !party->lost)
        pthread_cond_wait(&party->changed, &party->lock);
    if (message != NULL) {
        queue->first = message->next;
        if (message->next == NULL) queue->last = NULL;
        queue->count--;
        pthread_cond_broadcast(&party->changed);
    }
    pthread_mutex_unlock(&party->lock);
    if (message == NULL) return ash_err_set(err, -ECONNRESET, "a rank is lost");
    ash_assert(message->count == count);
    if (count > 0) memcpy(data, message->data, count * sizeof(float));
    free(message);
    return 0;
}

static int party_send(void *ctx, size_t to, const float *data, size_t count, struct ash_err *err)
{
    ash_assert(count <= ASH_AXIS_MESSAGE);
    return party_put(ctx, PARTY_MESSAGES, to, data, count, err);
}

static int party_recv(void *ctx, size_t from, float *data, size_t count, struct ash_err *err)
{
    return party_take(ctx, PARTY_MESSAGES, from, data, count, err);
}

/* What has been started is sent at once and taken when it is waited for. */
struct party_started {
    float *out;
    size_t recv[PARTY_MAX];
};

static int party_exchange_start(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                                void **started_out, struct ash_err *err)
{
    struct party_member *me = ctx;
    struct party_started *started = malloc(sizeof(*started));
    int rc = 0;

    ash_assert(started != NULL);
    started->out = out;
    memcpy(started->recv, recv, me->party->size * sizeof(*recv));
    for (size_t r = 0; rc == 0 && r < me->party->size; in += send[r++])
        rc = party_put(me, PARTY_CALLS, r, in, send[r], err);
    if (rc < 0)
        free(started);
    else
        *started_out = started;
    return rc;
}

static int party_exchange_wait(void *ctx, void *handle, struct ash_err *err)
{
    struct party_member *me = ctx;
    struct party_started *started = handle;
    float *out = started->out;
    int rc = 0;

    for (size_t r = 0; rc == 0 && r < me->party->size; out += started->recv[r++])
        rc = party_take(me, PARTY_CALLS, r, out, started->recv[r], err);
    free(started);
    return rc;
}

static int party_exchange(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                          struct ash_err *err)
{
    void *started = NULL;
    int rc = party_exchange_start(ctx, in, send, out, recv, &started, err);

    return rc < 0 ? rc : party_exchange_wait(ctx, started, err);
}

static int party_gather(void *ctx, float *data, const size_t *counts, struct ash_err *err)
{
    struct party_member *me = ctx;
    float *own = data;
    int rc = 0;

    for (size_t r = 0; r < me->rank; r++)
        own += counts[r];
    for (size_t r = 0; rc == 0 && r < me->party->size; r++)
        if (r != me->rank) rc = party_put(me, PARTY_CALLS, r, own, counts[me->rank], err);
    for (size_t r = 0; rc == 0 && r < me->party->size; data += counts[r++])
        if (r != me->rank) rc = party_take(me, PARTY_CALLS, r, data, counts[r], err);
    return rc;
}

static int party_broadcast(void *ctx, size_t root, float *data, size_t count, struct ash_err *err)
{
    struct party_member *me = ctx;
    int rc = 0;

    if (me->rank != root) return party_take(me, PARTY_CALLS, root, data, count, err);
    for (size_t r = 0; rc == 0 && r < me->party->size; r++)
        if (r != root) rc = party_put(me, PARTY_CALLS, r, data, count, err);
    return rc;
}

static int party_common_open(void *ctx, size_t count, struct ash_shared_floats *common_out, struct ash_err *err)
{
    struct party_member *me = ctx;
    struct party_common *common = &me->party->commons[me->commons];

    (void)err;
    ash_assert(me->commons++ < PARTY_COMMONS_MAX);
    pthread_mutex_lock(&me->party->lock);
    if (common->data == NULL) common->data = calloc(count, sizeof(float));
    pthread_mutex_unlock(&me->party->lock);
    ash_assert(common->data != NULL);
    *common_out = (struct ash_shared_floats){common->data, common};
    return 0;
}

static void party_common_close(void *ctx, struct ash_shared_floats *common)
{
    (void)ctx;
    *common = (struct ash_shared_floats){0};
}

static void party_say(void *ctx, const struct ash_shared_floats *common, size_t counter, uint64_t value)
{
    struct party_member *me = ctx;
    struct party_common *place = common->handle;

    pthread_mutex_lock(&me->party->lock);
    ash_assert(value > place->said[me->rank][counter]);
    place->said[me->rank][counter] = value;
    if (me->party->fuse > 0 && --me->party->fuse == 0) me->party->lost = true;
    pthread_cond_broadcast(&me->party->changed);
    pthread_mutex_unlock(&me->party->lock);
}

static int party_wait(void *ctx, const struct ash_shared_floats *common, size_t rank, size_t counter, uint64_t value,
                      struct ash_err *err)
{
    struct party_member *me = ctx;
    const struct party_common *place = common->handle;
    bool said;

    pthread_mutex_lock(&me->party->lock);
    while (!(said = place->said[rank][counter] >= value) && !me->party->lost)
        pthread_cond_wait(&me->party->changed, &me->party->lock);
    pthread_mutex_unlock(&me->party->lock);
    return said ? 0 : ash_err_set(err, -ECONNRESET, "a rank is lost");
}

static const struct ash_axis_ops party_ops = {.all_gather = party_gather,
                                              .all_to_all = party_exchange,
                                              .all_to_all_start = party_exchange_start,
                                              .all_to_all_wait = party_exchange_wait,
                                              .broadcast = party_broadcast,
                                              .send = party_send,
                                              .recv = party_recv,
                                              .shared_open = party_common_open,
                                              .shared_close = party_common_close,
                                              .signal = party_say,
                                              .wait = party_wait};

/* The axis as a member sees it. */
static inline struct ash_axis party_axis(struct party_member *member)
{
    return (struct ash_axis){.rank = member->rank,
                             .size = member->party->size,
                             .ops = &party_ops,
                             .ctx = member,
                             .same_node = member->party->near,
                             .weights = member->party->weights};
}

#endif

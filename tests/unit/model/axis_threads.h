/* Axes for tests: the ranks are threads of one process that put copies of what they send into each other's queues.
 * Waits have no time limit: a test that hangs is ended by ctest. */
#ifndef ASH_TESTS_AXIS_THREADS_H
#define ASH_TESTS_AXIS_THREADS_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "model/axis.h"

#define PARTY_MAX 8

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

struct party {
    size_t size;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct party_queue queues[PARTY_LANES][PARTY_MAX][PARTY_MAX]; /* [lane][from][to] */
};

struct party_member {
    struct party *party;
    size_t rank;
};

static void party_open(struct party *party, size_t size)
{
    memset(party, 0, sizeof(*party));
    party->size = size;
    pthread_mutex_init(&party->lock, NULL);
    pthread_cond_init(&party->changed, NULL);
}

/* Every message must have been taken. */
static void party_close(struct party *party)
{
    for (size_t i = 0; i < PARTY_LANES * PARTY_MAX * PARTY_MAX; i++)
        ash_assert((&party->queues[0][0][0])[i].first == NULL);
    pthread_cond_destroy(&party->changed);
    pthread_mutex_destroy(&party->lock);
}

static void party_put(struct party_member *me, enum party_lane lane, size_t to, const float *data, size_t count)
{
    struct party *party = me->party;
    struct party_queue *queue = &party->queues[lane][me->rank][to];
    struct party_message *message = malloc(sizeof(*message) + count * sizeof(float));

    ash_assert(message != NULL && to < party->size);
    message->next = NULL;
    message->count = count;
    if (count > 0) memcpy(message->data, data, count * sizeof(float));
    pthread_mutex_lock(&party->lock);
    while (lane == PARTY_MESSAGES && queue->count == ASH_AXIS_PENDING)
        pthread_cond_wait(&party->changed, &party->lock);
    if (queue->last != NULL)
        queue->last->next = message;
    else
        queue->first = message;
    queue->last = message;
    queue->count++;
    pthread_cond_broadcast(&party->changed);
    pthread_mutex_unlock(&party->lock);
}

static void party_take(struct party_member *me, enum party_lane lane, size_t from, float *data, size_t count)
{
    struct party *party = me->party;
    struct party_queue *queue = &party->queues[lane][from][me->rank];
    struct party_message *message;

    pthread_mutex_lock(&party->lock);
    while ((message = queue->first) == NULL)
        pthread_cond_wait(&party->changed, &party->lock);
    queue->first = message->next;
    if (message->next == NULL) queue->last = NULL;
    queue->count--;
    pthread_cond_broadcast(&party->changed);
    pthread_mutex_unlock(&party->lock);
    ash_assert(message->count == count);
    if (count > 0) memcpy(data, message->data, count * sizeof(float));
    free(message);
}

static int party_send(void *ctx, size_t to, const float *data, size_t count, struct ash_err *err)
{
    (void)err;
    ash_assert(count <= ASH_AXIS_MESSAGE);
    party_put(ctx, PARTY_MESSAGES, to, data, count);
    return 0;
}

static int party_recv(void *ctx, size_t from, float *data, size_t count, struct ash_err *err)
{
    (void)err;
    party_take(ctx, PARTY_MESSAGES, from, data, count);
    return 0;
}

static int party_exchange(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                          struct ash_err *err)
{
    struct party_member *me = ctx;

    (void)err;
    for (size_t r = 0; r < me->party->size; in += send[r++])
        party_put(me, PARTY_CALLS, r, in, send[r]);
    for (size_t r = 0; r < me->party->size; out += recv[r++])
        party_take(me, PARTY_CALLS, r, out, recv[r]);
    return 0;
}

static int party_gather(void *ctx, float *data, const size_t *counts, struct ash_err *err)
{
    struct party_member *me = ctx;
    float *own = data;

    (void)err;
    for (size_t r = 0; r < me->rank; r++)
        own += counts[r];
    for (size_t r = 0; r < me->party->size; r++)
        if (r != me->rank) party_put(me, PARTY_CALLS, r, own, counts[me->rank]);
    for (size_t r = 0; r < me->party->size; data += counts[r++])
        if (r != me->rank) party_take(me, PARTY_CALLS, r, data, counts[r]);
    return 0;
}

static int party_broadcast(void *ctx, size_t root, float *data, size_t count, struct ash_err *err)
{
    struct party_member *me = ctx;

    (void)err;
    if (me->rank != root) party_take(me, PARTY_CALLS, root, data, count);
    for (size_t r = 0; me->rank == root && r < me->party->size; r++)
        if (r != root) party_put(me, PARTY_CALLS, r, data, count);
    return 0;
}

static const struct ash_axis_ops party_ops = {party_gather, party_exchange, party_broadcast, party_send, party_recv};

/* The axis as a member sees it. */
static inline struct ash_axis party_axis(struct party_member *member)
{
    return (struct ash_axis){member->rank, member->party->size, &party_ops, member};
}

#endif

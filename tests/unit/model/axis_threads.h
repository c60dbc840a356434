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

struct party {
    size_t size;
    pthread_mutex_t lock;
    pthread_cond_t came;
    struct party_message *first[PARTY_MAX][PARTY_MAX], *last[PARTY_MAX][PARTY_MAX]; /* [from][to] */
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
    pthread_cond_init(&party->came, NULL);
}

/* Every message must have been taken. */
static void party_close(struct party *party)
{
    for (size_t i = 0; i < PARTY_MAX; i++)
        for (size_t j = 0; j < PARTY_MAX; j++)
            ash_assert(party->first[i][j] == NULL);
    pthread_cond_destroy(&party->came);
    pthread_mutex_destroy(&party->lock);
}

static int party_send(void *ctx, size_t to, const float *data, size_t count, struct ash_err *err)
{
    struct party_member *me = ctx;
    struct party *party = me->party;
    struct party_message *message = malloc(sizeof(*message) + count * sizeof(float));

    (void)err;
    ash_assert(message != NULL && to < party->size);
    message->next = NULL;
    message->count = count;
    if (count > 0) memcpy(message->data, data, count * sizeof(float));
    pthread_mutex_lock(&party->lock);
    if (party->last[me->rank][to] != NULL)
        party->last[me->rank][to]->next = message;
    else
        party->first[me->rank][to] = message;
    party->last[me->rank][to] = message;
    pthread_cond_broadcast(&party->came);
    pthread_mutex_unlock(&party->lock);
    return 0;
}

static int party_recv(void *ctx, size_t from, float *data, size_t count, struct ash_err *err)
{
    struct party_member *me = ctx;
    struct party *party = me->party;
    struct party_message *message;

    (void)err;
    pthread_mutex_lock(&party->lock);
    while ((message = party->first[from][me->rank]) == NULL)
        pthread_cond_wait(&party->came, &party->lock);
    party->first[from][me->rank] = message->next;
    if (message->next == NULL) party->last[from][me->rank] = NULL;
    pthread_mutex_unlock(&party->lock);
    ash_assert(message->count == count);
    if (count > 0) memcpy(data, message->data, count * sizeof(float));
    free(message);
    return 0;
}

static int party_exchange(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                          struct ash_err *err)
{
    struct party_member *me = ctx;

    for (size_t r = 0; r < me->party->size; in += send[r++])
        party_send(ctx, r, in, send[r], err);
    for (size_t r = 0; r < me->party->size; out += recv[r++])
        party_recv(ctx, r, out, recv[r], err);
    return 0;
}

static int party_gather(void *ctx, float *data, const size_t *counts, struct ash_err *err)
{
    struct party_member *me = ctx;
    float *own = data;

    for (size_t r = 0; r < me->rank; r++)
        own += counts[r];
    for (size_t r = 0; r < me->party->size; r++)
        if (r != me->rank) party_send(ctx, r, own, counts[me->rank], err);
    for (size_t r = 0; r < me->party->size; data += counts[r++])
        if (r != me->rank) party_recv(ctx, r, data, counts[r], err);
    return 0;
}

static int party_broadcast(void *ctx, size_t root, float *data, size_t count, struct ash_err *err)
{
    struct party_member *me = ctx;

    if (me->rank != root) return party_recv(ctx, root, data, count, err);
    for (size_t r = 0; r < me->party->size; r++)
        if (r != root) party_send(ctx, r, data, count, err);
    return 0;
}

static const struct ash_axis_ops party_ops = {party_gather, party_exchange, party_broadcast, party_send, party_recv};

/* The axis as a member sees it. */
static inline struct ash_axis party_axis(struct party_member *member)
{
    return (struct ash_axis){member->rank, member->party->size, &party_ops, member};
}

#endif

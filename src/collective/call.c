/* Calls that were started. There are two queues, each a queue with a thread: receives in one, everything else in the
 * other, so that what two ranks send to each other can flow both ways. A call waits for as many calls of the other
 * queue as keep the order: a receive for the collectives before it, a collective for the receives before it. */
#include "collective/call.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "record/metrics.h"
#include "base/thread.h"
#include "collective/call_priv.h"
#include "collective/group_priv.h"
#include "collective/core/futex.h"

enum { QUEUE_CALLS, QUEUE_RECEIVES, QUEUES };

struct ash_call {
    struct ash_call *next;
    struct ash_call_queues *queues;
    uint64_t other; /* calls of the other queue that come first */
    int (*run)(struct ash_group *group, struct ash_call *call);
    const void *in;
    void *out;
    size_t count; /* elements or bytes */
    size_t rank;  /* root, or the other end */
    enum ash_coll_dtype dtype;
    enum ash_coll_op op;
    const size_t *send_bytes, *recv_bytes;
    const void *const *parts;
    const struct ash_shares *shares;
    uint64_t work; /* that its owner had done when it was started */
    int rc;
    struct ash_err err;
    _Atomic bool done;
};

struct queue {
    struct ash_call_queues *queues;
    int index;
    bool running; /* there is a thread */
    pthread_t thread;
    struct ash_call *head, **tail;
    uint64_t started, done;
};

struct ash_call_queues {
    struct ash_group *group;
    pthread_mutex_t lock; /* of everything in the queues */
    pthread_cond_t changed;
    bool stop;
    uint64_t collectives; /* number in queue 0 of the last call that was no message */
    struct queue queues[QUEUES];
};

static _Thread_local const struct ash_call_queues *own_queues; /* those that this thread serves */
static _Thread_local uint64_t work_done;                       /* pieces of work of this thread */
static _Thread_local struct ash_call_counts counts;

#define CALLS_HELP "Started calls that have been waited for: overlapped with work of their owner, or not."
static struct ash_metric overlapped_metric = {
    .name = "ashlar_calls_total", .help = CALLS_HELP, .type = ASH_METRIC_COUNTER, .labels = "overlapped=\"yes\""};
static struct ash_metric exposed_metric = {
    .name = "ashlar_calls_total", .help = CALLS_HELP, .type = ASH_METRIC_COUNTER, .labels = "overlapped=\"no\""};

/* ---- the threads ------------------------------------------------------------------------------------------------- */

/* The next call that may run, or NULL at the end. The lock is held. */
static struct ash_call *next_call(struct queue *queue)
{
    struct ash_call_queues *queues = queue->queues;
    const struct queue *other = &queues->queues[1 - queue->index];

    for (;;) {
        struct ash_call *call = queue->head;

        if (call != NULL && other->done >= call->other) {
            queue->head = call->next;
            if (queue->head == NULL) queue->tail = &queue->head;
            return call;
        }
        if (call == NULL && queues->stop) return NULL;
        pthread_cond_wait(&queues->changed, &queues->lock);
    }
}

static void *queue_main(void *arg)
{
    struct queue *queue = arg;
    struct ash_call_queues *queues = queue->queues;
    struct ash_call *call;

    own_queues = queues;
    ash_futex_yield_early();
    pthread_mutex_lock(&queues->lock);
    while ((call = next_call(queue)) != NULL) {
        pthread_mutex_unlock(&queues->lock);
        call->rc = call->run(queues->group, call);
        pthread_mutex_lock(&queues->lock);
        queue->done++;
        atomic_store(&call->done, true); /* from here on it is the waiter's */
        pthread_cond_broadcast(&queues->changed);
    }
    pthread_mutex_unlock(&queues->lock);
    return NULL;
}

static int start_thread(struct queue *queue)
{
    int rc = ash_thread_start(&queue->thread, queue_main, queue);

    queue->running = rc == 0;
    return rc;
}

static struct ash_call_queues *open_queues(struct ash_group *group)
{
    struct ash_call_queues *queues = calloc(1, sizeof(*queues));

    if (queues == NULL) return NULL;
    queues->group = group;
    pthread_mutex_init(&queues->lock, NULL);
    pthread_cond_init(&queues->changed, NULL);
    for (int i = 0; i < QUEUES; i++) {
        queues->queues[i] = (struct queue){.queues = queues, .index = i};
        queues->queues[i].tail = &queues->queues[i].head;
    }
    return queues;
}

void ash_call_queues_close(struct ash_call_queues *queues)
{
    if (queues == NULL) return;
    pthread_mutex_lock(&queues->lock);
    queues->stop = true;
    pthread_cond_broadcast(&queues->changed);
    pthread_mutex_unlock(&queues->lock);
    for (int i = 0; i < QUEUES; i++)
        if (queues->queues[i].running) pthread_join(queues->queues[i].thread, NULL);
    pthread_cond_destroy(&queues->changed);
    pthread_mutex_destroy(&queues->lock);
    free(queues);
}

/* Is everything done that comes before a call of this nature? The lock is held. */
static bool is_clear(const struct ash_call_queues *queues, enum ash_call_nature nature)
{
    const struct queue *calls = &queues->queues[QUEUE_CALLS], *receives = &queues->queues[QUEUE_RECEIVES];

    if (calls->done < (nature == ASH_NATURE_RECEIVE ? queues->collectives : calls->started)) return false;
    return nature == ASH_NATURE_SEND || receives->done == receives->started;
}

void ash_call_drain(struct ash_group *group, enum ash_call_nature nature)
{
    struct ash_call_queues *queues = group->queues;

    if (queues == NULL || own_queues == queues) return;
    pthread_mutex_lock(&queues->lock);
    while (!is_clear(queues, nature))
        pthread_cond_wait(&queues->changed, &queues->lock);
    pthread_mutex_unlock(&queues->lock);
}

/* ---- starting and waiting ---------------------------------------------------------------------------------------- */

static int start_call(struct ash_group *group, enum ash_call_nature nature, const struct ash_call *what,
                      struct ash_call **call_out, struct ash_err *err)
{
    struct ash_call *call = malloc(sizeof(*call));
    struct ash_call_queues *queues;
    struct queue *queue;
    int rc = 0;

    if (group->queues == NULL) group->queues = open_queues(group);
    if (call == NULL || group->queues == NULL) {
        free(call);
        return ash_err_set(err, -ENOMEM, "out of memory for a call");
    }
    queues = group->queues;
    queue = &queues->queues[nature == ASH_NATURE_RECEIVE ? QUEUE_RECEIVES : QUEUE_CALLS];
    if (!queue->running) rc = start_thread(queue);
    if (rc < 0) {
        free(call);
        return ash_err_set(err, rc, "no thread can be had for calls of a group: %s", strerror(-rc));
    }
    *call = *what;
    call->queues = queues;
    call->work = work_done;
    pthread_mutex_lock(&queues->lock);
    *queue->tail = call;
    queue->tail = &call->next;
    queue->started++;
    if (nature == ASH_NATURE_COLLECTIVE) {
        queues->collectives = queue->started;
        call->other = queues->queues[QUEUE_RECEIVES].started;
    } else if (nature == ASH_NATURE_RECEIVE) {
        call->other = queues->collectives;
    }
    pthread_cond_broadcast(&queues->changed);
    pthread_mutex_unlock(&queues->lock);
    *call_out = call;
    return 0;
}

bool ash_call_done(const struct ash_call *call)
{
    return atomic_load(&call->done);
}

void ash_call_note_work(void)
{
    work_done++;
}

struct ash_call_counts ash_call_get_counts(void)
{
    return counts;
}

static void count_call(const struct ash_call *call)
{
    bool overlapped = call->work != work_done;

    counts.overlapped += overlapped;
    counts.exposed += !overlapped;
    ash_metric_add(overlapped ? &overlapped_metric : &exposed_metric, 1);
}

int ash_call_wait(struct ash_call *call, struct ash_err *err)
{
    int rc;

    if (call == NULL) return 0;
    count_call(call);
    if (!atomic_load(&call->done)) { /* its queues are there at least until it is done and the lock is free */
        struct ash_call_queues *queues = call->queues;

        pthread_mutex_lock(&queues->lock);
        while (!atomic_load(&call->done))
            pthread_cond_wait(&queues->changed, &queues->lock);
        pthread_mutex_unlock(&queues->lock);
    }
    rc = call->rc;
    if (rc < 0) ash_err_set(err, rc, "%s", call->err.text);
    free(call);
    return rc;
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static int run_all_reduce(struct ash_group *group, struct ash_call *call)
{
    return ash_group_all_reduce(group, call->in, call->out, call->count, call->dtype, call->op, &call->err);
}

int ash_group_all_reduce_start(struct ash_group *group, const void *in, void *out, size_t count,
                               enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_call **call_out,
                               struct ash_err *err)
{
    const struct ash_call what = {
        .run = run_all_reduce, .in = in, .out = out, .count = count, .dtype = dtype, .op = op};

    return start_call(group, ASH_NATURE_COLLECTIVE, &what, call_out, err);
}

/* A sum of parts of a larger tree. */
static struct ash_call parts_call(int (*run)(struct ash_group *, struct ash_call *), const void *const *parts,
                                  const struct ash_shares *shares, void *out, size_t count, enum ash_coll_dtype dtype,
                                  enum ash_coll_op op)
{
    return (struct ash_call){
        .run = run, .parts = parts, .shares = shares, .out = out, .count = count, .dtype = dtype, .op = op};
}

static int run_all_reduce_parts(struct ash_group *group, struct ash_call *call)
{
    return ash_group_all_reduce_parts(group, call->parts, call->shares, call->out, call->count, call->dtype, call->op,
                                      &call->err);
}

int ash_group_all_reduce_parts_start(struct ash_group *group, const void *const *parts, const struct ash_shares *shares,
                                     void *out, size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                                     struct ash_call **call_out, struct ash_err *err)
{
    const struct ash_call what = parts_call(run_all_reduce_parts, parts, shares, out, count, dtype, op);

    return start_call(group, ASH_NATURE_COLLECTIVE, &what, call_out, err);
}

static int run_reduce_scatter_parts(struct ash_group *group, struct ash_call *call)
{
    return ash_group_reduce_scatter_parts(group, call->parts, call->shares, call->out, call->count, call->dtype,
                                          call->op, &call->err);
}

int ash_group_reduce_scatter_parts_start(struct ash_group *group, const void *const *parts,
                                         const struct ash_shares *shares, void *out, size_t count,
                                         enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_call **call_out,
                                         struct ash_err *err)
{
    const struct ash_call what = parts_call(run_reduce_scatter_parts, parts, shares, out, count, dtype, op);

    return start_call(group, ASH_NATURE_COLLECTIVE, &what, call_out, err);
}

static int run_all_gather(struct ash_group *group, struct ash_call *call)
{
    return ash_group_all_gather(group, call->in, call->out, call->count, &call->err);
}

int ash_group_all_gather_start(struct ash_group *group, const void *in, void *out, size_t size_bytes,
                               struct ash_call **call_out, struct ash_err *err)
{
    const struct ash_call what = {.run = run_all_gather, .in = in, .out = out, .count = size_bytes};

    return start_call(group, ASH_NATURE_COLLECTIVE, &what, call_out, err);
}

static int run_all_to_all(struct ash_group *group, struct ash_call *call)
{
    return ash_group_all_to_all(group, call->in, call->send_bytes, call->out, call->recv_bytes, &call->err);
}

int ash_group_all_to_all_start(struct ash_group *group, const void *in, const size_t *send_bytes, void *out,
                               const size_t *recv_bytes, struct ash_call **call_out, struct ash_err *err)
{
    const struct ash_call what = {
        .run = run_all_to_all, .in = in, .out = out, .send_bytes = send_bytes, .recv_bytes = recv_bytes};

    return start_call(group, ASH_NATURE_COLLECTIVE, &what, call_out, err);
}

static int run_send(struct ash_group *group, struct ash_call *call)
{
    return ash_group_send(group, call->rank, call->in, call->count, &call->err);
}

int ash_group_send_start(struct ash_group *group, size_t to, const void *data, size_t size_bytes,
                         struct ash_call **call_out, struct ash_err *err)
{
    const struct ash_call what = {.run = run_send, .in = data, .count = size_bytes, .rank = to};

    return start_call(group, ASH_NATURE_SEND, &what, call_out, err);
}

static int run_recv(struct ash_group *group, struct ash_call *call)
{
    return ash_group_recv(group, call->rank, call->out, call->count, &call->err);
}

int ash_group_recv_start(struct ash_group *group, size_t from, void *data, size_t size_bytes,
                         struct ash_call **call_out, struct ash_err *err)
{
    const struct ash_call what = {.run = run_recv, .out = data, .count = size_bytes, .rank = from};

    return start_call(group, ASH_NATURE_RECEIVE, &what, call_out, err);
}

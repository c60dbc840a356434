/* The runner: others put sequences into an inbox, ready made; the thread moves them to the core between two steps. It
 * sleeps when there is nothing to do. */
#include "serve/engine/runner.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "serve/engine/core_priv.h"

struct ash_runner {
    struct ash_core *core; /* the thread's */
    size_t max_tokens;
    pthread_t thread;
    bool has_lock, has_thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work, idle;
    struct ash_seq *inbox, **inbox_end;
    size_t inbox_count;
    bool is_draining, is_stopping;
    bool has_work;        /* the core has some, or was about to */
    uint64_t progress_ns; /* when a step ended, or work began */
    struct ash_core_stats stats;
};

/* A request that never came as far as the core. */
static void end_early(struct ash_seq *seq, enum ash_finish finish, int rc, const struct ash_err *err)
{
    struct ash_request *request = seq->request;
    struct ash_request_end end = {
        .finish = finish, .rc = rc, .err = *err, .stop_id = -1, .prompt_tokens = request->prompt_count};

    ash_seq_close(seq);
    request->done(request->ctx, &end);
}

static void enqueue_all(struct ash_runner *runner, struct ash_seq *seq)
{
    while (seq != NULL) {
        struct ash_seq *next = seq->next;
        struct ash_err err = {0};
        int rc = ash_core_enqueue(runner->core, seq, &err);

        if (rc < 0) end_early(seq, ASH_FINISH_FAILED, rc, &err);
        seq = next;
    }
}

/* The inbox's sequences, which are the caller's from now on. Under the lock. */
static struct ash_seq *take_inbox(struct ash_runner *runner)
{
    struct ash_seq *seqs = runner->inbox;

    runner->inbox = NULL;
    runner->inbox_end = &runner->inbox;
    runner->inbox_count = 0;
    return seqs;
}

static void *run(void *arg)
{
    struct ash_runner *runner = arg;
    struct ash_err none = {0};
    struct ash_seq *seqs;

    pthread_mutex_lock(&runner->lock);
    while (!runner->is_stopping) {
        bool more;

        if (!runner->has_work && !atomic_load(&runner->core->has_cancels)) {
            pthread_cond_broadcast(&runner->idle);
            pthread_cond_wait(&runner->work, &runner->lock);
            continue;
        }
        seqs = take_inbox(runner);
        pthread_mutex_unlock(&runner->lock);
        enqueue_all(runner, seqs);
        more = ash_core_step(runner->core) > 0;
        pthread_mutex_lock(&runner->lock);
        runner->has_work = more || runner->inbox != NULL;
        runner->stats = ash_core_get_stats(runner->core);
        runner->progress_ns = ash_clock_ns();
    }
    seqs = take_inbox(runner);
    runner->has_work = false;
    pthread_cond_broadcast(&runner->idle);
    pthread_mutex_unlock(&runner->lock);
    while (seqs != NULL) {
        struct ash_seq *next = seqs->next;

        end_early(seqs, ASH_FINISH_CANCELLED, 0, &none);
        seqs = next;
    }
    ash_core_close(runner->core);
    return NULL;
}

int ash_runner_open(struct ash_core *core, struct ash_runner **runner_out, struct ash_err *err)
{
    struct ash_runner *runner = calloc(1, sizeof(*runner));
    int rc = -ENOMEM;

    if (runner == NULL) goto fail;
    runner->core = core;
    runner->max_tokens = ash_core_max_tokens(core);
    runner->inbox_end = &runner->inbox;
    runner->stats = ash_core_get_stats(core);
    rc = ash_cond_init(&runner->work);
    if (rc < 0) goto fail;
    rc = ash_cond_init(&runner->idle);
    if (rc < 0) {
        pthread_cond_destroy(&runner->work);
        goto fail;
    }
    pthread_mutex_init(&runner->lock, NULL);
    runner->has_lock = true;
    rc = ash_thread_start(&runner->thread, run, runner);
    if (rc < 0) goto fail;
    runner->has_thread = true;
    *runner_out = runner;
    return 0;

fail:
    ash_runner_close(runner);
    return ash_err_set(err, rc, "cannot start the engine's thread");
}

void ash_runner_close(struct ash_runner *runner)
{
    if (runner == NULL) return;
    if (runner->has_thread) {
        pthread_mutex_lock(&runner->lock);
        runner->is_stopping = runner->is_draining = true;
        pthread_cond_signal(&runner->work);
        pthread_mutex_unlock(&runner->lock);
        pthread_join(runner->thread, NULL);
    }
    if (runner->has_lock) {
        pthread_mutex_destroy(&runner->lock);
        pthread_cond_destroy(&runner->work);
        pthread_cond_destroy(&runner->idle);
    }
    free(runner);
}

int ash_runner_submit(struct ash_runner *runner, struct ash_request *request, struct ash_err *err)
{
    struct ash_seq *seq = NULL;
    bool is_accepted;
    int rc = ash_core_check(runner->core, request, err);

    if (rc < 0) return rc;
    atomic_store(&request->is_cancelled, false);
    rc = ash_seq_open(runner->core, request, &seq, err);
    if (rc < 0) return rc;
    pthread_mutex_lock(&runner->lock);
    is_accepted = !runner->is_draining;
    if (is_accepted) {
        if (!runner->has_work) runner->progress_ns = ash_clock_ns();
        runner->has_work = true;
        *runner->inbox_end = seq;
        runner->inbox_end = &seq->next;
        runner->inbox_count++;
        pthread_cond_signal(&runner->work);
    }
    pthread_mutex_unlock(&runner->lock);
    if (is_accepted) return 0;
    ash_seq_close(seq);
    return ash_err_set(err, -ESHUTDOWN, "the server is shutting down and takes no more requests");
}

void ash_runner_cancel(struct ash_runner *runner, struct ash_request *request)
{
    atomic_store(&request->is_cancelled, true);
    pthread_mutex_lock(&runner->lock);
    if (!runner->is_stopping) atomic_store(&runner->core->has_cancels, true);
    pthread_cond_signal(&runner->work);
    pthread_mutex_unlock(&runner->lock);
}

int ash_runner_drain(struct ash_runner *runner, double timeout_s)
{
    struct timespec deadline = ash_cond_deadline((uint64_t)(timeout_s * 1e9));
    int rc = 0;

    pthread_mutex_lock(&runner->lock);
    runner->is_draining = true;
    while (runner->has_work && rc == 0)
        rc = pthread_cond_timedwait(&runner->idle, &runner->lock, &deadline);
    pthread_mutex_unlock(&runner->lock);
    return rc != 0 ? -ETIMEDOUT : 0;
}

struct ash_core_stats ash_runner_stats(struct ash_runner *runner)
{
    struct ash_core_stats stats;

    pthread_mutex_lock(&runner->lock);
    stats = runner->stats;
    stats.waiting += runner->inbox_count;
    pthread_mutex_unlock(&runner->lock);
    return stats;
}

double ash_runner_stalled_seconds(struct ash_runner *runner)
{
    double stalled;

    pthread_mutex_lock(&runner->lock);
    stalled = runner->has_work ? (double)(ash_clock_ns() - runner->progress_ns) * 1e-9 : 0.0;
    pthread_mutex_unlock(&runner->lock);
    return stalled;
}

size_t ash_runner_max_tokens(const struct ash_runner *runner)
{
    return runner->max_tokens;
}

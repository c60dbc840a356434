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

/* A call that waits for its turn, on the caller's stack. */
struct task {
    ash_runner_call_fn *call;
    void *ctx;
    struct ash_err *err;
    int rc;
    enum { TASK_WAITS, TASK_RUNS, TASK_IS_DONE } state;
    struct task *next;
};

struct ash_runner {
    struct ash_core *core; /* the thread's */
    size_t max_tokens;
    pthread_t thread;
    bool has_lock, has_thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work, idle, changed;
    struct ash_seq *inbox, **inbox_end;
    size_t inbox_count;
    bool is_draining, is_stopping;
    _Atomic bool ends_all; /* cancel unfinished requests and accept no new ones */
    enum ash_pause pause;
    bool holds;           /* as pause was when the turn began; the thread's */
    bool is_parked;       /* the thread does nothing until it is resumed */
    bool has_work;        /* the core has some, or was about to */
    uint64_t progress_ns; /* when a step ended, or work began */
    struct task *tasks;   /* a list, the first one first */
    struct ash_core_stats stats;
};

/* A request that never came as far as the core. */
static void end_early(struct ash_seq *seq, enum ash_finish finish, int rc, const struct ash_err *err)
{
    struct ash_request *request = seq->request;

    request->end = (struct ash_request_end){
        .finish = finish, .rc = rc, .err = *err, .stop_id = -1, .prompt_tokens = request->prompt_count};
    ash_seq_close(seq);
    if (request->done != NULL) request->done(request->ctx, &request->end);
}

/* The same of a list: the thread ends. */
static void end_all(struct ash_seq *seq)
{
    struct ash_err none = {0};

    while (seq != NULL) {
        struct ash_seq *next = seq->next;

        end_early(seq, ASH_FINISH_CANCELLED, 0, &none);
        seq = next;
    }
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

/* Is there nothing to do until it is resumed? Under the lock, on the thread. */
static bool must_park(const struct ash_runner *runner)
{
    return runner->pause == ASH_PAUSE_NOW ||
           (runner->pause == ASH_PAUSE_WAIT && ash_core_get_stats(runner->core).running == 0);
}

/* Run the first call that waits. Under the lock, which is released meanwhile. Returns whether there was one. */
static bool run_task(struct ash_runner *runner)
{
    struct task *task = runner->tasks;

    if (task == NULL) return false;
    runner->tasks = task->next;
    task->state = TASK_RUNS;
    pthread_mutex_unlock(&runner->lock);
    task->rc = task->call(task->ctx, runner->core, task->err);
    pthread_mutex_lock(&runner->lock);
    task->state = TASK_IS_DONE;
    runner->stats = ash_core_get_stats(runner->core);
    runner->progress_ns = ash_clock_ns();
    pthread_cond_broadcast(&runner->changed);
    return true;
}

static void park(struct ash_runner *runner)
{
    runner->is_parked = true;
    pthread_cond_broadcast(&runner->changed);
    while (must_park(runner) && !runner->is_stopping)
        if (!run_task(runner)) pthread_cond_wait(&runner->work, &runner->lock);
    runner->is_parked = false;
    runner->progress_ns = ash_clock_ns();
}

/* Work or cancels: is there anything to do? Under the lock. */
static bool is_wanted(const struct ash_runner *runner)
{
    return runner->has_work || atomic_load(&runner->core->has_cancels);
}

/* Move new requests to the core, and make a step. Without the lock. Returns whether there is more to do. */
static bool turn(struct ash_runner *runner, struct ash_seq *seqs)
{
    ash_core_hold(runner->core, runner->holds);
    enqueue_all(runner, seqs);
    if (atomic_load(&runner->ends_all)) ash_core_cancel_all(runner->core);
    return ash_core_step(runner->core) > 0;
}

/* Calls that came too late. Under the lock. */
static void refuse_tasks(struct ash_runner *runner)
{
    for (struct task *task = runner->tasks; task != NULL; task = task->next) {
        task->rc = ash_err_set(task->err, -ESHUTDOWN, "the server is shutting down");
        task->state = TASK_IS_DONE;
    }
    runner->tasks = NULL;
    pthread_cond_broadcast(&runner->changed);
}

static void *run(void *arg)
{
    struct ash_runner *runner = arg;
    struct ash_seq *seqs;

    pthread_mutex_lock(&runner->lock);
    while (!runner->is_stopping) {
        bool more;

        if (run_task(runner)) continue;
        if (must_park(runner)) {
            park(runner);
            continue;
        }
        if (!is_wanted(runner)) {
            pthread_cond_broadcast(&runner->idle);
            pthread_cond_wait(&runner->work, &runner->lock);
            continue;
        }
        seqs = take_inbox(runner);
        runner->holds = runner->pause != ASH_PAUSE_NONE;
        pthread_mutex_unlock(&runner->lock);
        more = turn(runner, seqs);
        pthread_mutex_lock(&runner->lock);
        runner->has_work = more || runner->inbox != NULL;
        runner->stats = ash_core_get_stats(runner->core);
        runner->progress_ns = ash_clock_ns();
    }
    seqs = take_inbox(runner);
    runner->has_work = false;
    refuse_tasks(runner);
    pthread_cond_broadcast(&runner->idle);
    pthread_mutex_unlock(&runner->lock);
    end_all(seqs);
    ash_core_close(runner->core);
    return NULL;
}

static int init_conds(struct ash_runner *runner)
{
    pthread_cond_t *const conds[] = {&runner->work, &runner->idle, &runner->changed};
    int rc = 0;

    for (size_t i = 0; i < ASH_COUNT(conds) && rc == 0; i++) {
        rc = ash_cond_init(conds[i]);
        for (size_t j = 0; j < i && rc < 0; j++)
            pthread_cond_destroy(conds[j]);
    }
    return rc;
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
    rc = init_conds(runner);
    if (rc < 0) goto fail;
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
        pthread_cond_destroy(&runner->changed);
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

void ash_runner_cancel_all(struct ash_runner *runner)
{
    pthread_mutex_lock(&runner->lock);
    runner->is_draining = true;
    atomic_store(&runner->ends_all, true);
    runner->pause = ASH_PAUSE_NONE;
    runner->has_work = true;
    pthread_cond_signal(&runner->work);
    pthread_mutex_unlock(&runner->lock);
}

/* Under the lock. */
static void append_task(struct ash_runner *runner, struct task *task)
{
    struct task **end = &runner->tasks;

    while (*end != NULL)
        end = &(*end)->next;
    *end = task;
    pthread_cond_signal(&runner->work);
}

/* It has not begun. Under the lock. */
static void remove_task(struct ash_runner *runner, struct task *task)
{
    struct task **link = &runner->tasks;

    while (*link != task)
        link = &(*link)->next;
    *link = task->next;
}

int ash_runner_call(struct ash_runner *runner, ash_runner_call_fn *call, void *ctx, double timeout_s,
                    struct ash_err *err)
{
    struct timespec deadline = ash_cond_deadline((uint64_t)(timeout_s * 1e9));
    struct task task = {.call = call, .ctx = ctx, .err = err, .rc = -ESHUTDOWN};
    int rc = 0;

    ash_assert(!pthread_equal(pthread_self(), runner->thread));
    pthread_mutex_lock(&runner->lock);
    if (runner->is_stopping)
        task.state = TASK_IS_DONE;
    else
        append_task(runner, &task);
    while (task.state == TASK_WAITS && rc == 0)
        rc = pthread_cond_timedwait(&runner->changed, &runner->lock, &deadline);
    if (task.state == TASK_WAITS) {
        remove_task(runner, &task);
        task.rc = ash_err_set(err, -ETIMEDOUT, "the engine's step has not ended within %g s", timeout_s);
    }
    while (task.state == TASK_RUNS)
        pthread_cond_wait(&runner->changed, &runner->lock);
    pthread_mutex_unlock(&runner->lock);
    return task.rc;
}

static int reset_prefix(void *ctx, struct ash_core *core, struct ash_err *err)
{
    size_t *pages_out = ctx;

    (void)err;
    *pages_out = ash_core_reset_prefix(core);
    return 0;
}

int ash_runner_reset_prefix(struct ash_runner *runner, double timeout_s, size_t *pages_out)
{
    return ash_runner_call(runner, reset_prefix, pages_out, timeout_s, NULL);
}

int ash_runner_pause(struct ash_runner *runner, enum ash_pause how, double timeout_s)
{
    struct timespec deadline = ash_cond_deadline((uint64_t)(timeout_s * 1e9));
    int rc = 0;

    pthread_mutex_lock(&runner->lock);
    runner->pause = how;
    pthread_cond_signal(&runner->work);
    while (how != ASH_PAUSE_NONE && !runner->is_parked && !runner->is_stopping && rc == 0)
        rc = pthread_cond_timedwait(&runner->changed, &runner->lock, &deadline);
    if (rc != 0 && !runner->is_parked) {
        runner->pause = ASH_PAUSE_NONE;
        rc = -ETIMEDOUT;
    } else {
        rc = runner->is_stopping ? -ESHUTDOWN : 0;
    }
    pthread_mutex_unlock(&runner->lock);
    return rc;
}

bool ash_runner_is_paused(struct ash_runner *runner)
{
    bool is_paused;

    pthread_mutex_lock(&runner->lock);
    is_paused = runner->pause != ASH_PAUSE_NONE;
    pthread_mutex_unlock(&runner->lock);
    return is_paused;
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
    stalled = runner->has_work && !runner->is_parked ? (double)(ash_clock_ns() - runner->progress_ns) * 1e-9 : 0.0;
    pthread_mutex_unlock(&runner->lock);
    return stalled;
}

size_t ash_runner_max_tokens(const struct ash_runner *runner)
{
    return runner->max_tokens;
}

/* Worker threads: what takes longer than reading and writing runs here, so that streams never wait for it. */
#include "http/http_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/thread.h"

/* Take the next job. False: it is over. */
static bool take(struct ash_http_workers *workers, struct ash_http_job *job_out)
{
    bool has_job;

    pthread_mutex_lock(&workers->lock);
    while (workers->count == 0 && !workers->is_stopping)
        pthread_cond_wait(&workers->cond, &workers->lock);
    has_job = workers->count > 0;
    if (has_job) {
        *job_out = workers->jobs[workers->first];
        workers->first = (workers->first + 1) % workers->capacity;
        workers->count--;
    }
    pthread_mutex_unlock(&workers->lock);
    return has_job;
}

static void *work(void *arg)
{
    struct ash_http_job job;

    while (take(arg, &job))
        job.fn(job.ctx);
    return NULL;
}

/* Twice the room; the lock is held. */
static int grow(struct ash_http_workers *workers)
{
    size_t capacity = ash_max(64, 2 * workers->capacity);
    struct ash_http_job *jobs = malloc(capacity * sizeof(*jobs));

    if (jobs == NULL) return -ENOMEM;
    for (size_t i = 0; i < workers->count; i++)
        jobs[i] = workers->jobs[(workers->first + i) % workers->capacity];
    free(workers->jobs);
    workers->jobs = jobs;
    workers->first = 0;
    workers->capacity = capacity;
    return 0;
}

int ash_http_workers_post(struct ash_http_workers *workers, void (*fn)(void *ctx), void *ctx)
{
    int rc = 0;

    pthread_mutex_lock(&workers->lock);
    if (workers->is_stopping) rc = -ESHUTDOWN;
    if (rc == 0 && workers->count == workers->capacity) rc = grow(workers);
    if (rc == 0) {
        workers->jobs[(workers->first + workers->count++) % workers->capacity] = (struct ash_http_job){fn, ctx};
        pthread_cond_signal(&workers->cond);
    }
    pthread_mutex_unlock(&workers->lock);
    return rc;
}

int ash_http_workers_init(struct ash_http_workers *workers, size_t count, struct ash_err *err)
{
    int rc;

    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->cond, NULL);
    workers->threads = calloc(count, sizeof(*workers->threads));
    if (workers->threads == NULL) return ash_err_set(err, -ENOMEM, "no memory for %zu worker threads", count);
    for (; workers->thread_count < count; workers->thread_count++) {
        rc = ash_thread_start(&workers->threads[workers->thread_count], work, workers);
        if (rc < 0) return ash_err_set(err, rc, "cannot start a worker thread: %s", strerror(-rc));
    }
    return 0;
}

void ash_http_workers_stop(struct ash_http_workers *workers)
{
    if (workers->threads == NULL) return;
    pthread_mutex_lock(&workers->lock);
    workers->is_stopping = true;
    pthread_cond_broadcast(&workers->cond);
    pthread_mutex_unlock(&workers->lock);
    for (size_t i = 0; i < workers->thread_count; i++)
        pthread_join(workers->threads[i], NULL);
    workers->thread_count = 0;
}

void ash_http_workers_fini(struct ash_http_workers *workers)
{
    if (workers->threads == NULL) return;
    free(workers->threads);
    free(workers->jobs);
    pthread_cond_destroy(&workers->cond);
    pthread_mutex_destroy(&workers->lock);
    *workers = (struct ash_http_workers){0};
}

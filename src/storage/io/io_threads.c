/* io_threads: an I/O queue of a few threads, each in one system call at a time. */
#include "storage/io/io_queue_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/math.h"
#include "base/thread.h"

#define THREADS 4

struct list {
    struct ash_io_request *first, *last;
};

struct threads {
    pthread_t ids[THREADS];
    size_t count;
    pthread_mutex_t mutex; /* over all below */
    pthread_cond_t more_work, more_done;
    struct list waiting, done;
    bool stop;
};

static void list_add(struct list *list, struct ash_io_request *request)
{
    request->next = NULL;
    if (list->first == NULL)
        list->first = request;
    else
        list->last->next = request;
    list->last = request;
}

static struct ash_io_request *list_take(struct list *list)
{
    struct ash_io_request *request = list->first;

    if (request != NULL) list->first = request->next;
    return request;
}

/* One system call. */
static ssize_t move_bytes(const struct ash_io_request *request)
{
    char *data = (char *)request->data + request->done_bytes;
    size_t left = request->size_bytes - request->done_bytes;
    off_t offset = (off_t)(request->offset + request->done_bytes);
    int fd = ash_io_request_fd(request);
    ssize_t moved = request->kind == ASH_IO_READ ? pread(fd, data, left, offset) : pwrite(fd, data, left, offset);

    return moved < 0 ? -errno : moved;
}

static void *thread_main(void *arg)
{
    struct threads *threads = arg;

    pthread_mutex_lock(&threads->mutex);
    while (!threads->stop) {
        struct ash_io_request *request = list_take(&threads->waiting);

        if (request == NULL) {
            pthread_cond_wait(&threads->more_work, &threads->mutex);
            continue;
        }
        pthread_mutex_unlock(&threads->mutex);
        ssize_t result = move_bytes(request);
        pthread_mutex_lock(&threads->mutex);
        request->result = result;
        list_add(&threads->done, request);
        pthread_cond_signal(&threads->more_done);
    }
    pthread_mutex_unlock(&threads->mutex);
    return NULL;
}

static void threads_close(void *state)
{
    struct threads *threads = state;

    pthread_mutex_lock(&threads->mutex);
    threads->stop = true;
    pthread_cond_broadcast(&threads->more_work);
    pthread_mutex_unlock(&threads->mutex);
    for (size_t i = 0; i < threads->count; i++)
        pthread_join(threads->ids[i], NULL);
    pthread_cond_destroy(&threads->more_work);
    pthread_cond_destroy(&threads->more_done);
    pthread_mutex_destroy(&threads->mutex);
    free(threads);
}

static int threads_open(size_t depth, void **state_out)
{
    struct threads *threads = calloc(1, sizeof(*threads));
    int rc = 0;

    if (threads == NULL) return -ENOMEM;
    pthread_mutex_init(&threads->mutex, NULL);
    pthread_cond_init(&threads->more_work, NULL);
    pthread_cond_init(&threads->more_done, NULL);
    while (rc == 0 && threads->count < ash_min(depth, THREADS)) {
        rc = ash_thread_start(&threads->ids[threads->count], thread_main, threads);
        if (rc == 0) threads->count++;
    }
    if (threads->count == 0) { /* fewer do, too */
        threads_close(threads);
        return rc;
    }
    *state_out = threads;
    return 0;
}

static void threads_start(void *state, struct ash_io_request *request)
{
    struct threads *threads = state;

    pthread_mutex_lock(&threads->mutex);
    list_add(&threads->waiting, request);
    pthread_cond_signal(&threads->more_work);
    pthread_mutex_unlock(&threads->mutex);
}

static struct ash_io_request *threads_reap(void *state, ssize_t *result_out)
{
    struct threads *threads = state;
    struct ash_io_request *request;

    pthread_mutex_lock(&threads->mutex);
    while ((request = list_take(&threads->done)) == NULL)
        pthread_cond_wait(&threads->more_done, &threads->mutex);
    pthread_mutex_unlock(&threads->mutex);
    *result_out = request->result;
    return request;
}

const struct ash_io_ops ash_io_threads = {
    .open = threads_open, .start = threads_start, .reap = threads_reap, .close = threads_close};

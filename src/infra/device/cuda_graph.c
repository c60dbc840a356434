/* Marks in a GPU's queue, for measurements; and graphs: work that was enqueued once and is replayed. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/assert.h"
#include "infra/device/cuda_priv.h"

/* ---- marks ------------------------------------------------------------------------------------------------------- */

void ash_cuda_mark(struct ash_cuda *cuda, size_t index)
{
    ash_assert(index < ASH_CUDA_MARKS_MAX);
    if (cuda->marks == NULL) cuda->marks = calloc(ASH_CUDA_MARKS_MAX, sizeof(*cuda->marks));
    ash_assert(cuda->marks != NULL);
    if (cuda->marks[index] == NULL)
        ash_cuda_check(cuda, ash_cuda_driver_of(cuda)->event_create(&cuda->marks[index], 0), "making a mark");
    if (!cuda->has_failed) ash_cuda_check(cuda, cuda->driver->event_record(cuda->marks[index], cuda->stream), "a mark");
}

double ash_cuda_mark_ms(struct ash_cuda *cuda, size_t first, size_t last)
{
    float ms = 0.0f;

    ash_assert(first <= last);
    if (!cuda->has_failed) ash_cuda_check(cuda, cuda->driver->event_wait(cuda->marks[last]), "a mark");
    if (!cuda->has_failed)
        ash_cuda_check(cuda, cuda->driver->event_ms(&ms, cuda->marks[first], cuda->marks[last]), "a measurement");
    return ms;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

#define CAPTURE_THREAD_LOCAL 1 /* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: other threads may go on allocating */

/* Held while work is recorded, and while the driver's own queue is used. */
static pthread_mutex_t own_queue = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool is_recorder; /* what it must not do then is the driver's to say */

void ash_cuda_memory_lock(void)
{
    if (!is_recorder) pthread_mutex_lock(&own_queue);
}

void ash_cuda_memory_unlock(void)
{
    if (!is_recorder) pthread_mutex_unlock(&own_queue);
}

void ash_cuda_graph_begin(struct ash_cuda *cuda)
{
    cuda->last_is_early = false; /* earlier work is not in the graph */
    cuda->graph_bytes = cuda->uploaded_bytes;
    ash_cuda_memory_lock();
    cuda->is_recording = is_recorder = true;
    if (!cuda->has_failed)
        ash_cuda_check(cuda, ash_cuda_driver_of(cuda)->capture_begin(cuda->stream, CAPTURE_THREAD_LOCAL),
                       "recording work");
}

bool ash_cuda_is_recording(const struct ash_cuda *cuda)
{
    return cuda->is_recording;
}

int ash_cuda_graph_end(struct ash_cuda *cuda, void **graph_out)
{
    void *recorded = NULL, *graph = NULL;

    cuda->last_is_early = cuda->is_recording = false;
    ash_cuda_check(cuda, ash_cuda_driver_of(cuda)->capture_end(cuda->stream, &recorded), "recording work");
    is_recorder = false;
    ash_cuda_memory_unlock();
    if (!cuda->has_failed)
        ash_cuda_check(cuda, cuda->driver->graph_make(&graph, recorded, 0), "making a graph of recorded work");
    if (recorded != NULL) cuda->driver->graph_forget(recorded);
    if (cuda->has_failed) return -EIO;
    if (cuda->uploaded_bytes != cuda->graph_bytes) { /* it would copy what the ring has by then */
        ash_cuda_graph_free(cuda, graph);
        return -EAGAIN;
    }
    *graph_out = graph;
    return 0;
}

void ash_cuda_graph_run(struct ash_cuda *cuda, void *graph)
{
    cuda->last_is_early = false;
    cuda->last_kernel = "a recorded step";
    cuda->kernel_count++;
    if (!cuda->has_failed)
        ash_cuda_check(cuda, ash_cuda_driver_of(cuda)->graph_launch(graph, cuda->stream), "a recorded step");
}

void ash_cuda_graph_free(struct ash_cuda *cuda, void *graph)
{
    if (graph != NULL) ash_cuda_driver_of(cuda)->graph_destroy(graph);
}

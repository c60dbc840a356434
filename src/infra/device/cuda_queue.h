/* cuda_queue - a second queue of a GPU, for calls between ranks. Its failures are not the GPU's, so a thread may use it
 * while the GPU's owner enqueues other work. One owner at a time, in any thread. */
#ifndef ASH_INFRA_DEVICE_CUDA_QUEUE_H
#define ASH_INFRA_DEVICE_CUDA_QUEUE_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "infra/device/cuda.h"

struct ash_cuda_queue;

/* The calls below are those of infra/device_queue.h. The GPU is closed after its queues. */
int ash_cuda_queue_open(struct ash_cuda *cuda, struct ash_cuda_queue **queue_out, struct ash_err *err);
/* Waits for its work. NULL is a no-op. */
void ash_cuda_queue_close(struct ash_cuda_queue *queue);
/* Later work runs after all on the GPU's own queue. Waits while that is being recorded. */
void ash_cuda_queue_begin(struct ash_cuda_queue *queue);
/* Enqueue a copy within the memory of GPUs. */
void ash_cuda_queue_copy(struct ash_cuda_queue *queue, void *dst, const void *src, size_t size_bytes);
/* Enqueue a kernel: see ash_cuda_launch. */
void ash_cuda_queue_launch(struct ash_cuda_queue *queue, void *kernel, const char *name, struct ash_cuda_grid grid,
                           const void *args);
/* Pages of the host's memory that have counters, until remove; the queue is waited for before that. */
int ash_cuda_queue_add_counters(struct ash_cuda_queue *queue, void *data, size_t size_bytes, struct ash_err *err);
/* Nothing that is enqueued uses them. */
void ash_cuda_queue_remove_counters(struct ash_cuda_queue *queue, void *data);
/* A counter gets a value, after all work before. */
void ash_cuda_queue_write(struct ash_cuda_queue *queue, void *counter, uint64_t value);
/* Until a counter is at least value. */
void ash_cuda_queue_wait(struct ash_cuda_queue *queue, void *counter, uint64_t value);
/* The mark. */
void ash_cuda_queue_end(struct ash_cuda_queue *queue);
/* Returns 1 where the mark has been reached, 0, or -EIO with the first failure. */
int ash_cuda_queue_poll(struct ash_cuda_queue *queue, struct ash_err *err);
/* The GPU that it belongs to. */
struct ash_cuda *ash_cuda_queue_device(struct ash_cuda_queue *queue);

#endif

/* cuda - one NVIDIA GPU: its memory, a queue of work in order, and a way to hand small host arrays to kernels. One
 * owner at a time, in any thread. Work is enqueued and may run later; a failure is kept, later work is left out, and
 * the next wait reports it. */
#ifndef ASH_INFRA_DEVICE_CUDA_H
#define ASH_INFRA_DEVICE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "infra/device/tensor_map.h"
#include "infra/device_memory.h"

struct ash_cuda;

#define ASH_CUDA_NAME_BYTES 96

struct ash_cuda_facts {
    char name[ASH_CUDA_NAME_BYTES];
    size_t memory_bytes, shared_bytes; /* shared memory that one thread block can have */
    int sm_count, major, minor;        /* compute capability */
    int index, driver_version;         /* driver: 1000 * major + 10 * minor */
    unsigned char uuid[16];            /* of the GPU, or of the part of it that this process sees */
};

/* How many GPUs this process sees. 0 without a driver, too. Any thread. */
int ash_cuda_count(void);

/* What GPU `index` is, without opening it. Returns 0, or -ENODEV saying why there is none. Any thread. */
int ash_cuda_look(int index, struct ash_cuda_facts *facts_out, struct ash_err *err);
/* Open GPU `index`. Returns 0, or -ENODEV saying why there is none. */
int ash_cuda_open(int index, struct ash_cuda **cuda_out, struct ash_err *err);
/* Waits for the queue, then releases all. NULL is a no-op. */
void ash_cuda_close(struct ash_cuda *cuda);
/* What the GPU is. Valid until close. */
const struct ash_cuda_facts *ash_cuda_get_facts(const struct ash_cuda *cuda);
/* Bytes of its memory that no process has. 0 if the driver does not say. */
size_t ash_cuda_free_bytes(struct ash_cuda *cuda);

/* Memory of the current GPU: the host may not touch it. The copy waits until it is done. Once the GPU has failed,
 * copies and zeros fail, too: results of failed work are not read. */
extern const struct ash_memory_ops ash_memory_cuda;
/* Host memory that the GPU reads and writes at the same addresses (pinned). */
extern const struct ash_memory_ops ash_memory_pinned;
/* A GPU's memory for calls between ranks. */
extern const struct ash_device_memory ash_device_cuda;

/* A program for the GPU (cubin or fatbin). Returns 0 or -EINVAL; the module lives until the GPU is closed. */
int ash_cuda_load(struct ash_cuda *cuda, const void *image, void **module_out, struct ash_err *err);
/* A kernel of a module, allowed the most shared memory that the GPU has. Returns 0 or -ENOENT. */
int ash_cuda_kernel(struct ash_cuda *cuda, void *module, const char *name, void **kernel_out, struct ash_err *err);

/* Have a kernel run with as much shared memory, and as little cache, as there can be. Kernels that want different
 * shares of the two cannot run on a multiprocessor at the same time. Returns 0 or -EINVAL. */
int ash_cuda_prefer_shared(struct ash_cuda *cuda, void *kernel, struct ash_err *err);

/* Thread blocks x, y of `threads` threads with shared_bytes of dynamic shared memory each. */
struct ash_cuda_grid {
    size_t x, y, z; /* a z of 0 is 1 */
    size_t threads, shared_bytes;
    /* The kernel may begin while the one before it runs, and the next may begin while it does: it waits itself for its
     * operands. Two of that kind in a row overlap. */
    bool is_early;
};
/* Enqueue a kernel whose one parameter is the struct at args. name is for messages. Nothing runs where x or y is 0. */
void ash_cuda_launch(struct ash_cuda *cuda, void *kernel, const char *name, struct ash_cuda_grid grid,
                     const void *args);
/* A matrix of bf16 values in GPU memory: data at a border of 16 bytes, stride a multiple of 8 values. */
struct ash_cuda_bf16_rows {
    const void *data;
    size_t rows, cols, stride;
};
#define ASH_CUDA_MAP_COLS 64
/* A map of it for the copy engine: boxes of ASH_CUDA_MAP_COLS columns and box_rows rows (at most 256), which come to
 * shared memory as lines of 128 bytes with the 128-byte swizzle. Nothing is enqueued. */
void ash_cuda_map_rows(struct ash_cuda *cuda, const struct ash_cuda_bf16_rows *rows, size_t box_rows,
                       struct ash_cuda_tensor_map *map_out);
/* Such matrices, as many as there are numbers for, each matrix_bytes (a multiple of 16) after the one before. */
void ash_cuda_map_matrices(struct ash_cuda *cuda, const struct ash_cuda_bf16_rows *rows, size_t matrix_bytes,
                           size_t box_rows, struct ash_cuda_tensor_map *map_out);
#define ASH_CUDA_UPLOAD_BYTES ((size_t)16 << 20)
/* Enqueue a copy of a small host array to the GPU; returns where it will be when later work runs. The place is used
 * again after ASH_CUDA_UPLOAD_BYTES of later uploads. size_bytes is at most a quarter of that. */
void *ash_cuda_upload(struct ash_cuda *cuda, const void *data, size_t size_bytes);
/* Enqueue a copy of a host array to a place on the GPU. The array may change when this returns; nothing is waited for,
 * but for room in the ring. */
void ash_cuda_upload_to(struct ash_cuda *cuda, void *dst, const void *data, size_t size_bytes);
/* A failure of this process's own: no memory for work that follows. It is kept as if the driver had failed; the kernel
 * that is enqueued next, and left out, is named in it. */
void ash_cuda_fail(struct ash_cuda *cuda, const struct ash_err *why);
#define ASH_CUDA_FETCHES 2
/* Enqueue a copy from the GPU for the host, number `index` (below ASH_CUDA_FETCHES); the one before with this number is
 * forgotten. */
void ash_cuda_fetch(struct ash_cuda *cuda, unsigned index, const void *src, size_t size_bytes);
/* Wait for that copy, and for nothing that was enqueued after it; size_bytes of it to dst. Returns 0, or -EIO with the
 * first failure. */
int ash_cuda_fetched(struct ash_cuda *cuda, unsigned index, void *dst, size_t size_bytes, struct ash_err *err);
/* Enqueue a copy within the GPU's memory. */
void ash_cuda_copy(struct ash_cuda *cuda, void *dst, const void *src, size_t size_bytes);
/* Enqueue zeros. */
void ash_cuda_zero(struct ash_cuda *cuda, void *data, size_t size_bytes);
/* Enqueue a copy between any memories, wait for it and all work before. Returns 0, or -EIO with the first failure. */
int ash_cuda_read(struct ash_cuda *cuda, void *dst, const void *src, size_t size_bytes, struct ash_err *err);
/* Wait until all work is done. Returns 0, or -EIO with the first failure since open, which names the kernel. */
int ash_cuda_wait(struct ash_cuda *cuda, struct ash_err *err);

/* The first failure since open, without waiting. Returns 0, or -EIO with it. */
int ash_cuda_failure(const struct ash_cuda *cuda, struct ash_err *err);

/* The queue, for libraries that enqueue work themselves. */
void *ash_cuda_stream(struct ash_cuda *cuda);

/* From here on work is recorded, not run. Until the end nothing may wait, read or allocate. */
void ash_cuda_graph_begin(struct ash_cuda *cuda);
/* Is work being recorded? */
bool ash_cuda_is_recording(const struct ash_cuda *cuda);
/* The recorded work becomes *graph_out, which is freed before the GPU is closed. Returns 0; -EAGAIN where there was an
 * upload in it, so that it cannot be replayed; or -EIO. In both cases nothing has run. */
int ash_cuda_graph_end(struct ash_cuda *cuda, void **graph_out);
/* Enqueue all of it. */
void ash_cuda_graph_run(struct ash_cuda *cuda, void *graph);
/* Free it; NULL is a no-op. */
void ash_cuda_graph_free(struct ash_cuda *cuda, void *graph);

#define ASH_CUDA_MARKS_MAX 16384
/* Enqueue a mark, number index (below ASH_CUDA_MARKS_MAX); the one before with this number is forgotten. For
 * measurements. */
void ash_cuda_mark(struct ash_cuda *cuda, size_t index);
/* Wait for mark `last`. Returns the milliseconds of GPU time between two marks. */
double ash_cuda_mark_ms(struct ash_cuda *cuda, size_t first, size_t last);

#endif

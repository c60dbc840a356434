/* backend_priv - what the ops of the GPU share: their kernels by number, and how they are launched. */
#ifndef ASH_COMPUTE_CUDA_BACKEND_PRIV_H
#define ASH_COMPUTE_CUDA_BACKEND_PRIV_H

#include "compute/cuda/host/kernel_args.h"
#include "compute/ops.h"
#include "infra/device/cuda.h"

enum ash_cuda_kernel_id {
#define KERNEL(image, name) ASH_KERNEL_##name,
#include "compute/cuda/host/kernels_list.h"
#undef KERNEL
    ASH_CUDA_KERNEL_COUNT
};

struct ash_cuda_library;
struct ash_cuda_tables;
struct ash_cuda_docs;
struct ash_cuda_replay;
struct ash_cuda_links;

struct ash_cuda_backend {
    struct ash_cuda *cuda;
    struct ash_device_memory memory; /* for calls between ranks */
    /* Is it of compute capability 9.0? Any other gets the portable kernels: without wgmma, clusters and bulk copies,
     * and with at most 99 KB of shared memory. */
    bool has_wgmma;
    void *kernels[ASH_CUDA_KERNEL_COUNT];
    struct ash_buffer results;        /* GPU memory for what an op gives back to the host */
    struct ash_buffer scratch;        /* GPU memory, grown on demand: see ash_cuda_scratch */
    struct ash_cuda_library *library; /* the vendor's products; NULL where there are none: library.h */
    struct ash_cuda_replay *replay;   /* recorded steps: replay.h; NULL before the first */
    struct ash_cuda_links *links;     /* of products to the next ones: ahead.h; NULL before the first step */
    struct ash_cuda_docs *docs;       /* of the last batch that trained: attn_docs.h; NULL before the first */
    struct ash_cuda_tables *tables;   /* of the last batch: attn_decode.h; NULL before the first */
};

#define ASH_CUDA_RESULTS_BYTES ((size_t)64 << 10)

extern const struct ash_matrix_ops ash_cuda_matrix, ash_cuda_matrix_portable;
extern const struct ash_embed_ops ash_cuda_embed;
extern const struct ash_norm_ops ash_cuda_norm;
extern const struct ash_rope_ops ash_cuda_rope;
extern const struct ash_attn_ops ash_cuda_attn;
extern const struct ash_act_ops ash_cuda_act;
extern const struct ash_family_ops ash_cuda_family;
extern const struct ash_row_ops ash_cuda_row;
extern const struct ash_loss_ops ash_cuda_loss;
extern const struct ash_route_ops ash_cuda_route;
extern const struct ash_optim_ops ash_cuda_optim;
extern const struct ash_sample_ops ash_cuda_sample;

/* Enqueue a kernel with the struct at args as its parameter. */
void ash_cuda_run(struct ash_exec *exec, enum ash_cuda_kernel_id id, struct ash_cuda_grid grid, const void *args);
/* Grids for one thread per element (which walk on in strides where there are very many), for half a warp per row, and
 * for one thread per column. */
struct ash_cuda_grid ash_cuda_grid_elements(size_t count);
/* Few threads, which walk in strides: what they find is put together in one place. */
struct ash_cuda_grid ash_cuda_grid_reduction(size_t count);
/* Half a warp per row. */
struct ash_cuda_grid ash_cuda_grid_rows(size_t rows);
/* One chain of additions per column: chain.cuh. */
struct ash_cuda_grid ash_cuda_grid_chains(size_t cols);
/* GPU memory of at least size_bytes that work enqueued before the next call may use. Where the GPU is full, nothing
 * runs from here on, and the next wait says so. */
void *ash_cuda_scratch(struct ash_exec *exec, size_t size_bytes);
/* ash_ops.grow: where the GPU is full, that becomes the failure that the next wait reports, and nothing runs from here
 * on; what is returned is then an address all the same. */
void *ash_cuda_grow(struct ash_exec *exec, struct ash_buffer *buffer, size_t size_bytes);

#endif

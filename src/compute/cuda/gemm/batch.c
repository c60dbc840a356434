/* See batch.h. x becomes bf16 first, laid out as tiles lie in shared memory: all thread blocks read all of it. */
#include "compute/cuda/gemm/batch.h"

#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/gemm/few.h"
#include "compute/cuda/gemm/rows_of_x.h"

#define CHUNK 8 /* values of 16 bytes, which is how the kernels read */
#define IMAGE_THREADS 256
#define NORM_BYTES_MAX ((size_t)96 << 10) /* of a row that batch_image norms */

/* A kernel: its rows of x and of weights, its threads and its shared memory. */
struct batch_kernel {
    enum ash_cuda_kernel_id id;
    size_t M, N, threads, shared_bytes;
};

#define BATCH(M, N)                                                                                                    \
    {                                                                                                                  \
        ASH_KERNEL_batch_##M##_##N, M, N, 2 * (M) + 160,                                                               \
            ASH_CUDA_BATCH_BORDER + ASH_CUDA_BATCH_STAGES(M, N) * ASH_CUDA_BATCH_TILE_BYTES(M, N)                      \
    }

static const struct batch_kernel kernels[] = {
    BATCH(64, 32),  BATCH(64, 48),  BATCH(64, 64),  BATCH(64, 112),  BATCH(64, 128),
    BATCH(128, 32), BATCH(128, 48), BATCH(128, 64), BATCH(128, 112), BATCH(128, 128),
};

/* Groups of n rows of weights; with SwiGLU half of them are gate's. */
static size_t count_groups(const struct ash_cuda_few *op, size_t n, struct ash_cuda_few_out *outs)
{
    size_t groups = 0;

    for (int i = 0; i < (op->swiglu ? 1 : op->out_count); i++) {
        outs[i].groups = (unsigned)ash_div_up(op->outs[i].N, op->swiglu ? n / 2 : n);
        groups += outs[i].groups;
    }
    return groups;
}

/* Thread blocks that run at the same time. */
static size_t count_blocks(size_t sm_count)
{
    return ash_max(sm_count / ASH_CUDA_BATCH_CLUSTER, 1) * ASH_CUDA_BATCH_CLUSTER;
}

/* The kernel whose busiest multiprocessor reads the fewest rows: of weights, and all of x with every group of them. */
static const struct batch_kernel *choose(const struct ash_cuda_few *op, size_t sm_count)
{
    struct ash_cuda_few_out outs[ASH_PROJECT_OUTS_MAX];
    const struct batch_kernel *best = NULL;
    size_t least = SIZE_MAX;

    for (size_t i = 0; i < ASH_COUNT(kernels); i++) {
        const struct batch_kernel *kernel = &kernels[i];
        size_t rounds = ash_div_up(count_groups(op, kernel->N, outs), count_blocks(sm_count));
        size_t cost = rounds * (kernel->N + kernel->M / ASH_CUDA_BATCH_CLUSTER);

        if (kernel->M < op->M || (best != NULL && kernel->M > best->M) || cost >= least) continue;
        best = kernel;
        least = cost;
    }
    return best;
}

static bool takes_rows(const struct ash_cuda_rows_of_x *rows, size_t M, size_t K)
{
    bool is_bf16 = rows->x_bf16 != NULL;
    uintptr_t borders = is_bf16 ? (uintptr_t)rows->x_bf16 : (uintptr_t)rows->x;

    if (M == 0 || M > ASH_CUDA_BATCH_ROWS || K == 0 || K % CHUNK != 0) return false;
    if (borders % 16 != 0 || rows->stride % (is_bf16 ? CHUNK : 4) != 0) return false;
    return rows->norm == NULL || K * sizeof(float) <= NORM_BYTES_MAX;
}

/* Enqueue that x becomes tiles in scratch memory, as batch.cu copies them. */
static void make_image(struct ash_exec *exec, const struct batch_kernel *kernel, const struct ash_cuda_rows_of_x *rows,
                       struct ash_cuda_few *op)
{
    size_t tile_k = ASH_CUDA_BATCH_K(kernel->M), tiles = ash_div_up(op->K, tile_k);
    struct ash_cuda_batch_x image = {.x = rows->x,
                                     .x_bf16 = rows->x_bf16,
                                     .x_stride = rows->stride,
                                     .K = op->K,
                                     .norm = rows->norm,
                                     .norm_eps = rows->norm_eps,
                                     .rows = kernel->M,
                                     .tile_k = tile_k,
                                     .tiles = tiles};

    image.out = ash_cuda_scratch(exec, tiles * tile_k * kernel->M * sizeof(*image.out));
    op->x = image.out;
    ash_cuda_run(exec, ASH_KERNEL_batch_image,
                 (struct ash_cuda_grid){.x = op->M,
                                        .y = 1,
                                        .threads = IMAGE_THREADS,
                                        .shared_bytes = rows->norm != NULL ? op->K * sizeof(float) : 0,
                                        .is_early = true},
                 &image);
}

static void run_batch(struct ash_exec *exec, const struct ash_cuda_rows_of_x *rows, struct ash_cuda_few *op)
{
    size_t sm_count = (size_t)ash_cuda_get_facts(exec->cuda->cuda)->sm_count, blocks;
    const struct batch_kernel *kernel = choose(op, sm_count);

    op->x_is_bf16 = true;
    op->groups = (unsigned)count_groups(op, kernel->N, op->outs);
    blocks = ash_round_up(ash_min(count_blocks(sm_count), op->groups), ASH_CUDA_BATCH_CLUSTER);
    make_image(exec, kernel, rows, op);
    ash_cuda_few_ahead(exec, op, blocks, kernel->N);
    ash_cuda_run(exec, kernel->id,
                 (struct ash_cuda_grid){.x = blocks,
                                        .y = 1,
                                        .threads = kernel->threads,
                                        .shared_bytes = ash_max(kernel->shared_bytes, ASH_CUDA_FEW_ALONE_BYTES),
                                        .is_early = true},
                 op);
}

bool ash_cuda_batch_project(struct ash_exec *exec, const struct ash_project_args *args)
{
    struct ash_cuda_few op = {.M = args->M,
                              .K = args->K,
                              .residual = args->residual,
                              .swiglu = args->swiglu,
                              .out_count = (int)args->out_count};
    struct ash_cuda_rows_of_x rows = {args->x, args->x_bf16, args->x_stride, args->norm, args->norm_eps};

    if (!args->round_bf16 || !takes_rows(&rows, args->M, args->K) || !ash_cuda_few_outs(args, op.outs)) return false;
    run_batch(exec, &rows, &op);
    return true;
}

bool ash_cuda_batch_gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    struct ash_cuda_few op = {.M = args->M,
                              .K = args->K,
                              .out_count = 1,
                              .outs = {{.w = args->b.data,
                                        .N = args->N,
                                        .stride = args->b.col_stride,
                                        .bias = args->bias,
                                        .y = args->c,
                                        .y_stride = args->c_stride}}};
    struct ash_cuda_rows_of_x rows = {.stride = args->a.row_stride};

    if (!args->round_bf16 || args->cut_anywhere || args->accumulate || args->a.col_stride != 1 ||
        !ash_cuda_few_takes(&args->b))
        return false;
    if (args->a.dtype == ASH_BF16)
        rows.x_bf16 = args->a.data;
    else if (args->a.dtype == ASH_F32)
        rows.x = args->a.data;
    else
        return false;
    if (!takes_rows(&rows, args->M, args->K)) return false;
    run_batch(exec, &rows, &op);
    return true;
}

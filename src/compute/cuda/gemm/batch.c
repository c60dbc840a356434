/* See batch.h. x becomes rows of bf16 first: all thread blocks read all of it. */
#include "compute/cuda/gemm/batch.h"

#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/gemm/few.h"

#define CHUNK 8 /* values of 16 bytes, which is how the kernels read */
#define CLUSTER ((size_t)ASH_CUDA_BATCH_CLUSTER)
#define ROWS_THREADS 256
#define NORM_BYTES_MAX ((size_t)96 << 10) /* of a row that batch_rows norms */

/* A kernel: its rows of x and of weights. */
struct batch_kernel {
    enum ash_cuda_kernel_id id;
    size_t M, N;
};

#define BATCH(M, N)                                                                                                    \
    {                                                                                                                  \
        ASH_KERNEL_batch_##M##_##N, M, N                                                                               \
    }

static const struct batch_kernel kernels[] = {
    BATCH(64, 32),  BATCH(64, 48),  BATCH(64, 64),   BATCH(64, 112),  BATCH(64, 224),  BATCH(128, 32),
    BATCH(128, 48), BATCH(128, 64), BATCH(128, 96),  BATCH(128, 112), BATCH(128, 224), BATCH(256, 32),
    BATCH(256, 48), BATCH(256, 64), BATCH(256, 112), BATCH(256, 128),
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

/* Units of work: groups, an even number of them, times tiles of rows of x. */
static size_t count_units(const struct ash_cuda_few *op, const struct batch_kernel *kernel,
                          struct ash_cuda_few_out *outs)
{
    return ash_round_up(count_groups(op, kernel->N, outs), CLUSTER) * ash_div_up(op->M, kernel->M);
}

/* Thread blocks that run at the same time. */
static size_t count_blocks(size_t sm_count)
{
    return ash_max(sm_count / CLUSTER, 1) * CLUSTER;
}

/* What 16 k of a unit take, in thousandths of a cycle of an H200: of the tensor cores (2,048 products a cycle), of
 * shared memory (128 bytes), of what comes to a multiprocessor (64 bytes), of its share of memory. */
static size_t unit_cost(const struct ash_cuda_few *op, const struct batch_kernel *kernel)
{
    size_t M = kernel->M, N = kernel->N, x_rows = ash_min(op->M, M), tiles = ash_div_up(op->M, M);
    size_t tensor = M * N * 16 * 1000 / 2048, shared = M / 64 * (64 + N) * 32 * 1000 / 128;
    size_t arrival = (x_rows + N) * 32 * 1000 / 64, memory = N * 1770 / tiles;

    return ash_max(ash_max(tensor, shared), ash_max(arrival, memory));
}

/* The kernel whose busiest multiprocessor is done first. */
static const struct batch_kernel *choose(const struct ash_cuda_few *op, size_t sm_count)
{
    struct ash_cuda_few_out outs[ASH_PROJECT_OUTS_MAX];
    const struct batch_kernel *best = NULL;
    size_t least = SIZE_MAX;

    for (size_t i = 0; i < ASH_COUNT(kernels); i++) {
        const struct batch_kernel *kernel = &kernels[i];
        size_t rounds = ash_div_up(count_units(op, kernel, outs), count_blocks(sm_count));
        size_t cost = rounds * unit_cost(op, kernel);

        if ((kernel->M > 64 && kernel->M >= 2 * op->M) || cost >= least) continue;
        best = kernel;
        least = cost;
    }
    return best;
}

/* Rows of x: float32 (perhaps to be normed) or bf16. */
struct rows_of_x {
    const float *x;
    const uint16_t *x_bf16;
    size_t stride;
    const float *norm;
    float norm_eps;
};

static bool takes_rows(const struct rows_of_x *rows, size_t M, size_t K)
{
    bool is_bf16 = rows->x_bf16 != NULL;
    uintptr_t borders = is_bf16 ? (uintptr_t)rows->x_bf16 : (uintptr_t)rows->x;

    if (M == 0 || M > ASH_CUDA_BATCH_ROWS || K == 0 || K % CHUNK != 0) return false;
    if (borders % 16 != 0 || rows->stride % (is_bf16 ? CHUNK : 4) != 0) return false;
    return rows->norm == NULL || K * sizeof(float) <= NORM_BYTES_MAX;
}

/* Rows of bf16: where they lie, or enqueued to be made in scratch memory. */
static struct ash_cuda_bf16_rows make_rows(struct ash_exec *exec, const struct rows_of_x *rows, size_t M, size_t K)
{
    struct ash_cuda_batch_x op = {
        .x = rows->x, .x_stride = rows->stride, .K = K, .norm = rows->norm, .norm_eps = rows->norm_eps};

    if (rows->x_bf16 != NULL) return (struct ash_cuda_bf16_rows){rows->x_bf16, M, K, rows->stride};
    op.out = ash_cuda_scratch(exec, M * K * sizeof(*op.out));
    ash_cuda_run(exec, ASH_KERNEL_batch_rows,
                 (struct ash_cuda_grid){.x = M,
                                        .y = 1,
                                        .threads = ROWS_THREADS,
                                        .shared_bytes = rows->norm != NULL ? K * sizeof(float) : 0,
                                        .is_early = true},
                 &op);
    return (struct ash_cuda_bf16_rows){op.out, M, K, K};
}

static void run_batch(struct ash_exec *exec, const struct rows_of_x *rows, const struct ash_cuda_few *few)
{
    size_t sm_count = (size_t)ash_cuda_get_facts(exec->cuda->cuda)->sm_count, units;
    const struct batch_kernel *kernel = choose(few, sm_count);
    struct ash_cuda_bf16_rows x = make_rows(exec, rows, few->M, few->K);
    struct ash_cuda_batch op = {.few = *few, .row_tiles = (unsigned)ash_div_up(few->M, kernel->M)};

    op.few.groups = (unsigned)count_groups(few, kernel->N, op.few.outs);
    units = ash_round_up(op.few.groups, CLUSTER) * op.row_tiles;
    ash_cuda_map_rows(exec->cuda->cuda, &x, kernel->M / CLUSTER, &op.x);
    for (int i = 0; i < few->out_count; i++) {
        struct ash_cuda_bf16_rows w = {few->outs[i].w, few->outs[i].N, few->K, few->outs[i].stride};

        ash_cuda_map_rows(exec->cuda->cuda, &w, few->swiglu ? kernel->N / 2 : kernel->N, &op.w[i]);
    }
    ash_cuda_run(exec, kernel->id,
                 (struct ash_cuda_grid){.x = ash_min(count_blocks(sm_count), units),
                                        .y = 1,
                                        .threads = 2 * kernel->M + 32,
                                        .shared_bytes = ASH_CUDA_BATCH_STAGES(kernel->M, kernel->N) *
                                                        ASH_CUDA_BATCH_TILE_BYTES(kernel->M, kernel->N),
                                        .is_early = true},
                 &op);
}

bool ash_cuda_batch_project(struct ash_exec *exec, const struct ash_project_args *args)
{
    struct ash_cuda_few op = {.M = args->M,
                              .K = args->K,
                              .residual = args->residual,
                              .swiglu = args->swiglu,
                              .out_count = (int)args->out_count};
    struct rows_of_x rows = {args->x, args->x_bf16, args->x_stride, args->norm, args->norm_eps};

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
    struct rows_of_x rows = {.stride = args->a.row_stride};

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

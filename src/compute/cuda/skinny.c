/* See skinny.h. x becomes bf16 first: all thread blocks read all of it. */
#include "compute/cuda/skinny.h"

#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/few.h"

#define CHUNK 8 /* values of 16 bytes, which is how the kernel reads */

/* A kernel: its rows of x and of weights, its threads and its shared memory. */
struct skinny_kernel {
    enum ash_cuda_kernel_id id;
    size_t M, N, threads, shared_bytes;
};

#define SKINNY(M, N, threads)                                                                                          \
    {                                                                                                                  \
        ASH_KERNEL_skinny_##M##_##N, M, N, threads, ASH_CUDA_SKINNY_STAGES *(M + N) * ASH_CUDA_SKINNY_PITCH            \
    }
#define BATCH(M, N)                                                                                                    \
    {                                                                                                                  \
        ASH_KERNEL_batch_##M##_##N, M, N, 2 * (M),                                                                     \
            ASH_CUDA_BATCH_BORDER + ASH_CUDA_BATCH_STAGES(M, N) * ASH_CUDA_BATCH_TILE_BYTES(M, N)                      \
    }

static const struct skinny_kernel kernels[] = {
    SKINNY(16, 32, 64), SKINNY(16, 64, 128), SKINNY(32, 32, 128), SKINNY(32, 64, 256), BATCH(64, 32),
    BATCH(64, 48),      BATCH(64, 64),       BATCH(64, 112),      BATCH(64, 128),      BATCH(128, 32),
    BATCH(128, 48),     BATCH(128, 64),      BATCH(128, 112),     BATCH(128, 128),
};

#define ROWS_MAX 128 /* of x */

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

/* The kernel whose busiest multiprocessor reads the fewest rows: of weights, and all of x with every group of them. */
static const struct skinny_kernel *choose(const struct ash_cuda_few *op, size_t sm_count)
{
    struct ash_cuda_few_out outs[ASH_PROJECT_OUTS_MAX];
    const struct skinny_kernel *best = NULL;
    size_t least = SIZE_MAX;

    for (size_t i = 0; i < ASH_COUNT(kernels); i++) {
        const struct skinny_kernel *kernel = &kernels[i];
        size_t cost = ash_div_up(count_groups(op, kernel->N, outs), sm_count) * (kernel->N + kernel->M);

        if (kernel->M < op->M || (best != NULL && kernel->M > best->M) || cost >= least) continue;
        best = kernel;
        least = cost;
    }
    return best;
}

static void run_skinny(struct ash_exec *exec, struct ash_cuda_few *op)
{
    size_t sm_count = (size_t)ash_cuda_get_facts(exec->cuda->cuda)->sm_count;
    const struct skinny_kernel *kernel = choose(op, sm_count);

    op->groups = (unsigned)count_groups(op, kernel->N, op->outs);
    ash_cuda_run(exec, kernel->id,
                 (struct ash_cuda_grid){.x = ash_min(sm_count, op->groups),
                                        .y = 1,
                                        .threads = kernel->threads,
                                        .shared_bytes = ash_max(kernel->shared_bytes, ASH_CUDA_FEW_ALONE_BYTES),
                                        .is_early = true},
                 op);
}

static bool takes_rows(size_t M, size_t K)
{
    return M > 0 && M <= ROWS_MAX && K > 0 && K % CHUNK == 0;
}

/* Rows of bf16 at 16-byte borders? */
static bool is_ready(const uint16_t *x, size_t stride)
{
    return (uintptr_t)x % 16 == 0 && stride % CHUNK == 0;
}

/* Enqueue that rows of float32 become bf16 in scratch memory. Returns them, or NULL where they are at no borders. */
static const uint16_t *round_rows(struct ash_exec *exec, const float *x, size_t stride, size_t M, size_t K)
{
    struct ash_cuda_to_lines copy = {
        .data = x, .dtype = ASH_F32, .line_stride = stride, .k_stride = 1, .count = M, .k = K, .stride = K};

    if ((uintptr_t)x % 16 != 0 || stride % 4 != 0) return NULL;
    copy.out = ash_cuda_scratch(exec, M * K * sizeof(*copy.out));
    ash_cuda_run(exec, ASH_KERNEL_round_lines, ash_cuda_grid_elements(M * K / CHUNK), &copy);
    return copy.out;
}

/* The same of rows that are normed first. */
static const uint16_t *norm_rows(struct ash_exec *exec, const struct ash_project_args *args)
{
    struct ash_norm_args norm = {.rows = args->M,
                                 .groups = 1,
                                 .cols = args->K,
                                 .x_stride = args->x_stride,
                                 .y_stride = args->K,
                                 .x = args->x,
                                 .weight = args->norm,
                                 .eps = args->norm_eps};

    norm.y_bf16 = ash_cuda_scratch(exec, args->M * args->K * sizeof(*norm.y_bf16));
    exec->ops->norm->rms_forward(exec, &norm);
    return norm.y_bf16;
}

bool ash_cuda_skinny_project(struct ash_exec *exec, const struct ash_project_args *args)
{
    struct ash_cuda_few op = {.M = args->M,
                              .K = args->K,
                              .x_is_bf16 = true,
                              .x_stride = args->K,
                              .residual = args->residual,
                              .swiglu = args->swiglu,
                              .out_count = (int)args->out_count};

    if (!args->round_bf16 || !takes_rows(args->M, args->K) || !ash_cuda_few_outs(args, op.outs)) return false;
    if (args->norm != NULL) {
        op.x = norm_rows(exec, args);
    } else if (args->x_bf16 == NULL) {
        op.x = round_rows(exec, args->x, args->x_stride, args->M, args->K);
    } else if (is_ready(args->x_bf16, args->x_stride)) {
        op.x = args->x_bf16;
        op.x_stride = args->x_stride;
    }
    if (op.x == NULL) return false;
    run_skinny(exec, &op);
    return true;
}

static bool takes_gemm(const struct ash_gemm_args *args)
{
    return args->round_bf16 && !args->cut_anywhere && !args->accumulate && args->a.col_stride == 1 &&
           takes_rows(args->M, args->K) && ash_cuda_few_takes(&args->b);
}

bool ash_cuda_skinny_gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    struct ash_cuda_few op = {.M = args->M,
                              .K = args->K,
                              .x_is_bf16 = true,
                              .x_stride = args->K,
                              .out_count = 1,
                              .outs = {{.w = args->b.data,
                                        .N = args->N,
                                        .stride = args->b.col_stride,
                                        .bias = args->bias,
                                        .y = args->c,
                                        .y_stride = args->c_stride}}};

    if (!takes_gemm(args)) return false;
    if (args->a.dtype == ASH_F32) {
        op.x = round_rows(exec, args->a.data, args->a.row_stride, args->M, args->K);
    } else if (args->a.dtype == ASH_BF16 && is_ready(args->a.data, args->a.row_stride)) {
        op.x = args->a.data;
        op.x_stride = args->a.row_stride;
    }
    if (op.x == NULL) return false;
    run_skinny(exec, &op);
    return true;
}

/* Matrix products on the GPU: which kernel takes a shape. */
#include "compute/cuda/backend_priv.h"

#include "base/assert.h"
#include "base/math.h"
#include "compute/ref/ref_priv.h"

#define LARGE_MIN 64 /* rows of c that are worth a large tile */
#define GRID_ROWS_MAX 65535
#define QUANT_THREADS 128
#define QUANT_COLS 4 /* outputs of a thread block of quant_gemm, one per warp */
#define QUANT_ROWS 8

/* Rows of c that one launch can have. */
static struct ash_gemm_args gemm_rows(const struct ash_gemm_args *args, size_t first, size_t count)
{
    struct ash_gemm_args part = *args;
    size_t bytes = args->a.dtype == ASH_F32 ? sizeof(float) : sizeof(uint16_t);

    part.M = count;
    part.a.data = (const char *)args->a.data + first * args->a.row_stride * bytes;
    part.c = args->c + first * args->c_stride;
    return part;
}

/* Which kernel, and its tile of c. */
struct choice {
    enum ash_cuda_kernel_id id;
    size_t M, N, threads;
};

/* Are both operands float32 with a stride of 1? */
static bool is_plain(const struct ash_gemm_args *args)
{
    return args->a.dtype == ASH_F32 && args->b.dtype == ASH_F32 && !args->round_bf16 &&
           (args->a.col_stride == 1 || args->a.row_stride == 1) && (args->b.col_stride == 1 || args->b.row_stride == 1);
}

static struct choice choose(const struct ash_gemm_args *args)
{
    if (args->round_bf16 && !args->cut_anywhere) return (struct choice){ASH_KERNEL_gemm_bf16, 128, 128, 256};
    if (args->M >= LARGE_MIN && is_plain(args))
        return (struct choice){ASH_KERNEL_gemm_f32_nn + (args->a.col_stride != 1 ? 2 : 0) +
                                   (args->b.row_stride == 1 ? 1 : 0),
                               128, 128, 256};
    if (args->M >= LARGE_MIN) return (struct choice){ASH_KERNEL_gemm_large, 128, 128, 256};
    return (struct choice){ASH_KERNEL_gemm_small, 8, 64, 128};
}

static void gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    struct choice choice = choose(args);
    size_t most = choice.M * GRID_ROWS_MAX;

    ash_assert(args->bias == NULL || !args->accumulate);
    if (args->N == 0) return;
    for (size_t first = 0; first < args->M; first += most) {
        struct ash_gemm_args part = gemm_rows(args, first, ash_min(args->M - first, most));
        struct ash_cuda_grid grid = {
            .x = ash_div_up(args->N, choice.N), .y = ash_div_up(part.M, choice.M), .threads = choice.threads};

        ash_cuda_run(exec, choice.id, grid, &part);
    }
}

/* Scratch holds x, quantised, and the scales of its groups. */
static void quant_gemm(struct ash_exec *exec, const struct ash_quant_args *args)
{
    size_t group = args->dtype == ASH_Q8_0 ? ASH_QUANT_BLOCK : ASH_QUANT_GROUP, groups = ash_div_up(args->K, group);
    size_t quants = ash_round_up(args->M * args->K, ASH_MEMORY_ALIGN);
    char *room;
    struct ash_cuda_quant op = {.M = args->M,
                                .N = args->N,
                                .K = args->K,
                                .groups = groups,
                                .x = args->x,
                                .x_stride = args->x_stride,
                                .w = args->w,
                                .dtype = args->dtype,
                                .y = args->y,
                                .y_stride = args->y_stride,
                                .bias = args->bias,
                                .accumulate = args->accumulate};

    ash_assert(args->K % ASH_QUANT_BLOCK == 0 && (args->bias == NULL || !args->accumulate));
    ash_assert(args->M <= (size_t)GRID_ROWS_MAX * QUANT_ROWS);
    if (args->M == 0 || args->N == 0) return;
    room = ash_cuda_scratch(exec, quants + args->M * groups * sizeof(float));
    op.qx = (int8_t *)room;
    op.dx = (float *)(room + quants);
    ash_cuda_run(
        exec, ASH_KERNEL_quant_rows,
        (struct ash_cuda_grid){.x = ash_div_up(args->M * groups * 32, QUANT_THREADS), .y = 1, .threads = QUANT_THREADS},
        &op);
    ash_cuda_run(exec, ASH_KERNEL_quant_gemm,
                 (struct ash_cuda_grid){.x = ash_div_up(args->N, QUANT_COLS),
                                        .y = ash_div_up(args->M, QUANT_ROWS),
                                        .threads = QUANT_THREADS},
                 &op);
}

static void column_sum(struct ash_exec *exec, const float *x, size_t stride, size_t rows, size_t cols, float *sum)
{
    struct ash_cuda_rows op = {.a = x, .count = stride, .rows = rows, .cols = cols, .out = sum};

    ash_cuda_run(exec, ASH_KERNEL_column_sum, ash_cuda_grid_columns(cols), &op);
}

const struct ash_matrix_ops ash_cuda_matrix = {
    .gemm = gemm, .quant_gemm = quant_gemm, .project = ash_ref_project, .column_sum = column_sum};

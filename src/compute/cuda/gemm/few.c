/* See few.h. A thread block per multiprocessor keeps all rows of x in shared memory; its warps share out the rows of
 * weights. */
#include "compute/cuda/gemm/few.h"

#include "base/assert.h"
#include "base/math.h"
#include "compute/blocks.h"
#include "compute/cuda/host/ahead.h"

#define CHUNK 8           /* values of 16 bytes, which is how the kernel reads */
#define ROWS ((size_t)16) /* of weights, that a warp multiplies at a time */
#define THREADS (ASH_CUDA_FEW_WARPS * 32)
#define IDLE_SHARE 10                     /* one of this many warps may be idle in the last round */
#define X_BYTES_MAX ((size_t)30 << 10)    /* of x as bf16: more of it takes longer to come than batch.cu's tiles */
#define NORM_VALUES_MAX ((size_t)8 << 10) /* of x, if it is normed */

/* A kernel: most warps that multiply, k of a tile, tiles of a warp's ring. */
struct few_kernel {
    enum ash_cuda_kernel_id id; /* for 8 rows of x; the next is for 16 */
    size_t warps, tile_k, ring_bytes;
};

static const struct few_kernel few_kernels[] = {
    {ASH_KERNEL_few_2_8, 2, 256, ASH_CUDA_FEW_RING_BYTES(256, 9)},
    {ASH_KERNEL_few_4_8, 4, 128, ASH_CUDA_FEW_RING_BYTES(128, 9)},
    {ASH_KERNEL_few_8_8, ASH_CUDA_FEW_WARPS, 64, ASH_CUDA_FEW_RING_BYTES(64, 8)},
};

size_t ash_cuda_few_warps(struct ash_exec *exec, size_t groups, size_t warps_max)
{
    size_t sm_count = (size_t)ash_cuda_get_facts(exec->cuda->cuda)->sm_count, warps, most = SIZE_MAX;

    for (warps = 1; warps <= warps_max; warps++)
        most = ash_min(most, ash_round_up(groups, sm_count * warps));
    most = ash_max(most, groups + groups / IDLE_SHARE);
    for (warps = warps_max; ash_round_up(groups, sm_count * warps) > most;)
        warps--;
    return warps;
}

void ash_cuda_few_ahead(struct ash_exec *exec, struct ash_cuda_few *op, size_t wave, size_t rows)
{
    struct ash_cuda_ahead reads = {.bytes = (unsigned)(op->K * sizeof(uint16_t))};
    size_t each = op->swiglu ? rows / 2 : rows;

    for (int i = 0; i < op->out_count; i++) {
        const struct ash_cuda_few_out *out = &op->outs[i];
        size_t groups = ash_min(wave, op->swiglu ? op->groups : out->groups);

        reads.parts[i].data = (const char *)out->w;
        reads.parts[i].stride = out->stride * sizeof(uint16_t);
        reads.parts[i].count = (unsigned)ash_min(out->N, groups * each);
        if (!op->swiglu) wave -= groups;
    }
    op->ahead = ash_cuda_links_next(exec->cuda, &reads);
}

static void run_few(struct ash_exec *exec, struct ash_cuda_few *op)
{
    size_t sm_count = (size_t)ash_cuda_get_facts(exec->cuda->cuda)->sm_count, x_values;
    const struct few_kernel *kernel = few_kernels;
    struct ash_cuda_grid grid = {.y = 1, .threads = THREADS, .is_early = true};

    for (int i = 0; i < (op->swiglu ? 1 : op->out_count); i++) {
        op->outs[i].groups = (unsigned)ash_div_up(op->outs[i].N, op->swiglu ? ROWS / 2 : ROWS);
        op->groups += op->outs[i].groups;
    }
    op->warps = (unsigned)ash_cuda_few_warps(exec, op->groups, ASH_CUDA_FEW_WARPS);
    while (kernel->warps < op->warps)
        kernel++;
    x_values = op->M * (ash_round_up(op->K, kernel->tile_k) + CHUNK);
    grid.x = ash_min(sm_count, op->groups);
    grid.shared_bytes = op->warps * kernel->ring_bytes + x_values * sizeof(uint16_t) +
                        (op->norm != NULL ? op->M * ash_div_up(op->K, ASH_SUM_BLOCK) * sizeof(float) : 0);
    grid.shared_bytes = ash_max(grid.shared_bytes, ASH_CUDA_FEW_ALONE_BYTES);
    ash_cuda_few_ahead(exec, op, grid.x * op->warps, ROWS);
    ash_cuda_run(exec, kernel->id + (op->M > 8 ? 1 : 0), grid, op);
}

/* Rows of x: few enough, and at 16-byte borders? */
static bool takes_x(const void *x, bool is_bf16, size_t M, size_t K, size_t stride, bool has_norm)
{
    if (M == 0 || M > ASH_CUDA_FEW_ROWS || K == 0 || K % CHUNK != 0 || stride % (is_bf16 ? CHUNK : 4) != 0 ||
        (uintptr_t)x % 16 != 0)
        return false;
    return M * K * sizeof(uint16_t) <= X_BYTES_MAX && (!has_norm || M * K <= NORM_VALUES_MAX);
}

bool ash_cuda_few_takes(const struct ash_mat *w)
{
    return w->dtype == ASH_BF16 && w->row_stride == 1 && w->col_stride % CHUNK == 0 && (uintptr_t)w->data % 16 == 0;
}

bool ash_cuda_few_overlap(const struct ash_project_args *args, const struct ash_project_out *out)
{
    const float *x_end = args->x + (args->M - 1) * args->x_stride + args->K;
    const float *y_end = out->y + (args->M - 1) * out->y_stride + out->w.N;

    return out->y < x_end && args->x < y_end;
}

bool ash_cuda_few_outs(const struct ash_project_args *args, struct ash_cuda_few_out *outs)
{
    for (size_t i = 0; i < args->out_count; i++) {
        const struct ash_project_out *out = &args->outs[i];

        if (out->w.packed || out->w.N == 0 || !ash_cuda_few_takes(&out->w.mat)) return false;
        outs[i] = (struct ash_cuda_few_out){.w = out->w.mat.data,
                                            .N = out->w.N,
                                            .stride = out->w.mat.col_stride,
                                            .bias = out->bias,
                                            .y = out->y,
                                            .y_stride = out->y_stride};
    }
    return true;
}

bool ash_cuda_few_project(struct ash_exec *exec, const struct ash_project_args *args)
{
    bool has_norm = args->norm != NULL;
    struct ash_cuda_few op = {.M = args->M,
                              .K = args->K,
                              .x = args->x,
                              .x_stride = args->x_stride,
                              .norm = args->norm,
                              .norm_eps = args->norm_eps,
                              .residual = args->residual,
                              .swiglu = args->swiglu,
                              .out_count = (int)args->out_count};

    if (args->x == NULL || !args->round_bf16 || !takes_x(args->x, false, args->M, args->K, args->x_stride, has_norm) ||
        (has_norm && (uintptr_t)args->norm % 16 != 0))
        return false;
    for (size_t i = 0; i < args->out_count; i++) {
        const struct ash_project_out *out = &args->outs[i];

        if ((i == 0 || !args->swiglu) && ash_cuda_few_overlap(args, out)) return false;
    }
    if (!ash_cuda_few_outs(args, op.outs)) return false;
    run_few(exec, &op);
    return true;
}

bool ash_cuda_few_gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    bool is_bf16 = args->a.dtype == ASH_BF16;
    struct ash_cuda_few op = {.M = args->M,
                              .K = args->K,
                              .x = args->a.data,
                              .x_is_bf16 = is_bf16,
                              .x_stride = args->a.row_stride,
                              .out_count = 1};

    if (!args->round_bf16 || args->cut_anywhere || args->accumulate || args->N == 0 || args->a.col_stride != 1 ||
        (!is_bf16 && args->a.dtype != ASH_F32) || !ash_cuda_few_takes(&args->b) ||
        !takes_x(args->a.data, is_bf16, args->M, args->K, args->a.row_stride, false))
        return false;
    op.outs[0] = (struct ash_cuda_few_out){.w = args->b.data,
                                           .N = args->N,
                                           .stride = args->b.col_stride,
                                           .bias = args->bias,
                                           .y = args->c,
                                           .y_stride = args->c_stride};
    run_few(exec, &op);
    return true;
}

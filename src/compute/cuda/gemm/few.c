/* See few.h. A thread block per multiprocessor keeps all rows of x in shared memory; its warps share the rows of
 * weights. */
#include "compute/cuda/gemm/few.h"

#include "base/assert.h"
#include "base/math.h"
#include "compute/blocks.h"

#define CHUNK 8            /* values of 16 bytes, which is how the kernel reads */
#define ROWS ((size_t)16)  /* of weights, that a warp multiplies at a time */
#define STEP 16            /* k of one product */
#define X_PAD ((size_t)64) /* bytes after x that may be read */
#define IDLE_SHARE 10      /* one of this many warps may be idle in the last round */
#define STAGES_MIN 2
#define AHEAD_K 1024                       /* of each row of weights, fetched to the L2 cache before the kernel waits */
#define X_VALUES_MAX ((size_t)30 << 10)    /* of all rows of x: leaves 48 KB for weights */
#define NORM_VALUES_MAX ((size_t)16 << 10) /* the same where they are normed: most are read twice */

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

/* Shared memory that x takes, with the sums of its blocks where it is normed. */
static size_t x_bytes(const struct ash_cuda_few *op)
{
    size_t blocks = op->norm != NULL ? op->M * op->K / ASH_SUM_BLOCK * sizeof(float) : 0;

    return op->M * (op->K + CHUNK) * sizeof(uint16_t) + blocks + X_PAD;
}

/* Stages of a warp and how many warps multiply, with all of x beside them. Returns the bytes of shared memory. */
static size_t lay_out(struct ash_exec *exec, struct ash_cuda_few *op)
{
    size_t tiles = (ASH_CUDA_FEW_PLACE_BYTES - x_bytes(op)) / ASH_CUDA_FEW_TILE_BYTES;

    op->warps = (unsigned)ash_cuda_few_warps(exec, op->groups, ash_min(tiles / STAGES_MIN, ASH_CUDA_FEW_WARPS));
    op->stages = (unsigned)(tiles / op->warps);
    return op->warps * op->stages * (size_t)ASH_CUDA_FEW_TILE_BYTES + x_bytes(op);
}

/* The same with a tile of x in each stage; a warp copies these. */
static size_t lay_out_tiled(struct ash_exec *exec, struct ash_cuda_few *op)
{
    size_t stage_bytes;

    op->warps = (unsigned)ash_cuda_few_warps(exec, op->groups, ASH_CUDA_FEW_WARPS - 1);
    stage_bytes = op->warps * (size_t)ASH_CUDA_FEW_TILE_BYTES + ASH_CUDA_FEW_X_TILE_BYTES;
    op->stages = (unsigned)(ASH_CUDA_FEW_PLACE_BYTES / stage_bytes);
    return op->stages * stage_bytes;
}

static void run_few(struct ash_exec *exec, struct ash_cuda_few *op, bool is_tiled)
{
    size_t sm_count = (size_t)ash_cuda_get_facts(exec->cuda->cuda)->sm_count, shared_bytes;

    op->groups = 0;
    for (int i = 0; i < (op->swiglu ? 1 : op->out_count); i++) {
        op->outs[i].groups = (unsigned)ash_div_up(op->outs[i].N, op->swiglu ? ROWS / 2 : ROWS);
        op->groups += op->outs[i].groups;
    }
    op->ahead = AHEAD_K;
    shared_bytes = is_tiled ? lay_out_tiled(exec, op) : lay_out(exec, op);
    ash_cuda_run(exec, is_tiled ? ASH_KERNEL_few_tiled : ASH_KERNEL_few,
                 (struct ash_cuda_grid){.x = ash_min(sm_count, op->groups),
                                        .y = 1,
                                        .threads = ASH_CUDA_FEW_THREADS,
                                        .shared_bytes = ash_max(shared_bytes, ASH_CUDA_FEW_PLACE_BYTES_MIN),
                                        .is_early = true},
                 op);
}

bool ash_cuda_few_run_tiled(struct ash_exec *exec, struct ash_cuda_few *op)
{
    if (op->M > ASH_CUDA_FEW_ROWS || op->K % STEP != 0) return false;
    run_few(exec, op, true);
    return true;
}

/* Rows of x: few enough, and at 16-byte borders? */
static bool takes_x(const void *x, bool is_bf16, size_t M, size_t K, size_t stride, bool has_norm)
{
    if (M == 0 || M > ASH_CUDA_FEW_ROWS || K == 0 || K % STEP != 0 || stride % (is_bf16 ? CHUNK : 4) != 0 ||
        (uintptr_t)x % 16 != 0)
        return false;
    return M * K <= (has_norm ? NORM_VALUES_MAX : X_VALUES_MAX);
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
    run_few(exec, &op, false);
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
    run_few(exec, &op, false);
    return true;
}

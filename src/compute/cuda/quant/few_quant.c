/* Products of a few rows with quantised weights: see few.h. */
#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/gemm/few.h"
#include "compute/quant.h"

#define ROWS ((size_t)8)    /* of weights, that a warp multiplies at a time */
#define BLOCKS ((size_t)16) /* of a tile */
#define THREADS (ASH_CUDA_FEW_QUANT_WARPS * 32)
#define X_BYTES_MAX ((size_t)64 << 10)
#define NORM_BYTES_MAX ((size_t)32 << 10)

/* A type's kernels: for up to 4 warps and for more; tiles of a warp's ring. */
struct quant_kernel {
    enum ash_dtype dtype;
    enum ash_cuda_kernel_id id;
    size_t stages[2];
};

static const struct quant_kernel quant_kernels[] = {
    {ASH_Q8_0, ASH_KERNEL_few_q8_0_4, {4, 3}},
    {ASH_Q8_W, ASH_KERNEL_few_q8_w_4, {4, 3}},
    {ASH_Q4_0, ASH_KERNEL_few_q4_0_4, {7, 4}},
};

static const struct quant_kernel *kernel_of(enum ash_dtype dtype)
{
    for (size_t i = 0; i < ASH_COUNT(quant_kernels); i++)
        if (quant_kernels[i].dtype == dtype) return &quant_kernels[i];
    return NULL;
}

/* Rows of x: few enough, whole groups, at 16-byte borders? */
static bool takes_x(const struct ash_project_args *args)
{
    size_t count = args->M * args->K;
    bool at_borders = args->x_stride % 4 == 0 && ((uintptr_t)args->x | (uintptr_t)args->norm) % 16 == 0;

    if (args->x == NULL || count == 0 || args->M > ASH_CUDA_FEW_QUANT_ROWS || args->K % ASH_QUANT_GROUP != 0)
        return false;
    return at_borders && count <= X_BYTES_MAX && (args->norm == NULL || count * sizeof(float) <= NORM_BYTES_MAX);
}

static bool takes(const struct ash_project_args *args)
{
    enum ash_dtype dtype = args->outs[0].w.mat.dtype;

    if (kernel_of(dtype) == NULL || !takes_x(args)) return false;
    for (size_t i = 0; i < args->out_count; i++) {
        const struct ash_project_out *out = &args->outs[i];

        if (out->w.packed || out->w.N == 0 || out->w.mat.dtype != dtype || (uintptr_t)out->w.mat.data % 16 != 0)
            return false;
        if ((i == 0 || !args->swiglu) && ash_cuda_few_overlap(args, out)) return false;
    }
    return true;
}

static void run(struct ash_exec *exec, struct ash_cuda_few_quant *op, enum ash_dtype dtype)
{
    const struct quant_kernel *kernel = kernel_of(dtype);
    struct ash_cuda_grid grid = {.y = 1, .threads = THREADS, .is_early = true};
    size_t blocks = op->K / ASH_QUANT_BLOCK, more;

    for (int i = 0; i < (op->swiglu ? 1 : op->out_count); i++) {
        op->outs[i].groups = (unsigned)ash_div_up(op->outs[i].N, op->swiglu ? ROWS / 2 : ROWS);
        op->groups += op->outs[i].groups;
    }
    op->warps = (unsigned)ash_cuda_few_warps(exec, op->groups, ASH_CUDA_FEW_QUANT_WARPS);
    op->tiles = (unsigned)ash_div_up(blocks, BLOCKS);
    op->row_bytes = ash_dtype_size(dtype, op->K);
    op->x_bytes =
        ash_round_up(op->M * (op->K + ash_quant_groups(dtype, op->K) * sizeof(float) + blocks * sizeof(int32_t)), 16);
    more = op->warps > 4 ? 1 : 0;
    grid.x = ash_min((size_t)ash_cuda_get_facts(exec->cuda->cuda)->sm_count, op->groups);
    grid.shared_bytes = op->warps * (kernel->stages[more] * ROWS * ASH_CUDA_FEW_QUANT_PITCH(dtype) +
                                     op->M * ASH_CUDA_FEW_QUANT_PARTS_BYTES) +
                        op->x_bytes + (op->norm != NULL ? op->M * op->K * sizeof(float) : 0);
    grid.shared_bytes = ash_max(grid.shared_bytes, ((size_t)116 << 10));
    ash_cuda_run(exec, kernel->id + more, grid, op);
}

bool ash_cuda_few_quant_project(struct ash_exec *exec, const struct ash_project_args *args)
{
    struct ash_cuda_few_quant op = {.M = args->M,
                                    .K = args->K,
                                    .x = args->x,
                                    .x_stride = args->x_stride,
                                    .norm = args->norm,
                                    .norm_eps = args->norm_eps,
                                    .round_bf16 = args->round_bf16,
                                    .residual = args->residual,
                                    .swiglu = args->swiglu,
                                    .out_count = (int)args->out_count};

    if (!takes(args)) return false;
    for (size_t i = 0; i < args->out_count; i++)
        op.outs[i] = (struct ash_cuda_few_quant_out){.w = args->outs[i].w.mat.data,
                                                     .N = args->outs[i].w.N,
                                                     .bias = args->outs[i].bias,
                                                     .y = args->outs[i].y,
                                                     .y_stride = args->outs[i].y_stride};
    run(exec, &op, args->outs[0].w.mat.dtype);
    return true;
}

bool ash_cuda_few_quant_gemm(struct ash_exec *exec, const struct ash_quant_args *args)
{
    struct ash_project_args project = {.M = args->M,
                                       .K = args->K,
                                       .x = args->x,
                                       .x_stride = args->x_stride,
                                       .out_count = 1,
                                       .outs[0] = {.w = {.N = args->N, .mat = {.data = args->w, .dtype = args->dtype}},
                                                   .bias = args->bias,
                                                   .y = args->y,
                                                   .y_stride = args->y_stride}};

    return !args->accumulate && ash_cuda_few_quant_project(exec, &project);
}

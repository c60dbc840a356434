/* Quantised weights: packing them, and products with packed ones, of which each launch takes a few rows of x. */
#include "compute/cuda/quant/few_quant.h"

#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/host/ahead.h"
#include "compute/cuda/gemm/few.h"
#include "compute/cuda/quant/packed.h"
#include "compute/quant.h"

#define THREADS (ASH_CUDA_FEW_QUANT_WARPS * 32)
#define X_BYTES_MAX ((size_t)60 << 10) /* of quants, or of rows that are normed: leaves half of shared memory */
#define STAGES_MIN 2

/* Kernels of a type: for one row of x, and after it for up to 4 and up to 8. */
static const struct {
    enum ash_dtype dtype;
    enum ash_cuda_kernel_id id;
} kernels[] = {{ASH_Q8_0, ASH_KERNEL_few_q8_0_1}, {ASH_Q8_W, ASH_KERNEL_few_q8_w_1}, {ASH_Q4_0, ASH_KERNEL_few_q4_0_1},
               {ASH_Q4_K, ASH_KERNEL_few_q4_k_1}, {ASH_Q5_K, ASH_KERNEL_few_q5_k_1}, {ASH_Q6_K, ASH_KERNEL_few_q6_k_1}};

static enum ash_cuda_kernel_id kernel_of(enum ash_dtype dtype)
{
    size_t i = 0;

    while (kernels[i].dtype != dtype)
        i++;
    return kernels[i].id;
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

static size_t panel_bytes(enum ash_dtype dtype, size_t K)
{
    return ash_cuda_units(K) * ash_cuda_unit_bytes((int)dtype);
}

size_t ash_cuda_packed_bytes(enum ash_dtype dtype, size_t N, size_t K)
{
    if (ash_cuda_unit_of((int)dtype).quants == 0) return 0;
    return ash_div_up(N, ASH_CUDA_PANEL_ROWS) * panel_bytes(dtype, K);
}

void ash_cuda_pack(struct ash_exec *exec, const struct ash_weight *w, size_t K, size_t first, size_t count,
                   void *packed)
{
    size_t row_bytes = ash_dtype_size(w->mat.dtype, K);
    struct ash_cuda_quant_pack op = {.w = (const uint8_t *)w->mat.data + first * row_bytes,
                                     .dtype = (int)w->mat.dtype,
                                     .K = K,
                                     .rows = count,
                                     .row_bytes = row_bytes,
                                     .panels = ash_div_up(count, ASH_CUDA_PANEL_ROWS)};
    size_t lanes = op.panels * ash_cuda_units(K) * ASH_CUDA_UNIT_LANES;

    ash_assert(first % ASH_PACK_ROWS == 0);
    op.packed = (uint8_t *)packed + first / ASH_CUDA_PANEL_ROWS * panel_bytes(w->mat.dtype, K);
    if (lanes == 0) return;
    ash_cuda_run(exec, ASH_KERNEL_quant_pack,
                 (struct ash_cuda_grid){.x = ash_div_up(lanes, THREADS), .y = 1, .threads = THREADS}, &op);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Bytes of a row of x as quants, with scales and sums; a multiple of 16. */
static size_t row_x_bytes(enum ash_dtype dtype, size_t K)
{
    size_t groups = dtype == ASH_Q8_0 ? ASH_QUANT_GROUP_BLOCKS : 1;

    return ash_cuda_units(K) * (ASH_CUDA_UNIT_K + ASH_CUDA_UNIT_K / 16 * sizeof(int32_t) + groups * sizeof(float));
}

/* A thread block's warps read a panel each at first: with SwiGLU one of gate. */
static struct ash_cuda_ahead find_ahead(struct ash_exec *exec, const struct ash_cuda_few_quant *op, size_t wave)
{
    struct ash_cuda_ahead reads = {.bytes = (unsigned)op->panel_bytes};

    for (int i = 0; i < (op->swiglu ? 1 : op->out_count); i++) {
        size_t panels = ash_min(wave, op->outs[i].groups);

        reads.parts[i].data = (const char *)op->outs[i].w;
        reads.parts[i].stride = op->panel_bytes;
        reads.parts[i].count = (unsigned)panels;
        wave -= panels;
    }
    return ash_cuda_links_next(exec->cuda, &reads);
}

static void run(struct ash_exec *exec, struct ash_cuda_few_quant *op, enum ash_dtype dtype)
{
    size_t stage_bytes = ASH_CUDA_FEW_QUANT_UNITS * (size_t)ash_cuda_unit_bytes((int)dtype), stages, x_bytes;
    struct ash_cuda_grid grid = {.y = 1, .threads = THREADS, .is_early = true};

    op->groups = 0;
    for (int i = 0; i < (op->swiglu ? 1 : op->out_count); i++) {
        op->outs[i].groups = (unsigned)ash_div_up(op->outs[i].N, ASH_CUDA_PANEL_ROWS);
        op->groups += op->outs[i].groups;
    }
    if (op->groups == 0) return;
    op->units = (unsigned)ash_cuda_units(op->K);
    op->panel_bytes = panel_bytes(dtype, op->K);
    op->x_bytes = ash_round_up(op->M * row_x_bytes(dtype, op->K), 16);
    x_bytes = op->x_bytes + (op->norm != NULL ? op->M * op->K * sizeof(float) : 0);
    stages = ash_min((ASH_CUDA_FEW_QUANT_PLACE_BYTES - x_bytes) / stage_bytes, ASH_CUDA_FEW_QUANT_STAGES_MAX);
    op->warps = (unsigned)ash_cuda_few_warps(exec, op->groups, ash_min(stages / STAGES_MIN, ASH_CUDA_FEW_QUANT_WARPS));
    op->stages = (unsigned)(stages / op->warps);
    grid.x = ash_min((size_t)ash_cuda_get_facts(exec->cuda->cuda)->sm_count, op->groups);
    grid.shared_bytes = ash_max(op->warps * op->stages * stage_bytes + x_bytes, ASH_CUDA_FEW_QUANT_PLACE_BYTES_MIN);
    op->ahead = find_ahead(exec, op, grid.x * op->warps);
    ash_cuda_run(exec, kernel_of(dtype) + (op->M > 4 ? 2 : op->M > 1 ? 1 : 0), grid, op);
}

/* Does any output lie where x is read? */
static bool overlaps(const struct ash_project_args *args)
{
    for (size_t i = 0; i < (args->swiglu ? 1 : args->out_count); i++)
        if (ash_cuda_few_overlap(args, &args->outs[i])) return true;
    return false;
}

/* Rows of x to scratch memory: normed, or as they are. */
static void copy_rows(struct ash_exec *exec, struct ash_project_args *args)
{
    float *rows = ash_cuda_scratch(exec, args->M * args->K * sizeof(*rows));

    if (args->norm != NULL)
        exec->ops->norm->rms_forward(exec, &(struct ash_norm_args){.rows = args->M,
                                                                   .groups = 1,
                                                                   .cols = args->K,
                                                                   .x_stride = args->x_stride,
                                                                   .y_stride = args->K,
                                                                   .x = args->x,
                                                                   .weight = args->norm,
                                                                   .eps = args->norm_eps,
                                                                   .y = rows,
                                                                   .round_bf16 = args->round_bf16});
    else
        exec->ops->row->copy(exec, &(struct ash_copy_args){.rows = args->M,
                                                           .blocks = 1,
                                                           .cols = args->K,
                                                           .src = args->x,
                                                           .src_row = args->x_stride,
                                                           .dst = rows,
                                                           .dst_dtype = ASH_F32,
                                                           .dst_row = args->K});
    args->x = rows;
    args->x_stride = args->K;
    args->norm = NULL;
}

/* Rows first ... first + count - 1 of x. */
static void run_rows(struct ash_exec *exec, const struct ash_project_args *args, size_t first, size_t count)
{
    enum ash_dtype dtype = args->outs[0].w.mat.dtype;
    struct ash_cuda_few_quant op = {.M = count,
                                    .K = args->K,
                                    .x = args->x + first * args->x_stride,
                                    .x_stride = args->x_stride,
                                    .norm = args->norm,
                                    .norm_eps = args->norm_eps,
                                    .round_bf16 = args->round_bf16,
                                    .residual = args->residual,
                                    .swiglu = args->swiglu,
                                    .out_count = (int)args->out_count};

    for (size_t i = 0; i < args->out_count; i++) {
        const struct ash_project_out *out = &args->outs[i];

        ash_assert(out->w.packed && out->w.mat.dtype == dtype);
        op.outs[i] = (struct ash_cuda_few_quant_out){.w = out->w.mat.data,
                                                     .N = out->w.N,
                                                     .bias = out->bias,
                                                     .y = out->y + first * out->y_stride,
                                                     .y_stride = out->y_stride};
    }
    run(exec, &op, dtype);
}

/* Can the kernel read x where it is, and norm it? Normed rows are float32 in shared memory: one of them. */
static bool reads_x(const struct ash_project_args *args)
{
    size_t bytes = args->K * sizeof(float) + row_x_bytes(args->outs[0].w.mat.dtype, args->K);

    if (args->x_stride % 4 != 0 || ((uintptr_t)args->x | (uintptr_t)args->norm) % 16 != 0) return false;
    return !overlaps(args) && (args->norm == NULL || (args->M == 1 && bytes <= X_BYTES_MAX));
}

void ash_cuda_project_packed(struct ash_exec *exec, const struct ash_project_args *args)
{
    struct ash_project_args all = *args;
    size_t most;

    ash_assert(args->x != NULL && ash_cuda_unit_of((int)args->outs[0].w.mat.dtype).quants > 0);
    if (args->M == 0 || args->K == 0) return;
    if (!reads_x(args)) copy_rows(exec, &all);
    most = ash_min(X_BYTES_MAX / row_x_bytes(args->outs[0].w.mat.dtype, all.K), ASH_CUDA_FEW_QUANT_ROWS);
    most = ash_max(most, 1);
    for (size_t first = 0; first < all.M; first += most)
        run_rows(exec, &all, first, ash_min(all.M - first, most));
}

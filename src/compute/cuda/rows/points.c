/* What the GPU does element by element or row by row: embedding, activations, row arithmetic, routing,
 * the optimizer. Each op fills its kernel's arguments and launches it. */
#include <math.h>
#include <string.h>
#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/gemm/grouped.h"
#include "compute/cuda/host/backend_priv.h"
#include "compute/drop.h"

/* ---- embedding --------------------------------------------------------------------------------------------------- */

static void embed_gather(struct ash_exec *exec, const struct ash_embed_args *args)
{
    struct ash_cuda_embed op = {.table = args->table,
                                .dtype = args->dtype,
                                .cols = args->cols,
                                .rows = args->rows,
                                .ids = args->ids,
                                .add = args->add,
                                .out = args->out};

    ash_cuda_run(exec, ASH_KERNEL_embed_gather, ash_cuda_grid_elements(args->rows * args->cols), &op);
}

#define EMBED_BLOCKS_MAX 1056 /* a few for each multiprocessor, which walk in strides */

static void embed_scatter_add(struct ash_exec *exec, float *table, size_t cols, const int32_t *ids, size_t rows,
                              const float *grad)
{
    struct ash_cuda_embed op = {.cols = cols, .rows = rows, .ids = ids, .grad = grad, .dtable = table};
    size_t warps = rows * ash_div_up(cols, ASH_CUDA_EMBED_COLS),
           blocks = ash_div_up(warps, ASH_CUDA_EMBED_ADD_THREADS / 32);

    ash_assert(warps <= INT32_MAX);
    if (warps == 0) return;
    op.order = ash_cuda_scratch(exec, (3 * rows + 2) * sizeof(*op.order));
    op.spare = op.order + rows;
    op.starts = op.spare + rows;
    op.count = op.starts + rows + 1;
    ash_cuda_run(exec, ASH_KERNEL_embed_sort,
                 (struct ash_cuda_grid){.x = 1, .y = 1, .threads = ASH_CUDA_EMBED_SORT_THREADS}, &op);
    ash_cuda_run(
        exec, ASH_KERNEL_embed_scatter_add,
        (struct ash_cuda_grid){.x = ash_min(blocks, EMBED_BLOCKS_MAX), .y = 1, .threads = ASH_CUDA_EMBED_ADD_THREADS},
        &op);
}

const struct ash_embed_ops ash_cuda_embed = {.gather = embed_gather, .scatter_add = embed_scatter_add};

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* Can rows that are so long and so far apart be read eight bf16 values at a time? */
static bool is_eights(size_t count, size_t cols, size_t stride)
{
    return (count | cols | stride) % ASH_CUDA_SWIGLU_EACH == 0;
}

static void swiglu_bf16(struct ash_exec *exec, const struct ash_swiglu_args *args)
{
    uintptr_t places = (uintptr_t)args->gate_bf16 | (uintptr_t)args->up_bf16 | (uintptr_t)args->out_bf16;
    bool is_wide = args->gate_bf16 != NULL && args->up_bf16 != NULL && args->out_bf16 != NULL && places % 16 == 0 &&
                   is_eights(args->count, args->cols, args->stride);

    ash_cuda_run(exec, is_wide ? ASH_KERNEL_swiglu_eight : ASH_KERNEL_swiglu_any,
                 ash_cuda_grid_elements(is_wide ? args->count / ASH_CUDA_SWIGLU_EACH : args->count), args);
}

static void swiglu_back_bf16(struct ash_exec *exec, const struct ash_swiglu_grad_args *args)
{
    const uint16_t *all[] = {args->gate_bf16, args->up_bf16, args->dout_bf16, args->dgate_bf16, args->dup_bf16};
    bool is_wide = is_eights(args->count, args->cols, args->stride) && (uintptr_t)args->hidden_bf16 % 16 == 0;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        is_wide = is_wide && all[i] != NULL && (uintptr_t)all[i] % 16 == 0;
    ash_cuda_run(exec, is_wide ? ASH_KERNEL_swiglu_back_eight : ASH_KERNEL_swiglu_back_any,
                 ash_cuda_grid_elements(is_wide ? args->count / ASH_CUDA_SWIGLU_EACH : args->count), args);
}

static void swiglu_forward(struct ash_exec *exec, const struct ash_swiglu_args *args)
{
    if (args->round_bf16) {
        swiglu_bf16(exec, args);
        return;
    }
    struct ash_cuda_rows op = {.a = args->gate,
                               .b = args->up,
                               .count = args->count,
                               .cols = args->cols,
                               .slots = args->stride,
                               .out = args->out,
                               .out_bf16 = args->out_bf16};

    ash_cuda_run(exec, ASH_KERNEL_swiglu_forward, ash_cuda_grid_elements(ash_div_up(args->count, 2)), &op);
}

static void swiglu_backward(struct ash_exec *exec, const struct ash_swiglu_grad_args *args)
{
    if (args->round_bf16) {
        swiglu_back_bf16(exec, args);
        return;
    }
    struct ash_cuda_rows op = {.a = args->gate,
                               .b = args->up,
                               .c = args->dout,
                               .count = args->count,
                               .cols = args->cols,
                               .slots = args->stride,
                               .out = args->dgate,
                               .out2 = args->dup,
                               .out_bf16 = args->dgate_bf16,
                               .out2_bf16 = args->dup_bf16};

    ash_cuda_run(exec, ASH_KERNEL_swiglu_backward, ash_cuda_grid_elements(ash_div_up(args->count, 2)), &op);
}

static void gelu_forward(struct ash_exec *exec, enum ash_gelu kind, const float *x, size_t count, float *out)
{
    struct ash_cuda_rows op = {.a = x, .count = count, .out = out, .add = kind == ASH_GELU_ERF};

    ash_cuda_run(exec, ASH_KERNEL_gelu_forward, ash_cuda_grid_elements(count), &op);
}

static void gelu_backward(struct ash_exec *exec, enum ash_gelu kind, const float *x, const float *dout, size_t count,
                          float *dx)
{
    struct ash_cuda_rows op = {.a = x, .c = dout, .count = count, .out = dx, .add = kind == ASH_GELU_ERF};

    ash_cuda_run(exec, ASH_KERNEL_gelu_backward, ash_cuda_grid_elements(count), &op);
}

const struct ash_act_ops ash_cuda_act = {.swiglu_forward = swiglu_forward,
                                         .swiglu_backward = swiglu_backward,
                                         .gelu_forward = gelu_forward,
                                         .gelu_backward = gelu_backward};

/* ---- row arithmetic ---------------------------------------------------------------------------------------------- */

static void row_copy(struct ash_exec *exec, const struct ash_copy_args *args)
{
    ash_cuda_run(exec, ASH_KERNEL_row_copy, ash_cuda_grid_elements(args->rows * args->blocks * args->cols), args);
}

static void row_add(struct ash_exec *exec, const float *a, const float *b, size_t count, float *out)
{
    struct ash_cuda_rows op = {.a = a, .b = b, .count = count, .out = out};

    ash_cuda_run(exec, ASH_KERNEL_row_add, ash_cuda_grid_elements(count), &op);
}

static void row_scale(struct ash_exec *exec, float *x, float factor, size_t count)
{
    struct ash_cuda_rows op = {.factor = factor, .count = count, .out = x};

    ash_cuda_run(exec, ASH_KERNEL_row_scale, ash_cuda_grid_elements(count), &op);
}

/* Four columns of a thread where rows allow it. */
static void row_scale_rows(struct ash_exec *exec, const struct ash_scale_rows_args *args)
{
    uintptr_t places = (uintptr_t)args->x | (uintptr_t)args->out | (uintptr_t)args->out_bf16;
    bool is_wide = args->cols % 4 == 0 && places % 16 == 0;
    size_t wide = is_wide ? 4 : 1;
    struct ash_cuda_rows op = {.a = args->x,
                               .b = args->factors,
                               .out = args->out,
                               .out_bf16 = args->out_bf16,
                               .cols = args->cols / wide,
                               .count = args->rows * args->cols / wide,
                               .add = is_wide};

    ash_cuda_run(exec, ASH_KERNEL_row_scale_rows, ash_cuda_grid_elements(op.count), &op);
}

static void row_round(struct ash_exec *exec, const float *x, size_t count, float *out)
{
    struct ash_cuda_rows op = {.a = x, .count = count, .out = out};

    ash_cuda_run(exec, ASH_KERNEL_row_round, ash_cuda_grid_elements(count), &op);
}

static void row_gather(struct ash_exec *exec, const float *x, size_t cols, const int32_t *index, size_t rows,
                       float *out)
{
    struct ash_cuda_rows op = {.a = x, .cols = cols, .rows = rows, .index = index, .out = out};

    ash_cuda_run(exec, ASH_KERNEL_row_gather, ash_cuda_grid_elements(rows * cols), &op);
}

static void row_combine(struct ash_exec *exec, const struct ash_slots_args *args)
{
    struct ash_cuda_rows op = {.a = args->y,
                               .cols = args->cols,
                               .rows = args->rows,
                               .slots = args->slots,
                               .index = args->where,
                               .weight = args->weight,
                               .add = args->add,
                               .out = args->out};

    ash_cuda_run(exec, ASH_KERNEL_row_combine, ash_cuda_grid_elements(args->rows * args->cols), &op);
}

static void row_slot_dot(struct ash_exec *exec, const struct ash_slots_args *args)
{
    struct ash_cuda_rows op = {.a = args->x,
                               .b = args->y,
                               .cols = args->cols,
                               .rows = args->rows,
                               .slots = args->slots,
                               .index = args->where,
                               .out = args->out};

    ash_cuda_run(exec, ASH_KERNEL_row_slot_dot, ash_cuda_grid_rows(args->rows * args->slots), &op);
}

/* A thread for each draw. */
static void row_drop(struct ash_exec *exec, const struct ash_drop_args *args)
{
    size_t groups = ash_div_up(args->first_col % ASH_DROP_DRAWS + args->cols, ASH_DROP_DRAWS);

    ash_cuda_run(exec, ASH_KERNEL_row_drop, ash_cuda_grid_elements(args->rows * groups), args);
}

const struct ash_row_ops ash_cuda_row = {.copy = row_copy,
                                         .add = row_add,
                                         .scale = row_scale,
                                         .scale_rows = row_scale_rows,
                                         .round_bf16 = row_round,
                                         .gather = row_gather,
                                         .combine = row_combine,
                                         .slot_dot = row_slot_dot,
                                         .drop = row_drop};

/* ---- routing ----------------------------------------------------------------------------------------------------- */

static void check_route(const struct ash_route_args *args)
{
    ash_assert(args->experts <= ASH_ROUTE_EXPERTS_MAX && args->choices <= ASH_ROUTE_CHOICES_MAX);
    ash_assert(args->choices <= args->experts);
    ash_assert(args->groups <= 1 || (args->experts % args->groups == 0 && args->top_groups <= args->groups));
}

static void route_forward(struct ash_exec *exec, const struct ash_route_args *args)
{
    check_route(args);
    ash_cuda_run(exec, ASH_KERNEL_route_forward, (struct ash_cuda_grid){.x = args->rows, .y = 1, .threads = 32}, args);
}

static void route_backward(struct ash_exec *exec, const struct ash_route_args *args)
{
    check_route(args);
    ash_cuda_run(exec, ASH_KERNEL_route_backward, (struct ash_cuda_grid){.x = args->rows, .y = 1, .threads = 32}, args);
}

/* Waits where the host sizes the products by the offsets. */
static void route_group(struct ash_exec *exec, const struct ash_route_group_args *args)
{
    struct ash_cuda_group op = {.index = args->index,
                                .rows = args->rows,
                                .choices = args->choices,
                                .experts = args->experts,
                                .order = args->order,
                                .flat = args->flat,
                                .where = args->where,
                                .offsets = exec->cuda->results.data,
                                .starts = args->starts};
    size_t offsets_bytes = (args->experts + 1) * sizeof(*args->offsets);

    ash_assert(args->experts <= ASH_ROUTE_EXPERTS_MAX && offsets_bytes <= ASH_CUDA_RESULTS_BYTES);
    ash_cuda_run(exec, ASH_KERNEL_route_group, (struct ash_cuda_grid){.x = 1, .y = 1, .threads = ASH_ROUTE_EXPERTS_MAX},
                 &op);
    if (args->offsets != NULL)
        ash_cuda_read(exec->cuda->cuda, args->offsets, exec->cuda->results.data, offsets_bytes, NULL);
}

const struct ash_route_ops ash_cuda_route = {.forward = route_forward,
                                             .backward = route_backward,
                                             .group = route_group,
                                             .grouped = ash_cuda_grouped,
                                             .grouped_grad = ash_cuda_grouped_grad};

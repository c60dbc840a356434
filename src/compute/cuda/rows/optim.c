/* The optimizer on the GPU: ranges of flat arrays go there as tables, and one kernel walks over all of a table. */
#include "compute/cuda/host/backend_priv.h"

#include <math.h>
#include "base/assert.h"
#include "base/math.h"

#define TABLE_RANGES 512 /* of one launch */
#define BLOCKS_MAX 1056  /* a few for each multiprocessor, which walk in strides */

/* A launch's ranges. */
struct table {
    struct ash_cuda_range list[TABLE_RANGES];
    size_t count, chunks;
};

static bool is_at_border(const void *array, size_t first, size_t element_bytes)
{
    return ((uintptr_t)array + first * element_bytes) % (4 * element_bytes) == 0;
}

static void add_range(struct table *table, struct ash_cuda_range range)
{
    range.chunk = table->chunks;
    table->chunks += ash_div_up(range.count, ASH_CUDA_RANGE_CHUNK);
    if (range.count > 0) table->list[table->count++] = range;
}

/* The table as it lies on the GPU when later work runs. */
static struct ash_cuda_ranges upload(struct ash_exec *exec, const struct table *table)
{
    return (struct ash_cuda_ranges){
        .list = ash_cuda_upload(exec->cuda->cuda, table->list, table->count * sizeof(table->list[0])),
        .count = table->count,
        .chunks = table->chunks};
}

static struct ash_cuda_grid grid_of(const struct table *table)
{
    return (struct ash_cuda_grid){.x = ash_min(table->chunks, BLOCKS_MAX), .y = 1, .threads = ASH_CUDA_RANGE_THREADS};
}

/* ---- AdamW and Lion ---------------------------------------------------------------------------------------------- */

static struct ash_cuda_range adamw_range(const struct ash_adamw_args *args, const struct ash_adamw_range *range)
{
    struct ash_cuda_range out = {.param = range->param,
                                 .moment = range->moment,
                                 .grad = range->grad,
                                 .count = range->count,
                                 .decay = (float)(1.0 - (double)args->lr * (double)range->weight_decay)};

    out.is_wide = is_at_border(args->param, range->param, sizeof(float)) &&
                  is_at_border(args->param_out, range->param, sizeof(float)) &&
                  is_at_border(args->m, range->moment, sizeof(float)) &&
                  is_at_border(args->m_out, range->moment, sizeof(float)) &&
                  is_at_border(args->v, range->moment, sizeof(float)) &&
                  is_at_border(args->v_out, range->moment, sizeof(float)) &&
                  is_at_border(args->grad, range->grad, sizeof(float)) &&
                  is_at_border(args->param_bf16, range->param, sizeof(uint16_t));
    return out;
}

/* Launch kernel id over all ranges. */
static void run_update(struct ash_exec *exec, enum ash_cuda_kernel_id id, const struct ash_adamw_args *args, float step,
                       float root2)
{
    struct ash_cuda_adamw op = {
        .args = *args,
        .grow1 = (float)(1.0 - (double)args->beta1),
        .grow2 = (float)(1.0 - (double)args->beta2),
        .step = step,
        .root2 = root2,
    };

    op.args.ranges = NULL; /* the host's: kernels have op.ranges */
    for (size_t r = 0; r < args->range_count;) {
        struct table table;

        for (table.count = table.chunks = 0; r < args->range_count && table.count < TABLE_RANGES; r++)
            add_range(&table, adamw_range(args, &args->ranges[r]));
        if (table.count == 0) continue;
        op.ranges = upload(exec, &table);
        ash_cuda_run(exec, id, grid_of(&table), &op);
    }
}

static void adamw(struct ash_exec *exec, const struct ash_adamw_args *args)
{
    run_update(exec, ASH_KERNEL_adamw, args, args->lr / args->correction1, sqrtf(args->correction2));
}

static void lion(struct ash_exec *exec, const struct ash_adamw_args *args)
{
    run_update(exec, ASH_KERNEL_lion, args, args->lr, 1.0f);
}

/* ---- sums of squares --------------------------------------------------------------------------------------------- */

static void run_squares(struct ash_exec *exec, enum ash_cuda_kernel_id id, const struct ash_squares_args *args)
{
    struct ash_cuda_squares op = {.x = args->x, .sum = args->sum};

    for (size_t r = 0; r < args->range_count;) {
        struct table table;

        for (table.count = table.chunks = 0; r < args->range_count && table.count < TABLE_RANGES; r++)
            add_range(&table,
                      (struct ash_cuda_range){.grad = args->ranges[r].first,
                                              .count = args->ranges[r].count,
                                              .is_wide = is_at_border(args->x, args->ranges[r].first, sizeof(float))});
        if (table.count == 0) continue;
        op.ranges = upload(exec, &table);
        ash_cuda_run(exec, id, grid_of(&table), &op);
    }
}

static void max_abs(struct ash_exec *exec, const struct ash_squares_args *args)
{
    run_squares(exec, ASH_KERNEL_squares_max, args);
}

static void sum_squares(struct ash_exec *exec, const struct ash_squares_args *args)
{
    run_squares(exec, ASH_KERNEL_squares_sum, args);
}

const struct ash_optim_ops ash_cuda_optim = {
    .adamw = adamw, .lion = lion, .max_abs = max_abs, .sum_squares = sum_squares};

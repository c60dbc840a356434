/* Embedding in plain C: rows of a table by token id, and the gradient back into the table. */
#include "compute/ref/ref_priv.h"

#include "compute/quant_open.h"

#define GATHER_MIN_ROWS 8
#define SCATTER_MIN_COLS 16

struct embed {
    const void *table;
    enum ash_dtype dtype;
    size_t cols, rows;
    const int32_t *ids;
    bool add;
    float *out;
    const float *grad;
    float *dtable;
};

/* A quantised row, out or added to it, block by block. */
static void gather_quantised(const struct embed *op, size_t from, float *out)
{
    size_t block = ash_dtype_block(op->dtype);

    for (size_t c = 0; c < op->cols; c += block) {
        float values[ASH_QUANT_GROUP];

        ash_quant_to_f32((const uint8_t *)op->table + ash_dtype_size(op->dtype, from + c), op->dtype, block, values);
        for (size_t i = 0; i < block; i++)
            out[c + i] = op->add ? out[c + i] + values[i] : values[i];
    }
}

static void gather_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct embed *op = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        size_t from = (size_t)op->ids[r] * op->cols;
        float *out = &op->out[r * op->cols];

        if (ash_dtype_block(op->dtype) > 1) {
            gather_quantised(op, from, out);
            continue;
        }
        for (size_t c = 0; c < op->cols; c++) {
            float value = ref_read(op->table, op->dtype, from + c);
            out[c] = op->add ? out[c] + value : value;
        }
    }
}

static void gather(struct ash_exec *exec, const struct ash_embed_args *args)
{
    struct embed op = {.table = args->table,
                       .dtype = args->dtype,
                       .cols = args->cols,
                       .rows = args->rows,
                       .ids = args->ids,
                       .add = args->add,
                       .out = args->out};

    ash_workers_run(exec->workers, args->rows, GATHER_MIN_ROWS, gather_rows, &op);
}

/* A unit is a column, so that one thread adds all rows of an id, in order. */
static void scatter_cols(void *ctx, size_t begin, size_t end, int worker)
{
    const struct embed *op = ctx;

    (void)worker;
    for (size_t r = 0; r < op->rows; r++) {
        float *to = &op->dtable[(size_t)op->ids[r] * op->cols];

        for (size_t c = begin; c < end; c++)
            to[c] = to[c] + op->grad[r * op->cols + c];
    }
}

static void scatter_add(struct ash_exec *exec, float *table, size_t cols, const int32_t *ids, size_t rows,
                        const float *grad)
{
    struct embed op = {.cols = cols, .rows = rows, .ids = ids, .grad = grad, .dtable = table};

    ash_workers_run(exec->workers, cols, SCATTER_MIN_COLS, scatter_cols, &op);
}

const struct ash_embed_ops ash_ref_embed = {.gather = gather, .scatter_add = scatter_add};

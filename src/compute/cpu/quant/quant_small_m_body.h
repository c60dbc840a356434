/* quant_small_m_body - fused products of one or a few rows of x with packed quantised weights. Reading the weights
 * decides: one parallel loop over panels, in which each thread prepares x for itself. */
#ifndef ASH_COMPUTE_QUANT_SMALL_M_BODY_H
#define ASH_COMPUTE_QUANT_SMALL_M_BODY_H

#ifndef ASH_COMPUTE_QUANT_UNITS_BODY_H
#error "include quant_units_body.h first"
#endif

/* All of x, by one thread. normed has quant_normed_bytes. */
static void quant_prepare(const struct quant_op *op, float *normed, uint8_t *x)
{
    if (op->x.is_gemv) {
        op->kernels->quantise_gemv(op->w.dtype, quant_row(op, op->x.first, normed), op->args->K, x);
        return;
    }
    for (size_t micro = 0; micro < op->x.micros; micro++)
        quant_prepare_micro(op, micro, normed, x);
}

/* Scratch of a thread that prepares all of x: prepared x, then normed rows. */
static uint8_t *quant_x_scratch(const struct quant_op *op, int worker, float **normed_out)
{
    uint8_t *x = ash_exec_scratch(op->exec, worker, op->x.bytes + quant_normed_bytes(op));

    *normed_out = (float *)(void *)(x + op->x.bytes);
    return x;
}

/* Panels times all tiles of x: sums[rows, QUANT_STREAM_COLS]. */
static void quant_small_m_tiles(const struct quant_op *op, const uint8_t *const *panels, size_t count, uint8_t *x,
                                float *sums)
{
    const struct ash_quant_panels *kernels = op->kernels;

    for (size_t i = 0; i < count; i++)
        for (size_t micro = 0; micro < op->x.micros; micro += op->x.tile_micros) {
            float tile[ASH_QUANT_TILE_ROWS_MAX * ASH_QUANT_PANEL_ROWS_MAX] = {0};
            size_t row = micro * kernels->micro_rows;

            kernels->tile(op->w.dtype, panels[i], NULL, quant_tile_at(op, x, micro, 0), quant_tile_micros(op, micro),
                          op->args->K, tile);
            kernels->untile(tile, ash_min(quant_tile_rows(op), op->x.rows - row),
                            sums + row * QUANT_STREAM_COLS + i * op->w.panel_rows, QUANT_STREAM_COLS);
        }
}

static void quant_small_m_units(void *ctx, size_t begin, size_t end, int worker)
{
    struct quant_op *op = ctx;
    uint8_t *x = op->x.shared;

    if (x == NULL) {
        float *normed;

        x = quant_x_scratch(op, worker, &normed);
        if (!op->ready[worker]) quant_prepare(op, normed, x);
        op->ready[worker] = true;
    }
    for (size_t i = begin; i < end; i++) {
        struct quant_unit unit = quant_unit_at(op, i);
        float sums[ASH_QUANT_SMALL_M_MAX * QUANT_STREAM_COLS];
        const uint8_t *panels[ASH_QUANT_STREAMS];

        quant_unit_panels(op, &unit, panels);
        if (op->x.is_gemv)
            op->kernels->gemv(op->w.dtype, panels, unit.sides * unit.count, x, op->args->K, sums);
        else
            quant_small_m_tiles(op, panels, unit.sides * unit.count, x, sums);
        for (size_t m = 0; m < op->x.rows; m++)
            quant_finish_unit(op, &unit, m, sums + m * QUANT_STREAM_COLS);
    }
}

/* Does an output overlap x? Then no thread may write before all have read. */
static bool quant_overlaps(const struct ash_project_args *args)
{
    const float *x_end = args->x + (args->M - 1) * args->x_stride + args->K;

    for (size_t i = 0; i < args->out_count; i++) {
        const struct ash_project_out *out = &args->outs[i];

        if (out->y != NULL && out->y < x_end && args->x < out->y + (args->M - 1) * out->y_stride + out->w.N)
            return true;
    }
    return false;
}

static void quant_project_small_m(struct quant_op *op)
{
    const struct ash_quant_panels *kernels = op->kernels;
    struct quant_x *x = &op->x;
    size_t units;

    ash_assert(op->args->M <= ASH_QUANT_SMALL_M_MAX);
    x->rows = op->args->M;
    x->is_gemv = x->rows == 1;
    x->micros = ash_div_up(x->rows, kernels->micro_rows);
    x->tile_micros = quant_even_micros(kernels, x->rows);
    x->k_groups = op->w.groups;
    units = quant_cut_units(op, ASH_QUANT_STREAMS);
    x->bytes = quant_x_bytes(op->w.groups * (x->is_gemv ? kernels->gemv_bytes : x->micros * kernels->micro_bytes));
    if (quant_overlaps(op->args)) {
        float *normed;

        x->shared = quant_x_scratch(op, 0, &normed);
        quant_prepare(op, normed, x->shared);
    }
    ash_workers_stream(op->exec->workers, units, 1, quant_small_m_units, op);
}

#endif

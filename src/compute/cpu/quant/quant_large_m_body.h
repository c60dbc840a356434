/* quant_large_m_body - fused products of medium and large M with packed quantised weights. x is prepared once, in
 * parallel. Then units of panels walk k, k_groups groups at a time: these groups of a few panels and of a tile of x
 * stay in L1, all rows of x in L2. Medium M takes all of k at once, where kernels can: there it matters most to read
 * panels in the order of memory. */
#ifndef ASH_COMPUTE_QUANT_LARGE_M_BODY_H
#define ASH_COMPUTE_QUANT_LARGE_M_BODY_H

#ifndef ASH_COMPUTE_QUANT_UNITS_BODY_H
#error "include quant_units_body.h first"
#endif

#define QUANT_MEDIUM_M_MAX 32   /* rows of x: a panel is used so seldom that reading it in order decides */
#define QUANT_LARGE_M_BLOCK 384 /* rows of x at once, which stay in L2 */
#define QUANT_UNIT_PANELS 8     /* of a unit, at most */
#define QUANT_UNITS_PER_THREAD 4

/* ---- scratch of a thread ----------------------------------------------------------------------------------------- */

/* Expanded panels, k_groups groups of each. */
static size_t quant_expanded_bytes(const struct quant_op *op)
{
    return ash_round_up(op->kernels->expanded_panels * op->x.k_groups * op->kernels->expanded_bytes, ASH_MEMORY_ALIGN);
}

/* Sums of a panel with all rows of x: whole tiles. */
static size_t quant_panel_sums(const struct quant_op *op)
{
    return ash_round_up(op->x.rows, quant_tile_rows(op)) * op->w.panel_rows;
}

/* Expanded panels, then the sums of a unit. Before that, the same memory holds normed rows. */
static uint8_t *quant_own(const struct quant_op *op, int worker)
{
    size_t product = quant_expanded_bytes(op) + op->cut.unit_panels * quant_panel_sums(op) * sizeof(float);

    return ash_exec_scratch(op->exec, worker, ash_max(product, quant_normed_bytes(op)));
}

/* ---- x ----------------------------------------------------------------------------------------------------------- */

static void quant_micro_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct quant_op *op = ctx;
    float *normed = (float *)(void *)quant_own(op, worker);

    for (size_t micro = begin; micro < end; micro++)
        quant_prepare_micro(op, micro, normed, op->x.shared);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* A unit being computed: its panels (of both sides), and for each panel, panel_sums apart, the sums of all tiles. */
struct quant_work {
    struct quant_unit unit;
    const uint8_t *panels[QUANT_UNIT_PANELS];
    uint8_t *expanded;
    float *sums;
    size_t panel_sums;
};

/* Are sums the outputs, and are all columns of the unit there? */
static bool quant_sums_are_y(const struct quant_op *op, const struct quant_unit *unit)
{
    return unit->out->bias == NULL && !op->args->swiglu && !op->args->residual &&
           (unit->first + unit->count) * op->w.panel_rows <= unit->out->w.N;
}

/* Rows of a unit whose sums go to y right after their last group: all, or with large_m() whole tiles. */
static size_t quant_direct_rows(const struct quant_op *op, const struct quant_unit *unit)
{
    size_t tile_rows = quant_tile_rows(op);

    if (op->w.groups == 0 || !quant_sums_are_y(op, unit)) return 0;
    if (op->kernels->large_m == NULL) return op->x.rows;
    return op->kernels->large_m_writes_y ? op->x.rows / tile_rows * tile_rows : 0;
}

/* What large_m() does, by tile(), and for all micro-panels. packed: the panels as they are packed. */
static void quant_tile_by_tile(const struct quant_op *op, const struct ash_quant_large_m *job,
                               const uint8_t *const *packed, size_t group, size_t direct_rows)
{
    const struct ash_quant_panels *kernels = op->kernels;
    size_t tile_rows = quant_tile_rows(op);

    for (size_t micro = 0, row = 0; micro < op->x.micros; micro += op->x.tile_micros, row += tile_rows)
        for (size_t i = 0; i < job->count; i++) {
            float *sums = job->sums + i * job->panel_sums + row * op->w.panel_rows;

            if (job->first) memset(sums, 0, tile_rows * op->w.panel_rows * sizeof(*sums));
            kernels->tile(job->dtype, packed[i], job->panels[i], quant_tile_at(op, op->x.shared, micro, group),
                          quant_tile_micros(op, micro), job->k, sums);
            if (job->y != NULL && row < direct_rows)
                kernels->untile(sums, ash_min(tile_rows, op->x.rows - row),
                                job->y + row * job->y_stride + i * op->w.panel_rows, job->y_stride);
        }
}

/* Groups from `group` on of panels p ... p + count - 1 of a unit times all of x. */
static void quant_large_m_tiles(const struct quant_op *op, const struct quant_work *work, size_t p, size_t count,
                                size_t group)
{
    const struct ash_quant_panels *kernels = op->kernels;
    const struct quant_unit *unit = &work->unit;
    const struct ash_project_out *out = unit->out;
    bool last = group + op->x.k_groups >= op->w.groups && unit->sides == 1;
    size_t k = quant_k(op, group), direct_rows = quant_direct_rows(op, unit);
    const uint8_t *packed[QUANT_UNIT_PANELS], *panels[QUANT_UNIT_PANELS];
    uint8_t *expanded = work->expanded;
    struct ash_quant_large_m job = {.dtype = op->w.dtype,
                                    .panels = panels,
                                    .count = count,
                                    .x = quant_tile_at(op, op->x.shared, 0, group),
                                    .tiles = op->x.micros / op->x.tile_micros,
                                    .k = k,
                                    .sums = work->sums + p * work->panel_sums,
                                    .panel_sums = work->panel_sums,
                                    .first = group == 0,
                                    .y_stride = out->y_stride,
                                    .y_tiles = direct_rows / quant_tile_rows(op)};

    if (last) job.y = out->y + op->x.first * out->y_stride + (unit->first + p) * op->w.panel_rows;
    for (size_t i = 0; i < count; i++) {
        packed[i] = work->panels[p + i] + group * ash_quant_panel_group(kernels->layout, op->w.dtype);
        panels[i] = packed[i];
        if (kernels->expand == NULL) continue;
        kernels->expand(op->w.dtype, packed[i], k, expanded);
        panels[i] = expanded;
        expanded += op->x.k_groups * kernels->expanded_bytes;
    }
    if (kernels->large_m != NULL)
        kernels->large_m(&job);
    else
        quant_tile_by_tile(op, &job, packed, group, direct_rows);
}

/* Sums that are outputs, and were not written by the kernels. */
static void quant_large_m_store(const struct quant_op *op, const struct quant_work *work)
{
    const struct quant_unit *unit = &work->unit;
    const struct ash_project_out *out = unit->out;
    size_t tile_rows = quant_tile_rows(op);
    float *y = out->y + op->x.first * out->y_stride + unit->first * op->w.panel_rows;

    for (size_t row = quant_direct_rows(op, unit); row < op->x.rows; row += tile_rows)
        for (size_t i = 0; i < unit->count; i++)
            op->kernels->untile(work->sums + i * work->panel_sums + row * op->w.panel_rows,
                                ash_min(tile_rows, op->x.rows - row), y + row * out->y_stride + i * op->w.panel_rows,
                                out->y_stride);
}

/* Sums that need an epilogue. */
static void quant_large_m_finish(const struct quant_op *op, const struct quant_work *work)
{
    const struct quant_unit *unit = &work->unit;
    size_t tile_rows = quant_tile_rows(op), cols = unit->sides * unit->count * op->w.panel_rows;
    const float *sums = work->sums;

    for (size_t row = 0; row < op->x.rows; row += tile_rows, sums += tile_rows * op->w.panel_rows) {
        size_t rows = ash_min(tile_rows, op->x.rows - row);
        float out[ASH_QUANT_TILE_ROWS_MAX * QUANT_UNIT_PANELS * ASH_QUANT_PANEL_ROWS_MAX];

        for (size_t i = 0; i < unit->sides * unit->count; i++)
            op->kernels->untile(sums + i * work->panel_sums, rows, out + i * op->w.panel_rows, cols);
        for (size_t m = 0; m < rows; m++)
            quant_finish_unit(op, unit, row + m, out + m * cols);
    }
}

static void quant_large_m_unit(const struct quant_op *op, struct quant_work *work)
{
    const struct ash_quant_panels *kernels = op->kernels;
    size_t count = work->unit.sides * work->unit.count;

    quant_unit_panels(op, &work->unit, work->panels);
    if ((kernels->large_m != NULL && !kernels->large_m_writes_y) || op->w.groups == 0)
        memset(work->sums, 0, count * work->panel_sums * sizeof(*work->sums));
    for (size_t group = 0; group < op->w.groups; group += op->x.k_groups)
        for (size_t p = 0; p < count; p += kernels->expanded_panels)
            quant_large_m_tiles(op, work, p, ash_min(kernels->expanded_panels, count - p), group);
    if (quant_sums_are_y(op, &work->unit))
        quant_large_m_store(op, work);
    else
        quant_large_m_finish(op, work);
}

static void quant_large_m_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct quant_op *op = ctx;
    uint8_t *own = quant_own(op, worker);
    struct quant_work work = {
        .expanded = own, .sums = (float *)(void *)(own + quant_expanded_bytes(op)), .panel_sums = quant_panel_sums(op)};

    if (op->kernels->large_m != NULL) op->kernels->begin();
    for (size_t i = begin; i < end; i++) {
        work.unit = quant_unit_at(op, i);
        quant_large_m_unit(op, &work);
    }
    if (op->kernels->large_m != NULL) op->kernels->end();
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void quant_project_large_m(struct quant_op *op)
{
    const struct ash_quant_panels *kernels = op->kernels;
    const struct ash_project_args *args = op->args;
    struct quant_x *x = &op->x;
    size_t threads = (size_t)ash_workers_count(op->exec->workers), rounds = (args->M - 1) / QUANT_LARGE_M_BLOCK + 1;
    bool medium = args->M <= QUANT_MEDIUM_M_MAX;
    size_t tile_rows, round_rows, units;

    x->tile_micros = medium ? quant_even_micros(kernels, args->M) : kernels->tile_micros;
    x->k_groups = medium && kernels->whole_k ? op->w.groups : kernels->k_groups;
    tile_rows = quant_tile_rows(op);
    round_rows = ((args->M - 1) / rounds / tile_rows + 1) * tile_rows; /* only the last has a part of a tile */
    units = quant_cut_units(op, QUANT_UNIT_PANELS);
    while (op->cut.unit_panels > 2 && units < QUANT_UNITS_PER_THREAD * threads)
        units = quant_cut_units(op, op->cut.unit_panels / 2);
    for (x->first = 0; x->first < args->M; x->first += round_rows) {
        x->rows = ash_min(round_rows, args->M - x->first);
        x->micros = ash_div_up(x->rows, kernels->micro_rows);
        x->bytes = quant_x_bytes(op->w.groups * x->micros * kernels->micro_bytes);
        x->shared = ash_exec_broadcast(op->exec, x->bytes);
        ash_workers_run(op->exec->workers, x->micros, 1, quant_micro_units, op);
        ash_workers_run(op->exec->workers, units, 1, quant_large_m_units, op);
    }
}

#endif

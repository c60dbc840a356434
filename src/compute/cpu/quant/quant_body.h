/* quant_body - fused products with packed quantised weights of one instruction set: what stands before the kernels of
 * quant_pack.h (norm, quantising) and behind them (bias, residual, SwiGLU). Include after norm_body.h and point_body.h.
 *
 * A few rows of x: one parallel loop, in which each thread prepares x for itself. Many rows: x is prepared once, in
 * parallel; then units of panels go through k some groups at a time, so that these of one panel or a few and a tile of
 * x stay in L1, all rows of x in the second. In between, for some rows, the same with all of k at once,
 * where kernels can: what counts there is to read panels in the order of memory. */
#ifndef ASH_COMPUTE_QUANT_BODY_H
#define ASH_COMPUTE_QUANT_BODY_H

#include "base/assert.h"
#include "compute/cpu/quant/quant_pack.h"

#define QUANT_SMALL_M_MAX 12
#define QUANT_TILE_ROWS_MAX 16
#define QUANT_MEDIUM_M_MAX 32   /* of x: panels are used so often only, and reading them in order decides */
#define QUANT_LARGE_M_BLOCK 384 /* of x, in L2 */
#define QUANT_UNIT_PANELS 8
#define QUANT_CACHE_WAY 16384 /* addresses so far apart compete for the same lines of L1 */
#define QUANT_STREAM_APART 2048
#define QUANT_STREAM_TRIES 16
#define QUANT_UNITS_PER_THREAD 4
#define QUANT_STREAMS ASH_QUANT_STREAMS
#define QUANT_STREAM_COLS (QUANT_STREAMS * ASH_QUANT_PANEL_ROWS_MAX)

struct quant_project {
    struct ash_exec *exec;
    const struct ash_project_args *args;
    const struct ash_quant_panels *kernels;
    enum ash_dtype dtype;
    size_t groups, panel_rows, panel_bytes; /* the last group may be shorter */
    size_t first, rows, micros;             /* of x, in this round */
    size_t tile_micros;
    size_t k_groups;    /* of x and of panels that are used together; the last ones may be fewer */
    size_t unit_panels; /* with SwiGLU half of them gate, half up */
    size_t out_units[ASH_PROJECT_OUTS_MAX];
    bool streams;    /* a unit's panels are far apart, each the next one of a stream of memory: for a single row */
    size_t x_bytes;  /* of prepared x */
    uint8_t *shared; /* prepared x; NULL: every thread prepares its own */
    bool ready[ASH_WORKERS_MAX];
};

static size_t quant_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t quant_align(size_t bytes)
{
    return (bytes + ASH_MEMORY_ALIGN - 1) / ASH_MEMORY_ALIGN * ASH_MEMORY_ALIGN;
}

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* Row m of x, normed into `normed` where asked. */
static const float *quant_row(const struct quant_project *op, size_t m, float *normed)
{
    const struct ash_project_args *args = op->args;
    const float *x = args->x + m * args->x_stride;

    if (args->norm == NULL) return x;
    rms_row(x, args->norm, args->norm_eps, normed, args->K);
    return normed;
}

/* Where the tile that holds `micro` begins, for the groups from `group` on: k, then tiles, then groups. */
static uint8_t *quant_tile_at(const struct quant_project *op, uint8_t *x, size_t micro, size_t group)
{
    size_t tile = micro / op->tile_micros * op->tile_micros;
    size_t groups = quant_min(op->k_groups, op->groups - group);

    return x + (group * op->micros + tile * groups) * op->kernels->micro_bytes;
}

/* k of the groups from `group` on that are used together. */
static size_t quant_k(const struct quant_project *op, size_t group)
{
    size_t k = ash_quant_group(op->dtype);

    return quant_min(op->k_groups * k, op->args->K - group * k);
}

/* Strips of the tile that holds `micro`. */
static size_t quant_tile_micros(const struct quant_project *op, size_t micro)
{
    size_t tile = micro / op->tile_micros * op->tile_micros;

    return quant_min(op->tile_micros, op->micros - tile);
}

/* Strips of a tile, where there are some rows: evenly dealt out where that makes none slow. */
static size_t quant_even_micros(const struct ash_quant_panels *kernels, size_t rows)
{
    size_t micros = (rows + kernels->micro_rows - 1) / kernels->micro_rows;
    size_t tiles = (micros + kernels->tile_micros - 1) / kernels->tile_micros;

    return kernels->even_tiles ? (micros + tiles - 1) / tiles : kernels->tile_micros;
}

/* normed has room for the rows of a micro. */
static void quant_prepare_micro(const struct quant_project *op, size_t micro, float *normed, uint8_t *x)
{
    const struct ash_quant_panels *kernels = op->kernels;
    const float *rows[ASH_QUANT_MICRO_ROWS_MAX] = {NULL};
    size_t first = micro * kernels->micro_rows;

    for (size_t i = 0; i < kernels->micro_rows && first + i < op->rows; i++)
        rows[i] = quant_row(op, op->first + first + i, normed + i * op->args->K);
    for (size_t group = 0; group < op->groups; group += op->k_groups) {
        kernels->quantise(rows, quant_k(op, group), micro % op->tile_micros, quant_tile_micros(op, micro),
                          quant_tile_at(op, x, micro, group));
        for (size_t i = 0; i < kernels->micro_rows; i++)
            if (rows[i] != NULL) rows[i] += quant_k(op, group);
    }
}

/* All of x, by one thread. */
static void quant_prepare(const struct quant_project *op, float *normed, uint8_t *x)
{
    if (op->streams) {
        op->kernels->quantise_gemv(op->dtype, quant_row(op, op->first, normed), op->args->K, x);
        return;
    }
    for (size_t micro = 0; micro < op->micros; micro++)
        quant_prepare_micro(op, micro, normed, x);
}

/* ---- units ------------------------------------------------------------------------------------------------------- */

/* Some panels of an out; with SwiGLU, the same ones of both. Panels of a unit lie `step` apart: neighbours, or, for a
 * single row, several streams of memory, each of which goes on in the next unit. */
struct quant_unit {
    const struct ash_project_out *out;
    size_t sides;              /* 2 with SwiGLU */
    size_t first, step, count; /* panels of a side */
};

/* Panels of one side of a unit. */
static size_t quant_side_panels(const struct quant_project *op)
{
    return op->args->swiglu ? op->unit_panels / 2 : op->unit_panels;
}

static size_t quant_out_panels(const struct quant_project *op, size_t out)
{
    return (op->args->outs[out].w.N + op->panel_rows - 1) / op->panel_rows;
}

/* Do n streams, each `bytes` after the one before, stay out of each other's way in L1? */
static bool quant_streams_apart(size_t bytes, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        size_t apart = i * bytes % QUANT_CACHE_WAY;

        if (apart < QUANT_STREAM_APART || apart > QUANT_CACHE_WAY - QUANT_STREAM_APART) return false;
    }
    return true;
}

/* A single row walks streams of panels, so its units are as many as a stream is long: a little more than their share,
 * if that keeps them apart (sizes of matrices are often powers of two). */
static size_t quant_out_units(const struct quant_project *op, size_t out)
{
    size_t panels = quant_side_panels(op), units = (quant_out_panels(op, out) + panels - 1) / panels;

    if (!op->streams) return units;
    for (size_t more = 0; more < QUANT_STREAM_TRIES; more++)
        if (quant_streams_apart((units + more) * op->panel_bytes, panels)) return units + more;
    return units;
}

/* Cut the outs into units of unit_panels panels; returns how many these are. */
static size_t quant_cut(struct quant_project *op, size_t unit_panels)
{
    size_t count = 0;

    op->unit_panels = unit_panels;
    for (size_t out = 0; out < (op->args->swiglu ? 1 : op->args->out_count); out++)
        count += op->out_units[out] = quant_out_units(op, out);
    return count;
}

static struct quant_unit quant_unit_at(const struct quant_project *op, size_t unit)
{
    struct quant_unit at = {.sides = op->args->swiglu ? 2 : 1};
    size_t out = 0, panels;

    while (unit >= op->out_units[out])
        unit -= op->out_units[out++];
    panels = quant_out_panels(op, out);
    at.out = &op->args->outs[out];
    at.step = op->streams ? op->out_units[out] : 1;
    at.first = op->streams ? unit : unit * quant_side_panels(op);
    at.count = at.first < panels ? quant_min(quant_side_panels(op), (panels - at.first - 1) / at.step + 1) : 0;
    return at;
}

/* The panels of a unit, first those of the first side. */
static void quant_unit_panels(const struct quant_project *op, const struct quant_unit *unit, const uint8_t **panels)
{
    for (size_t side = 0; side < unit->sides; side++)
        for (size_t i = 0; i < unit->count; i++)
            panels[side * unit->count + i] =
                (const uint8_t *)unit->out[side].w.mat.data + (unit->first + i * unit->step) * op->panel_bytes;
}

/* Columns of an out that begin at panel `first`, of count panels. */
static size_t quant_cols(const struct quant_project *op, const struct ash_project_out *out, size_t first, size_t count)
{
    return quant_min(count * op->panel_rows, out->w.N - first * op->panel_rows);
}

/* Panels of a unit that are neighbours, so that their columns follow each other. */
static size_t quant_together(const struct quant_unit *unit)
{
    return unit->step == 1 ? unit->count : 1;
}

/* Biases to the sums of a unit's sides, one behind the other. */
static void quant_add_biases(const struct quant_project *op, const struct quant_unit *unit, float *sums)
{
    size_t together = quant_together(unit);

    for (size_t side = 0; side < unit->sides; side++, sums += unit->count * op->panel_rows) {
        const struct ash_project_out *out = &unit->out[side];

        for (size_t i = 0; out->bias != NULL && i < unit->count; i += together) {
            size_t panel = unit->first + i * unit->step;
            float *to = sums + i * op->panel_rows;

            add_row(to, out->bias + panel * op->panel_rows, quant_cols(op, out, panel, together), to);
        }
    }
}

/* What comes behind the product of row m with the panels of a unit: SwiGLU over all of its columns, and their way to y.
 */
static void quant_finish_unit(const struct quant_project *op, const struct quant_unit *unit, size_t m, float *sums)
{
    size_t together = quant_together(unit), side_cols = unit->count * op->panel_rows;

    quant_add_biases(op, unit, sums);
    if (op->args->swiglu) {
        struct act act = {.x = sums, .up = sums + side_cols, .out = sums};

        swiglu_forward_range(&act, 0, side_cols, 0);
    }
    for (size_t i = 0; i < unit->count; i += together) {
        size_t panel = unit->first + i * unit->step, cols = quant_cols(op, unit->out, panel, together);
        float *y = unit->out->y + (op->first + m) * unit->out->y_stride + panel * op->panel_rows;

        if (op->args->residual)
            add_row(y, sums + i * op->panel_rows, cols, y);
        else
            memcpy(y, sums + i * op->panel_rows, cols * sizeof(*y));
    }
}

/* ---- a few rows -------------------------------------------------------------------------------------------------- */

static void quant_small_m_tiles(const struct quant_project *op, const uint8_t *const *panels, size_t count, uint8_t *x,
                                float *sums)
{
    const struct ash_quant_panels *kernels = op->kernels;
    size_t tile_rows = op->tile_micros * kernels->micro_rows;

    for (size_t i = 0; i < count; i++)
        for (size_t micro = 0; micro < op->micros; micro += op->tile_micros) {
            float tile[QUANT_TILE_ROWS_MAX * ASH_QUANT_PANEL_ROWS_MAX] = {0};
            size_t row = micro * kernels->micro_rows;

            kernels->tile(op->dtype, panels[i], NULL, quant_tile_at(op, x, micro, 0), quant_tile_micros(op, micro),
                          op->args->K, tile);
            kernels->untile(tile, quant_min(tile_rows, op->rows - row),
                            sums + row * QUANT_STREAM_COLS + i * op->panel_rows, QUANT_STREAM_COLS);
        }
}

static void quant_small_m_units(void *ctx, size_t begin, size_t end, int worker)
{
    struct quant_project *op = ctx;
    uint8_t *x = op->shared;

    if (x == NULL) {
        x = ash_exec_scratch(op->exec, worker, op->x_bytes + 2 * op->args->K * sizeof(float));
        if (!op->ready[worker]) quant_prepare(op, (float *)(void *)(x + op->x_bytes), x);
        op->ready[worker] = true;
    }
    for (size_t i = begin; i < end; i++) {
        struct quant_unit unit = quant_unit_at(op, i);
        float sums[QUANT_SMALL_M_MAX * QUANT_STREAM_COLS];
        const uint8_t *panels[QUANT_STREAMS];

        quant_unit_panels(op, &unit, panels);
        if (op->streams)
            op->kernels->gemv(op->dtype, panels, unit.sides * unit.count, x, op->args->K, sums);
        else
            quant_small_m_tiles(op, panels, unit.sides * unit.count, x, sums);
        for (size_t m = 0; m < op->rows; m++)
            quant_finish_unit(op, &unit, m, sums + m * QUANT_STREAM_COLS);
    }
}

/* Does an output lie where x does? Then nobody may write before all have read. */
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

static void quant_project_small_m(struct quant_project *op)
{
    const struct ash_quant_panels *kernels = op->kernels;
    size_t units;

    op->rows = op->args->M;
    op->streams = op->rows == 1;
    op->micros = (op->rows + kernels->micro_rows - 1) / kernels->micro_rows;
    op->tile_micros = quant_even_micros(kernels, op->rows);
    op->k_groups = op->groups;
    units = quant_cut(op, QUANT_STREAMS);
    op->x_bytes = quant_align(op->groups * (op->streams ? kernels->gemv_bytes : op->micros * kernels->micro_bytes));
    if (quant_overlaps(op->args)) {
        op->shared = ash_exec_scratch(op->exec, 0, op->x_bytes + 2 * op->args->K * sizeof(float));
        quant_prepare(op, (float *)(void *)(op->shared + op->x_bytes), op->shared);
    }
    ash_workers_stream(op->exec->workers, units, 1, quant_small_m_units, op);
}

/* ---- many rows --------------------------------------------------------------------------------------------------- */

/* A thread's own memory: expanded panels of a group, and the sums of a unit. Before that, rows that are being normed.
 */
static size_t quant_own_bytes(const struct quant_project *op)
{
    size_t expanded = quant_align(op->kernels->expanded_panels * op->k_groups * op->kernels->expanded_bytes);
    size_t tile_rows = op->tile_micros * op->kernels->micro_rows;
    size_t rows = (op->rows + tile_rows - 1) / tile_rows * tile_rows;
    size_t product = expanded + rows * op->unit_panels * op->panel_rows * sizeof(float);
    size_t normed = op->kernels->micro_rows * op->args->K * sizeof(float);

    return product > normed ? product : normed;
}

static uint8_t *quant_own(const struct quant_project *op, int worker)
{
    return ash_exec_scratch(op->exec, worker, quant_own_bytes(op));
}

static void quant_micro_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct quant_project *op = ctx;
    float *normed = (float *)(void *)quant_own(op, worker);

    for (size_t micro = begin; micro < end; micro++)
        quant_prepare_micro(op, micro, normed, op->shared);
}

/* Are sums the outputs, and are all columns of the unit there? */
static bool quant_sums_are_y(const struct quant_project *op, const struct quant_unit *unit)
{
    return unit->out->bias == NULL && !op->args->swiglu && !op->args->residual &&
           (unit->first + unit->count) * op->panel_rows <= unit->out->w.N;
}

/* Rows of a unit whose sums go to y right behind their last group: all, or of large_m() whole tiles. */
static size_t quant_direct_rows(const struct quant_project *op, const struct quant_unit *unit)
{
    size_t tile_rows = op->tile_micros * op->kernels->micro_rows;

    if (op->groups == 0 || !quant_sums_are_y(op, unit)) return 0;
    if (op->kernels->large_m == NULL) return op->rows;
    return op->kernels->large_m_writes_y ? op->rows / tile_rows * tile_rows : 0;
}

/* What large_m() does, by tile(), and for all micros. parts: the panels as they are packed. */
static void quant_tile_by_tile(const struct quant_project *op, const struct ash_quant_large_m *job,
                               const uint8_t *const *parts, size_t group, size_t direct_rows)
{
    const struct ash_quant_panels *kernels = op->kernels;
    size_t tile_rows = op->tile_micros * kernels->micro_rows;

    for (size_t micro = 0, row = 0; micro < op->micros; micro += op->tile_micros, row += tile_rows)
        for (size_t i = 0; i < job->count; i++) {
            float *sums = job->sums + i * job->panel_sums + row * op->panel_rows;

            if (job->first) memset(sums, 0, tile_rows * op->panel_rows * sizeof(*sums));
            kernels->tile(job->dtype, parts[i], job->panels[i], quant_tile_at(op, op->shared, micro, group),
                          quant_tile_micros(op, micro), job->k, sums);
            if (job->y != NULL && row < direct_rows)
                kernels->untile(sums, quant_min(tile_rows, op->rows - row),
                                job->y + row * job->y_stride + i * op->panel_rows, job->y_stride);
        }
}

/* Groups from `group` on of panels p ... p + count - 1 of a unit times all of x. sums: for each panel the tiles' sums.
 */
static void quant_large_m_tiles(const struct quant_project *op, const struct quant_unit *unit,
                                const uint8_t *const *panels, size_t p, size_t count, size_t group, uint8_t *expanded,
                                float *sums, size_t panel_sums)
{
    const struct ash_quant_panels *kernels = op->kernels;
    const struct ash_project_out *out = unit->out;
    bool last = group + op->k_groups >= op->groups && unit->sides == 1;
    size_t k = quant_k(op, group), direct_rows = quant_direct_rows(op, unit);
    const uint8_t *parts[QUANT_UNIT_PANELS], *made[QUANT_UNIT_PANELS];
    struct ash_quant_large_m job = {.dtype = op->dtype,
                                    .panels = made,
                                    .count = count,
                                    .x = quant_tile_at(op, op->shared, 0, group),
                                    .tiles = op->micros / op->tile_micros,
                                    .k = k,
                                    .sums = sums + p * panel_sums,
                                    .panel_sums = panel_sums,
                                    .first = group == 0,
                                    .y_stride = out->y_stride,
                                    .y_tiles = direct_rows / (op->tile_micros * kernels->micro_rows)};

    if (last) job.y = out->y + op->first * out->y_stride + (unit->first + p) * op->panel_rows;
    for (size_t i = 0; i < count; i++) {
        parts[i] = panels[p + i] + group * ash_quant_panel_group(kernels->layout, op->dtype);
        made[i] = parts[i];
        if (kernels->expand == NULL) continue;
        kernels->expand(op->dtype, parts[i], k, expanded);
        made[i] = expanded;
        expanded += op->k_groups * kernels->expanded_bytes;
    }
    if (kernels->large_m != NULL)
        kernels->large_m(&job);
    else
        quant_tile_by_tile(op, &job, parts, group, direct_rows);
}

static void quant_large_m_store(const struct quant_project *op, const struct quant_unit *unit, const float *sums,
                                size_t panel_sums)
{
    const struct ash_project_out *out = unit->out;
    size_t tile_rows = op->tile_micros * op->kernels->micro_rows;
    float *y = out->y + op->first * out->y_stride + unit->first * op->panel_rows;

    for (size_t row = quant_direct_rows(op, unit); row < op->rows; row += tile_rows)
        for (size_t i = 0; i < unit->count; i++)
            op->kernels->untile(sums + i * panel_sums + row * op->panel_rows, quant_min(tile_rows, op->rows - row),
                                y + row * out->y_stride + i * op->panel_rows, out->y_stride);
}

static void quant_large_m_finish(const struct quant_project *op, const struct quant_unit *unit, const float *sums,
                                 size_t panel_sums)
{
    const struct ash_quant_panels *kernels = op->kernels;
    size_t tile_rows = op->tile_micros * kernels->micro_rows, cols = unit->sides * unit->count * op->panel_rows;

    for (size_t row = 0; row < op->rows; row += tile_rows, sums += tile_rows * op->panel_rows) {
        size_t rows = quant_min(tile_rows, op->rows - row);
        float out[QUANT_TILE_ROWS_MAX * QUANT_UNIT_PANELS * ASH_QUANT_PANEL_ROWS_MAX];

        for (size_t i = 0; i < unit->sides * unit->count; i++)
            kernels->untile(sums + i * panel_sums, rows, out + i * op->panel_rows, cols);
        for (size_t m = 0; m < rows; m++)
            quant_finish_unit(op, unit, row + m, out + m * cols);
    }
}

static void quant_large_m_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct quant_project *op = ctx;
    size_t tile_rows = op->tile_micros * op->kernels->micro_rows;
    size_t panel_sums = (op->rows + tile_rows - 1) / tile_rows * tile_rows * op->panel_rows;
    uint8_t *expanded = quant_own(op, worker);
    float *sums = (float *)(void *)(expanded + quant_align(op->kernels->expanded_panels * op->k_groups *
                                                           op->kernels->expanded_bytes));

    if (op->kernels->large_m != NULL) op->kernels->begin();
    for (size_t i = begin; i < end; i++) {
        struct quant_unit unit = quant_unit_at(op, i);
        const uint8_t *panels[QUANT_UNIT_PANELS];
        size_t count = unit.sides * unit.count;

        quant_unit_panels(op, &unit, panels);
        if ((op->kernels->large_m != NULL && !op->kernels->large_m_writes_y) || op->groups == 0)
            memset(sums, 0, count * panel_sums * sizeof(*sums));
        for (size_t group = 0; group < op->groups; group += op->k_groups)
            for (size_t p = 0; p < count; p += op->kernels->expanded_panels)
                quant_large_m_tiles(op, &unit, panels, p, quant_min(op->kernels->expanded_panels, count - p), group,
                                    expanded, sums, panel_sums);
        if (quant_sums_are_y(op, &unit))
            quant_large_m_store(op, &unit, sums, panel_sums);
        else
            quant_large_m_finish(op, &unit, sums, panel_sums);
    }
    if (op->kernels->large_m != NULL) op->kernels->end();
}

static void quant_project_large_m(struct quant_project *op)
{
    const struct ash_quant_panels *kernels = op->kernels;
    const struct ash_project_args *args = op->args;
    size_t threads = (size_t)ash_workers_count(op->exec->workers), rounds = (args->M - 1) / QUANT_LARGE_M_BLOCK + 1;
    bool some = args->M <= QUANT_MEDIUM_M_MAX;
    size_t tile_rows, round_rows, units;

    op->tile_micros = some ? quant_even_micros(kernels, args->M) : kernels->tile_micros;
    op->k_groups = some && kernels->whole_k ? op->groups : kernels->k_groups;
    tile_rows = op->tile_micros * kernels->micro_rows;
    round_rows = ((args->M - 1) / rounds / tile_rows + 1) * tile_rows; /* only the last has a part of a tile */
    units = quant_cut(op, QUANT_UNIT_PANELS);
    while (op->unit_panels > 2 && units < QUANT_UNITS_PER_THREAD * threads)
        units = quant_cut(op, op->unit_panels / 2);
    for (op->first = 0; op->first < args->M; op->first += round_rows) {
        op->rows = quant_min(round_rows, args->M - op->first);
        op->micros = (op->rows + kernels->micro_rows - 1) / kernels->micro_rows;
        op->x_bytes = quant_align(op->groups * op->micros * kernels->micro_bytes);
        op->shared = ash_exec_broadcast(op->exec, op->x_bytes);
        ash_workers_run(op->exec->workers, op->micros, 1, quant_micro_units, op);
        ash_workers_run(op->exec->workers, units, 1, quant_large_m_units, op);
    }
}

/* ---- the op ------------------------------------------------------------------------------------------------------ */

/* ash_matrix_ops.project for packed quantised weights. */
static void quant_project(struct ash_exec *exec, const struct ash_project_args *args)
{
    enum ash_dtype dtype = args->outs[0].w.mat.dtype;
    const struct ash_quant_panels *kernels = VEC_QUANT_PANELS(exec->ops, dtype);
    struct quant_project op = {.exec = exec,
                               .args = args,
                               .kernels = kernels,
                               .dtype = dtype,
                               .groups = ash_quant_groups(dtype, args->K),
                               .panel_rows = ash_quant_panel_rows(kernels->layout)};

    ash_assert(args->out_count >= 1 && args->out_count <= ASH_PROJECT_OUTS_MAX && args->K % ASH_QUANT_BLOCK == 0);
    ash_assert(!args->swiglu || (args->out_count == 2 && !args->residual && args->outs[0].w.N == args->outs[1].w.N));
    for (size_t i = 0; i < args->out_count; i++)
        ash_assert(args->outs[i].w.packed && args->outs[i].w.mat.dtype == op.dtype);
    ash_assert(kernels->small_m_max <= QUANT_SMALL_M_MAX);
    ash_assert(kernels->tile_micros * kernels->micro_rows <= QUANT_TILE_ROWS_MAX);
    if (args->M == 0) return;
    op.panel_bytes = ash_quant_panel_bytes(kernels->layout, dtype, args->K);
    if (args->M <= kernels->small_m_max && kernels->small_m != NULL) op.kernels = kernels->small_m;
    if (args->M <= kernels->small_m_max)
        quant_project_small_m(&op);
    else
        quant_project_large_m(&op);
}

#endif

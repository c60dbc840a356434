/* quant_units_body - what fused products with packed quantised weights share, for small and for large M: the prologue
 * (RMS norm, quantising x), how panels become units of the parallel loop, and the epilogue (bias, SwiGLU, residual).
 * The kernels are those of quant_pack.h. */
#ifndef ASH_COMPUTE_QUANT_UNITS_BODY_H
#define ASH_COMPUTE_QUANT_UNITS_BODY_H

#if !defined(ASH_COMPUTE_NORM_BODY_H) || !defined(ASH_COMPUTE_POINT_BODY_H)
#error "include norm_body.h and point_body.h first: rms_row, swiglu_forward_range"
#endif

#include "base/assert.h"
#include "base/math.h"
#include "compute/cpu/quant/quant_panels.h"

#define QUANT_CACHE_WAY 16384   /* bytes: addresses so far apart compete for the same lines of L1 */
#define QUANT_STREAM_APART 2048 /* bytes: streams of a GEMV keep at least this distance within a way */
#define QUANT_STREAM_TRIES 16
#define QUANT_STREAM_COLS (ASH_QUANT_STREAMS * ASH_QUANT_PANEL_ROWS_MAX) /* of the sums of a GEMV or small-M unit */

/* The weights: panels of panel_rows rows, each of `groups` groups, of which the last may be shorter. */
struct quant_weights {
    enum ash_dtype dtype;
    size_t groups, panel_rows, panel_bytes;
};

/* The current rows of x, prepared: for each k_groups groups (the last may be fewer) the tiles, one after the other; in
 * a tile, for each group, its micro-panels. */
struct quant_x {
    size_t first, rows; /* of args->x */
    size_t micros;      /* micro-panels of these rows */
    size_t tile_micros; /* micro-panels of a tile; the last tile may have fewer */
    size_t k_groups;    /* groups of x and of panels that are used together */
    size_t bytes;       /* of all of it */
    uint8_t *shared;    /* where it is; NULL: every thread prepares its own */
    bool is_gemv;       /* a single row, as gemv() takes it; no tiles */
};

/* How the panels of the outs are cut into units of the parallel loop. */
struct quant_cut {
    size_t unit_panels; /* with SwiGLU half of them gate, half up */
    size_t out_units[ASH_PROJECT_OUTS_MAX];
};

struct quant_op {
    struct ash_exec *exec;
    const struct ash_project_args *args; /* operands, prologue and epilogue */
    const struct ash_quant_panels *kernels;
    struct quant_weights w;
    struct quant_x x;
    struct quant_cut cut;
    bool ready[ASH_WORKERS_MAX]; /* x.shared NULL: this thread has prepared its own */
};

/* ---- prologue: x ------------------------------------------------------------------------------------------------- */

/* Rows of a tile of x. */
static size_t quant_tile_rows(const struct quant_op *op)
{
    return op->x.tile_micros * op->kernels->micro_rows;
}

/* Bytes to allocate for prepared x. */
static size_t quant_x_bytes(size_t prepared_bytes)
{
    return ash_round_up(prepared_bytes + ASH_QUANT_X_SLACK_BYTES, ASH_MEMORY_ALIGN);
}

/* Bytes that quant_prepare_micro needs for normed rows: those of one micro-panel. */
static size_t quant_normed_bytes(const struct quant_op *op)
{
    return op->kernels->micro_rows * op->args->K * sizeof(float);
}

/* Row m of x, normed into `normed` where asked. */
static const float *quant_row(const struct quant_op *op, size_t m, float *normed)
{
    const struct ash_project_args *args = op->args;
    const float *x = args->x + m * args->x_stride;

    if (args->norm == NULL) return x;
    rms_row(x, args->norm, args->norm_eps, normed, args->K);
    return normed;
}

/* Where the tile that holds micro-panel `micro` begins, for the groups from `group` on. */
static uint8_t *quant_tile_at(const struct quant_op *op, uint8_t *x, size_t micro, size_t group)
{
    size_t tile = micro / op->x.tile_micros * op->x.tile_micros;
    size_t groups = ash_min(op->x.k_groups, op->w.groups - group);

    return x + (group * op->x.micros + tile * groups) * op->kernels->micro_bytes;
}

/* k of the groups from `group` on that are used together. */
static size_t quant_k(const struct quant_op *op, size_t group)
{
    size_t k = ash_quant_group(op->w.dtype);

    return ash_min(op->x.k_groups * k, op->args->K - group * k);
}

/* Micro-panels of the tile that holds `micro`. */
static size_t quant_tile_micros(const struct quant_op *op, size_t micro)
{
    size_t tile = micro / op->x.tile_micros * op->x.tile_micros;

    return ash_min(op->x.tile_micros, op->x.micros - tile);
}

/* Micro-panels of a tile for small and medium M: split evenly where tile() takes fewer about as well. */
static size_t quant_even_micros(const struct ash_quant_panels *kernels, size_t rows)
{
    size_t micros = ash_div_up(rows, kernels->micro_rows);
    size_t tiles = ash_div_up(micros, kernels->tile_micros);

    return kernels->even_tiles ? ash_div_up(micros, tiles) : kernels->tile_micros;
}

/* Norm and quantise the rows of one micro-panel into x. normed has quant_normed_bytes. */
static void quant_prepare_micro(const struct quant_op *op, size_t micro, float *normed, uint8_t *x)
{
    const struct ash_quant_panels *kernels = op->kernels;
    const float *rows[ASH_QUANT_MICRO_ROWS_MAX] = {NULL};
    size_t first = micro * kernels->micro_rows;

    for (size_t i = 0; i < kernels->micro_rows && first + i < op->x.rows; i++)
        rows[i] = quant_row(op, op->x.first + first + i, normed + i * op->args->K);
    for (size_t group = 0; group < op->w.groups; group += op->x.k_groups) {
        kernels->quantise(rows, quant_k(op, group), micro % op->x.tile_micros, quant_tile_micros(op, micro),
                          quant_tile_at(op, x, micro, group));
        for (size_t i = 0; i < kernels->micro_rows; i++)
            if (rows[i] != NULL) rows[i] += quant_k(op, group);
    }
}

/* ---- units ------------------------------------------------------------------------------------------------------- */

/* Some panels of an out; with SwiGLU, the same ones of both. Panels of a unit lie `step` apart: neighbours, or, for a
 * GEMV, several streams of memory, each of which continues in the next unit. */
struct quant_unit {
    const struct ash_project_out *out;
    size_t sides;              /* 2 with SwiGLU */
    size_t first, step, count; /* panels of a side */
};

/* Panels of one side of a unit. */
static size_t quant_side_panels(const struct quant_op *op)
{
    return op->args->swiglu ? op->cut.unit_panels / 2 : op->cut.unit_panels;
}

static size_t quant_out_panels(const struct quant_op *op, size_t out)
{
    return ash_div_up(op->args->outs[out].w.N, op->w.panel_rows);
}

/* Do n streams, each `bytes` after the one before, use different sets of L1? */
static bool quant_streams_apart(size_t bytes, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        size_t apart = i * bytes % QUANT_CACHE_WAY;

        if (apart < QUANT_STREAM_APART || apart > QUANT_CACHE_WAY - QUANT_STREAM_APART) return false;
    }
    return true;
}

/* A GEMV walks streams of panels, so its units are as many as a stream is long: a little more than the streams' share,
 * if that keeps them apart (sizes of matrices are often powers of two). */
static size_t quant_out_units(const struct quant_op *op, size_t out)
{
    size_t panels = quant_side_panels(op), units = ash_div_up(quant_out_panels(op, out), panels);

    if (!op->x.is_gemv) return units;
    for (size_t more = 0; more < QUANT_STREAM_TRIES; more++)
        if (quant_streams_apart((units + more) * op->w.panel_bytes, panels)) return units + more;
    return units;
}

/* Cut the outs into units of unit_panels panels; returns how many these are. */
static size_t quant_cut_units(struct quant_op *op, size_t unit_panels)
{
    size_t count = 0;

    op->cut.unit_panels = unit_panels;
    for (size_t out = 0; out < (op->args->swiglu ? 1 : op->args->out_count); out++)
        count += op->cut.out_units[out] = quant_out_units(op, out);
    return count;
}

static struct quant_unit quant_unit_at(const struct quant_op *op, size_t unit)
{
    struct quant_unit at = {.sides = op->args->swiglu ? 2 : 1};
    size_t out = 0, panels;

    while (unit >= op->cut.out_units[out])
        unit -= op->cut.out_units[out++];
    panels = quant_out_panels(op, out);
    at.out = &op->args->outs[out];
    at.step = op->x.is_gemv ? op->cut.out_units[out] : 1;
    at.first = op->x.is_gemv ? unit : unit * quant_side_panels(op);
    at.count = at.first < panels ? ash_min(quant_side_panels(op), (panels - at.first - 1) / at.step + 1) : 0;
    return at;
}

/* The panels of a unit, those of the first side first. */
static void quant_unit_panels(const struct quant_op *op, const struct quant_unit *unit, const uint8_t **panels)
{
    for (size_t side = 0; side < unit->sides; side++)
        for (size_t i = 0; i < unit->count; i++)
            panels[side * unit->count + i] =
                (const uint8_t *)unit->out[side].w.mat.data + (unit->first + i * unit->step) * op->w.panel_bytes;
}

/* ---- epilogue ---------------------------------------------------------------------------------------------------- */

/* Columns of an out that begin at panel `first`, of count panels. */
static size_t quant_cols(const struct quant_op *op, const struct ash_project_out *out, size_t first, size_t count)
{
    return ash_min(count * op->w.panel_rows, out->w.N - first * op->w.panel_rows);
}

/* Panels of a unit that are neighbours, so that their columns are adjacent. */
static size_t quant_together(const struct quant_unit *unit)
{
    return unit->step == 1 ? unit->count : 1;
}

/* Add biases to the sums of a unit's sides, one side after the other. */
static void quant_add_biases(const struct quant_op *op, const struct quant_unit *unit, float *sums)
{
    size_t together = quant_together(unit);

    for (size_t side = 0; side < unit->sides; side++, sums += unit->count * op->w.panel_rows) {
        const struct ash_project_out *out = &unit->out[side];

        for (size_t i = 0; out->bias != NULL && i < unit->count; i += together) {
            size_t panel = unit->first + i * unit->step;
            float *to = sums + i * op->w.panel_rows;

            add_row(to, out->bias + panel * op->w.panel_rows, quant_cols(op, out, panel, together), to);
        }
    }
}

/* The epilogue of row m and the panels of a unit: biases, SwiGLU over all of its columns, residual, store to y. */
static void quant_finish_unit(const struct quant_op *op, const struct quant_unit *unit, size_t m, float *sums)
{
    size_t together = quant_together(unit), side_cols = unit->count * op->w.panel_rows;

    quant_add_biases(op, unit, sums);
    if (op->args->swiglu) {
        struct act_op act = {.x = sums, .up = sums + side_cols, .out = sums};

        swiglu_forward_range(&act, 0, side_cols, 0);
    }
    for (size_t i = 0; i < unit->count; i += together) {
        size_t panel = unit->first + i * unit->step, cols = quant_cols(op, unit->out, panel, together);
        float *y = unit->out->y + (op->x.first + m) * unit->out->y_stride + panel * op->w.panel_rows;

        if (op->args->residual)
            add_row(y, sums + i * op->w.panel_rows, cols, y);
        else
            memcpy(y, sums + i * op->w.panel_rows, cols * sizeof(*y));
    }
}

#endif

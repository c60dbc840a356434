/* amx_packed - weights that were packed for AMX when they were loaded: 16 rows of w by 32 k are one tile of the right
 * operand, one KiB in one piece. Tiles of the same rows follow each other along k, so that decoding reads a few streams
 * of memory in order, and large-M products need not transpose. */
#ifndef ASH_COMPUTE_AMX_PACKED_H
#define ASH_COMPUTE_AMX_PACKED_H

#include <string.h>
#include "base/math.h"
#include "base/assert.h"
#include "compute/cpu/gemm/amx_pack.h"
#include "compute/cpu/gemm/gemm_small_m.h"
#include "compute/ops.h"

#define PACKED_STREAMS 4             /* panels of rows of w that are read at once, at most */
#define PACKED_AHEAD (2 * TILE_SIZE) /* elements of a stream to fetch ahead */
#define PACKED_MIN_PANELS 1

/* ---- packing ----------------------------------------------------------------------------------------------------- */

static size_t packed_bytes(size_t N, size_t K)
{
    return ash_round_up(N, TILE_SIDE) * ash_round_up(K, TILE_K) * sizeof(uint16_t);
}

struct packing {
    struct pack lines;
    uint16_t *panels;
};

INLINE void packing_panel(const struct packing *op, enum ash_dtype dtype, size_t panel)
{
    size_t steps = ash_round_up(op->lines.k_count, TILE_K) / TILE_K;

    for (size_t step = 0; step < steps; step++) {
        uint16_t *to = op->panels + (panel * steps + step) * TILE_SIZE;

        if (op->lines.k_stride == 1)
            pack_tile(&op->lines, dtype, true, panel * TILE_SIDE, step * TILE_K, to);
        else
            pack_tile_apart(&op->lines, panel * TILE_SIDE, step * TILE_K, to);
    }
}

static void packing_panels(void *ctx, size_t begin, size_t end, int worker)
{
    const struct packing *op = ctx;

    (void)worker;
    for (size_t panel = begin; panel < end; panel++)
        if (op->lines.dtype == ASH_BF16)
            packing_panel(op, ASH_BF16, panel);
        else if (op->lines.dtype == ASH_F16)
            packing_panel(op, ASH_F16, panel);
        else
            packing_panel(op, ASH_F32, panel);
}

static void pack_weight(struct ash_exec *exec, const struct ash_weight *w, size_t K, size_t first, size_t count,
                        void *packed)
{
    struct packing op = {.lines = {.data = pack_at(w->mat.data, w->mat.dtype, first * w->mat.col_stride),
                                   .dtype = w->mat.dtype,
                                   .line_stride = w->mat.col_stride,
                                   .k_stride = w->mat.row_stride,
                                   .count = count,
                                   .k_count = K,
                                   .right = true},
                         .panels = (uint16_t *)packed + first * ash_round_up(K, TILE_K)};

    ash_assert(first % ASH_PACK_ROWS == 0 && !w->packed);
    ash_workers_run(exec->workers, ash_div_up(count, TILE_SIDE), PACKED_MIN_PANELS, packing_panels, &op);
}

/* ---- small M ----------------------------------------------------------------------------------------------------- */

/* The panels of a job as streams of memory, each read in order. */
struct streams {
    const uint16_t *base;
    size_t panels, panel_size; /* of all streams */
    size_t length;             /* panels of a stream; the last one may have fewer */
};

INLINE struct streams streams_of(const struct ash_small_m *job, size_t count)
{
    size_t k_padded = ash_round_up(job->K, TILE_K), panels = ash_div_up(job->count, TILE_SIDE);

    return (struct streams){.base = (const uint16_t *)job->w->mat.data + job->first * k_padded,
                            .panels = panels,
                            .panel_size = TILE_SIDE * k_padded,
                            .length = ash_div_up(panels, count)};
}

/* Panel number `at` of a stream, and whether it is there. */
INLINE size_t stream_panel(const struct streams *streams, size_t stream, size_t at)
{
    return stream * streams->length + at;
}

INLINE bool stream_has(const struct streams *streams, size_t stream, size_t at)
{
    return stream_panel(streams, stream, at) < streams->panels;
}

/* Where it lies; the first stream's panel replaces one that is not there. */
INLINE const uint16_t *stream_at(const struct streams *streams, size_t stream, size_t at)
{
    size_t panel = stream_has(streams, stream, at) ? stream_panel(streams, stream, at) : at;

    return streams->base + panel * streams->panel_size;
}

/* Tiles 0 to 3: sums of M rows; 4: x; 6 and 7: weights. */
static void packed_use(size_t M)
{
    struct tile_config config = {.palette = 1};

    for (size_t tile = 0; tile < 8; tile++) {
        config.rows[tile] = (uint8_t)(tile < 6 ? M : TILE_SIDE);
        config.row_bytes[tile] = 64;
    }
    tile_use(&config);
}

/* Fetch the tile that lies ahead of the one at from. */
INLINE void packed_fetch(const uint16_t *from)
{
    UNROLL
    for (size_t line = 0; line < TILE_SIDE; line++)
        _mm_prefetch((const char *)(from + PACKED_AHEAD + line * TILE_K), _MM_HINT_T0);
}

/* M rows of x times PACKED_STREAMS panels of 16 rows of w, the sums in tiles 0 to 3. */
static void packed_panels(const uint16_t *const *w, const uint16_t *x, size_t M, size_t steps)
{
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (size_t at = 0; at < steps * TILE_SIZE; at += TILE_SIZE, x += TILE_K * M) {
        TILE_LOAD(4, x, 64);
        packed_fetch(w[0] + at);
        TILE_LOAD(6, w[0] + at, 64);
        TILE_MULTIPLY(0, 4, 6);
        packed_fetch(w[1] + at);
        TILE_LOAD(7, w[1] + at, 64);
        TILE_MULTIPLY(1, 4, 7);
        packed_fetch(w[2] + at);
        TILE_LOAD(6, w[2] + at, 64);
        TILE_MULTIPLY(2, 4, 6);
        packed_fetch(w[3] + at);
        TILE_LOAD(7, w[3] + at, 64);
        TILE_MULTIPLY(3, 4, 7);
    }
}

static void packed_sums(const struct ash_small_m *job, const uint16_t *x)
{
    const struct streams streams = streams_of(job, PACKED_STREAMS);
    size_t sums_bytes = job->sums_stride * sizeof(float), apart = streams.length * TILE_SIDE;

    packed_use(job->M);
    for (size_t at = 0; at < streams.length; at++) {
        const uint16_t *w[PACKED_STREAMS];
        float *sums = job->sums + at * TILE_SIDE;

        for (size_t i = 0; i < PACKED_STREAMS; i++)
            w[i] = stream_at(&streams, i, at);
        packed_panels(w, x, job->M, streams.panel_size / TILE_SIZE);
        TILE_STORE(0, sums, sums_bytes);
        if (stream_has(&streams, 1, at)) TILE_STORE(1, sums + apart, sums_bytes);
        if (stream_has(&streams, 2, at)) TILE_STORE(2, sums + 2 * apart, sums_bytes);
        if (stream_has(&streams, 3, at)) TILE_STORE(3, sums + 3 * apart, sums_bytes);
    }
    tile_release();
}

/* ---- large M ----------------------------------------------------------------------------------------------------- */

/* Panels of TILE_SIDE lines become panels of PANEL_LINES. A tile lies where element (line, k) of a matrix with these
 * strides would. */
static void repack(const struct pack *lines, uint16_t *out)
{
    const uint16_t *from = lines->data;

    for (size_t k = 0; k < lines->k_count; k += TILE_K)
        for (size_t line = 0; line < ash_round_up(lines->count, PANEL_LINES); line += TILE_SIDE) {
            uint16_t *to = pack_place(lines, line, k, out);

            if (line < lines->count)
                memcpy(to, from + line * lines->line_stride + k * lines->k_stride, TILE_SIZE * sizeof(*to));
            else
                memset(to, 0, TILE_SIZE * sizeof(*to));
        }
}

/* Rows of x are float32, packed weights are not. */
static void pack_either(const struct pack *lines, void *out, size_t width)
{
    if (lines->dtype == ASH_F32)
        pack_block(lines, out, width);
    else
        repack(lines, out);
}

#endif

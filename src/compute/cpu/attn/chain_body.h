/* chain_body - sums of scaled rows, each in ascending order: every product of attention is one. Rows of the result are
 * computed CHAIN_ROWS at a time, where they share a range. Where ranges differ (the diagonal of a causal mask, the edge
 * of a window) a row is computed alone, so that no masked element is ever multiplied. */
#ifndef ASH_COMPUTE_CHAIN_BODY_H
#define ASH_COMPUTE_CHAIN_BODY_H

#ifndef ASH_COMPUTE_WIDE_H
#error "include wide.h first"
#endif

#define CHAIN_ROWS 4         /* rows of the result that are computed together */
#define CHAIN_SLACK_FLOATS 4 /* that VEC_CHAIN_TILE may read, and not use, after a row of the left operand */
#if VF_WIDTH == 8            /* 16 registers */
#define CHAIN_VECS 2
#else
#define CHAIN_VECS 4
#endif
#define CHAIN_COLS (CHAIN_VECS * VF_WIDTH)

/* A range [begin, end). */
struct chain_range {
    size_t begin, end;
};

/* The multiplier of row k of the right operand in row r of the result: data[r * row_stride + k * k_stride]. One of the
 * strides is 1. */
struct chain_left {
    const float *data;
    size_t row_stride, k_stride;
};

/* Rows of float32, stride apart. */
struct chain_right {
    const float *data;
    size_t stride;
};

/* ---- one row ----------------------------------------------------------------------------------------------------- */

#define DEFINE_CHAIN(NAME, VECS)                                                                                       \
    static void NAME(float *c, const float *a, size_t a_stride, const float *b, size_t b_stride, size_t count)         \
    {                                                                                                                  \
        vf acc[VECS];                                                                                                  \
                                                                                                                       \
        UNROLL for (size_t v = 0; v < (VECS); v++) acc[v] = vf_load(c + v * VF_WIDTH);                                 \
        for (size_t k = 0; k < count; k++) {                                                                           \
            vf by = vf_set(a[k * a_stride]);                                                                           \
                                                                                                                       \
            UNROLL for (size_t v = 0; v < (VECS); v++) acc[v] =                                                        \
                vf_fma(by, vf_load(b + k * b_stride + v * VF_WIDTH), acc[v]);                                          \
        }                                                                                                              \
        UNROLL for (size_t v = 0; v < (VECS); v++) vf_store(c + v * VF_WIDTH, acc[v]);                                 \
    }

DEFINE_CHAIN(chain_64, 64 / VF_WIDTH)
DEFINE_CHAIN(chain_16, 16 / VF_WIDTH)

/* Row r of the result: c[0, width) += the rows of b in range, k ascending. width is a multiple of 16. */
static void chain_row(float *c, size_t width, struct chain_left a, size_t r, struct chain_right b,
                      struct chain_range range)
{
    const float *by = a.data + r * a.row_stride + range.begin * a.k_stride;
    size_t n = 0, count = range.end - range.begin;

    if (range.begin >= range.end) return;
    b.data += range.begin * b.stride;
    for (; n + 64 <= width; n += 64)
        chain_64(c + n, by, a.k_stride, b.data + n, b.stride, count);
    for (; n < width; n += 16)
        chain_16(c + n, by, a.k_stride, b.data + n, b.stride, count);
}

/* ---- a tile of rows ---------------------------------------------------------------------------------------------- */

struct chain_acc {
    vf acc[CHAIN_ROWS][CHAIN_VECS];
};

/* The sums start from c, or from 0. */
INLINE void chain_acc_load(struct chain_acc *tile, const float *c, size_t stride, bool add)
{
    UNROLL
    for (size_t r = 0; r < CHAIN_ROWS; r++) {
        UNROLL
        for (size_t v = 0; v < CHAIN_VECS; v++)
            tile->acc[r][v] = add ? vf_load(c + r * stride + v * VF_WIDTH) : vf_set(0.0f);
    }
}

INLINE void chain_acc_store(const struct chain_acc *tile, float *c, size_t stride)
{
    UNROLL
    for (size_t r = 0; r < CHAIN_ROWS; r++) {
        UNROLL
        for (size_t v = 0; v < CHAIN_VECS; v++)
            vf_store(c + r * stride + v * VF_WIDTH, tile->acc[r][v]);
    }
}

#ifdef VEC_CHAIN_TILE
static void chain_tile_by_row(float *c, size_t c_stride, const float *a, size_t a_stride, struct chain_right b,
                              size_t count, bool add)
{
    VEC_CHAIN_TILE(c, c_stride, a, a_stride, b.data, b.stride, count, add);
}
#else
/* Multipliers of one row of the result are adjacent. */
static void chain_tile_by_row(float *c, size_t c_stride, const float *a, size_t a_stride, struct chain_right b,
                              size_t count, bool add)
{
    struct chain_acc tile;
    size_t k = 0;

    chain_acc_load(&tile, c, c_stride, add);
    for (; k + VM_WIDTH <= count; k += VM_WIDTH) {
        vm by[CHAIN_ROWS];

        UNROLL
        for (size_t r = 0; r < CHAIN_ROWS; r++)
            by[r] = vm_load(a + r * a_stride + k);
        UNROLL
        for (size_t lane = 0; lane < VM_WIDTH; lane++) {
            UNROLL
            for (size_t v = 0; v < CHAIN_VECS; v++) {
                vf row = vf_load(b.data + (k + lane) * b.stride + v * VF_WIDTH);

                UNROLL
                for (size_t r = 0; r < CHAIN_ROWS; r++)
                    tile.acc[r][v] = vm_fma(tile.acc[r][v], row, by[r], (int)lane);
            }
        }
    }
    for (; k < count; k++) {
        UNROLL
        for (size_t v = 0; v < CHAIN_VECS; v++) {
            vf row = vf_load(b.data + k * b.stride + v * VF_WIDTH);

            UNROLL
            for (size_t r = 0; r < CHAIN_ROWS; r++)
                tile.acc[r][v] = vf_fma(row, vf_set(a[r * a_stride + k]), tile.acc[r][v]);
        }
    }
    chain_acc_store(&tile, c, c_stride);
}
#endif

/* Multipliers of one k are adjacent. */
static void chain_tile_by_k(float *c, size_t c_stride, const float *a, size_t a_stride, struct chain_right b,
                            size_t count, bool add)
{
    struct chain_acc tile;

    chain_acc_load(&tile, c, c_stride, add);
    for (size_t k = 0; k < count; k++) {
        vm by = vm_load(a + k * a_stride);

        UNROLL
        for (size_t v = 0; v < CHAIN_VECS; v++) {
            vf row = vf_load(b.data + k * b.stride + v * VF_WIDTH);

            UNROLL
            for (size_t r = 0; r < CHAIN_ROWS; r++)
                tile.acc[r][v] = vm_fma(tile.acc[r][v], row, by, (int)r);
        }
    }
    chain_acc_store(&tile, c, c_stride);
}

/* CHAIN_ROWS rows over a range that they share: c += the rows of b, or c = their sum, k ascending. width is a multiple
 * of 16. */
static void chain_tile(float *c, size_t c_stride, size_t width, struct chain_left a, struct chain_right b,
                       struct chain_range range, bool add)
{
    const float *by = a.data + range.begin * a.k_stride;
    struct chain_right from = {b.data + range.begin * b.stride, b.stride};
    size_t n = 0, count = range.end - range.begin;

    for (; n + CHAIN_COLS <= width; n += CHAIN_COLS, from.data += CHAIN_COLS)
        if (a.k_stride == 1)
            chain_tile_by_row(c + n, c_stride, by, a.row_stride, from, count, add);
        else
            chain_tile_by_k(c + n, c_stride, by, a.k_stride, from, count, add);
    b.data += n;
    for (size_t r = 0; r < CHAIN_ROWS && n < width; r++) {
        if (!add) memset(c + r * c_stride + n, 0, (width - n) * sizeof(*c));
        chain_row(c + r * c_stride + n, width - n, a, r, b, range);
    }
}

/* Row r < count <= CHAIN_ROWS of the result: c[r * c_stride ...] += the rows of b in ranges[r], k ascending. width is a
 * multiple of 16. */
static void chain_rows(float *c, size_t c_stride, size_t width, struct chain_left a, struct chain_right b,
                       const struct chain_range *ranges, size_t count)
{
    struct chain_range shared = ranges[0];
    bool same = true;

    for (size_t r = 1; r < count; r++) {
        same &= ranges[r].begin == shared.begin && ranges[r].end == shared.end;
        if (ranges[r].begin > shared.begin) shared.begin = ranges[r].begin;
        if (ranges[r].end < shared.end) shared.end = ranges[r].end;
    }
    if (count < CHAIN_ROWS || shared.begin >= shared.end) {
        for (size_t r = 0; r < count; r++)
            chain_row(c + r * c_stride, width, a, r, b, ranges[r]);
        return;
    }
    for (size_t r = 0; r < CHAIN_ROWS && !same; r++)
        chain_row(c + r * c_stride, width, a, r, b, (struct chain_range){ranges[r].begin, shared.begin});
    chain_tile(c, c_stride, width, a, b, shared, true);
    for (size_t r = 0; r < CHAIN_ROWS && !same; r++)
        chain_row(c + r * c_stride, width, a, r, b, (struct chain_range){shared.end, ranges[r].end});
}

#endif

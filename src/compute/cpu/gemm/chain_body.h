/* chain_body - sums of scaled rows, each in ascending order: what every product of attention is. Include after wide.h.
 * Rows of the result run side by side, STRIP at a time, where they share a range; where ranges differ (the diagonal of
 * a causal mask, the edge of a window) a row runs alone, so that no masked element is ever multiplied. */
#ifndef ASH_COMPUTE_CHAIN_BODY_H
#define ASH_COMPUTE_CHAIN_BODY_H

#define STRIP 4
#if VF_WIDTH == 8 /* 16 registers */
#define STRIP_VECS 2
#else
#define STRIP_VECS 4
#endif
#define STRIP_COLS (STRIP_VECS * VF_WIDTH)

/* A range [begin, end). */
struct range {
    size_t begin, end;
};

/* The multiplier of row k of the right operand in row r of the result: data[r * row_stride + k * k_stride]. One of the
 * strides is 1. */
struct left {
    const float *data;
    size_t row_stride, k_stride;
};

/* Rows of float32, stride apart. */
struct rows {
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
static void chain_row(float *c, size_t width, struct left a, size_t r, struct rows b, struct range range)
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

/* ---- a strip of rows -----------------------------------------------------------------------------------------------
 */

struct strip {
    vf acc[STRIP][STRIP_VECS];
};

/* The sums start from c, or from 0. */
INLINE void strip_load(struct strip *strip, const float *c, size_t stride, bool add)
{
    UNROLL
    for (size_t r = 0; r < STRIP; r++) {
        UNROLL
        for (size_t v = 0; v < STRIP_VECS; v++)
            strip->acc[r][v] = add ? vf_load(c + r * stride + v * VF_WIDTH) : vf_set(0.0f);
    }
}

INLINE void strip_store(const struct strip *strip, float *c, size_t stride)
{
    UNROLL
    for (size_t r = 0; r < STRIP; r++) {
        UNROLL
        for (size_t v = 0; v < STRIP_VECS; v++)
            vf_store(c + r * stride + v * VF_WIDTH, strip->acc[r][v]);
    }
}

#ifdef VEC_STRIP
static void strip_by_row(float *c, size_t c_stride, const float *a, size_t a_stride, struct rows b, size_t count,
                         bool add)
{
    VEC_STRIP(c, c_stride, a, a_stride, b.data, b.stride, count, add);
}
#else
/* Multipliers of one row of the result lie beside each other. */
static void strip_by_row(float *c, size_t c_stride, const float *a, size_t a_stride, struct rows b, size_t count,
                         bool add)
{
    struct strip strip;
    size_t k = 0;

    strip_load(&strip, c, c_stride, add);
    for (; k + VM_WIDTH <= count; k += VM_WIDTH) {
        vm by[STRIP];

        UNROLL
        for (size_t r = 0; r < STRIP; r++)
            by[r] = vm_load(a + r * a_stride + k);
        UNROLL
        for (size_t lane = 0; lane < VM_WIDTH; lane++) {
            UNROLL
            for (size_t v = 0; v < STRIP_VECS; v++) {
                vf row = vf_load(b.data + (k + lane) * b.stride + v * VF_WIDTH);

                UNROLL
                for (size_t r = 0; r < STRIP; r++)
                    strip.acc[r][v] = vm_fma(strip.acc[r][v], row, by[r], (int)lane);
            }
        }
    }
    for (; k < count; k++) {
        UNROLL
        for (size_t v = 0; v < STRIP_VECS; v++) {
            vf row = vf_load(b.data + k * b.stride + v * VF_WIDTH);

            UNROLL
            for (size_t r = 0; r < STRIP; r++)
                strip.acc[r][v] = vf_fma(row, vf_set(a[r * a_stride + k]), strip.acc[r][v]);
        }
    }
    strip_store(&strip, c, c_stride);
}
#endif

/* Multipliers of one k lie beside each other. */
static void strip_by_k(float *c, size_t c_stride, const float *a, size_t a_stride, struct rows b, size_t count,
                       bool add)
{
    struct strip strip;

    strip_load(&strip, c, c_stride, add);
    for (size_t k = 0; k < count; k++) {
        vm by = vm_load(a + k * a_stride);

        UNROLL
        for (size_t v = 0; v < STRIP_VECS; v++) {
            vf row = vf_load(b.data + k * b.stride + v * VF_WIDTH);

            UNROLL
            for (size_t r = 0; r < STRIP; r++)
                strip.acc[r][v] = vm_fma(strip.acc[r][v], row, by, (int)r);
        }
    }
    strip_store(&strip, c, c_stride);
}

/* STRIP rows over a range that they share: c += the rows of b, or c = their sum, k ascending. width is a multiple of
 * 16. */
static void chain_strip(float *c, size_t c_stride, size_t width, struct left a, struct rows b, struct range range,
                        bool add)
{
    const float *by = a.data + range.begin * a.k_stride;
    struct rows from = {b.data + range.begin * b.stride, b.stride};
    size_t n = 0, count = range.end - range.begin;

    for (; n + STRIP_COLS <= width; n += STRIP_COLS, from.data += STRIP_COLS)
        if (a.k_stride == 1)
            strip_by_row(c + n, c_stride, by, a.row_stride, from, count, add);
        else
            strip_by_k(c + n, c_stride, by, a.k_stride, from, count, add);
    b.data += n;
    for (size_t r = 0; r < STRIP && n < width; r++) {
        if (!add) memset(c + r * c_stride + n, 0, (width - n) * sizeof(*c));
        chain_row(c + r * c_stride + n, width - n, a, r, b, range);
    }
}

/* Row r < count <= STRIP of the result: c[r * c_stride ...] += the rows of b in ranges[r], k ascending. width is a
 * multiple of 16. */
static void chain_rows(float *c, size_t c_stride, size_t width, struct left a, struct rows b,
                       const struct range *ranges, size_t count)
{
    struct range shared = ranges[0];
    bool same = true;

    for (size_t r = 1; r < count; r++) {
        same &= ranges[r].begin == shared.begin && ranges[r].end == shared.end;
        if (ranges[r].begin > shared.begin) shared.begin = ranges[r].begin;
        if (ranges[r].end < shared.end) shared.end = ranges[r].end;
    }
    if (count < STRIP || shared.begin >= shared.end) {
        for (size_t r = 0; r < count; r++)
            chain_row(c + r * c_stride, width, a, r, b, ranges[r]);
        return;
    }
    for (size_t r = 0; r < STRIP && !same; r++)
        chain_row(c + r * c_stride, width, a, r, b, (struct range){ranges[r].begin, shared.begin});
    chain_strip(c, c_stride, width, a, b, shared, true);
    for (size_t r = 0; r < STRIP && !same; r++)
        chain_row(c + r * c_stride, width, a, r, b, (struct range){shared.end, ranges[r].end});
}

#endif

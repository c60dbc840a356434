/* The kernel of quantised products for arm64 with SDOT, weights not packed: four or eight rows of w at once, one block
 * at a time. Each weight is read once per row of x, so it is the kernel of decoding. */
#if defined(__aarch64__)

#include "base/math.h"
#include "compute/cpu/quant/quant_priv.h"

#include "compute/cpu/quant/quant_neon.h"

#define VECS_MAX 2
#define ROWS_MAX (VECS_MAX * ASH_QUANT_NR)

/* Some rows of w, and the group scales and sub-scales of their current group. */
struct rows {
    const uint8_t *w[ROWS_MAX];
    float group_scale[ROWS_MAX];
    int32_t subscales[ROWS_MAX][ASH_QUANT_GROUP_BLOCKS];
};

INLINE void load_subscales(struct rows *rows, size_t count, enum ash_dtype dtype, size_t at, size_t blocks)
{
    for (size_t i = 0; i < count; i++) {
        struct subscales subscales;

        if (dtype != ASH_Q4_0) {
            rows->group_scale[i] = ash_quant_scale(rows->w[i] + at);
            continue;
        }
        rows->group_scale[i] = subscales_load(rows->w[i] + at, blocks, &subscales);
        vst1q_s32(rows->subscales[i], subscales.four[0]);
        vst1q_s32(rows->subscales[i] + 4, subscales.four[1]);
    }
}

/* Add the four partial dots of each row's block at `at`. Breadth first: neighbours in the program do not wait for each
 * other. */
INLINE void dots_q8(const struct rows *rows, size_t count, size_t at, int8x16_t low, int8x16_t high, int32x4_t *out)
{
    UNROLL
    for (size_t i = 0; i < count; i++)
        out[i] = vdotq_s32(out[i], vld1q_s8((const int8_t *)rows->w[i] + at + 2), low);
    UNROLL
    for (size_t i = 0; i < count; i++)
        out[i] = vdotq_s32(out[i], vld1q_s8((const int8_t *)rows->w[i] + at + 18), high);
}

/* With nibbles as they are, 0 to 15: the caller starts from minus 8 times the sum of x. */
INLINE void dots_q4(const struct rows *rows, size_t count, size_t at, int8x16_t low, int8x16_t high, int32x4_t *out)
{
    uint8x16_t q[ROWS_MAX];

    UNROLL
    for (size_t i = 0; i < count; i++) {
        q[i] = vld1q_u8(rows->w[i] + at + 2);
        out[i] = vdotq_s32(out[i], vreinterpretq_s8_u8(vandq_u8(q[i], vdupq_n_u8(15))), low);
    }
    UNROLL
    for (size_t i = 0; i < count; i++)
        out[i] = vdotq_s32(out[i], vreinterpretq_s8_u8(vshrq_n_u8(q[i], 4)), high);
}

INLINE int32x4_t add_across(const int32x4_t *rows)
{
    return vpaddq_s32(vpaddq_s32(rows[0], rows[1]), vpaddq_s32(rows[2], rows[3]));
}

/* Block b of a group: its dots, of Q4_0 times its sub-scales, are added to the partial sums. */
INLINE void add_block(const struct rows *rows, enum ash_dtype dtype, size_t count, size_t at, size_t b, const int8_t *q,
                      int32_t sum, int32x4_t *partial)
{
    int8x16_t low = vld1q_s8(q), high = vld1q_s8(q + 16);
    int32x4_t dots[ROWS_MAX];

    if (dtype != ASH_Q4_0) {
        dots_q8(rows, count, at, low, high, partial);
        return;
    }
    UNROLL
    for (size_t i = 0; i < count; i++)
        dots[i] = vsetq_lane_s32(-8 * sum, vdupq_n_s32(0), 0);
    dots_q4(rows, count, at, low, high, dots);
    UNROLL
    for (size_t i = 0; i < count; i++)
        partial[i] = vmlaq_n_s32(partial[i], dots[i], rows->subscales[i][b]);
}

/* Row m of x times `vecs` vectors of ASH_QUANT_NR rows of w. */
INLINE void run_row(const uint8_t *const *w, enum ash_dtype dtype, const struct ash_quant_rows *x, size_t m,
                    size_t vecs, float *sums)
{
    const size_t block_bytes = dtype == ASH_Q4_0 ? 18 : 34, count = vecs * ASH_QUANT_NR;
    const int8_t *q = x->q + m * x->blocks * ASH_QUANT_BLOCK;
    const float *scale = x->scale + m * x->groups;
    const int32_t *sum = x->sum + m * x->blocks * 2; /* of sub-blocks, two a block */
    struct rows rows;
    float32x4_t acc[VECS_MAX];

    UNROLL
    for (size_t i = 0; i < count; i++)
        rows.w[i] = w[i];
    UNROLL
    for (size_t i = 0; i < vecs; i++)
        acc[i] = vld1q_f32(sums + i * ASH_QUANT_NR);
    for (size_t group = 0, first = 0; group < x->groups; group++, first += ash_quant_group_blocks(dtype)) {
        size_t blocks = dtype == ASH_Q8_0 ? 1 : ash_quant_rows_blocks(x, group);
        int32x4_t partial[ROWS_MAX];

        UNROLL
        for (size_t i = 0; i < count; i++)
            partial[i] = vdupq_n_s32(0);
        load_subscales(&rows, count, dtype, first * block_bytes, blocks);
        for (size_t b = 0; b < blocks; b++, q += ASH_QUANT_BLOCK)
            add_block(&rows, dtype, count, (first + b) * block_bytes, b, q,
                      sum[2 * (first + b)] + sum[2 * (first + b) + 1], partial);
        UNROLL
        for (size_t i = 0; i < vecs; i++)
            acc[i] = vfmaq_f32(acc[i], vcvtq_f32_s32(add_across(partial + i * ASH_QUANT_NR)),
                               vmulq_n_f32(vld1q_f32(rows.group_scale + i * ASH_QUANT_NR), scale[group]));
    }
    UNROLL
    for (size_t i = 0; i < vecs; i++)
        vst1q_f32(sums + i * ASH_QUANT_NR, acc[i]);
}

static void run_q4(const uint8_t *const *w, const struct ash_quant_rows *x, size_t m, size_t vecs, float *sums)
{
    if (vecs == 1)
        run_row(w, ASH_Q4_0, x, m, 1, sums);
    else
        run_row(w, ASH_Q4_0, x, m, VECS_MAX, sums);
}

/* count rows of w from n on, in as many vectors as they fill. */
static void run_rows(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t n, size_t count)
{
    size_t vecs = ash_div_up(count, ASH_QUANT_NR);
    const uint8_t *w[ROWS_MAX];

    for (size_t i = 0; i < vecs; i++)
        ash_quant_w_rows(args, n + i * ASH_QUANT_NR, count - i * ASH_QUANT_NR, w + i * ASH_QUANT_NR);
    for (size_t m = 0; m < x->rows; m++) {
        float sums[ROWS_MAX];

        for (size_t i = 0; i < vecs; i++)
            ash_quant_load_sums(args, x->first + m, n + i * ASH_QUANT_NR, count - i * ASH_QUANT_NR,
                                sums + i * ASH_QUANT_NR);
        if (args->dtype == ASH_Q8_0)
            run_row(w, ASH_Q8_0, x, m, 1, sums);
        else if (args->dtype == ASH_Q8_W)
            run_row(w, ASH_Q8_W, x, m, 1, sums);
        else
            run_q4(w, x, m, vecs, sums);
        ash_quant_store_sums(args, x->first + m, n, count, sums);
    }
}

void ash_quant_kernel_dot(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t begin, size_t end)
{
    /* q8 has twice the bytes and is faster with four streams than with eight (20 against 16 GB/s on a core) */
    const size_t step = (args->dtype == ASH_Q4_0 ? VECS_MAX : 1) * ASH_QUANT_NR;

    for (size_t n = begin; n < end; n += step)
        run_rows(args, x, n, ash_min(end - n, step));
}

#endif

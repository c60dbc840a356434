/* The kernel of quantised products for arm64 with SDOT: four or eight rows of w side by side, one block at a time. Each
 * weight is read once per row of x, so it is the kernel of decoding. What bounds it are vector instructions, so scales
 * are put together with whole-number ones. */
#if defined(__aarch64__)

#include "compute/cpu/quant_priv.h"

#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
#define QUADS_MAX 2

INLINE uint64_t half_bits(const uint8_t *block)
{
    uint16_t half;

    memcpy(&half, block, sizeof(half));
    return half;
}

/* The scales of block `at` of four rows. */
INLINE float32x4_t scales(const uint8_t *const *w, size_t at)
{
    uint64_t halves =
        half_bits(w[0] + at) | half_bits(w[1] + at) << 16 | half_bits(w[2] + at) << 32 | half_bits(w[3] + at) << 48;

    return vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(halves)));
}

/* Add the four partial dots of each row's block at `at`. Breadth first: neighbours in the program do not wait for each
 * other. */
INLINE void dots_q8(const uint8_t *const *w, size_t count, size_t at, int8x16_t low, int8x16_t high, int32x4_t *out)
{
    UNROLL
    for (size_t i = 0; i < count; i++)
        out[i] = vdotq_s32(out[i], vld1q_s8((const int8_t *)w[i] + at + 2), low);
    UNROLL
    for (size_t i = 0; i < count; i++)
        out[i] = vdotq_s32(out[i], vld1q_s8((const int8_t *)w[i] + at + 18), high);
}

/* With nibbles as they are, 0 to 15; the caller takes 8 times the sum of x away. */
INLINE void dots_q4(const uint8_t *const *w, size_t count, size_t at, int8x16_t low, int8x16_t high, int32x4_t *out)
{
    uint8x16_t q[QUADS_MAX * ASH_QUANT_QUAD];

    UNROLL
    for (size_t i = 0; i < count; i++) {
        q[i] = vld1q_u8(w[i] + at + 2);
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

/* Row m of x against `quads` quads of rows of w. */
INLINE void run_row(const uint8_t *const *w, enum ash_dtype dtype, const struct ash_quant_rows *x, size_t m,
                    size_t quads, float *sums)
{
    const size_t block_bytes = dtype == ASH_Q4_0 ? 18 : 34;
    const int8_t *q = x->q + m * x->blocks * ASH_QUANT_BLOCK;
    const float *scale = x->scale + m * x->groups;
    const int32_t *sum = x->sum + m * x->blocks;
    const uint8_t *local[QUADS_MAX * ASH_QUANT_QUAD];
    float32x4_t acc[QUADS_MAX];

    UNROLL
    for (size_t i = 0; i < quads * ASH_QUANT_QUAD; i++)
        local[i] = w[i];
    UNROLL
    for (size_t i = 0; i < quads; i++)
        acc[i] = vld1q_f32(sums + i * ASH_QUANT_QUAD);
    for (size_t group = 0, b = 0; group < x->groups; group++) {
        const size_t first = b, end = dtype == ASH_Q8_W ? ash_quant_group_end(x, b) : b + 1;
        int32x4_t partial[QUADS_MAX * ASH_QUANT_QUAD];

        UNROLL
        for (size_t i = 0; i < quads * ASH_QUANT_QUAD; i++)
            partial[i] = vdupq_n_s32(0);
        for (; b < end; b++, q += ASH_QUANT_BLOCK) {
            int8x16_t low = vld1q_s8(q), high = vld1q_s8(q + 16);

            if (dtype == ASH_Q4_0)
                dots_q4(local, quads * ASH_QUANT_QUAD, b * block_bytes, low, high, partial);
            else
                dots_q8(local, quads * ASH_QUANT_QUAD, b * block_bytes, low, high, partial);
        }
        UNROLL
        for (size_t i = 0; i < quads; i++) {
            int32x4_t dot = add_across(partial + i * ASH_QUANT_QUAD);
            float32x4_t d = scales(local + i * ASH_QUANT_QUAD, first * block_bytes);

            if (dtype == ASH_Q4_0) dot = vsubq_s32(dot, vdupq_n_s32(8 * sum[first]));
            acc[i] = vfmaq_f32(acc[i], vcvtq_f32_s32(dot), vmulq_n_f32(d, scale[group]));
        }
    }
    UNROLL
    for (size_t i = 0; i < quads; i++)
        vst1q_f32(sums + i * ASH_QUANT_QUAD, acc[i]);
}

static void run_q4(const uint8_t *const *w, const struct ash_quant_rows *x, size_t m, size_t quads, float *sums)
{
    if (quads == 1)
        run_row(w, ASH_Q4_0, x, m, 1, sums);
    else
        run_row(w, ASH_Q4_0, x, m, QUADS_MAX, sums);
}

/* count rows of w from n on; as many quads as they fill. */
static void run_rows(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t n, size_t count)
{
    size_t quads = (count + ASH_QUANT_QUAD - 1) / ASH_QUANT_QUAD;
    const uint8_t *w[QUADS_MAX * ASH_QUANT_QUAD];

    for (size_t i = 0; i < quads; i++)
        ash_quant_quad(args, n + i * ASH_QUANT_QUAD, count - i * ASH_QUANT_QUAD, w + i * ASH_QUANT_QUAD);
    for (size_t m = 0; m < x->rows; m++) {
        float sums[QUADS_MAX * ASH_QUANT_QUAD];

        for (size_t i = 0; i < quads; i++)
            ash_quant_begin(args, x->first + m, n + i * ASH_QUANT_QUAD, count - i * ASH_QUANT_QUAD,
                            sums + i * ASH_QUANT_QUAD);
        if (args->dtype == ASH_Q8_0)
            run_row(w, ASH_Q8_0, x, m, 1, sums);
        else if (args->dtype == ASH_Q8_W)
            run_row(w, ASH_Q8_W, x, m, 1, sums);
        else
            run_q4(w, x, m, quads, sums);
        ash_quant_end(args, x->first + m, n, count, sums);
    }
}

void ash_quant_kernel_dot(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t begin, size_t end)
{
    /* q8 has twice the bytes, and was faster with four streams of them than with eight (20 against 16 GB/s on a core)
     */
    const size_t step = (args->dtype == ASH_Q4_0 ? QUADS_MAX : 1) * ASH_QUANT_QUAD;

    for (size_t n = begin; n < end; n += step)
        run_rows(args, x, n, end - n < step ? end - n : step);
}

#endif

/* The kernel of quantised products for arm64 with SDOT: four rows of w side by side, one block at a time. Each weight
 * is read once per row of x, so it is the kernel of decoding. */
#if defined(__aarch64__)

#include "compute/cpu/quant_priv.h"

#include <arm_neon.h>

/* The scales of block `at` of four rows. */
static inline float32x4_t scales(const uint8_t *const *w, size_t at)
{
    uint16x4_t halves = vdup_n_u16(0);

    halves = vld1_lane_u16((const uint16_t *)(const void *)(w[0] + at), halves, 0);
    halves = vld1_lane_u16((const uint16_t *)(const void *)(w[1] + at), halves, 1);
    halves = vld1_lane_u16((const uint16_t *)(const void *)(w[2] + at), halves, 2);
    halves = vld1_lane_u16((const uint16_t *)(const void *)(w[3] + at), halves, 3);
    return vcvt_f32_f16(vreinterpret_f16_u16(halves));
}

static inline int32x4_t block_q8(const uint8_t *w, int8x16_t low, int8x16_t high)
{
    const int8_t *q = (const int8_t *)w + sizeof(uint16_t);

    return vdotq_s32(vdotq_s32(vdupq_n_s32(0), vld1q_s8(q), low), vld1q_s8(q + 16), high);
}

/* With nibbles as they are, 0 to 15; the caller takes 8 times the sum of x away. */
static inline int32x4_t block_q4(const uint8_t *w, int8x16_t low, int8x16_t high)
{
    uint8x16_t q = vld1q_u8(w + sizeof(uint16_t));
    int32x4_t sum = vdotq_s32(vdupq_n_s32(0), vreinterpretq_s8_u8(vandq_u8(q, vdupq_n_u8(15))), low);

    return vdotq_s32(sum, vreinterpretq_s8_u8(vshrq_n_u8(q, 4)), high);
}

static inline int32x4_t add_across(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d)
{
    return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}

static void quad_q8(const uint8_t *const *w, const int8_t *x, const float *scale, size_t blocks, float *sums)
{
    float32x4_t acc = vld1q_f32(sums);

    for (size_t b = 0; b < blocks; b++, x += ASH_QUANT_BLOCK) {
        size_t at = b * 34;
        int8x16_t low = vld1q_s8(x), high = vld1q_s8(x + 16);
        int32x4_t dots = add_across(block_q8(w[0] + at, low, high), block_q8(w[1] + at, low, high),
                                    block_q8(w[2] + at, low, high), block_q8(w[3] + at, low, high));

        acc = vfmaq_f32(acc, vcvtq_f32_s32(dots), vmulq_n_f32(scales(w, at), scale[b]));
    }
    vst1q_f32(sums, acc);
}

static void quad_q4(const uint8_t *const *w, const int8_t *x, const float *scale, size_t blocks, float *sums)
{
    float32x4_t acc = vld1q_f32(sums);

    for (size_t b = 0; b < blocks; b++, x += ASH_QUANT_BLOCK) {
        size_t at = b * 18;
        int8x16_t low = vld1q_s8(x), high = vld1q_s8(x + 16), eight = vdupq_n_s8(8);
        int32x4_t offset = vdotq_s32(vdotq_s32(vdupq_n_s32(0), low, eight), high, eight);
        int32x4_t dots = add_across(block_q4(w[0] + at, low, high), block_q4(w[1] + at, low, high),
                                    block_q4(w[2] + at, low, high), block_q4(w[3] + at, low, high));

        dots = vsubq_s32(dots, vdupq_n_s32(vaddvq_s32(offset)));
        acc = vfmaq_f32(acc, vcvtq_f32_s32(dots), vmulq_n_f32(scales(w, at), scale[b]));
    }
    vst1q_f32(sums, acc);
}

void ash_quant_kernel_dot(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t begin, size_t end)
{
    for (size_t n = begin; n < end; n += ASH_QUANT_QUAD) {
        size_t count = end - n < ASH_QUANT_QUAD ? end - n : ASH_QUANT_QUAD;
        const uint8_t *w[ASH_QUANT_QUAD];

        ash_quant_quad(args, n, count, w);
        for (size_t m = 0; m < x->rows; m++) {
            const int8_t *q = x->q + m * args->K;
            const float *scale = x->scale + m * x->blocks;
            float sums[ASH_QUANT_QUAD];

            ash_quant_begin(args, x->first + m, n, count, sums);
            if (args->dtype == ASH_Q8_0)
                quad_q8(w, q, scale, x->blocks, sums);
            else
                quad_q4(w, q, scale, x->blocks, sums);
            ash_quant_end(args, x->first + m, n, count, sums);
        }
    }
}

#endif

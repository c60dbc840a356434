/* quant_neon - what the kernels of quantised products on arm64 share: the scales of a group of Q4_0, on vectors. */
#ifndef ASH_COMPUTE_QUANT_NEON_H
#define ASH_COMPUTE_QUANT_NEON_H

#include <arm_neon.h>
#include <string.h>
#include "compute/quant.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

/* Integer sub-scales of the eight blocks of a group of a row. */
struct subscales {
    int32x4_t four[2];
};

/* Scales as sub-scales of which the largest is `most`, still with ASH_F32_ROUND_MAGIC added. */
INLINE float32x4_t subscales_rounded(float32x4_t scales, float top, float most)
{
    return vaddq_f32(vmulq_n_f32(scales, most / top), vdupq_n_f32(ASH_F32_ROUND_MAGIC));
}

/* All bits where small sub-scales are exact, else none. */
INLINE uint32x4_t subscales_are_small(float32x4_t scales, float top)
{
    float32x4_t rounded = subscales_rounded(scales, top, ASH_QUANT_SUBSCALE_SMALL_MAX);
    float32x4_t subscales = vsubq_f32(rounded, vdupq_n_f32(ASH_F32_ROUND_MAGIC));

    return vceqq_f32(vmulq_n_f32(subscales, top), vmulq_n_f32(scales, ASH_QUANT_SUBSCALE_SMALL_MAX));
}

/* ash_quant_subscales of Q4_0, by the same operations; missing blocks have sub-scales of 0. Returns the group scale. */
INLINE float subscales_load(const uint8_t *blocks, size_t count, struct subscales *out)
{
    const size_t block_bytes = 18;
    uint16_t halves[ASH_QUANT_GROUP_BLOCKS] = {0};
    float32x4_t scales[2];
    uint32_t bits;
    float top, most;

    for (size_t b = 0; b < count; b++)
        memcpy(&halves[b], blocks + b * block_bytes, sizeof(halves[b]));
    for (int i = 0; i < 2; i++) {
        scales[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(halves + 4 * i)));
        out->four[i] = vdupq_n_s32(0);
    }
    bits = vmaxvq_u32(vmaxq_u32(vreinterpretq_u32_f32(vabsq_f32(scales[0])), /* */
                                vreinterpretq_u32_f32(vabsq_f32(scales[1]))));
    memcpy(&top, &bits, sizeof(top));
    if (bits == 0 || bits >= ASH_F32_INFINITY_BITS) return bits == 0 ? 0.0f : NAN;
    most = vminvq_u32(vandq_u32(subscales_are_small(scales[0], top), subscales_are_small(scales[1], top))) != 0
               ? ASH_QUANT_SUBSCALE_SMALL_MAX
               : ASH_QUANT_SUBSCALE_MAX;
    for (int i = 0; i < 2; i++)
        out->four[i] = vsubq_s32(vreinterpretq_s32_f32(subscales_rounded(scales[i], top, most)),
                                 vdupq_n_s32((int32_t)ASH_F32_ROUND_MAGIC_BITS));
    return top / most;
}

#endif

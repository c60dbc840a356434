/* quant_neon - what the kernels of quantised products on arm64 share: the scales of a group of Q4_0, on vectors. */
#ifndef ASH_COMPUTE_QUANT_NEON_H
#define ASH_COMPUTE_QUANT_NEON_H

#include <arm_neon.h>
#include <string.h>
#include "compute/quant.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

/* Steps of the eight blocks of a group of a row. */
struct steps {
    int32x4_t four[2];
};

/* ash_quant_steps of Q4_0, by the same operations; blocks that are not there have 0 steps. Returns the unit. */
INLINE float steps_load(const uint8_t *blocks, size_t count, struct steps *out)
{
    const size_t block_bytes = 18;
    uint16_t halves[ASH_QUANT_GROUP_BLOCKS] = {0};
    float32x4_t scales[2];
    uint32_t bits;
    float top;

    for (size_t b = 0; b < count; b++)
        memcpy(&halves[b], blocks + b * block_bytes, sizeof(halves[b]));
    for (int i = 0; i < 2; i++) {
        scales[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(halves + 4 * i)));
        out->four[i] = vdupq_n_s32(0);
    }
    bits = vmaxvq_u32(vmaxq_u32(vreinterpretq_u32_f32(vabsq_f32(scales[0])), /* */
                                vreinterpretq_u32_f32(vabsq_f32(scales[1]))));
    memcpy(&top, &bits, sizeof(top));
    if (bits == 0 || bits >= ASH_QUANT_INFINITY_BITS) return bits == 0 ? 0.0f : NAN;
    for (int i = 0; i < 2; i++) {
        float32x4_t whole = vaddq_f32(vmulq_n_f32(scales[i], ASH_QUANT_STEPS / top), vdupq_n_f32(ASH_QUANT_ROUNDER));

        out->four[i] = vsubq_s32(vreinterpretq_s32_f32(whole), vdupq_n_s32((int32_t)ASH_QUANT_ROUNDER_BITS));
    }
    return top / ASH_QUANT_STEPS;
}

#endif

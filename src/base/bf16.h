/* bf16 - 16-bit floats as stored in files and caches: bfloat16 and IEEE half, to and from float32. Round to nearest
 * even. */
#ifndef ASH_BASE_BF16_H
#define ASH_BASE_BF16_H

#include <stdint.h>
#include "base/device_code.h"
#include "base/bits.h"

/* Exact. */
ASH_INLINE float ash_bf16_to_f32(uint16_t h)
{
    return ash_f32_from_bits((uint32_t)h << 16);
}

/* NaN stays NaN (made quiet). */
ASH_INLINE uint16_t ash_f32_to_bf16(float f)
{
    uint32_t bits = ash_f32_bits(f);

    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* The float that f becomes when it is stored as bf16. */
ASH_INLINE float ash_bf16_round(float f)
{
    return ash_bf16_to_f32(ash_f32_to_bf16(f));
}

/* IEEE half to float32: exact, subnormals, infinities and NaN too. */
float ash_f16_to_f32(uint16_t h);
/* The nearest IEEE half, ties to even; too large becomes infinite, NaN stays NaN. */
uint16_t ash_f32_to_f16(float f);

#endif

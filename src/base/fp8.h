/* fp8 - floats of 8 and 4 bits as weights are stored in: e4m3 (of OCP, without infinities), e2m1 and powers of two. */
#ifndef ASH_BASE_FP8_H
#define ASH_BASE_FP8_H

#include <stdint.h>
#include "base/bits.h"

#define ASH_E4M3_MAX 448.0f
#define ASH_E2M1_MAX 6.0f

/* Exact. Exponent and mantissa become those of a float whose exponent is 120 too small; 0x7f and 0xff are NaN. */
static inline float ash_e4m3_to_f32(uint8_t code)
{
    uint32_t bits = (uint32_t)(code & 0x7f) << 20, sign = (uint32_t)(code & 0x80) << 24;
    float value = ash_f32_from_bits(bits) * 0x1p120f;

    return ash_f32_from_bits((bits == 0x7f00000u ? 0x7fc00000u : ash_f32_bits(value)) | sign);
}

/* The nearest e4m3, ties to even; beyond 448, infinities too, it is 448. NaN stays NaN. */
uint8_t ash_f32_to_e4m3(float f);

/* Exact: a sign, two bits of exponent and one of mantissa in the low four bits of code. */
float ash_e2m1_to_f32(unsigned code);
/* The nearest of the 16 values, ties to even mantissas; beyond 6 it is 6. NaN becomes 6. */
uint8_t ash_f32_to_e2m1(float f);

/* The scale of an MX block: 2^(code - 127); 255 is NaN. */
static inline float ash_e8m0_to_f32(uint8_t code)
{
    return ash_f32_from_bits(code == 0xff ? 0x7fc00000u : code == 0 ? 0x00400000u : (uint32_t)code << 23);
}

#endif

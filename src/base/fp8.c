/* Floats of 8 and 4 bits: rounding to them. */
#include "base/fp8.h"

#include <math.h>

#define E4M3_NAN 0x7f
#define E4M3_MAX_CODE 0x7e
#define E4M3_SUBNORMAL_STEP 0x1p-9f
#define E4M3_SMALLEST_NORMAL 0x1p-6f

uint8_t ash_f32_to_e4m3(float f)
{
    uint32_t bits = ash_f32_bits(f), size = bits & 0x7fffffffu;
    uint8_t sign = (uint8_t)(bits >> 24 & 0x80);

    if (size > ASH_F32_INFINITY_BITS) return (uint8_t)(sign | E4M3_NAN);
    if (fabsf(f) < E4M3_SMALLEST_NORMAL) return (uint8_t)(sign | (unsigned)rintf(fabsf(f) / E4M3_SUBNORMAL_STEP));
    if (fabsf(f) >= ASH_E4M3_MAX) return (uint8_t)(sign | E4M3_MAX_CODE);
    size += 0x7ffffu + (size >> 20 & 1u); /* a mantissa of 3 bits; a carry goes to the exponent */
    return (uint8_t)(sign | (size - (120u << 23)) >> 20);
}

float ash_e2m1_to_f32(unsigned code)
{
    static const float values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                     -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

    return values[code & 15u];
}

/* Each comparison is with the middle of two neighbours, of which a tie goes to the one whose last bit is 0. Negated, so
 * that NaN is above all. */
uint8_t ash_f32_to_e2m1(float f)
{
    uint32_t sign = ash_f32_bits(f) >> 28 & 8;
    float size = fabsf(f);
    int code = !(size <= 0.25f) + !(size < 0.75f) + !(size <= 1.25f) + !(size < 1.75f) + !(size <= 2.5f) +
               !(size < 3.5f) + !(size <= 5.0f);

    return (uint8_t)(sign | (unsigned)code);
}

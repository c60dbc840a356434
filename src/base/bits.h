/* bits - float32 values and their bits. */
#ifndef ASH_BASE_BITS_H
#define ASH_BASE_BITS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "base/device_code.h"

#define ASH_F32_SIGN_BIT 0x80000000u
#define ASH_F32_INFINITY_BITS 0x7f800000u
/* 1.5 * 2^23: added to a small float it rounds to nearest even and leaves the integer in the low bits. */
#define ASH_F32_ROUND_MAGIC 12582912.0f
#define ASH_F32_ROUND_MAGIC_BITS 0x4b400000u

/* The bits of a float. */
ASH_INLINE uint32_t ash_f32_bits(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

/* The float of these bits. */
ASH_INLINE float ash_f32_from_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* Are they those of a number, not of an infinity or NaN? */
ASH_INLINE bool ash_f32_is_finite(uint32_t bits)
{
    return (bits & ASH_F32_INFINITY_BITS) != ASH_F32_INFINITY_BITS;
}

/* The least e for which a finite |x| of these bits is below 2^e, as frexp says it; 0 for zero. */
ASH_INLINE int ash_f32_exponent(uint32_t bits)
{
    int exponent = (int)((bits & ASH_F32_INFINITY_BITS) >> 23) - 126;

    bits &= ~ASH_F32_SIGN_BIT;
    if (bits == 0) return 0;
    if (bits >> 23 == 0) /* denormal: bits * 2^-149 */
        for (exponent = -149; bits >> (exponent + 149) != 0;)
            exponent++;
    return exponent;
}

#endif

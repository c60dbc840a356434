/* bits - float32 values and their bits. */
#ifndef ASH_BASE_BITS_H
#define ASH_BASE_BITS_H

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

#endif

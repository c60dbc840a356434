/* IEEE half precision by integer arithmetic: exact on every machine, with subnormals, infinities and NaN payloads. */
#include "base/bf16.h"

float ash_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 0x1fu, fraction = h & 0x3ffu, bits;
    float f;

    if (exponent == 0x1f) {
        bits = sign | 0x7f800000u | fraction << 13;
    } else if (exponent != 0) {
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    } else if (fraction == 0) {
        bits = sign;
    } else { /* subnormal: shift the leading one into the hidden place */
        unsigned shift = (unsigned)__builtin_clz(fraction) - 21;
        bits = sign | (113 - shift) << 23 | (fraction << shift & 0x3ffu) << 13;
    }
    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* value >> shift, rounded to nearest, ties to even; 0 < shift < 32. */
static uint32_t shift_round(uint32_t value, unsigned shift)
{
    uint32_t half = (uint32_t)1 << (shift - 1);

    return (value + half - 1 + (value >> shift & 1u)) >> shift;
}

uint16_t ash_f32_to_f16(float f)
{
    uint32_t bits, sign, magnitude;

    memcpy(&bits, &f, sizeof(bits));
    sign = bits >> 16 & 0x8000u;
    magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu)); /* NaN, made quiet */
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above round to infinity */
    if (magnitude >= 0x38800000u)                                    /* 2^-14: normal */
        return (uint16_t)(sign | (shift_round(magnitude, 13) - (112u << 10)));
    if (magnitude < 0x33000000u) return (uint16_t)sign; /* below 2^-25: zero */
    return (uint16_t)(sign | shift_round((magnitude & 0x7fffffu) | 0x800000u, 126 - (magnitude >> 23)));
}

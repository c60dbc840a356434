/* cuda_fp16 - IEEE halves as kernels read them. */
#ifndef TEST_EMULATE_CUDA_FP16_H
#define TEST_EMULATE_CUDA_FP16_H

#include "emulate/cuda.h"

struct __half {
    uint16_t bits;
};

static inline struct __half __ushort_as_half(uint16_t bits)
{
    return {bits};
}

static inline uint16_t __half_as_ushort(struct __half half)
{
    return half.bits;
}

static inline float __half2float(struct __half half)
{
    uint32_t sign = (uint32_t)(half.bits & 0x8000u) << 16, exponent = half.bits >> 10 & 31, part = half.bits & 1023;

    if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | part << 13);
    if (exponent == 0) return (sign != 0 ? -1.0f : 1.0f) * (float)part * 0x1p-24f;
    return __uint_as_float(sign | (exponent + 112) << 23 | part << 13);
}

#endif

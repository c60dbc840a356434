/* fp8 - the arithmetic of Hopper's tensor cores for e4m3 (wgmma, into float32) in plain C, to the bit. One step adds 32
 * products to a sum: the exact products and the sum are aligned to the largest exponent among them (a product's is the
 * sum of its factors', not normalised), each is cut off at 13 fraction bits, all are added exactly, and the result
 * keeps 13 fraction bits. Measured on an H200 with finite values; `ashlar check node
 * --arithmetic` tries it on any GPU. */
#ifndef ASH_COMPUTE_REF_FP8_H
#define ASH_COMPUTE_REF_FP8_H

#include "base/fp8.h"
#include "compute/ref/wgmma.h"

#define ASH_FP8_GROUP 32 /* k of one step */
#define ASH_FP8_FRACTION 13

/* The exponent of a finite e4m3; that of the smallest normal number for denormals. */
static inline int ash_fp8_exponent(uint8_t x)
{
    int field = x >> 3 & 15;

    return (field > 0 ? field : 1) - 7;
}

/* sum + a[0] b[0] + ... + a[31] b[31], as one step adds them. All are finite. */
static inline float ash_fp8_step(float sum, const uint8_t a[ASH_FP8_GROUP], const uint8_t b[ASH_FP8_GROUP])
{
    int top = sum != 0.0f ? ash_wgmma_exponent(sum) : ASH_WGMMA_NO_EXPONENT;
    double products[ASH_FP8_GROUP], per_unit;
    int64_t units;
    float all;

    for (size_t k = 0; k < ASH_FP8_GROUP; k++) {
        int exponent = ash_fp8_exponent(a[k]) + ash_fp8_exponent(b[k]);

        products[k] = (double)ash_e4m3_to_f32(a[k]) * (double)ash_e4m3_to_f32(b[k]); /* exact */
        if (products[k] != 0.0 && exponent > top) top = exponent;
    }
    if (top == ASH_WGMMA_NO_EXPONENT) return 0.0f;
    per_unit = ldexp(1.0, ASH_FP8_FRACTION - top);
    units = (int64_t)((double)sum * per_unit);
    for (size_t k = 0; k < ASH_FP8_GROUP; k++)
        units += (int64_t)(products[k] * per_unit);
    all = ash_wgmma_narrow(units * ((int64_t)1 << (ASH_WGMMA_FRACTION - ASH_FP8_FRACTION)), top);
    return ash_f32_from_bits(ash_f32_bits(all) & ~(uint32_t)((1 << (23 - ASH_FP8_FRACTION)) - 1));
}

#endif

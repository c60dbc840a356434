/* vec_portable - the vectors that kernel bodies are written with, in the compiler's own vector notation: 8 floats.
 * Runs everywhere, as fast as the compiler makes it. vec_neon.h, vec_avx2.h and vec_avx512.h are the same functions on
 * one instruction set each; what a function does is said here. Every one is an exact IEEE operation, lane by lane. */
#ifndef ASH_COMPUTE_VEC_PORTABLE_H
#define ASH_COMPUTE_VEC_PORTABLE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/bf16.h"

#ifndef VF_WIDTH
#define VF_WIDTH 8 /* a power of two that divides ASH_LANES */
#endif

#define VEC_QUANT_GEMM ash_quant_gemm_plain /* quant_priv.h */
#define VEC_QUANT_PANELS ash_quant_panels_none

typedef float vf __attribute__((vector_size(VF_WIDTH * 4)));
typedef uint32_t vu __attribute__((vector_size(VF_WIDTH * 4)));
typedef int32_t vi __attribute__((vector_size(VF_WIDTH * 4)));

/* All lanes x. */
static inline vf vf_set(float x)
{
    return x - (vf){0};
}

/* No alignment needed. */
static inline vf vf_load(const float *p)
{
    vf x;
    memcpy(&x, p, sizeof(x));
    return x;
}

static inline void vf_store(float *p, vf x)
{
    memcpy(p, &x, sizeof(x));
}

static inline vf vf_add(vf a, vf b)
{
    return a + b;
}

static inline vf vf_sub(vf a, vf b)
{
    return a - b;
}

static inline vf vf_mul(vf a, vf b)
{
    return a * b;
}

static inline vf vf_div(vf a, vf b)
{
    return a / b;
}

/* a * b + c, rounded once. */
static inline vf vf_fma(vf a, vf b, vf c)
{
    for (int l = 0; l < VF_WIDTH; l++)
        c[l] = fmaf(a[l], b[l], c[l]);
    return c;
}

static inline vf vf_sqrt(vf x)
{
    for (int l = 0; l < VF_WIDTH; l++)
        x[l] = sqrtf(x[l]);
    return x;
}

/* a > b ? x : y; NaN compares false. */
static inline vf vf_pick_gt(vf a, vf b, vf x, vf y)
{
    vu mask = (vu)(a > b);
    return (vf)((mask & (vu)x) | (~mask & (vu)y));
}

/* a == b ? x : y; NaN compares false. */
static inline vf vf_pick_eq(vf a, vf b, vf x, vf y)
{
    vu mask = (vu)(a == b);
    return (vf)((mask & (vu)x) | (~mask & (vu)y));
}

/* The smaller of a and b, not a number where one is none. */
static inline vf vf_low(vf a, vf b)
{
    return vf_pick_eq(b, b, vf_pick_gt(a, b, b, a), b);
}

/* *x in a register of its own, for an operation that overwrites it. */
static inline vf vf_fresh(const vf *x)
{
    return *x;
}

static inline vu vu_set(uint32_t x)
{
    return x + (vu){0};
}

static inline vu vf_bits(vf x)
{
    return (vu)x;
}

static inline vf vf_from_bits(vu x)
{
    return (vf)x;
}

static inline vu vu_add(vu a, vu b)
{
    return a + b;
}

static inline vu vu_sub(vu a, vu b)
{
    return a - b;
}

static inline vu vu_and(vu a, vu b)
{
    return a & b;
}

static inline vu vu_or(vu a, vu b)
{
    return a | b;
}

static inline vu vu_shl23(vu x)
{
    return x << 23;
}

static inline vu vu_shr16(vu x)
{
    return x >> 16;
}

/* Half of a signed number, rounded down. */
static inline vu vu_sar1(vu x)
{
    return (vu)((vi)x >> 1);
}

/* The low 16 bits of each lane, next to each other. */
static inline void vu_store_low16(uint16_t *p, vu x)
{
    for (int l = 0; l < VF_WIDTH; l++)
        p[l] = (uint16_t)x[l];
}

/* ---- multipliers: a few adjacent floats, each of which multiplies a whole vector
 * --------------------------------------- */

#define VM_WIDTH 4

typedef const float *vm;

/* The VM_WIDTH multipliers at p. */
static inline vm vm_load(const float *p)
{
    return p;
}

/* x * m[lane] + acc; lane is a constant. */
static inline vf vm_fma(vf acc, vf x, vm m, int lane)
{
    return vf_fma(x, vf_set(m[lane]), acc);
}

/* ---- vecs: 4 floats, for moving and converting matrices ---------------------------------------------------------- */

typedef float f32x4 __attribute__((vector_size(16)));

static inline f32x4 f32x4_load(const float *p)
{
    f32x4 x;
    memcpy(&x, p, sizeof(x));
    return x;
}

static inline f32x4 f32x4_load_bf16(const uint16_t *p)
{
    return (f32x4){ash_bf16_to_f32(p[0]), ash_bf16_to_f32(p[1]), ash_bf16_to_f32(p[2]), ash_bf16_to_f32(p[3])};
}

static inline f32x4 f32x4_load_f16(const uint16_t *p)
{
    return (f32x4){ash_f16_to_f32(p[0]), ash_f16_to_f32(p[1]), ash_f16_to_f32(p[2]), ash_f16_to_f32(p[3])};
}

/* Each float becomes the nearest bf16, ties to even. */
static inline f32x4 f32x4_round_bf16(f32x4 x)
{
    return (f32x4){ash_bf16_round(x[0]), ash_bf16_round(x[1]), ash_bf16_round(x[2]), ash_bf16_round(x[3])};
}

static inline void f32x4_store(float *p, f32x4 x)
{
    memcpy(p, &x, sizeof(x));
}

/* x * m[lane] + acc, rounded once; lane is a constant. */
static inline f32x4 f32x4_fma_lane(f32x4 acc, f32x4 x, f32x4 m, int lane)
{
    for (int l = 0; l < 4; l++)
        acc[l] = fmaf(x[l], m[lane], acc[l]);
    return acc;
}

/* Rows become columns. */
static inline void f32x4_transpose(f32x4 r[4])
{
    f32x4 a = r[0], b = r[1], c = r[2], d = r[3];

    for (int n = 0; n < 4; n++)
        r[n] = (f32x4){a[n], b[n], c[n], d[n]};
}

#endif

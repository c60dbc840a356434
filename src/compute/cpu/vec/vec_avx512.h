/* vec_avx512 - the vectors of the kernel bodies on x86-64 with AVX-512 (F, BW, VL, DQ): 16 floats. vec_portable.h says
 * what each function does. */
#ifndef ASH_COMPUTE_VEC_AVX512_H
#define ASH_COMPUTE_VEC_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include "compute/cpu/vec/f32x4_x86.h"

#define VF_WIDTH 16
#define VEC_QUANT_GEMM ash_quant_gemm_avx2 /* quant_priv.h */
#define VEC_QUANT_PANELS ash_quant_panels_avx512

typedef __m512 vf;
typedef __m512i vu;

static inline vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}

static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static inline vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vf vf_sqrt(vf x)
{
    return _mm512_sqrt_ps(x);
}

static inline vf vf_pick_gt(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), y, x);
}

static inline vf vf_pick_eq(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), y, x);
}

static inline vf vf_low(vf a, vf b)
{
    return vf_pick_eq(b, b, vf_pick_gt(a, b, b, a), b);
}

static inline vf vf_fresh(const vf *x)
{
    return *x;
}

static inline vu vu_set(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}

static inline vu vf_bits(vf x)
{
    return _mm512_castps_si512(x);
}

static inline vf vf_from_bits(vu x)
{
    return _mm512_castsi512_ps(x);
}

static inline vu vu_add(vu a, vu b)
{
    return _mm512_add_epi32(a, b);
}

static inline vu vu_sub(vu a, vu b)
{
    return _mm512_sub_epi32(a, b);
}

static inline vu vu_and(vu a, vu b)
{
    return _mm512_and_si512(a, b);
}

static inline vu vu_or(vu a, vu b)
{
    return _mm512_or_si512(a, b);
}

static inline vu vu_shl23(vu x)
{
    return _mm512_slli_epi32(x, 23);
}

static inline vu vu_shr16(vu x)
{
    return _mm512_srli_epi32(x, 16);
}

static inline vu vu_sar1(vu x)
{
    return _mm512_srai_epi32(x, 1);
}

static inline void vu_store_low16(uint16_t *p, vu x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(x));
}

/* ---- multipliers: read where they are used, as broadcasts
 * -------------------------------------------------------------- */

#define VM_WIDTH 4

typedef const float *vm;

static inline vm vm_load(const float *p)
{
    return p;
}

static inline vf vm_fma(vf acc, vf x, vm m, int lane)
{
    return _mm512_fmadd_ps(x, _mm512_set1_ps(m[lane]), acc);
}

#endif

/* f32x4_x86 - 4 floats on x86-64 with F16C, for moving and converting matrices. vec_portable.h says what each function
 * does. */
#ifndef ASH_COMPUTE_F32X4_X86_H
#define ASH_COMPUTE_F32X4_X86_H

#include <immintrin.h>
#include <stdint.h>

typedef __m128 f32x4;

static inline f32x4 f32x4_load(const float *p)
{
    return _mm_loadu_ps(p);
}

static inline f32x4 f32x4_load_bf16(const uint16_t *p)
{
    return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)p)), 16));
}

static inline f32x4 f32x4_load_f16(const uint16_t *p)
{
    return _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)p));
}

static inline f32x4 f32x4_round_bf16(f32x4 x)
{
    __m128i bits = _mm_castps_si128(x), odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
    __m128i rounded = _mm_add_epi32(bits, _mm_add_epi32(_mm_set1_epi32(0x7fff), odd));
    __m128i quiet = _mm_or_si128(bits, _mm_set1_epi32(0x400000)); /* NaN */
    __m128 picked = _mm_blendv_ps(_mm_castsi128_ps(quiet), _mm_castsi128_ps(rounded), _mm_cmpeq_ps(x, x));

    return _mm_and_ps(picked, _mm_castsi128_ps(_mm_set1_epi32((int)0xffff0000u)));
}

static inline void f32x4_store(float *p, f32x4 x)
{
    _mm_storeu_ps(p, x);
}

static inline f32x4 f32x4_fma_lane(f32x4 acc, f32x4 x, f32x4 m, int lane)
{
    switch (lane) {
    case 0:
        return _mm_fmadd_ps(x, _mm_shuffle_ps(m, m, 0x00), acc);
    case 1:
        return _mm_fmadd_ps(x, _mm_shuffle_ps(m, m, 0x55), acc);
    case 2:
        return _mm_fmadd_ps(x, _mm_shuffle_ps(m, m, 0xaa), acc);
    default:
        return _mm_fmadd_ps(x, _mm_shuffle_ps(m, m, 0xff), acc);
    }
}

static inline void f32x4_transpose(f32x4 r[4])
{
    _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
}

#endif

/* vec_neon - the vectors of the kernel bodies on arm64: 4 floats. vec_portable.h says what each function does. */
#ifndef ASH_COMPUTE_VEC_NEON_H
#define ASH_COMPUTE_VEC_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#define VF_WIDTH 4
#define VEC_QUANT_GEMM ash_quant_gemm_neon /* quant_priv.h */
#define VEC_QUANT_PANELS ash_quant_panels_neon

typedef float32x4_t vf;
typedef uint32x4_t vu;

static inline vf vf_set(float x)
{
    return vdupq_n_f32(x);
}

static inline vf vf_load(const float *p)
{
    return vld1q_f32(p);
}

static inline void vf_store(float *p, vf x)
{
    vst1q_f32(p, x);
}

static inline vf vf_add(vf a, vf b)
{
    return vaddq_f32(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return vsubq_f32(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return vmulq_f32(a, b);
}

static inline vf vf_div(vf a, vf b)
{
    return vdivq_f32(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}

static inline vf vf_sqrt(vf x)
{
    return vsqrtq_f32(x);
}

static inline vf vf_pick_gt(vf a, vf b, vf x, vf y)
{
    return vbslq_f32(vcgtq_f32(a, b), x, y);
}

static inline vf vf_pick_eq(vf a, vf b, vf x, vf y)
{
    return vbslq_f32(vceqq_f32(a, b), x, y);
}

static inline vf vf_low(vf a, vf b)
{
    return vminq_f32(a, b);
}

/* Loaded each time: a load is free next to vector instructions, a copy of a register takes the slot of one. */
static inline vf vf_fresh(const vf *x)
{
    vf copy;

    __asm__ volatile("ldr %q0, %1" : "=w"(copy) : "m"(*x));
    return copy;
}

static inline vu vu_set(uint32_t x)
{
    return vdupq_n_u32(x);
}

static inline vu vf_bits(vf x)
{
    return vreinterpretq_u32_f32(x);
}

static inline vf vf_from_bits(vu x)
{
    return vreinterpretq_f32_u32(x);
}

static inline vu vu_add(vu a, vu b)
{
    return vaddq_u32(a, b);
}

static inline vu vu_sub(vu a, vu b)
{
    return vsubq_u32(a, b);
}

static inline vu vu_and(vu a, vu b)
{
    return vandq_u32(a, b);
}

static inline vu vu_or(vu a, vu b)
{
    return vorrq_u32(a, b);
}

static inline vu vu_shl23(vu x)
{
    return vshlq_n_u32(x, 23);
}

static inline vu vu_shr16(vu x)
{
    return vshrq_n_u32(x, 16);
}

static inline vu vu_sar1(vu x)
{
    return vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(x), 1));
}

static inline void vu_store_low16(uint16_t *p, vu x)
{
    vst1_u16(p, vmovn_u32(x));
}

/* ---- multipliers ------------------------------------------------------------------------------------------------- */

#define VM_WIDTH 4

typedef float32x4_t vm;

static inline vm vm_load(const float *p)
{
    return vld1q_f32(p);
}

static inline vf vm_fma(vf acc, vf x, vm m, int lane)
{
    switch (lane) {
    case 0:
        return vfmaq_laneq_f32(acc, x, m, 0);
    case 1:
        return vfmaq_laneq_f32(acc, x, m, 1);
    case 2:
        return vfmaq_laneq_f32(acc, x, m, 2);
    default:
        return vfmaq_laneq_f32(acc, x, m, 3);
    }
}

/* ---- vecs -------------------------------------------------------------------------------------------------------- */

typedef float32x4_t f32x4;

static inline f32x4 f32x4_load(const float *p)
{
    return vld1q_f32(p);
}

static inline f32x4 f32x4_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

static inline f32x4 f32x4_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

static inline f32x4 f32x4_round_bf16(f32x4 x)
{
    uint32x4_t bits = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(vdupq_n_u32(0x7fff), odd));
    uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000)); /* NaN */

    return vreinterpretq_f32_u32(vandq_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet), vdupq_n_u32(0xffff0000u)));
}

static inline void f32x4_store(float *p, f32x4 x)
{
    vst1q_f32(p, x);
}

static inline f32x4 f32x4_fma_lane(f32x4 acc, f32x4 x, f32x4 m, int lane)
{
    return vm_fma(acc, x, m, lane);
}

static inline void f32x4_transpose(f32x4 r[4])
{
    float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1])), b = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
    float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3])), d = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));

    r[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    r[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    r[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    r[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

#endif

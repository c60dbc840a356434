/* The kernel of quantised products for arm64 with SDOT, of the types that quant_open.h reads, weights not packed: a
 * group of four rows of w is opened once and multiplied by all rows of x. */
#if defined(__aarch64__)

#include "base/math.h"
#include "compute/cpu/quant/quant_priv.h"

#include <arm_neon.h>

#include "compute/quant_open.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 4")

/* A group of four rows. */
struct open_rows {
    struct ash_quant_opened rows[ASH_QUANT_NR];
    float scales[ASH_QUANT_NR], mins[ASH_QUANT_NR];
    int32_t submins[ASH_QUANT_SUBS][ASH_QUANT_NR];
};

INLINE void open_rows(const uint8_t *const *w, enum ash_dtype dtype, size_t at, struct open_rows *out)
{
    for (size_t i = 0; i < ASH_QUANT_NR; i++) {
        ash_quant_open(w[i] + at, dtype, ash_quant_group(dtype), &out->rows[i]);
        out->scales[i] = out->rows[i].scale;
        out->mins[i] = out->rows[i].min;
        for (size_t s = 0; ash_quant_has_min(dtype) && s < ash_quant_group(dtype) / ASH_QUANT_SUB; s++)
            out->submins[s][i] = out->rows[i].submins[s];
    }
}

INLINE int32x4_t add_across(const int32x4_t *rows)
{
    return vpaddq_s32(vpaddq_s32(rows[0], rows[1]), vpaddq_s32(rows[2], rows[3]));
}

/* The group times one row of x, whose group has quants q, the sums of its sub-blocks and its scale. */
INLINE float32x4_t add_group(const struct open_rows *w, enum ash_dtype dtype, const int8_t *q, const int32_t *sums,
                             float scale, float32x4_t acc)
{
    const size_t sub = ash_quant_sub(dtype) / ASH_QUANT_SUB, subs = ash_quant_group(dtype) / ASH_QUANT_SUB;
    int32x4_t total[ASH_QUANT_NR] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
    int32x4_t low = vdupq_n_s32(0);

    for (size_t s = 0; s < subs; s += sub) {
        UNROLL
        for (size_t i = 0; i < ASH_QUANT_NR; i++) {
            const int8_t *quants = w->rows[i].q + s * ASH_QUANT_SUB;
            int32x4_t dot = vdotq_s32(vdupq_n_s32(0), vld1q_s8(quants), vld1q_s8(q + s * ASH_QUANT_SUB));

            if (sub == 2) dot = vdotq_s32(dot, vld1q_s8(quants + ASH_QUANT_SUB), vld1q_s8(q + (s + 1) * ASH_QUANT_SUB));
            total[i] = vmlaq_n_s32(total[i], dot, w->rows[i].subscales[s]);
        }
    }
    acc = vfmaq_f32(acc, vcvtq_f32_s32(add_across(total)), vmulq_n_f32(vld1q_f32(w->scales), scale));
    if (!ash_quant_has_min(dtype)) return acc;
    for (size_t s = 0; s < subs; s++)
        low = vmlaq_n_s32(low, vld1q_s32(w->submins[s]), sums[s]);
    return vfmaq_f32(acc, vcvtq_f32_s32(low), vmulq_n_f32(vld1q_f32(w->mins), scale));
}

/* Rows [begin, end) of w. */
INLINE void run(enum ash_dtype dtype, const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t begin,
                size_t end)
{
    const size_t group_bytes = ash_dtype_size(dtype, ash_quant_group(dtype)), subs = ASH_QUANT_BLOCK / ASH_QUANT_SUB;

    for (size_t n = begin; n < end; n += ASH_QUANT_NR) {
        size_t count = ash_min(end - n, ASH_QUANT_NR);
        float sums[ASH_QUANT_MC][ASH_QUANT_NR];
        const uint8_t *w[ASH_QUANT_NR];

        ash_quant_w_rows(args, n, count, w);
        for (size_t m = 0; m < x->rows; m++)
            ash_quant_load_sums(args, x->first + m, n, count, sums[m]);
        for (size_t g = 0; g < x->groups; g++) {
            struct open_rows group;

            open_rows(w, dtype, g * group_bytes, &group);
            for (size_t m = 0; m < x->rows; m++) {
                size_t block = m * x->blocks + g * ash_quant_group_blocks(dtype);
                float32x4_t acc = add_group(&group, dtype, x->q + block * ASH_QUANT_BLOCK, x->sum + block * subs,
                                            x->scale[m * x->groups + g], vld1q_f32(sums[m]));

                vst1q_f32(sums[m], acc);
            }
        }
        for (size_t m = 0; m < x->rows; m++)
            ash_quant_store_sums(args, x->first + m, n, count, sums[m]);
    }
}

void ash_quant_kernel_open_dot(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t begin,
                               size_t end)
{
    ASH_QUANT_OPEN_CALL(args->dtype, run, args, x, begin, end);
}

#endif

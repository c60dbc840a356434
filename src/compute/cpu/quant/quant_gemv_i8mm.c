/* GEMV with packed quantised weights, for arm64 with SMMLA (2 x 8 times 8 x 2): bound by memory, if not by
 * instructions. For Q8_0 and Q8_W the row is paired with itself. For Q4_0 the second row of an SMMLA saves an
 * instruction: bytes b = 16 high + low, as they are, times (0, x of high), and low = b & 15 times (x of low, -x of
 * high), give low . x in one lane and 16 high . x in the other. The lanes start from integers that make them floats, so
 * that one pairwise addition of floats joins them.
 *
 * Prepared x has for each group its scale, four times, and then: Q8_0 and Q8_W, each chunk of 8 twice; Q4_0, for each
 * block the initial value of its lanes (low nibbles are 8 too large), and for each half (0, x of high),
 * (x of low, -x of high). */
#if defined(__aarch64__)

#include "base/math.h"
#include "compute/cpu/quant/quant_layout_i8mm.h"

#include "compute/cpu/quant/quant_gemv_q4_i8mm.h"

/* A float of 1.5 * 2^(23 - n) has its integer part, times 2^n, in its low bits. Integers added to its bits are floats
 * without a conversion, off by that much. So sums start there. The lanes of high nibbles are 16 times too large, and
 * their start, with n = 4, divides them. Adding the two lanes of a row is exact, and the starts add up to a multiple of
 * 2^16: the low 16 bits are those of the dot, which has no more. */
#define START_BITS ((int32_t)ASH_F32_ROUND_MAGIC_BITS)
#define START_HIGH_BITS (START_BITS - (4 << 23))
#define GEMV_PANELS 2 /* of Q8_0 or Q8_W, whose dots are made together */

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* 32 quants; returns what follows them. */
INLINE int8_t *store_q8(const int8x16_t *q, int8_t *to)
{
    UNROLL
    for (int i = 0; i < 2; i++) {
        vst1q_s8(to + 2 * i * VEC, vcombine_s8(vget_low_s8(q[i]), vget_low_s8(q[i])));
        vst1q_s8(to + (2 * i + 1) * VEC, vcombine_s8(vget_high_s8(q[i]), vget_high_s8(q[i])));
    }
    return to + CHUNKS * VEC;
}

INLINE int8_t *store_q4(const int8x16_t *q, int8_t *to)
{
    int32x2_t lanes = {START_BITS - 8 * vaddlvq_s8(q[0]), START_HIGH_BITS};

    vst1q_s32((int32_t *)(void *)to, vcombine_s32(lanes, lanes));
    to += VEC;
    UNROLL
    for (int half = 0; half < 2; half++) {
        int8x8_t low = half == 0 ? vget_low_s8(q[0]) : vget_high_s8(q[0]);
        int8x8_t high = half == 0 ? vget_low_s8(q[1]) : vget_high_s8(q[1]);

        vst1q_s8(to + 2 * half * VEC, vcombine_s8(vdup_n_s8(0), high));
        vst1q_s8(to + (2 * half + 1) * VEC, vcombine_s8(low, vneg_s8(high)));
    }
    return to + CHUNKS * VEC;
}

void ash_quant_i8mm_quantise_gemv(enum ash_dtype dtype, const float *row, size_t k, uint8_t *x)
{
    for (size_t done = 0, count; done < k; done += count, x += GEMV_X_BYTES(dtype)) {
        int8_t *to = (int8_t *)x + VEC;
        float factor, scale;

        count = dtype == ASH_Q8_0 ? ASH_QUANT_BLOCK : group_k(k - done);
        scale = quants_scale(row + done, count, &factor);

        vst1q_f32((float *)(void *)x, vdupq_n_f32(scale));
        for (size_t at = done; at < done + count; at += ASH_QUANT_BLOCK) {
            int8x16_t q[2];

            quants_block(row + at, factor, q);
            to = dtype == ASH_Q4_0 ? store_q4(q, to) : store_q8(q, to);
        }
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* The exact integer dots of a group of some panels: two vectors a panel. */
INLINE void total_q8(enum ash_dtype dtype, const uint8_t *const *at, size_t count, const uint8_t *x, size_t blocks,
                     int32x4_t totals[][2])
{
    const int8_t *chunks = (const int8_t *)x + VEC;
    int32x4_t sums[GEMV_PANELS][PAIRS];

    UNROLL
    for (size_t i = 0; i < count * PAIRS; i++)
        sums[i / PAIRS][i % PAIRS] = zeros();
    for (size_t b = 0; b < blocks; b++) {
        /* breadth first: neighbours in the program do not wait for each other */
        UNROLL
        for (size_t c = 0; c < CHUNKS; c++, chunks += VEC) {
            UNROLL
            for (size_t i = 0; i < count * PAIRS; i++) {
                const uint8_t *w = group_quants(dtype, at[i / PAIRS]) + b * BLOCK_BYTES + (c * PAIRS + i % PAIRS) * VEC;

                sums[i / PAIRS][i % PAIRS] =
                    vmmlaq_s32(sums[i / PAIRS][i % PAIRS], vld1q_s8((const int8_t *)w), vld1q_s8(chunks));
            }
        }
    }
    UNROLL
    for (size_t i = 0; i < count; i++) {
        totals[i][0] = vuzp1q_s32(sums[i][0], sums[i][1]);
        totals[i][1] = vuzp1q_s32(sums[i][2], sums[i][3]);
    }
}

/* The same of Q4_0, always of four panels: where there are fewer, the last one is repeated. */
INLINE void total_q4(const uint8_t *const *at, size_t count, const uint8_t *x, size_t blocks, int32x4_t totals[][2])
{
    const uint8_t *quants[ASH_QUANT_STREAMS], *subscales[ASH_QUANT_STREAMS];
    int32x4_t eight[2 * ASH_QUANT_STREAMS];

    UNROLL
    for (size_t i = 0; i < ASH_QUANT_STREAMS; i++) {
        const uint8_t *group = at[i < count ? i : count - 1];

        quants[i] = group_quants(ASH_Q4_0, group);
        subscales[i] = group + ROWS * sizeof(float);
    }
    gemv_q4_group(quants, subscales, x + VEC, blocks, eight);
    UNROLL
    for (size_t i = 0; i < 2 * count; i++)
        totals[i / 2][i % 2] = eight[i];
}

/* Integer dots of some panels first, then the floats. */
INLINE void run_gemv(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k,
                     float *y)
{
    const size_t most = dtype == ASH_Q4_0 ? ASH_QUANT_STREAMS : GEMV_PANELS, together = ash_min(count, most);
    const uint8_t *at[ASH_QUANT_STREAMS];
    float32x4_t acc[ASH_QUANT_STREAMS][2];

    UNROLL
    for (size_t i = 0; i < count; i++) {
        at[i] = panels[i];
        acc[i][0] = acc[i][1] = vdupq_n_f32(0.0f);
    }
    for (size_t done = 0; done < k; done += ash_quant_group(dtype), x += GEMV_X_BYTES(dtype)) {
        const size_t blocks = dtype == ASH_Q8_0 ? 1 : group_k(k - done) / ASH_QUANT_BLOCK;
        float32x4_t scale = vld1q_f32((const float *)(const void *)x);

        UNROLL
        for (size_t i = 0; i < count; i += together) {
            int32x4_t totals[ASH_QUANT_STREAMS][2];

            if (dtype == ASH_Q4_0)
                total_q4(at + i, together, x, blocks, totals);
            else
                total_q8(dtype, at + i, together, x, blocks, totals);
            UNROLL
            for (size_t j = 0; j < together; j++) {
                UNROLL
                for (size_t half = 0; half < 2; half++)
                    acc[i + j][half] = vfmaq_f32(acc[i + j][half], vcvtq_f32_s32(totals[j][half]),
                                                 vmulq_f32(scale, four_group_scales(dtype, at[i + j], half)));
                at[i + j] += ash_quant_panel_group(ASH_QUANT_LAYOUT_I8MM, dtype);
            }
        }
    }
    UNROLL
    for (size_t i = 0; i < count; i++) {
        vst1q_f32(y + i * ROWS, acc[i][0]);
        vst1q_f32(y + i * ROWS + 4, acc[i][1]);
    }
}

static void gemv_group(enum ash_dtype dtype, const uint8_t *const *panels, const uint8_t *x, size_t k, float *y)
{
    if (dtype == ASH_Q8_0)
        run_gemv(ASH_Q8_0, panels, ASH_QUANT_STREAMS, x, k, y);
    else if (dtype == ASH_Q8_W)
        run_gemv(ASH_Q8_W, panels, ASH_QUANT_STREAMS, x, k, y);
    else
        run_gemv(ASH_Q4_0, panels, ASH_QUANT_STREAMS, x, k, y);
}

static void gemv_alone(enum ash_dtype dtype, const uint8_t *const *panels, const uint8_t *x, size_t k, float *y)
{
    if (dtype == ASH_Q8_0)
        run_gemv(ASH_Q8_0, panels, 1, x, k, y);
    else if (dtype == ASH_Q8_W)
        run_gemv(ASH_Q8_W, panels, 1, x, k, y);
    else
        run_gemv(ASH_Q4_0, panels, 1, x, k, y);
}

/* Two or three panels are padded to ASH_QUANT_STREAMS with the first of them, whose bytes are in the cache: memory
 * decides, not how much is computed. */
void ash_quant_i8mm_gemv(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k,
                         float *y)
{
    const uint8_t *group[ASH_QUANT_STREAMS];
    float sums[ASH_QUANT_STREAMS * ROWS];

    if (count == ASH_QUANT_STREAMS) {
        gemv_group(dtype, panels, x, k, y);
    } else if (count > 1) {
        for (size_t i = 0; i < ASH_QUANT_STREAMS; i++)
            group[i] = panels[i < count ? i : 0];
        gemv_group(dtype, group, x, k, sums);
        memcpy(y, sums, count * ROWS * sizeof(*y));
    } else if (count == 1) {
        gemv_alone(dtype, panels, x, k, y);
    }
}

#endif

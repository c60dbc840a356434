/* One row of x times packed quantised weights, for arm64 with SMMLA (2 x 8 times 8 x 2): memory decides, if the
 * instructions do not. For Q8_0 and Q8_W the row is paired with itself. For Q4_0 the second row of an SMMLA saves an
 * instruction: bytes b = 16 high + low, as they are, times (0, x of high), and low = b & 15 times (x of low, -x of
 * high), give low . x in one lane and 16 high . x in the other. The lanes start from numbers that make them floats, so
 * that one pairwise addition of floats brings them together. */
#if defined(__aarch64__)

#include "compute/cpu/quant_pairs.h"

#include "compute/cpu/quant_one_q4.h"

#define ONE_PANELS 2 /* whose dots are made together */

/* A float of 1.5 * 2^(23 - n) has its whole part, times 2^n, in its low bits: whole numbers that are added to its bits
 * are floats without being converted, off by that much. So sums start there. The lanes of high nibbles are 16 times too
 * large, and their start, with n = 4, divides them. Adding the two lanes of a row and taking the starts away is exact.
 */
#define START_BITS ((int32_t)ASH_QUANT_ROUNDER_BITS)
#define START_HIGH_BITS (START_BITS - (4 << 23))
#define START_HIGH (ASH_QUANT_ROUNDER / 16.0f)

/* Where the sums of a block start. Loaded anew for each: a load is free beside vector instructions, a copy of a
 * register is one. */
INLINE int32x4_t load_start(const uint8_t *x)
{
    int32x4_t start;

    __asm__ volatile("ldr %q0, %1" : "=w"(start) : "m"(*(const int32x4_t *)(const void *)(x + VEC)));
    return start;
}

/* Of 32 numbers, as one() takes them. Q8: chunk c twice. Q4_0: for each half, (0, x of high), then (x of low, -x of
 * high). */
INLINE void store_one(enum ash_dtype dtype, const int8x16_t *q, int8_t *chunks)
{
    UNROLL
    for (int half = 0; half < 2; half++) {
        int8x8_t low = half == 0 ? vget_low_s8(q[0]) : vget_high_s8(q[0]);
        int8x8_t high = half == 0 ? vget_low_s8(q[1]) : vget_high_s8(q[1]);

        if (dtype != ASH_Q4_0) {
            vst1q_s8(chunks + half * VEC, vcombine_s8(low, low));
            vst1q_s8(chunks + (2 + half) * VEC, vcombine_s8(high, high));
        } else {
            vst1q_s8(chunks + 2 * half * VEC, vcombine_s8(vdup_n_s8(0), high));
            vst1q_s8(chunks + (2 * half + 1) * VEC, vcombine_s8(low, vneg_s8(high)));
        }
    }
}

void ash_quant_pairs_quantise_one(enum ash_dtype dtype, const float *row, size_t k, uint8_t *x)
{
    for (size_t done = 0, count; done < k; done += count, x += ONE_BYTES(dtype)) {
        int8_t *chunks = (int8_t *)x + 2 * VEC;
        float factor, scale = numbers_scale(row + done, count = span_k(dtype, k - done), &factor);
        int32x4_t start = vdupq_n_s32(START_BITS);

        for (size_t at = done; at < done + count; at += ASH_QUANT_BLOCK, chunks += CHUNKS * VEC) {
            int8x16_t q[2];

            numbers_block(row + at, factor, q);
            store_one(dtype, q, chunks);
            if (dtype == ASH_Q4_0) { /* low nibbles: plus 8 */
                int32x2_t lanes = {START_BITS - 8 * vaddlvq_s8(q[0]), START_HIGH_BITS};

                start = vcombine_s32(lanes, lanes);
            }
        }
        vst1q_f32((float *)(void *)x, vdupq_n_f32(scale));
        vst1q_s32((int32_t *)(void *)(x + VEC), start);
    }
}

/* One span of panels times the row: for each pair of rows of w, a vector with two lanes a row. Breadth first:
 * neighbours in the program do not wait for each other. */
INLINE void lanes_one_q8(enum ash_dtype dtype, const uint8_t *const *at, size_t count, const int8_t *x, size_t chunks,
                         int32x4_t sums[][PAIRS])
{
    for (size_t first = 0; first < chunks; first += CHUNKS) {
        UNROLL
        for (size_t c = first; c < first + CHUNKS; c++) {
            int8x16_t right = vld1q_s8(x + c * VEC);

            UNROLL
            for (size_t i = 0; i < count * PAIRS; i++)
                sums[i / PAIRS][i % PAIRS] = vmmlaq_s32(sums[i / PAIRS][i % PAIRS],
                                                        panel_chunk(dtype, false, at[i / PAIRS], c, i % PAIRS), right);
        }
    }
}

INLINE void lanes_one_q4(const uint8_t *const *at, size_t count, const int8_t *x, int32x4_t sums[][PAIRS])
{
    UNROLL
    for (size_t half = 0; half < 2; half++) {
        UNROLL
        for (size_t i = 0; i < count; i++) {
            int8x16_t bytes[PAIRS];

            UNROLL
            for (size_t p = 0; p < PAIRS; p++) {
                bytes[p] = vld1q_s8((const int8_t *)at[i] + VEC + (half * PAIRS + p) * VEC);
                sums[i][p] = vmmlaq_s32(sums[i][p], bytes[p], vld1q_s8(x + 2 * half * VEC));
            }
            UNROLL
            for (size_t p = 0; p < PAIRS; p++)
                sums[i][p] =
                    vmmlaq_s32(sums[i][p], vandq_s8(bytes[p], vdupq_n_s8(15)), vld1q_s8(x + (2 * half + 1) * VEC));
        }
    }
}

/* The dots of two pairs of rows as floats: Q8_0 and Q8_W have each twice, Q4_0 in two parts. */
INLINE float32x4_t dots_one(enum ash_dtype dtype, int32x4_t first, int32x4_t second)
{
    float32x4_t a = vreinterpretq_f32_s32(first), b = vreinterpretq_f32_s32(second);

    if (dtype != ASH_Q4_0) return vsubq_f32(vuzp1q_f32(a, b), vdupq_n_f32(ASH_QUANT_ROUNDER));
    return vsubq_f32(vpaddq_f32(a, b), vdupq_n_f32(ASH_QUANT_ROUNDER + START_HIGH));
}

/* The whole numbers of some panels first, then the floats. */
INLINE void run_one(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k,
                    float *y)
{
    const size_t together = count < ONE_PANELS ? count : ONE_PANELS, span = span_k(dtype, ASH_QUANT_WIDE);
    const uint8_t *at[ASH_QUANT_PANEL_GROUP];
    float32x4_t acc[ASH_QUANT_PANEL_GROUP][2];

    UNROLL
    for (size_t i = 0; i < count; i++) {
        at[i] = panels[i];
        acc[i][0] = acc[i][1] = vdupq_n_f32(0.0f);
    }
    for (size_t done = 0; done < k; done += span, x += ONE_BYTES(dtype)) {
        float32x4_t scale = vld1q_f32((const float *)(const void *)x);
        const int8_t *chunks = (const int8_t *)x + 2 * VEC;

        UNROLL
        for (size_t i = 0; i < count; i += together) {
            int32x4_t sums[ONE_PANELS][PAIRS];

            UNROLL
            for (size_t j = 0; j < together * PAIRS; j++)
                sums[j / PAIRS][j % PAIRS] = load_start(x);
            if (dtype == ASH_Q4_0)
                lanes_one_q4(at + i, together, chunks, sums);
            else
                lanes_one_q8(dtype, at + i, together, chunks, span_k(dtype, k - done) / 8, sums);
            UNROLL
            for (size_t j = 0; j < together; j++) {
                UNROLL
                for (size_t half = 0; half < 2; half++)
                    acc[i + j][half] =
                        vfmaq_f32(acc[i + j][half], dots_one(dtype, sums[j][2 * half], sums[j][2 * half + 1]),
                                  vmulq_f32(scale, four_scales(dtype, at[i + j], half)));
                at[i + j] += panel_bytes(dtype);
            }
        }
    }
    UNROLL
    for (size_t i = 0; i < count; i++) {
        vst1q_f32(y + i * ROWS, acc[i][0]);
        vst1q_f32(y + i * ROWS + 4, acc[i][1]);
    }
}

static void one_group(enum ash_dtype dtype, const uint8_t *const *panels, const uint8_t *x, size_t k, float *y)
{
    if (dtype == ASH_Q8_0)
        run_one(ASH_Q8_0, panels, ASH_QUANT_PANEL_GROUP, x, k, y);
    else if (dtype == ASH_Q8_W)
        run_one(ASH_Q8_W, panels, ASH_QUANT_PANEL_GROUP, x, k, y);
    else
        one_q4_panels(panels, x, k / ASH_QUANT_BLOCK, ASH_QUANT_ROUNDER + START_HIGH, y);
}

static void one_alone(enum ash_dtype dtype, const uint8_t *const *panels, const uint8_t *x, size_t k, float *y)
{
    if (dtype == ASH_Q8_0)
        run_one(ASH_Q8_0, panels, 1, x, k, y);
    else if (dtype == ASH_Q8_W)
        run_one(ASH_Q8_W, panels, 1, x, k, y);
    else
        run_one(ASH_Q4_0, panels, 1, x, k, y);
}

/* A few panels are made up to a group by the first of them, whose bytes are there already: memory decides, not how much
 * is computed. */
void ash_quant_pairs_one(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k,
                         float *y)
{
    const uint8_t *group[ASH_QUANT_PANEL_GROUP];
    float sums[ASH_QUANT_PANEL_GROUP * ROWS];

    if (count == ASH_QUANT_PANEL_GROUP) {
        one_group(dtype, panels, x, k, y);
    } else if (count > 1) {
        for (size_t i = 0; i < ASH_QUANT_PANEL_GROUP; i++)
            group[i] = panels[i < count ? i : 0];
        one_group(dtype, group, x, k, sums);
        memcpy(y, sums, count * ROWS * sizeof(*y));
    } else if (count == 1) {
        one_alone(dtype, panels, x, k, y);
    }
}

#endif

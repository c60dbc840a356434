/* The kernel of quantised products for arm64 with SMMLA (2 x 8 times 8 x 2), weights not packed: four rows of w times
 * up to eight of x, so that a weight is unpacked once for eight products. */
#if defined(__aarch64__)

#include "base/math.h"
#include "compute/cpu/quant/quant_priv.h"

#include "compute/cpu/quant/quant_neon.h"

#define PAIRS_MAX 4 /* pairs of rows of x in a tile */

/* Two rows of w, one block: chunk i has 8 quants of the first, then the same 8 of the second. */
struct pair {
    int8x16_t chunk[4];
};

INLINE int8x16_t zip_low(int8x16_t a, int8x16_t b)
{
    return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

INLINE int8x16_t zip_high(int8x16_t a, int8x16_t b)
{
    return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

INLINE void unpack(const uint8_t *block, enum ash_dtype dtype, int8x16_t *half_out)
{
    const uint8_t *bytes = block + sizeof(uint16_t);

    if (dtype != ASH_Q4_0) {
        half_out[0] = vld1q_s8((const int8_t *)bytes);
        half_out[1] = vld1q_s8((const int8_t *)bytes + 16);
        return;
    }
    uint8x16_t q = vld1q_u8(bytes);

    half_out[0] = vsubq_s8(vreinterpretq_s8_u8(vandq_u8(q, vdupq_n_u8(15))), vdupq_n_s8(8));
    half_out[1] = vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(q, 4)), vdupq_n_s8(8));
}

/* Group scales of two rows, g0 g1 g0 g1, and for each block its sub-scales likewise. */
struct pair_scales {
    float32x4_t group_scale;
    int32x4_t subscales[ASH_QUANT_GROUP_BLOCKS];
};

/* The scales of a block of two rows in this order. */
INLINE float32x4_t pair_scale(const uint8_t *first, const uint8_t *second)
{
    uint16_t left, right;
    uint64_t halves;

    memcpy(&left, first, sizeof(left));
    memcpy(&right, second, sizeof(right));
    halves = left | (uint64_t)right << 16;
    return vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(halves | halves << 32)));
}

INLINE void load_scales(const uint8_t *first, const uint8_t *second, enum ash_dtype dtype, size_t blocks,
                        struct pair_scales *out)
{
    struct subscales a, b;
    float32x2_t group_scales = vdup_n_f32(0.0f);

    if (dtype != ASH_Q4_0) {
        out->group_scale = pair_scale(first, second);
        return;
    }
    group_scales = vset_lane_f32(subscales_load(first, blocks, &a), group_scales, 0);
    group_scales = vset_lane_f32(subscales_load(second, blocks, &b), group_scales, 1);
    out->group_scale = vcombine_f32(group_scales, group_scales);
    UNROLL
    for (size_t i = 0; i < 2; i++) {
        int64x2_t low = vreinterpretq_s64_s32(vzip1q_s32(a.four[i], b.four[i]));
        int64x2_t high = vreinterpretq_s64_s32(vzip2q_s32(a.four[i], b.four[i]));

        out->subscales[4 * i] = vreinterpretq_s32_s64(vdupq_laneq_s64(low, 0));
        out->subscales[4 * i + 1] = vreinterpretq_s32_s64(vdupq_laneq_s64(low, 1));
        out->subscales[4 * i + 2] = vreinterpretq_s32_s64(vdupq_laneq_s64(high, 0));
        out->subscales[4 * i + 3] = vreinterpretq_s32_s64(vdupq_laneq_s64(high, 1));
    }
}

INLINE struct pair load_pair(const uint8_t *first, const uint8_t *second, enum ash_dtype dtype)
{
    int8x16_t a[2], b[2];
    struct pair pair;

    unpack(first, dtype, a);
    unpack(second, dtype, b);
    for (int i = 0; i < 2; i++) {
        pair.chunk[2 * i] = zip_low(a[i], b[i]);
        pair.chunk[2 * i + 1] = zip_high(a[i], b[i]);
    }
    return pair;
}

/* One block of four rows of w: dots with pairs of rows of x, whose blocks lie `step` bytes apart. Breadth first:
 * neighbours in the program do not wait for each other. */
INLINE void add_dots(const uint8_t *const *rows, enum ash_dtype dtype, size_t at, const int8_t *q, size_t step,
                     size_t pairs, int32x4_t dots[][2])
{
    struct pair left = load_pair(rows[0] + at, rows[1] + at, dtype);
    struct pair right = load_pair(rows[2] + at, rows[3] + at, dtype);

    UNROLL
    for (size_t i = 0; i < 4; i++) {
        UNROLL
        for (size_t p = 0; p < pairs; p++) {
            int8x16_t chunk = vld1q_s8(q + p * step + 16 * i);

            dots[p][0] = vmmlaq_s32(dots[p][0], chunk, left.chunk[i]);
            dots[p][1] = vmmlaq_s32(dots[p][1], chunk, right.chunk[i]);
        }
    }
}

INLINE void zero_dots(size_t pairs, int32x4_t dots[][2])
{
    UNROLL
    for (size_t p = 0; p < pairs; p++)
        dots[p][0] = dots[p][1] = vdupq_n_s32(0);
}

/* The exact integer dots of a group, from block `first` on. */
INLINE void group_dots(const uint8_t *const *rows, enum ash_dtype dtype, size_t first, size_t blocks, const int8_t *q,
                       size_t step, size_t pairs, const struct pair_scales *scales, int32x4_t total[][2])
{
    const size_t block_bytes = dtype == ASH_Q4_0 ? 18 : 34;
    int32x4_t dots[PAIRS_MAX][2];

    zero_dots(pairs, total);
    for (size_t b = 0; b < blocks; b++) {
        if (dtype != ASH_Q4_0) {
            add_dots(rows, dtype, (first + b) * block_bytes, q + (first + b) * 64, step, pairs, total);
            continue;
        }
        zero_dots(pairs, dots);
        add_dots(rows, dtype, (first + b) * block_bytes, q + (first + b) * 64, step, pairs, dots);
        UNROLL
        for (size_t p = 0; p < pairs; p++) {
            total[p][0] = vmlaq_s32(total[p][0], dots[p][0], scales[0].subscales[b]);
            total[p][1] = vmlaq_s32(total[p][1], dots[p][1], scales[1].subscales[b]);
        }
    }
}

/* sums[p] holds (row 2p of x) x (w0, w1), then (row 2p + 1) x (w0, w1). */
INLINE void tile(const uint8_t *const *w, enum ash_dtype dtype, const struct ash_quant_rows *x, size_t first_pair,
                 size_t pairs, float32x4_t sums[][2])
{
    const size_t block_bytes = dtype == ASH_Q4_0 ? 18 : 34;
    const int8_t *q = x->q + first_pair * x->blocks * 64;
    const float *scale = x->scale + first_pair * x->groups * 4;
    const uint8_t *rows[ASH_QUANT_NR] = {w[0], w[1], w[2], w[3]};
    float32x4_t acc[PAIRS_MAX][2];

    UNROLL
    for (size_t i = 0; i < 2 * pairs; i++)
        acc[i / 2][i % 2] = sums[i / 2][i % 2];
    for (size_t group = 0, first = 0; group < x->groups; group++, first += ash_quant_group_blocks(dtype)) {
        size_t blocks = dtype == ASH_Q8_0 ? 1 : ash_quant_rows_blocks(x, group), at = first * block_bytes;
        struct pair_scales scales[2];
        int32x4_t total[PAIRS_MAX][2];

        load_scales(rows[0] + at, rows[1] + at, dtype, blocks, &scales[0]);
        load_scales(rows[2] + at, rows[3] + at, dtype, blocks, &scales[1]);
        group_dots(rows, dtype, first, blocks, q, x->blocks * 64, pairs, scales, total);
        UNROLL
        for (size_t p = 0; p < pairs; p++) {
            float32x4_t dx = vld1q_f32(scale + (p * x->groups + group) * 4);

            acc[p][0] = vfmaq_f32(acc[p][0], vcvtq_f32_s32(total[p][0]), vmulq_f32(dx, scales[0].group_scale));
            acc[p][1] = vfmaq_f32(acc[p][1], vcvtq_f32_s32(total[p][1]), vmulq_f32(dx, scales[1].group_scale));
        }
    }
    UNROLL
    for (size_t i = 0; i < 2 * pairs; i++)
        sums[i / 2][i % 2] = acc[i / 2][i % 2];
}

#define DEFINE_TILE(NAME, PAIRS)                                                                                       \
    static void NAME(const struct ash_quant_args *args, const uint8_t *const *w, const struct ash_quant_rows *x,       \
                     size_t first_pair, float32x4_t acc[][2])                                                          \
    {                                                                                                                  \
        if (args->dtype == ASH_Q8_0)                                                                                   \
            tile(w, ASH_Q8_0, x, first_pair, PAIRS, acc);                                                              \
        else if (args->dtype == ASH_Q8_W)                                                                              \
            tile(w, ASH_Q8_W, x, first_pair, PAIRS, acc);                                                              \
        else                                                                                                           \
            tile(w, ASH_Q4_0, x, first_pair, PAIRS, acc);                                                              \
    }

DEFINE_TILE(tile_1, 1)
DEFINE_TILE(tile_2, 2)
DEFINE_TILE(tile_3, 3)
DEFINE_TILE(tile_4, 4)

static void (*const tiles[PAIRS_MAX])(const struct ash_quant_args *args, const uint8_t *const *w,
                                      const struct ash_quant_rows *x, size_t first_pair,
                                      float32x4_t acc[][2]) = {tile_1, tile_2, tile_3, tile_4};

/* The chains of `rows` rows of x from `row` on: in from y, through the tile, and out to y. */
static void run_tile(const struct ash_quant_args *args, const struct ash_quant_rows *x, const uint8_t *const *w,
                     size_t row, size_t rows, size_t n, size_t count)
{
    float32x4_t acc[PAIRS_MAX][2];
    float sums[2 * PAIRS_MAX][ASH_QUANT_NR] = {{0}};

    for (size_t m = 0; m < rows; m++)
        ash_quant_load_sums(args, x->first + row + m, n, count, sums[m]);
    for (size_t p = 0; p < PAIRS_MAX; p++)
        for (size_t side = 0; side < 2; side++)
            acc[p][side] = vcombine_f32(vld1_f32(&sums[2 * p][2 * side]), vld1_f32(&sums[2 * p + 1][2 * side]));
    tiles[(rows + 1) / 2 - 1](args, w, x, row / 2, acc);
    for (size_t p = 0; p < PAIRS_MAX; p++)
        for (size_t side = 0; side < 2; side++) {
            vst1_f32(&sums[2 * p][2 * side], vget_low_f32(acc[p][side]));
            vst1_f32(&sums[2 * p + 1][2 * side], vget_high_f32(acc[p][side]));
        }
    for (size_t m = 0; m < rows; m++)
        ash_quant_store_sums(args, x->first + row + m, n, count, sums[m]);
}

void ash_quant_kernel_i8mm(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t begin, size_t end)
{
    for (size_t n = begin; n < end; n += ASH_QUANT_NR) {
        size_t count = ash_min(end - n, ASH_QUANT_NR);
        const uint8_t *w[ASH_QUANT_NR];

        ash_quant_w_rows(args, n, count, w);
        for (size_t row = 0; row < x->rows; row += 2 * PAIRS_MAX)
            run_tile(args, x, w, row, ash_min(x->rows - row, 2 * PAIRS_MAX), n, count);
    }
}

#endif

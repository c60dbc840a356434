/* Q8_0 and Q8_W round to the nearest integer. Q4_0 has more to choose: the scale of a block decides how much is
 * lost. The usual scale (largest value / -8) is neither the best nor one that products are fast with, so scales are
 * searched. The blocks of a group of 256 weights get integer sub-scales, of at most ASH_QUANT_SUBSCALE_SMALL_MAX, of
 * one group scale (ops.h); the ones with the least loss are taken. They lose less than the usual scales in all but a
 * few groups, which keep the usual ones. The file is Q4_0 as any other.
 *
 * Every machine writes the same file: sums of errors have a fixed order. */
#include "model/files/quantise.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "base/math.h"
#include "compute/quant.h"

#define F16_BITS 11                     /* of its significand */
#define F16_SMALLEST 0x1p-24f           /* its smallest positive value, and the spacing near it */
#define GROUP_SCALE_BITS (F16_BITS - 4) /* so that a group scale times up to 15 is exact */
#define SUB_SCALES_BELOW 2              /* how far below the usual scale is searched: the best one is seldom lower */
#define LOSS_RATIO_MAX 1.25f            /* compared with the usual scales */
#define LANES 8                         /* independent partial sums of errors */

static void put_scale(uint8_t *block, float d)
{
    uint16_t half = ash_f32_to_f16(d);

    memcpy(block, &half, sizeof(half));
}

/* ---- eight bits -------------------------------------------------------------------------------------------------- */

static void quantise_q8(const float *x, size_t count, uint8_t *out)
{
    for (size_t i = 0; i < count; i += ASH_QUANT_BLOCK, out += ash_dtype_bytes(ASH_Q8_0))
        put_scale(out, ash_quant_quantise(x + i, ASH_QUANT_BLOCK, (int8_t *)out + sizeof(uint16_t)));
}

/* One scale to the blocks of a group. */
static void quantise_q8w(const float *x, size_t count, uint8_t *out)
{
    int8_t quants[ASH_QUANT_GROUP];
    float d = ash_quant_quantise(x, count, quants);

    for (size_t i = 0; i < count; i += ASH_QUANT_BLOCK, out += ash_dtype_bytes(ASH_Q8_W)) {
        put_scale(out, d);
        memcpy(out + sizeof(uint16_t), quants + i, ASH_QUANT_BLOCK);
    }
}

/* ---- four bits --------------------------------------------------------------------------------------------------- */

/* The scale that makes the largest value -8, so that all 16 quants are used. */
static float usual_scale(const float *x)
{
    float top = 0.0f;

    for (int i = 0; i < ASH_QUANT_BLOCK; i++)
        if (fabsf(x[i]) > fabsf(top)) top = x[i];
    return top / -8.0f;
}

/* A scale as files have it; 0 if it is too small for f16. */
static float as_f16(float scale)
{
    return ash_f16_to_f32(ash_f32_to_f16(scale));
}

static float inverse_of(float scale)
{
    return scale == 0.0f ? 0.0f : 1.0f / scale;
}

/* The nearest of the 16 quants. */
static inline int32_t nearest(float x, float inverse)
{
    int32_t value = ash_quant_round(x * inverse);

    value = value < -8 ? -8 : value;
    return value > 7 ? 7 : value;
}

/* The quantisation error of a block with a scale: the sum of squares. */
static float loss(const float *x, float scale)
{
    float inverse = inverse_of(scale), lost[ASH_QUANT_BLOCK], lanes[LANES] = {0};

    for (int i = 0; i < ASH_QUANT_BLOCK; i++)
        lost[i] = x[i] - (float)nearest(x[i], inverse) * scale;
    for (int i = 0; i < ASH_QUANT_BLOCK; i += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] += lost[i + l] * lost[i + l];
    for (int n = LANES / 2; n > 0; n /= 2)
        for (int l = 0; l < n; l++)
            lanes[l] += lanes[l + n];
    return lanes[0];
}

/* The sub-scale with the least loss for a block; its sign, and about its size, are those of the usual scale. */
static int best_sub_scale(const float *x, float usual, float group_scale, float *loss_out)
{
    int most = (int)(fabsf(usual) / group_scale + 0.5f), best = 0;
    float sign = usual < 0.0f ? -1.0f : 1.0f;

    most = most > ASH_QUANT_SUBSCALE_SMALL_MAX ? ASH_QUANT_SUBSCALE_SMALL_MAX : most < 1 ? 1 : most;
    *loss_out = FLT_MAX;
    for (int sub_scale = most; sub_scale >= 1 && sub_scale >= most - SUB_SCALES_BELOW; sub_scale--) {
        float lost = loss(x, sign * (float)sub_scale * group_scale);

        if (lost >= *loss_out) continue;
        *loss_out = lost;
        best = sub_scale;
    }
    return sign < 0.0f ? -best : best;
}

/* The nearest group scale whose multiples up to 15 are exact in f16; 0 if it is too small for that. */
static float round_group_scale(float group_scale)
{
    int exponent;
    float quantum;

    frexpf(group_scale, &exponent);
    quantum = ldexpf(1.0f, exponent - GROUP_SCALE_BITS);
    quantum = quantum > F16_SMALLEST ? quantum : F16_SMALLEST;
    return rintf(group_scale / quantum) * quantum;
}

struct q4_group {
    const float *x;
    size_t blocks, largest; /* the block whose usual scale is largest */
    float usual[ASH_QUANT_GROUP_BLOCKS];
    int sub_scales[ASH_QUANT_GROUP_BLOCKS];
    float group_scale, lost;
};

/* Take this group scale if it loses less. The block with the largest scale has the sub-scale
 * ASH_QUANT_SUBSCALE_SMALL_MAX: readers find the group scale by that. */
static void try_group_scale(struct q4_group *group, float group_scale)
{
    int sub_scales[ASH_QUANT_GROUP_BLOCKS] = {0};
    float sum = 0.0f;

    if (group_scale == 0.0f) return;
    for (size_t b = 0; b < group->blocks; b++) {
        const float *x = group->x + b * ASH_QUANT_BLOCK;
        float lost = 0.0f;

        if (b == group->largest) {
            sub_scales[b] = group->usual[b] < 0.0f ? -ASH_QUANT_SUBSCALE_SMALL_MAX : ASH_QUANT_SUBSCALE_SMALL_MAX;
            lost = loss(x, (float)sub_scales[b] * group_scale);
        } else if (group->usual[b] != 0.0f) {
            sub_scales[b] = best_sub_scale(x, group->usual[b], group_scale, &lost);
        }
        sum += lost;
        if (sum >= group->lost) return;
    }
    group->lost = sum;
    group->group_scale = group_scale;
    memcpy(group->sub_scales, sub_scales, sizeof(sub_scales));
}

static void search_scales(struct q4_group *group)
{
    /* Of the usual largest scale; likely ones first, so that most others are soon abandoned. */
    static const float shares[] = {0.9f, 0.85f, 0.95f, 0.8f, 1.0f, 0.75f};
    float top;

    for (size_t b = 0; b < group->blocks; b++) {
        group->usual[b] = usual_scale(group->x + b * ASH_QUANT_BLOCK);
        if (fabsf(group->usual[b]) > fabsf(group->usual[group->largest])) group->largest = b;
    }
    top = fabsf(group->usual[group->largest]);
    for (size_t i = 0; i < ASH_COUNT(shares); i++)
        try_group_scale(group, round_group_scale(shares[i] * top / ASH_QUANT_SUBSCALE_SMALL_MAX));
}

/* Is the loss about as small as with the usual scales? It is not where one block is much larger than the others: their
 * sub-scales are then too coarse. */
static bool sub_scales_suffice(const struct q4_group *group)
{
    float usually = 0.0f;

    for (size_t b = 0; b < group->blocks; b++)
        usually += loss(group->x + b * ASH_QUANT_BLOCK, as_f16(group->usual[b]));
    return group->lost <= LOSS_RATIO_MAX * usually;
}

static void put_q4(const float *x, float scale, uint8_t *block)
{
    float inverse = inverse_of(scale);

    put_scale(block, scale);
    for (int i = 0; i < ASH_QUANT_BLOCK / 2; i++) {
        int low = nearest(x[i], inverse) + 8, high = nearest(x[i + ASH_QUANT_BLOCK / 2], inverse) + 8;

        block[sizeof(uint16_t) + i] = (uint8_t)(low | high << 4);
    }
}

static void quantise_q4(const float *x, size_t count, uint8_t *out)
{
    struct q4_group group = {.x = x, .blocks = count / ASH_QUANT_BLOCK, .lost = FLT_MAX};
    bool uses_sub_scales;

    search_scales(&group);
    uses_sub_scales = sub_scales_suffice(&group);
    for (size_t b = 0; b < group.blocks; b++, out += ash_dtype_bytes(ASH_Q4_0))
        put_q4(x + b * ASH_QUANT_BLOCK,
               uses_sub_scales ? (float)group.sub_scales[b] * group.group_scale : as_f16(group.usual[b]), out);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

void ash_quantise_row(const float *x, size_t count, enum ash_dtype dtype, uint8_t *out)
{
    ash_assert(count % ASH_QUANT_BLOCK == 0);
    if (dtype == ASH_Q8_0) {
        quantise_q8(x, count, out);
        return;
    }
    ash_assert(dtype == ASH_Q8_W || dtype == ASH_Q4_0);
    for (size_t at = 0; at < count; at += ASH_QUANT_GROUP, out += ash_dtype_size(dtype, ASH_QUANT_GROUP)) {
        size_t part = ash_min(count - at, ASH_QUANT_GROUP);

        if (dtype == ASH_Q8_W)
            quantise_q8w(x + at, part, out);
        else
            quantise_q4(x + at, part, out);
    }
}

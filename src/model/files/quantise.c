/* Q8_0 and Q8_W are rounded to the nearest number. Q4_0 has more to choose: which scale a block gets decides how much
 * of it is lost. The usual one (largest number / -8) is neither the best nor one that products are fast with, so scales
 * are looked for. Those of a group of 256 weights are whole steps of one unit, ASH_QUANT_SUBSCALE_SMALL_MAX at most, which makes
 * a group of bytes of it (ops.h); among them are taken those that lose least. That is less than the usual ones lose,
 * but for a few groups, which have the usual ones. The file is Q4_0 as any other.
 *
 * Every machine writes the same file: sums of errors have a fixed order. */
#include "model/files/quantise.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "compute/quant.h"

#define F16_BITS 11              /* of its whole numbers */
#define F16_SMALLEST 0x1p-24f    /* of its numbers, and what those near it are multiples of */
#define UNIT_BITS (F16_BITS - 4) /* so that a unit times up to 15 is exact */
#define FEWER_STEPS 2            /* than the usual scale has, at most: the best one is seldom larger than that */
#define LOSS_MOST 1.25f          /* of what the usual scales lose */
#define LANES 8                  /* sums of errors that are added up side by side */

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
    int8_t numbers[ASH_QUANT_GROUP];
    float d = ash_quant_quantise(x, count, numbers);

    for (size_t i = 0; i < count; i += ASH_QUANT_BLOCK, out += ash_dtype_bytes(ASH_Q8_W)) {
        put_scale(out, d);
        memcpy(out + sizeof(uint16_t), numbers + i, ASH_QUANT_BLOCK);
    }
}

/* ---- four bits --------------------------------------------------------------------------------------------------- */

/* The scale that makes the largest number -8, so that all 16 values are used. */
static float usual_scale(const float *x)
{
    float top = 0.0f;

    for (int i = 0; i < ASH_QUANT_BLOCK; i++)
        if (fabsf(x[i]) > fabsf(top)) top = x[i];
    return top / -8.0f;
}

/* A scale as files have it; 0 where numbers are too small. */
static float as_f16(float scale)
{
    return ash_f16_to_f32(ash_f32_to_f16(scale));
}

static float inverse_of(float scale)
{
    return scale == 0.0f ? 0.0f : 1.0f / scale;
}

/* The nearest of the 16 values. */
static inline int32_t nearest(float x, float inverse)
{
    int32_t value = ash_quant_round(x * inverse);

    value = value < -8 ? -8 : value;
    return value > 7 ? 7 : value;
}

/* What a block loses with a scale: the sum of squares. */
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

/* The steps of a unit that a block loses least with; sign and about how many the usual scale says. */
static int best_steps(const float *x, float usual, float unit, float *loss_out)
{
    int most = (int)(fabsf(usual) / unit + 0.5f), best = 0;
    float sign = usual < 0.0f ? -1.0f : 1.0f;

    most = most > ASH_QUANT_SUBSCALE_SMALL_MAX ? ASH_QUANT_SUBSCALE_SMALL_MAX : most < 1 ? 1 : most;
    *loss_out = FLT_MAX;
    for (int steps = most; steps >= 1 && steps >= most - FEWER_STEPS; steps--) {
        float lost = loss(x, sign * (float)steps * unit);

        if (lost >= *loss_out) continue;
        *loss_out = lost;
        best = steps;
    }
    return sign < 0.0f ? -best : best;
}

/* A unit near this, of which f16 has 1 to 15 exactly (0: it is too small for that). */
static float round_unit(float unit)
{
    int exponent;
    float grain;

    frexpf(unit, &exponent);
    grain = ldexpf(1.0f, exponent - UNIT_BITS);
    grain = grain > F16_SMALLEST ? grain : F16_SMALLEST;
    return rintf(unit / grain) * grain;
}

struct q4_group {
    const float *x;
    size_t blocks, largest; /* the block whose usual scale is largest */
    float usual[ASH_QUANT_GROUP_BLOCKS];
    int steps[ASH_QUANT_GROUP_BLOCKS];
    float unit, lost;
};

/* Take this unit if it loses less. The block with the largest scale has ASH_QUANT_SUBSCALE_SMALL_MAX of it: readers find the
 * unit by that. */
static void try_unit(struct q4_group *group, float unit)
{
    int steps[ASH_QUANT_GROUP_BLOCKS] = {0};
    float sum = 0.0f;

    if (unit == 0.0f) return;
    for (size_t b = 0; b < group->blocks; b++) {
        const float *x = group->x + b * ASH_QUANT_BLOCK;
        float lost = 0.0f;

        if (b == group->largest) {
            steps[b] = group->usual[b] < 0.0f ? -ASH_QUANT_SUBSCALE_SMALL_MAX : ASH_QUANT_SUBSCALE_SMALL_MAX;
            lost = loss(x, (float)steps[b] * unit);
        } else if (group->usual[b] != 0.0f) {
            steps[b] = best_steps(x, group->usual[b], unit, &lost);
        }
        sum += lost;
        if (sum >= group->lost) return;
    }
    group->lost = sum;
    group->unit = unit;
    memcpy(group->steps, steps, sizeof(steps));
}

static void find_steps(struct q4_group *group)
{
    /* Of the usual largest scale; likely ones first, so that most of the others are soon given up. */
    static const float shares[] = {0.9f, 0.85f, 0.95f, 0.8f, 1.0f, 0.75f};
    float top;

    for (size_t b = 0; b < group->blocks; b++) {
        group->usual[b] = usual_scale(group->x + b * ASH_QUANT_BLOCK);
        if (fabsf(group->usual[b]) > fabsf(group->usual[group->largest])) group->largest = b;
    }
    top = fabsf(group->usual[group->largest]);
    for (size_t i = 0; i < ASH_COUNT(shares); i++)
        try_unit(group, round_unit(shares[i] * top / ASH_QUANT_SUBSCALE_SMALL_MAX));
}

/* Does it lose about as little as with the usual scales? Where one block is much larger than the others it does not:
 * few steps leave too little for the small ones. */
static bool few_steps_do(const struct q4_group *group)
{
    float usually = 0.0f;

    for (size_t b = 0; b < group->blocks; b++)
        usually += loss(group->x + b * ASH_QUANT_BLOCK, as_f16(group->usual[b]));
    return group->lost <= LOSS_MOST * usually;
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
    bool few;

    find_steps(&group);
    few = few_steps_do(&group);
    for (size_t b = 0; b < group.blocks; b++, out += ash_dtype_bytes(ASH_Q4_0))
        put_q4(x + b * ASH_QUANT_BLOCK, few ? (float)group.steps[b] * group.unit : as_f16(group.usual[b]), out);
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
        size_t part = count - at < ASH_QUANT_GROUP ? count - at : ASH_QUANT_GROUP;

        if (dtype == ASH_Q8_W)
            quantise_q8w(x + at, part, out);
        else
            quantise_q4(x + at, part, out);
    }
}

/* softmax_body - the running softmax of attention: the scores of CHAIN_ROWS rows with a block of keys become weights.
 * Rows are computed together, because alone each would wait for its maximum, for the exponential of that and for its
 * sum. */
#ifndef ASH_COMPUTE_SOFTMAX_BODY_H
#define ASH_COMPUTE_SOFTMAX_BODY_H

#ifndef ASH_COMPUTE_CHAIN_BODY_H
#error "include chain_body.h first"
#endif

#define SOFT_TOGETHER 2    /* rows whose exponentials are made at once; divides CHAIN_ROWS */
#define SOFT_NEAR (-86.0f) /* exp of this and more is a normal number */

/* What CHAIN_ROWS rows carry from block to block: the largest score, the sum of weights. */
struct soft {
    float max[CHAIN_ROWS], sum[CHAIN_ROWS];
};

/* Scale the scores of SOFT_TOGETHER rows; max: the larger of it and the largest score of each. Returns low or, lane
 * by lane, the smallest score, not a number where one is none. */
static struct wide soft_scale(float *score, size_t width, float scale, float *max, struct wide low)
{
    struct wide by = wide_set(scale), top[SOFT_TOGETHER];

    UNROLL
    for (size_t r = 0; r < SOFT_TOGETHER; r++)
        top[r] = wide_set(max[r]);
    for (size_t n = 0; n < width; n += ASH_LANES) {
        UNROLL
        for (size_t r = 0; r < SOFT_TOGETHER; r++) {
            struct wide x = wide_mul(wide_load(score + r * ASH_ATTN_BLOCK + n), by);

            wide_store(score + r * ASH_ATTN_BLOCK + n, x);
            top[r] = wide_max(x, top[r]);
            low = wide_low(x, low);
        }
    }
    UNROLL
    for (size_t r = 0; r < SOFT_TOGETHER; r++)
        max[r] = wide_fold_max(top[r]);
    return low;
}

static struct wide soft_scale_rows(float *score, size_t width, float scale, const struct soft *soft, float *max)
{
    struct wide low = wide_set(INFINITY);

    memcpy(max, soft->max, sizeof(soft->max));
    for (size_t r = 0; r < CHAIN_ROWS; r += SOFT_TOGETHER)
        low = soft_scale(score + r * ASH_ATTN_BLOCK, width, scale, max + r, low);
    return low;
}

/* Minus infinity where a row does not see the key. Returns whether there was one. */
static bool soft_hide(float *score, size_t width, const struct chain_range *seen)
{
    bool any = false;

    for (size_t r = 0; r < CHAIN_ROWS; r++, score += ASH_ATTN_BLOCK) {
        any |= seen[r].begin > 0 || seen[r].end < width;
        for (size_t n = 0; n < seen[r].begin; n++)
            score[n] = -INFINITY;
        for (size_t n = seen[r].end; n < width; n++)
            score[n] = -INFINITY;
    }
    return any;
}

/* Are all scores so near to the largest of their row that their weights are normal numbers? */
static bool soft_near(struct wide low, const float *max)
{
    float lanes[ASH_LANES], top = max[0];
    bool near = true;

    for (size_t r = 1; r < CHAIN_ROWS; r++)
        top = max[r] > top ? max[r] : top;
    UNROLL
    for (int n = 1; n < WIDE_VECS; n++)
        low.v[0] = vf_low(low.v[n], low.v[0]);
    vf_store(lanes, low.v[0]);
    for (int l = 0; l < VF_WIDTH; l++)
        near &= lanes[l] - top >= SOFT_NEAR;
    return near;
}

/* The lanes of the row sums of SOFT_TOGETHER rows of exp(score - max), which replace the scores. All are near, but
 * (hidden) for those that are minus infinity. The power of two goes into the exponent by an addition, which gives
 * the bits that multiplying by it does. */
INLINE void soft_exp(float *score, size_t width, const float *max, bool hidden, struct wide *sums)
{
    static const float poly[] = ASH_EXP_POLY;
    vf coef[5], magic = vf_set(ASH_F32_ROUND_MAGIC);

    UNROLL
    for (int i = 1; i < 5; i++)
        coef[i] = vf_set(poly[i]);
    UNROLL
    for (size_t r = 0; r < SOFT_TOGETHER; r++)
        sums[r] = wide_set(0.0f);
    for (size_t n = 0; n < width; n += ASH_LANES) {
        struct wide x[SOFT_TOGETHER], shifted[SOFT_TOGETHER], y[SOFT_TOGETHER], zero = wide_set(0.0f);

#define EACH_ROW UNROLL for (size_t r = 0; r < SOFT_TOGETHER; r++)
        EACH_ROW x[r] = wide_sub(wide_load(score + r * ASH_ATTN_BLOCK + n), wide_set(max[r]));
        EACH_ROW shifted[r] = wide_fma(x[r], wide_set(ASH_LOG2E), wide_fresh(&magic));
        EACH_ROW y[r] = wide_sub(shifted[r], wide_set(ASH_F32_ROUND_MAGIC));
        EACH_ROW x[r] = wide_fma(y[r], wide_set(-ASH_LN2_HI), x[r]);
        EACH_ROW x[r] = wide_fma(y[r], wide_set(-ASH_LN2_LO), x[r]);
        EACH_ROW y[r] = wide_fma(wide_set(poly[0]), x[r], wide_fresh(&coef[1]));
        UNROLL
        for (int i = 2; i < 5; i++) {
            EACH_ROW y[r] = wide_fma(y[r], x[r], wide_fresh(&coef[i]));
        }
        EACH_ROW y[r] = wide_add(wide_fma(y[r], wide_mul(x[r], x[r]), x[r]), wide_set(1.0f));
        EACH_ROW y[r] = wide_add_power(y[r], shifted[r]);
        if (hidden)
            EACH_ROW y[r] = wide_pick_gt(wide_load(score + r * ASH_ATTN_BLOCK + n), wide_set(-INFINITY), y[r], zero);
        EACH_ROW wide_store(score + r * ASH_ATTN_BLOCK + n, y[r]);
        EACH_ROW sums[r] = wide_add(sums[r], y[r]);
#undef EACH_ROW
    }
}

/* The row sums of the lanes of four rows, by the lanes rule. */
static void soft_fold(const struct wide sums[CHAIN_ROWS], float *out)
{
    f32x4 part[CHAIN_ROWS];

    UNROLL
    for (size_t r = 0; r < CHAIN_ROWS; r++) {
        float lanes[ASH_LANES];

        wide_store(lanes, sums[r]);
        part[r] = (f32x4_load(lanes) + f32x4_load(lanes + 8)) + (f32x4_load(lanes + 4) + f32x4_load(lanes + 12));
    }
    f32x4_transpose(part);
    f32x4_store(out, (part[0] + part[2]) + (part[1] + part[3]));
}

/* The weights of all rows; their sums. */
static void soft_weights(float *score, size_t width, const float *max, bool near, bool hidden, float *row_sums)
{
    struct wide sums[CHAIN_ROWS];

    if (!near) {
        for (size_t r = 0; r < CHAIN_ROWS; r++, score += ASH_ATTN_BLOCK)
            row_sums[r] = exp_row(score, width, max[r], score);
        return;
    }
    for (size_t r = 0; r < CHAIN_ROWS; r += SOFT_TOGETHER)
        if (hidden)
            soft_exp(score + r * ASH_ATTN_BLOCK, width, max + r, true, sums + r);
        else
            soft_exp(score + r * ASH_ATTN_BLOCK, width, max + r, false, sums + r);
    soft_fold(sums, row_sums);
}

/* The dots of the CHAIN_ROWS rows with width keys become weights, and count in soft. alpha: what sums over earlier keys
 * are to be multiplied by, now that the largest score may be another. */
static void soft_rows(float *dots, size_t width, float scale, const struct chain_range *seen, struct soft *soft,
                      float *alpha)
{
    float max[CHAIN_ROWS], row_sums[CHAIN_ROWS], gaps[ASH_LANES] = {0};
    struct wide low = soft_scale_rows(dots, width, scale, soft, max);
    bool hidden = soft_hide(dots, width, seen);

    if (hidden) soft_scale_rows(dots, width, 1.0f, soft, max); /* low stays: what is hidden is 0 in any case */
    for (size_t r = 0; r < CHAIN_ROWS; r++)
        gaps[r] = soft->max[r] - max[r];
    wide_store(gaps, wide_exp(wide_load(gaps)));
    soft_weights(dots, width, max, soft_near(low, max), hidden, row_sums);
    for (size_t r = 0; r < CHAIN_ROWS; r++) {
        soft->max[r] = max[r];
        soft->sum[r] = fmaf(soft->sum[r], gaps[r], row_sums[r]);
        alpha[r] = gaps[r];
    }
}

#endif

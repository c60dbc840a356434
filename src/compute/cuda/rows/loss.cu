/* loss - cross-entropy and entropy of rows of logits and, in place, their gradient. */
#include "compute/cuda/tile/device.cuh"

#define ROW_THREADS 256
#define ROW_AHEAD 8
#define ROW_TILE 2048 /* exponentials that are added up while the next ones are computed */

/* The largest of all threads' values. */
static __device__ inline float max_block(float value)
{
    __shared__ float tops[ROW_THREADS / WARP];

    for (int half = WARP / 2; half > 0; half /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, value, half);

        value = other > value ? other : value;
    }
    if (threadIdx.x % WARP == 0) tops[threadIdx.x / WARP] = value;
    __syncthreads();
    for (int i = 0; i < ROW_THREADS / WARP; i++)
        value = tops[i] > value ? tops[i] : value;
    return value;
}

/* What all columns of a row share. */
struct loss_row {
    float sharpness, max; /* max: of the sharpened logits */
    float sum, log_sum, entropy;
};

/* A term of the entropy. */
static __device__ inline float moment_of(float e, float d)
{
    return e > 0.0f ? e * d : 0.0f;
}

/* What every column of a row multiplies its gradient by, read once: stores of gradients could change it otherwise. */
struct loss_factors {
    float scale, each, entropy; /* scale: the target's; the others are divided by the row's sum */
    bool has_entropy;
};

static __device__ inline struct loss_factors factors_of(const struct ash_loss_part &part, const struct loss_row &row,
                                                        size_t r)
{
    struct loss_factors f = {ash_loss_scale(&part, r) * row.sharpness, 0.0f, 0.0f, part.entropy_scales != NULL};

    f.each = f.scale / row.sum;
    if (f.has_entropy) f.entropy = part.entropy_scales[r] * row.sharpness / row.sum;
    return f;
}

/* The gradient of a column other than the target's. */
static __device__ inline float gradient_of(const struct loss_factors &factors, const struct loss_row &row, float e,
                                           float x)
{
    float gradient = e * factors.each;

    if (!factors.has_entropy || !(e > 0.0f)) return gradient;
    return gradient - (e * factors.entropy) * (((x * row.sharpness - row.max) - row.log_sum) + row.entropy);
}

/* The sums over a row, in the canonical order of lanes: the first half warp adds up a tile while all others compute the
 * next one; the second half warp adds up the terms of the entropy. */
static __device__ inline void sum_row(const struct ash_loss_part &part, const float *x, struct loss_row *row)
{
    __shared__ float tiles[2][ROW_TILE], moments[2][ROW_TILE], totals[2];
    float lane = 0.0f;

    for (size_t first = 0; first < part.cols + ROW_TILE; first += ROW_TILE) {
        int now = (int)(first / ROW_TILE % 2);

        if (threadIdx.x >= WARP) {
#pragma unroll 4
            for (int i = (int)threadIdx.x - WARP; i < ROW_TILE && first + i < part.cols; i += ROW_THREADS - WARP) {
                float d = x[first + i] * row->sharpness - row->max;

                tiles[now][i] = ash_expf(d);
                if (part.entropy != NULL) moments[now][i] = moment_of(tiles[now][i], d);
            }
        } else if (first > 0 && (threadIdx.x < ASH_LANES || part.entropy != NULL)) {
            size_t left = part.cols - (first - ROW_TILE);
            int count = left < ROW_TILE ? (int)left : ROW_TILE;
            const float *tile = threadIdx.x < ASH_LANES ? tiles[1 - now] : moments[1 - now];

#pragma unroll 16
            for (int i = threadIdx.x % ASH_LANES; i < count; i += ASH_LANES)
                lane = lane + tile[i];
        }
        __syncthreads();
    }
    if (threadIdx.x < WARP) {
        lane = fold_lanes(lane);
        if (threadIdx.x % ASH_LANES == 0) totals[threadIdx.x / ASH_LANES] = lane;
    }
    __syncthreads();
    row->sum = totals[0];
    row->log_sum = ash_logf(row->sum);
    row->entropy = part.entropy != NULL ? row->log_sum - totals[1] / row->sum : 0.0f;
}

/* A block per row. */
extern "C" __global__ void __launch_bounds__(ROW_THREADS, 4) cross_entropy(struct ash_loss_part part)
{
    size_t r = blockIdx.x;
    int32_t target = part.targets[r];
    float *x = part.logits + r * part.cols, max = -INFINITY, at_target = 0.0f;
    struct loss_row row = {ash_loss_sharpness(&part), 0.0f, 1.0f, 0.0f, 0.0f};
    uint16_t *rounded = part.grad_bf16 + r * part.grad_stride;
    struct loss_factors factors;

    if (target >= 0) {
#pragma unroll 8
        for (size_t v = threadIdx.x; v < part.cols; v += ROW_THREADS)
            max = x[v] > max ? x[v] : max;
        row.max = max_block(max) * row.sharpness;
        sum_row(part, x, &row);
        at_target = x[target];
    }
    if (threadIdx.x == 0) {
        part.loss[r] = target >= 0 ? row.log_sum - (at_target * row.sharpness - row.max) : 0.0f;
        if (part.entropy != NULL) part.entropy[r] = target >= 0 ? row.entropy : 0.0f;
    }
    if (!ash_loss_has_gradient(&part)) return;
    factors = factors_of(part, row, r);
    __syncthreads(); /* all have read the target's logit */
    for (size_t first = threadIdx.x; first - threadIdx.x < part.cols; first += ROW_AHEAD * ROW_THREADS) {
        float values[ROW_AHEAD]; /* all are on their way before the first is written */

#pragma unroll
        for (int i = 0; i < ROW_AHEAD; i++)
            values[i] = first + i * ROW_THREADS < part.cols ? x[first + i * ROW_THREADS] : 0.0f;
#pragma unroll
        for (int i = 0; i < ROW_AHEAD; i++) {
            size_t v = first + i * ROW_THREADS;
            float e = target >= 0 ? ash_expf(values[i] * row.sharpness - row.max) : 0.0f;
            float value = target >= 0 ? gradient_of(factors, row, e, values[i]) : 0.0f;

            if (v >= part.cols) continue;
            if (target >= 0 && v == (size_t)target) value = value - factors.scale;
            if (part.grad_bf16 != NULL)
                rounded[v] = ash_f32_to_bf16(value);
            else
                x[v] = value;
        }
    }
}

/* ---- a vocabulary that is sharded -------------------------------------------------------------------------------- */

static __device__ inline float *target_of(const struct ash_loss_part &part, size_t r)
{
    size_t column = (size_t)part.targets[r] - part.first; /* of another part: beyond this one's */

    return column < part.cols ? part.logits + r * part.cols + column : NULL;
}

extern "C" __global__ void loss_part_top(struct ash_loss_part part)
{
    size_t r = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / ASH_LANES;
    int l = threadIdx.x % ASH_LANES;
    bool counts = r < part.rows && part.targets[r] >= 0;
    float max = -INFINITY, *top = part.top + 2 * r;

    for (size_t v = l; counts && v < part.cols; v += ASH_LANES) {
        float x = part.logits[r * part.cols + v];

        max = x > max ? x : max;
    }
    max = max_lanes(max);
    if (r >= part.rows || l != 0) return;
    if (part.start) {
        top[0] = -INFINITY;
        top[1] = 0.0f;
    }
    if (!counts) return;
    top[0] = max > top[0] ? max : top[0];
    if (target_of(part, r) != NULL) top[1] = *target_of(part, r);
}

extern "C" __global__ void loss_part_sum(struct ash_loss_part part)
{
    size_t r = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / ASH_LANES;
    int l = threadIdx.x % ASH_LANES;
    float lane, moment = 0.0f, sharpness = ash_loss_sharpness(&part), max;
    bool keeps_exponentials = ash_loss_has_gradient(&part) && part.entropy_scales == NULL;

    if (r >= part.rows) return;
    max = part.top[2 * r] * sharpness;
    lane = part.start ? 0.0f : part.lanes[r * ASH_LANES + l];
    if (part.entropy != NULL && !part.start) moment = part.moments[r * ASH_LANES + l];
    for (size_t v = l; part.targets[r] >= 0 && v < part.cols; v += ASH_LANES) {
        float d = part.logits[r * part.cols + v] * sharpness - max, e = ash_expf(d);

        lane = lane + e;
        if (part.entropy != NULL) moment = moment + moment_of(e, d);
        if (keeps_exponentials) part.logits[r * part.cols + v] = e;
    }
    part.lanes[r * ASH_LANES + l] = lane;
    if (part.entropy != NULL) part.moments[r * ASH_LANES + l] = moment;
}

extern "C" __global__ void loss_part_end(struct ash_loss_part part)
{
    size_t r = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / ASH_LANES;
    int l = threadIdx.x % ASH_LANES;
    bool real = r < part.rows, counts = real && part.targets[r] >= 0;
    struct loss_row row = {ash_loss_sharpness(&part), 0.0f, 1.0f, 0.0f, 0.0f};
    struct loss_factors factors;
    const float *target;
    float moment = fold_lanes(real && part.entropy != NULL ? part.moments[r * ASH_LANES + l] : 0.0f);

    row.sum = fold_lanes(real ? part.lanes[r * ASH_LANES + l] : 0.0f);
    if (!real) return;
    row.max = part.top[2 * r] * row.sharpness;
    row.log_sum = ash_logf(row.sum);
    row.entropy = row.log_sum - moment / row.sum;
    if (l == 0) part.loss[r] = counts ? row.log_sum - (part.top[2 * r + 1] * row.sharpness - row.max) : 0.0f;
    if (l == 0 && part.entropy != NULL) part.entropy[r] = counts ? row.entropy : 0.0f;
    if (!ash_loss_has_gradient(&part)) return;
    factors = factors_of(part, row, r);
    target = counts ? target_of(part, r) : NULL;
    for (size_t v = l; v < part.cols; v += ASH_LANES) {
        float *x = part.logits + r * part.cols + v;
        float e = part.entropy_scales == NULL ? *x : ash_expf(*x * row.sharpness - row.max);
        float value = counts ? gradient_of(factors, row, e, *x) : 0.0f;

        *x = x == target ? value - factors.scale : value;
    }
}

/* loss - cross-entropy: the loss of a row of logits and, in place, its gradient. */
#include "compute/cuda/device.cuh"

#define ROW_THREADS 256
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

/* The sum of exp(x - max) over a row, in the canonical order of lanes: the first half warp adds up a tile while all
 * others compute the next one. */
static __device__ inline float sum_exponentials(const float *x, size_t vocab, float max)
{
    __shared__ float tiles[2][ROW_TILE], total;
    float lane = 0.0f;

    for (size_t first = 0; first < vocab + ROW_TILE; first += ROW_TILE) {
        int now = (int)(first / ROW_TILE % 2);

        if (threadIdx.x >= WARP) {
            for (int i = (int)threadIdx.x - WARP; i < ROW_TILE && first + i < vocab; i += ROW_THREADS - WARP)
                tiles[now][i] = ash_expf(x[first + i] - max);
        } else if (first > 0 && threadIdx.x < ASH_LANES) {
            size_t left = vocab - (first - ROW_TILE);
            int count = left < ROW_TILE ? (int)left : ROW_TILE;

#pragma unroll 16
            for (int i = threadIdx.x; i < count; i += ASH_LANES)
                lane = lane + tiles[1 - now][i];
        }
        __syncthreads();
    }
    if (threadIdx.x < WARP) {
        lane = fold_lanes(lane);
        if (threadIdx.x == 0) total = lane;
    }
    __syncthreads();
    return total;
}

/* A block per row. */
extern "C" __global__ void __launch_bounds__(ROW_THREADS) cross_entropy(struct ash_cuda_loss op)
{
    size_t r = blockIdx.x;
    int32_t target = op.targets[r];
    float *x = op.logits + r * op.vocab, max = -INFINITY, sum = 1.0f, at_target = 0.0f;

    if (target >= 0) {
        for (size_t v = threadIdx.x; v < op.vocab; v += ROW_THREADS)
            max = x[v] > max ? x[v] : max;
        max = max_block(max);
        sum = sum_exponentials(x, op.vocab, max);
        at_target = x[target];
    }
    if (threadIdx.x == 0) op.loss[r] = target >= 0 ? ash_logf(sum) - (at_target - max) : 0.0f;
    if (op.scale == 0.0f) return;
    __syncthreads(); /* all have read the target's logit */
    for (size_t v = threadIdx.x; v < op.vocab; v += ROW_THREADS) {
        float value = target >= 0 ? ash_expf(x[v] - max) * (op.scale / sum) : 0.0f;

        x[v] = target >= 0 && v == (size_t)target ? value - op.scale : value;
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
    float lane;

    if (r >= part.rows) return;
    lane = part.start ? 0.0f : part.lanes[r * ASH_LANES + l];
    for (size_t v = l; part.targets[r] >= 0 && v < part.cols; v += ASH_LANES) {
        float e = ash_expf(part.logits[r * part.cols + v] - part.top[2 * r]);

        lane = lane + e;
        if (part.scale != 0.0f) part.logits[r * part.cols + v] = e;
    }
    part.lanes[r * ASH_LANES + l] = lane;
}

extern "C" __global__ void loss_part_end(struct ash_loss_part part)
{
    size_t r = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / ASH_LANES;
    int l = threadIdx.x % ASH_LANES;
    bool real = r < part.rows, counts = real && part.targets[r] >= 0;
    float sum = fold_lanes(real ? part.lanes[r * ASH_LANES + l] : 0.0f);

    if (!real) return;
    if (l == 0) part.loss[r] = counts ? ash_logf(sum) - (part.top[2 * r + 1] - part.top[2 * r]) : 0.0f;
    if (part.scale == 0.0f) return;
    for (size_t v = l; v < part.cols; v += ASH_LANES) {
        float *x = part.logits + r * part.cols + v;
        float value = counts ? *x * (part.scale / sum) : 0.0f;

        *x = counts && x == target_of(part, r) ? value - part.scale : value;
    }
}

/* loss_row - cross-entropy of rows that fit into shared memory, where no entropy is wanted: a row is read once, its
 * exponentials are computed once, and its gradient is written once. */
#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/device.cuh"

#define THREADS ASH_CUDA_LOSS_ROW_THREADS
#define WORKERS (THREADS - WARP) /* threads that compute exponentials; the others add them up */
#define EACH_WORKER 4            /* of a tile */
#define TILE (WORKERS * EACH_WORKER)
#define AHEAD 16 /* exponentials of a lane that are read before the first is added */

static __device__ inline float max_block(float value, float *tops)
{
    for (int half = WARP / 2; half > 0; half /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, value, half);

        value = other > value ? other : value;
    }
    if (threadIdx.x % WARP == 0) tops[threadIdx.x / WARP] = value;
    __syncthreads();
    for (int i = 0; i < THREADS / WARP; i++)
        value = tops[i] > value ? tops[i] : value;
    return value;
}

/* Enqueue the copy of a row, in 16 bytes where it lies at such borders, and wait for it. */
static __device__ inline void copy_row(const float *from, unsigned cols, float *to)
{
    bool is_wide = cols % 4 == 0 && (uintptr_t)from % 16 == 0;
    unsigned step = is_wide ? 4 : 1, place = shared_address(to);

    for (unsigned v = threadIdx.x * step; v < cols; v += THREADS * step) {
        if (is_wide)
            copy_16(place + v * 4, from + v);
        else
            copy_4(place + v * 4, from + v);
    }
    copy_commit();
    copy_wait<0>();
    __syncthreads();
}

/* A worker's exponentials of a tile. All are read before the first is written: so they are computed at once. */
static __device__ inline void exponentials(float *x, unsigned first, unsigned cols, float sharpness, float max)
{
    unsigned v = first + threadIdx.x - WARP;
    float e[EACH_WORKER];

#pragma unroll
    for (int i = 0; i < EACH_WORKER; i++)
        e[i] = v + i * WORKERS < cols ? x[v + i * WORKERS] : 0.0f;
#pragma unroll
    for (int i = 0; i < EACH_WORKER; i++)
        e[i] = ash_expf(e[i] * sharpness - max);
#pragma unroll
    for (int i = 0; i < EACH_WORKER; i++)
        if (v + i * WORKERS < cols) x[v + i * WORKERS] = e[i];
}

/* What columns first ... end - 1 add to a lane. */
static __device__ inline float add_lane(const float *x, unsigned first, unsigned end, float lane)
{
    unsigned v = first + threadIdx.x % ASH_LANES;

    for (; v + (AHEAD - 1) * ASH_LANES < end; v += AHEAD * ASH_LANES) {
        float e[AHEAD];

#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            e[i] = x[v + i * ASH_LANES];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            lane = lane + e[i];
    }
    for (; v < end; v += ASH_LANES)
        lane = lane + x[v];
    return lane;
}

/* Logits become their exponentials, and these are summed in the canonical order of lanes: the first warp adds up a tile
 * while all others compute the next one. A tile is whole groups of lanes. */
static __device__ inline float sum_row(float *x, unsigned cols, float sharpness, float max, float *total)
{
    float lane = 0.0f;

    static_assert(TILE % ASH_LANES == 0, "every tile begins with lane 0");
    for (unsigned first = 0; first < cols + TILE; first += TILE) {
        if (threadIdx.x >= WARP)
            exponentials(x, first, cols, sharpness, max);
        else if (first > 0)
            lane = add_lane(x, first - TILE, first < cols ? first : cols, lane);
        __syncthreads();
    }
    if (threadIdx.x < WARP) {
        lane = fold_lanes(lane);
        if (threadIdx.x == 0) *total = lane;
    }
    __syncthreads();
    return *total;
}

/* Gradients from exponentials: as float32 in place of the logits, or as bf16. */
static __device__ inline void put_gradients(const struct ash_loss_part &part, const float *x, float each, float scale,
                                            unsigned target, size_t r)
{
    unsigned cols = (unsigned)part.cols;
    float *row = part.logits + r * cols;
    uint16_t *rounded = part.grad_bf16 + r * part.grad_stride;

    if (part.grad_bf16 != NULL && cols % 4 == 0) {
        for (unsigned v = threadIdx.x * 4; v < cols; v += THREADS * 4) {
            float4 e = *(const float4 *)(x + v);
            unsigned own = target - v; /* 0 to 3 if the target is among these */

            e = make_float4(e.x * each, e.y * each, e.z * each, e.w * each);
            e.x = own == 0 ? e.x - scale : e.x;
            e.y = own == 1 ? e.y - scale : e.y;
            e.z = own == 2 ? e.z - scale : e.z;
            e.w = own == 3 ? e.w - scale : e.w;
            *(uint2 *)(rounded + v) = make_uint2(pack_bf16(e.x, e.y), pack_bf16(e.z, e.w));
        }
        return;
    }
    for (unsigned v = threadIdx.x; v < cols; v += THREADS) {
        float g = x[v] * each;

        if (v == target) g = g - scale;
        if (part.grad_bf16 != NULL)
            rounded[v] = ash_f32_to_bf16(g);
        else
            row[v] = g;
    }
}

/* A block per row. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    cross_entropy_row(const __grid_constant__ struct ash_loss_part part)
{
    DYNAMIC_SHARED(float, x, 16);
    __shared__ float tops[THREADS / WARP], total, at_target;
    size_t r = blockIdx.x;
    unsigned cols = (unsigned)part.cols;
    int32_t target = part.targets[r];
    float *row = part.logits + r * part.cols, sharpness = ash_loss_sharpness(&part), top = -INFINITY, max, sum, log_sum,
          scale;

    if (target < 0) {
        if (threadIdx.x == 0) part.loss[r] = 0.0f;
        for (unsigned v = threadIdx.x; ash_loss_has_gradient(&part) && v < cols; v += THREADS) {
            if (part.grad_bf16 != NULL)
                part.grad_bf16[r * part.grad_stride + v] = 0;
            else
                row[v] = 0.0f;
        }
        return;
    }
    copy_row(row, cols, x);
#pragma unroll 8
    for (unsigned v = threadIdx.x; v < cols; v += THREADS)
        top = x[v] > top ? x[v] : top;
    if (threadIdx.x == 0) at_target = x[target];
    max = max_block(top, tops) * sharpness;
    sum = sum_row(x, cols, sharpness, max, &total);
    log_sum = ash_logf(sum);
    if (threadIdx.x == 0) part.loss[r] = log_sum - (at_target * sharpness - max);
    if (!ash_loss_has_gradient(&part)) return;
    scale = ash_loss_scale(&part, r) * sharpness;
    put_gradients(part, x, scale / sum, scale, (unsigned)target, r);
}

/* loss_bf16 - cross-entropy of bf16 models relative to the target's logit (compute/ops_loss.h): E in place of the
 * logits, and a factor for each row. A row needs no maximum, so its sums need each logit once; the row stays in the
 * shared memory of a cluster until they are there, because E goes where logits were. Two rows share a multiprocessor:
 * one is on its way while the other is computed. */
#include "compute/cuda/ptx/barrier.cuh"
#include "compute/cuda/ptx/cluster.cuh"
#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/ptx/math.cuh"
#include "compute/cuda/tile/blocks.cuh"

#define BLOCK ASH_LOSS_BLOCK
#define PITCH ASH_CUDA_LOSS_PITCH
#define UNIT_BLOCKS (WARP / 2) /* that a warp adds up at once, two threads each */
#define UNITS_MAX ASH_CUDA_LOSS_UNITS_MAX
#define EACH_THREAD 8 /* columns that become 16 bytes of E */

/* What exponentials are relative to. */
struct reference {
    float scale, offset;
};

static __device__ inline float exponential(float x, const struct reference &to)
{
    return ex2_approx(fmaf(x, to.scale, -to.offset));
}

/* Half of a block's classes, x at the first of them: in a pair of threads the first has 0 to 3, the second 4 to 7. */
static __device__ inline float half_block(const float *x, const struct reference &to)
{
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

#pragma unroll
    for (int i = 0; i < BLOCK / ASH_LOSS_CLASSES; i++) {
        float4 v = *(const float4 *)(x + i * ASH_LOSS_CLASSES);

        sum.x = sum.x + exponential(v.x, to);
        sum.y = sum.y + exponential(v.y, to);
        sum.z = sum.z + exponential(v.z, to);
        sum.w = sum.w + exponential(v.w, to);
    }
    return four_sum(sum);
}

/* A whole block, of a thread alone, whose columns past the last and whose target's (place in the block) are left
 * out. */
static __device__ inline float block_without(const float *x, unsigned cols, unsigned target, const struct reference &to)
{
    float classes[ASH_LOSS_CLASSES] = {0.0f};

    for (unsigned v = 0; v < BLOCK; v += ASH_LOSS_CLASSES)
#pragma unroll
        for (unsigned k = 0; k < ASH_LOSS_CLASSES; k++)
            classes[k] = classes[k] + (v + k < cols && v + k != target ? exponential(x[v + k], to) : 0.0f);
    return ash_sum_neighbours(classes, ASH_LOSS_CLASSES);
}

/* The thread block's part of a row: whole blocks, PITCH floats apart in shared memory. */
struct part_of_row {
    float *x;
    unsigned first, count; /* blocks */
    unsigned cols, target; /* of the whole row */
};

/* Where column v of the whole row is; only of this part. */
static __device__ inline float *column(const struct part_of_row &own, unsigned v)
{
    return own.x + (v / BLOCK - own.first) * PITCH + v % BLOCK;
}

static __device__ inline bool has_column(const struct part_of_row &own, unsigned v)
{
    return v / BLOCK >= own.first && v / BLOCK < own.first + own.count;
}

/* Enqueue the copies of a part, with a barrier for each unit of blocks. */
static __device__ inline void read_part(const struct part_of_row &own, const float *row, uint64_t *barriers)
{
    unsigned units = (own.count + UNIT_BLOCKS - 1) / UNIT_BLOCKS, lane = threadIdx.x % WARP;

    if (threadIdx.x < units) barrier_init(shared_address(&barriers[threadIdx.x]), 1);
    barriers_show();
    __syncthreads();
    for (unsigned u = threadIdx.x / WARP; u < units; u += blockDim.x / WARP) {
        unsigned b = u * UNIT_BLOCKS + lane, begin = (own.first + u * UNIT_BLOCKS) * BLOCK;
        unsigned end = (own.first + min((u + 1) * UNIT_BLOCKS, own.count)) * BLOCK;
        unsigned barrier = shared_address(&barriers[u]), at = (own.first + b) * BLOCK;

        if (lane == 0) barrier_expect(barrier, (min(end, own.cols) - begin) * sizeof(float));
        __syncwarp();
        if (lane < UNIT_BLOCKS && b < own.count)
            copy_bulk(shared_address(own.x + b * PITCH), row + at, min(BLOCK, own.cols - at) * sizeof(float), barrier);
    }
}

/* What is left out of sums becomes -inf: the target, and what follows the last column. */
static __device__ inline void leave_out(const struct part_of_row &own, unsigned unit)
{
    unsigned begin = own.first + unit * UNIT_BLOCKS, lane = threadIdx.x % WARP, last = (own.cols - 1) / BLOCK;
    unsigned end = min(begin + UNIT_BLOCKS, own.first + own.count);

    if (last >= begin && last < end)
        for (unsigned v = own.cols + lane; v < (last + 1) * BLOCK; v += WARP)
            *column(own, v) = -INFINITY;
    if (lane == 0 && own.target / BLOCK >= begin && own.target / BLOCK < end) *column(own, own.target) = -INFINITY;
    __syncwarp();
}

/* A block's sum goes to all thread blocks of the cluster. */
template <unsigned CLUSTER> static __device__ inline void show_sum(float *sums, unsigned block, float sum)
{
#pragma unroll
    for (unsigned q = 0; q < CLUSTER; q++)
        store_at(shared_address(sums + block), q, sum);
}

template <unsigned CLUSTER>
static __device__ inline void sum_part(const struct part_of_row &own, uint64_t *barriers, const struct reference &to,
                                       float *sums)
{
    unsigned units = (own.count + UNIT_BLOCKS - 1) / UNIT_BLOCKS, half = threadIdx.x % 2;

    for (unsigned u = threadIdx.x / WARP; u < units; u += blockDim.x / WARP) {
        unsigned b = u * UNIT_BLOCKS + threadIdx.x % WARP / 2;
        float sum;

        barrier_wait(shared_address(&barriers[u]), 0);
        leave_out(own, u);
        sum = b < own.count ? half_block(own.x + b * PITCH + half * 4, to) : 0.0f;
        sum = sum + __shfl_xor_sync(EVERY_LANE, sum, 1);
        if (half == 0 && b < own.count) show_sum<CLUSTER>(sums, own.first + b, sum);
    }
}

/* ---- rows that are not like others ------------------------------------------------------------------------------- */

/* What all columns of a row share. */
struct loss_row {
    struct reference to;
    float own, rest, above; /* as in ref/loss_wgmma.c */
};

/* The sum over the row of what is not left out; the whole cluster comes here. */
template <unsigned CLUSTER>
static __device__ float sum_again(const struct part_of_row &own, const struct reference &to, float *sums)
{
    unsigned blocks = (own.cols + BLOCK - 1) / BLOCK;

    cluster_sync(); /* all have read what was there */
    for (unsigned b = threadIdx.x; b < own.count; b += blockDim.x) {
        unsigned first = (own.first + b) * BLOCK;

        show_sum<CLUSTER>(sums, own.first + b,
                          block_without(own.x + b * PITCH, own.cols - first, own.target - first, to));
    }
    cluster_sync();
    return sum_blocks(sums, blocks);
}

/* The row's largest logit: from threads to warps, to thread blocks, to the cluster. */
template <unsigned CLUSTER> static __device__ float find_top(const struct part_of_row &own, float *tops)
{
    __shared__ float warps[WARP];
    float top = -INFINITY;

    for (unsigned i = threadIdx.x; i < own.count * BLOCK; i += blockDim.x) {
        float x = (own.first * BLOCK + i) < own.cols ? own.x[i / BLOCK * PITCH + i % BLOCK] : -INFINITY;

        top = x > top ? x : top;
    }
    for (int half = WARP / 2; half > 0; half /= 2) {
        float other = __shfl_xor_sync(EVERY_LANE, top, half);

        top = other > top ? other : top;
    }
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = top;
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / WARP; w++)
        top = warps[w] > top ? warps[w] : top;
    if (threadIdx.x == 0) show_sum<CLUSTER>(tops, cluster_rank(), top);
    cluster_sync();
    for (unsigned q = 0; q < CLUSTER; q++)
        top = tops[q] > top ? tops[q] : top;
    return top;
}

/* The sums of a row once more, one exponential at a time: relative to the target's logit, then to the largest. */
template <unsigned CLUSTER>
static __device__ __noinline__ struct loss_row do_again(struct part_of_row own, struct loss_row row, float at_target,
                                                        float sharpness, float *sums, float *tops)
{
    float top;

    if (threadIdx.x == 0 && has_column(own, own.target)) *column(own, own.target) = at_target;
    __syncthreads();
    row.rest = sum_again<CLUSTER>(own, row.to, sums);
    if (row.rest <= ASH_LOSS_REST_MAX) return row;
    top = find_top<CLUSTER>(own, tops);
    row.to.offset = top * row.to.scale;
    row.rest = sum_again<CLUSTER>(own, row.to, sums);
    row.own = exponential(at_target, row.to);
    row.above = at_target * sharpness - top * sharpness;
    return row;
}

/* ---- E ----------------------------------------------------------------------------------------------------------- */

/* Eight columns from v on, of row r: as bf16, or as floats in place of the logits. */
static __device__ inline void put_eight(const struct ash_loss_part &part, size_t r, unsigned v, uint4 e)
{
    float *row = part.logits + r * part.cols;

    if (part.grad_bf16 != NULL) {
        *(uint4 *)(part.grad_bf16 + r * part.grad_stride + v) = e;
        return;
    }
    *(float4 *)(row + v) = widen_four(make_uint2(e.x, e.y));
    *(float4 *)(row + v + 4) = widen_four(make_uint2(e.z, e.w));
}

static __device__ inline uint32_t two_of_e(float x0, float x1, const struct reference &to)
{
    return pack_bf16(exponential(x0, to), exponential(x1, to));
}

static __device__ inline void put_part(const struct ash_loss_part &part, const struct part_of_row &own,
                                       const struct loss_row &loss, size_t r)
{
    unsigned eights = (min((own.first + own.count) * BLOCK, own.cols) - min(own.first * BLOCK, own.cols)) / EACH_THREAD;
    uint16_t at_target = ash_f32_to_bf16(-loss.rest);

#pragma unroll 2
    for (unsigned i = threadIdx.x; i < eights; i += blockDim.x) {
        unsigned v = own.first * BLOCK + i * EACH_THREAD, place = own.target - v;
        const float *x = own.x + i / (BLOCK / EACH_THREAD) * PITCH + i % (BLOCK / EACH_THREAD) * EACH_THREAD;
        float4 a = *(const float4 *)x, b = *(const float4 *)(x + 4);
        uint4 e = make_uint4(two_of_e(a.x, a.y, loss.to), two_of_e(a.z, a.w, loss.to), two_of_e(b.x, b.y, loss.to),
                             two_of_e(b.z, b.w, loss.to));

        if (place < EACH_THREAD) {
            uint32_t mask = place % 2 != 0 ? 0xffff0000u : 0xffffu, value = at_target * 0x10001u & mask;

            e.x = place / 2 == 0 ? (e.x & ~mask) | value : e.x;
            e.y = place / 2 == 1 ? (e.y & ~mask) | value : e.y;
            e.z = place / 2 == 2 ? (e.z & ~mask) | value : e.z;
            e.w = place / 2 == 3 ? (e.w & ~mask) | value : e.w;
        }
        put_eight(part, r, v, e);
    }
}

/* Rows without a target. */
static __device__ inline void put_zeros(const struct ash_loss_part &part, size_t r, unsigned first, unsigned step)
{
    float *row = part.logits + r * part.cols;

    if (first == 0) part.loss[r] = 0.0f;
    if (!ash_loss_has_gradient(&part)) return;
    if (first == 0) part.factors[r] = 0.0f;
    for (unsigned v = first; v < part.cols; v += step) {
        if (part.grad_bf16 != NULL)
            part.grad_bf16[r * part.grad_stride + v] = 0;
        else
            row[v] = 0.0f;
    }
}

static __device__ inline void put_loss(const struct ash_loss_part &part, size_t r, const struct loss_row &row)
{
    float sum = row.own + row.rest;

    part.loss[r] = ash_logf(sum) - row.above;
    if (ash_loss_has_gradient(&part)) part.factors[r] = ash_loss_scale(&part, r) * ash_loss_sharpness(&part) / sum;
}

/* ---- rows in shared memory --------------------------------------------------------------------------------------- */

template <unsigned CLUSTER> static __device__ inline void relative_row(const struct ash_cuda_loss_relative &op)
{
    DYNAMIC_SHARED(float, x, 16);
    __shared__ uint64_t barriers[UNITS_MAX];
    __shared__ float tops[CLUSTER];
    const struct ash_loss_part &part = op.part;
    size_t r = blockIdx.x / CLUSTER;
    unsigned rank = cluster_rank(), cols = (unsigned)part.cols, blocks = (cols + BLOCK - 1) / BLOCK;
    unsigned first = min(rank * op.part_blocks, blocks);
    int32_t target = part.targets[r];
    float *row = part.logits + r * part.cols, *sums = x + op.part_blocks * PITCH, sharpness, at_target;
    struct part_of_row own = {x, first, min(blocks - first, op.part_blocks), cols, (unsigned)target};
    struct loss_row loss = {{0.0f, 0.0f}, 1.0f, 0.0f, 0.0f};

    if (target < 0) {
        put_zeros(part, r, rank * blockDim.x + threadIdx.x, CLUSTER * blockDim.x);
        return;
    }
    read_part(own, row, barriers);
    at_target = row[target];
    sharpness = ash_loss_sharpness(&part);
    loss.to.scale = sharpness * ASH_LOG2E;
    loss.to.offset = at_target * loss.to.scale;
    cluster_sync(); /* the others' shared memory is there */
    sum_part<CLUSTER>(own, barriers, loss.to, sums);
    cluster_sync();
    loss.rest = sum_blocks(sums, blocks);
    if (!(loss.rest <= ASH_LOSS_REST_MAX)) loss = do_again<CLUSTER>(own, loss, at_target, sharpness, sums, tops);
    if (rank == 0 && threadIdx.x == 0) put_loss(part, r, loss);
    if (ash_loss_has_gradient(&part)) put_part(part, own, loss, r);
}

#define RELATIVE(NAME, CLUSTER)                                                                                        \
    extern "C" __global__ void CLUSTER_DIMS(CLUSTER) __launch_bounds__(ASH_CUDA_LOSS_THREADS, 2)                       \
        NAME(const __grid_constant__ struct ash_cuda_loss_relative op)                                                 \
    {                                                                                                                  \
        relative_row<CLUSTER>(op);                                                                                     \
    }

RELATIVE(loss_relative_1, 1)
RELATIVE(loss_relative_2, 2)
RELATIVE(loss_relative_4, 4)
RELATIVE(loss_relative_8, 8)

/* ---- any rows ---------------------------------------------------------------------------------------------------- */

#define ANY_THREADS (ASH_SUM_LANES * ASH_LOSS_CLASSES) /* one for each class of each partial sum */
#define ANY_AHEAD 8

/* The largest of all threads' values. */
static __device__ inline float max_block(float value, float *tops)
{
    for (int half = WARP / 2; half > 0; half /= 2) {
        float other = __shfl_xor_sync(EVERY_LANE, value, half);

        value = other > value ? other : value;
    }
    if (threadIdx.x % WARP == 0) tops[threadIdx.x / WARP] = value;
    __syncthreads();
    for (int i = 0; i < ANY_THREADS / WARP; i++)
        value = tops[i] > value ? tops[i] : value;
    return value;
}

/* The sum over the row of what is not the target's. */
static __device__ inline float sum_any(const float *x, size_t cols, size_t target, const struct reference &to,
                                       float lanes[ASH_SUM_LANES])
{
    unsigned lane = threadIdx.x / ASH_LOSS_CLASSES, own = threadIdx.x % ASH_LOSS_CLASSES;
    unsigned together = 0xffu << (threadIdx.x % WARP - own); /* the threads of a block */
    float total = 0.0f;

    for (size_t first = lane * BLOCK; first < cols; first += ASH_SUM_LANES * BLOCK) {
        float sum = 0.0f;

#pragma unroll 4
        for (size_t v = first + own; v < first + BLOCK; v += ASH_LOSS_CLASSES)
            sum = sum + (v < cols && v != target ? exponential(x[v], to) : 0.0f);
        for (int half = 1; half < ASH_LOSS_CLASSES; half *= 2)
            sum = sum + __shfl_xor_sync(together, sum, half);
        total = total + sum;
    }
    __syncthreads();
    if (own == 0) lanes[lane] = total;
    __syncthreads();
    return fold_warp(lanes[threadIdx.x % WARP]);
}

static __device__ inline void put_any(const struct ash_loss_part &part, size_t r, size_t target,
                                      const struct loss_row &loss)
{
    float *row = part.logits + r * part.cols;

    for (size_t first = 0; first < part.cols; first += ANY_AHEAD * ANY_THREADS) {
        float values[ANY_AHEAD];

#pragma unroll
        for (int i = 0; i < ANY_AHEAD; i++) {
            size_t v = first + i * ANY_THREADS + threadIdx.x;

            values[i] = v < part.cols ? row[v] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < ANY_AHEAD; i++) {
            size_t v = first + i * ANY_THREADS + threadIdx.x;
            uint16_t e = ash_f32_to_bf16(v == target ? -loss.rest : exponential(values[i], loss.to));

            if (v >= part.cols) continue;
            if (part.grad_bf16 != NULL)
                part.grad_bf16[r * part.grad_stride + v] = e;
            else
                row[v] = ash_bf16_to_f32(e);
        }
    }
}

/* A thread block per row. */
extern "C" __global__ void __launch_bounds__(ANY_THREADS)
    loss_relative_any(const __grid_constant__ struct ash_cuda_loss_relative op)
{
    __shared__ float lanes[ASH_SUM_LANES], tops[ANY_THREADS / WARP];
    const struct ash_loss_part &part = op.part;
    size_t r = blockIdx.x, target = (size_t)part.targets[r];
    float *row = part.logits + r * part.cols, sharpness = ash_loss_sharpness(&part), at_target, top = -INFINITY;
    struct loss_row loss = {{sharpness * ASH_LOG2E, 0.0f}, 1.0f, 0.0f, 0.0f};

    if (part.targets[r] < 0) {
        put_zeros(part, r, threadIdx.x, ANY_THREADS);
        return;
    }
    at_target = row[target];
    loss.to.offset = at_target * loss.to.scale;
    loss.rest = sum_any(row, part.cols, target, loss.to, lanes);
    if (!(loss.rest <= ASH_LOSS_REST_MAX)) {
        for (size_t v = threadIdx.x; v < part.cols; v += ANY_THREADS)
            top = row[v] > top ? row[v] : top;
        top = max_block(top, tops);
        loss.to.offset = top * loss.to.scale;
        loss.rest = sum_any(row, part.cols, target, loss.to, lanes);
        loss.own = exponential(at_target, loss.to);
        loss.above = at_target * sharpness - top * sharpness;
    }
    if (threadIdx.x == 0) put_loss(part, r, loss);
    __syncthreads(); /* all have read the target's logit */
    if (ash_loss_has_gradient(&part)) put_any(part, r, target, loss);
}

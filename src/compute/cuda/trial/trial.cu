/* trial - one instruction for each case, and nothing else: products of the tensor cores, and powers of two. The host
 * compares them with its models (trial.c). */
#include "compute/cuda/ptx/math.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/ptx/wgmma.cuh"
#include "compute/cuda/tile/device.cuh"

#define LINE_BYTES 128 /* of an operand of wgmma */
#define CHUNKS (LINE_BYTES / 16)
#define STEP_BYTES 32 /* of a line, in one product */
#define COLUMNS 8

/* A warp for each tile: a [16, 16], b [8, 16], c and d [16, 8]. */
extern "C" __global__ void trial_mma(struct ash_cuda_trial op)
{
    size_t tile = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    int lane = threadIdx.x % WARP, row = lane / 4, column = lane % 4 * 2;
    const uint16_t *a = (const uint16_t *)op.a + tile * 16 * 16, *b = (const uint16_t *)op.b + tile * COLUMNS * 16;
    size_t place = tile * 16 * COLUMNS + row * COLUMNS + column;
    uint32_t a_pairs[4], b_pairs[2];
    float sums[4];

    if (tile >= op.count) return;
    for (int i = 0; i < 4; i++)
        a_pairs[i] = *(const uint32_t *)(a + (row + i % 2 * 8) * 16 + column + i / 2 * 8);
    for (int i = 0; i < 2; i++)
        b_pairs[i] = *(const uint32_t *)(b + row * 16 + column + i * 8);
    for (int e = 0; e < 4; e++)
        sums[e] = op.c[place + e / 2 * 8 * COLUMNS + e % 2];
    mma(sums, a_pairs, b_pairs);
    for (int e = 0; e < 4; e++)
        op.d[place + e / 2 * 8 * COLUMNS + e % 2] = sums[e];
}

/* The lines of a tile's operands, to places that products expect: 64 of a, then 8 of b. */
static __device__ inline void bring_lines(const struct ash_cuda_trial &op, unsigned char *panels)
{
    const uint4 *a = (const uint4 *)op.a + (size_t)blockIdx.x * WGMMA_M * CHUNKS,
                *b = (const uint4 *)op.b + (size_t)blockIdx.x * COLUMNS * CHUNKS;

    for (int i = threadIdx.x; i < (WGMMA_M + COLUMNS) * CHUNKS; i += ASH_CUDA_TRIAL_THREADS) {
        int line = i / CHUNKS, chunk = i % CHUNKS;

        *(uint4 *)(panels + line * LINE_BYTES + (chunk ^ line % CHUNKS) * 16) =
            line < WGMMA_M ? a[i] : b[i - WGMMA_M * CHUNKS];
    }
    wgmma_see_shared();
    __syncthreads();
}

/* A warpgroup for each tile: a [64, 128 bytes], b [8, 128 bytes], c and d [64, 8]; four steps, one after the other. */
template <bool IS_FP8> static __device__ inline void multiply_lines(const struct ash_cuda_trial &op)
{
    DYNAMIC_SHARED(unsigned char, panels, WGMMA_BORDER);
    unsigned a = shared_address(panels), b = a + WGMMA_M * LINE_BYTES;
    int lane = threadIdx.x % WARP, row = threadIdx.x / WARP * 16 + lane / 4, column = lane % 4 * 2;
    size_t place = (size_t)blockIdx.x * WGMMA_M * COLUMNS + row * COLUMNS + column;
    float sums[1][4];

    bring_lines(op, panels);
    for (int e = 0; e < 4; e++)
        sums[0][e] = op.c[place + e / 2 * 8 * COLUMNS + e % 2];
    wgmma_fence();
#pragma unroll
    for (int at = 0; at < LINE_BYTES; at += STEP_BYTES) {
        if (IS_FP8)
            wgmma_e4m3(sums, wgmma_operand(a + at), wgmma_operand(b + at));
        else
            wgmma<COLUMNS, 0, 0>(sums, wgmma_operand(a + at), wgmma_operand(b + at), 1);
    }
    wgmma_commit();
    wgmma_wait();
    wgmma_take<COLUMNS>(sums);
    for (int e = 0; e < 4; e++)
        op.d[place + e / 2 * 8 * COLUMNS + e % 2] = sums[0][e];
}

extern "C" __global__ void trial_wgmma(struct ash_cuda_trial op)
{
    multiply_lines<false>(op);
}

extern "C" __global__ void trial_fp8(struct ash_cuda_trial op)
{
    multiply_lines<true>(op);
}

/* d = 2^c. */
extern "C" __global__ void trial_ex2(struct ash_cuda_trial op)
{
    EACH(i, op.count)
    op.d[i] = ex2_approx(op.c[i]);
}

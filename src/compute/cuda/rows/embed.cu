/* embed - rows of a table by token id, and the gradient back into the table. */
#include "compute/cuda/quant/quant_types.cuh"

static __device__ inline float table_read(const void *table, int dtype, size_t index)
{
    size_t block_bytes = dtype == ASH_Q4_0 ? 18 : 34, at = index % ASH_QUANT_BLOCK;
    const uint8_t *block;
    int q;

    if (is_open(dtype)) {
        block = (const uint8_t *)table + index / file_block(dtype) * file_block_bytes(dtype);
        return open_value(block, dtype, (int)(index % file_block(dtype)));
    }
    if (dtype != ASH_Q8_0 && dtype != ASH_Q8_W && dtype != ASH_Q4_0) return read_element(table, dtype, index);
    block = (const uint8_t *)table + index / ASH_QUANT_BLOCK * block_bytes;
    if (dtype == ASH_Q4_0)
        q = at < 16 ? (block[2 + at] & 15) - 8 : (block[2 + at - 16] >> 4) - 8;
    else
        q = (int8_t)block[2 + at];
    return __half2float(*(const __half *)block) * (float)q;
}

extern "C" __global__ void embed_gather(struct ash_cuda_embed op)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < op.rows * op.cols;
         i += (size_t)gridDim.x * blockDim.x) {
        float value = table_read(op.table, op.dtype, (size_t)op.ids[i / op.cols] * op.cols + i % op.cols);

        op.out[i] = op.add ? op.out[i] + value : value;
    }
}

#define SCATTER_THREADS 256
#define SCATTER_EACH (ASH_CUDA_EMBED_COLS / SCATTER_THREADS) /* columns of a thread */

/* Rows base ... base + SCATTER_THREADS - 1 (below end) that have this id, ascending, to found. Returns how many. */
static __device__ inline int find_rows(const int32_t *ids, int32_t id, size_t base, size_t end, int *found)
{
    __shared__ int counts[SCATTER_THREADS / WARP];
    size_t r = base + threadIdx.x;
    bool has = r < end && ids[r] == id;
    unsigned mask = __ballot_sync(0xffffffffu, has);
    int warp = threadIdx.x / WARP, before = 0, all = 0;

    __syncthreads(); /* what was found last time has been read */
    if (threadIdx.x % WARP == 0) counts[warp] = __popc(mask);
    __syncthreads();
    for (int w = 0; w < SCATTER_THREADS / WARP; w++) {
        if (w < warp) before += counts[w];
        all += counts[w];
    }
    if (has) found[before + __popc(mask & ((1u << threadIdx.x % WARP) - 1))] = (int)(r - base);
    __syncthreads();
    return all;
}

/* A thread block owns the id of row blockIdx.x, if no row before has the same one, and meets all rows of that id in
 * order. */
extern "C" __global__ void __launch_bounds__(SCATTER_THREADS) embed_scatter_add(struct ash_cuda_embed op)
{
    __shared__ int found[SCATTER_THREADS];
    size_t row = blockIdx.x, c0 = (size_t)blockIdx.y * ASH_CUDA_EMBED_COLS + threadIdx.x;
    int32_t id = op.ids[row];
    float *to = op.dtable + (size_t)id * op.cols, sum[SCATTER_EACH];

    for (size_t base = 0; base < row; base += SCATTER_THREADS)
        if (__syncthreads_or(base + threadIdx.x < row && op.ids[base + threadIdx.x] == id)) return;
#pragma unroll
    for (int i = 0; i < SCATTER_EACH; i++)
        sum[i] = c0 + i * SCATTER_THREADS < op.cols ? to[c0 + i * SCATTER_THREADS] : 0.0f;
    for (size_t base = row; base < op.rows; base += SCATTER_THREADS) {
        int count = find_rows(op.ids, id, base, op.rows, found);

#pragma unroll 4
        for (int n = 0; n < count; n++) {
            const float *from = op.grad + (base + found[n]) * op.cols;

#pragma unroll
            for (int i = 0; i < SCATTER_EACH; i++)
                if (c0 + i * SCATTER_THREADS < op.cols) sum[i] = sum[i] + from[c0 + i * SCATTER_THREADS];
        }
    }
#pragma unroll
    for (int i = 0; i < SCATTER_EACH; i++)
        if (c0 + i * SCATTER_THREADS < op.cols) to[c0 + i * SCATTER_THREADS] = sum[i];
}

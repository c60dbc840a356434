/* embed - rows of a table by token id, and the gradient back into the table. */
#include "compute/cuda/quant_types.cuh"

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

/* A thread owns a column and meets all rows of an id, in order. */
extern "C" __global__ void embed_scatter_add(struct ash_cuda_embed op)
{
    size_t c = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (c >= op.cols) return;
    for (size_t r = 0; r < op.rows; r++) {
        float *to = op.dtable + (size_t)op.ids[r] * op.cols + c;

        *to = *to + op.grad[r * op.cols + c];
    }
}

/* few_rows - rows of x as bf16, normed if the op norms: for products of some rows, whose thread blocks read them in
 * tiles (few.cu, skinny.cu). A thread block has a row. */
#include "compute/cuda/gemm/few_x.cuh"

#define THREADS ASH_CUDA_FEW_ROWS_THREADS

extern "C" __global__ void __launch_bounds__(THREADS, 2) few_rows(const __grid_constant__ struct ash_cuda_few_rows op)
{
    DYNAMIC_SHARED(float, blocks, 16);
    __shared__ float rstd;
    struct ash_cuda_few_rows mine = op;
    struct rows_of_x x = {op.out + blockIdx.x * op.K, blocks, &rstd, 0, (unsigned)op.K / 4};

    early_begin();
    mine.x = (const float *)op.x + blockIdx.x * op.x_stride;
    mine.M = 1;
    put_x<THREADS>(mine, x);
}

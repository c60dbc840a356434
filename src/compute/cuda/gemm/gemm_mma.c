/* The launch of gemm_mma.cu: a thread block for each tile of sums. */
#include "compute/cuda/gemm/gemm_mma.h"

#include "base/math.h"

void ash_cuda_gemm_mma(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *args)
{
    size_t tile = ASH_CUDA_GEMM_MMA_TILE;

    ash_cuda_run(exec, ASH_KERNEL_gemm_mma,
                 (struct ash_cuda_grid){.x = ash_div_up(args->a.count, tile) * ash_div_up(args->b.count, tile),
                                        .y = 1,
                                        .threads = ASH_CUDA_GEMM_MMA_THREADS,
                                        .shared_bytes = ASH_CUDA_GEMM_MMA_BYTES},
                 args);
}

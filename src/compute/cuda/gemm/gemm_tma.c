/* The launch of gemm_tma.cu: where its operands lie, and as many thread blocks as stay on the GPU. */
#include "compute/cuda/gemm/gemm_tma.h"

#include "base/assert.h"
#include "base/math.h"

#define CLUSTER ASH_CUDA_GEMM_TMA_CLUSTER

static size_t m_pairs_of(const struct ash_cuda_gemm_bf16 *op)
{
    return ash_div_up(op->a.count, (size_t)ASH_CUDA_GEMM_TMA_M * CLUSTER);
}

static size_t n_tiles_of(const struct ash_cuda_gemm_bf16 *op)
{
    return ash_div_up(op->b.count, ASH_CUDA_GEMM_TMA_N);
}

bool ash_cuda_tma_takes(const struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op)
{
    size_t places = (size_t)ash_cuda_get_facts(exec->cuda->cuda)->sm_count / CLUSTER;

    return exec->cuda->has_wgmma && op->a.k > 0 && 2 * m_pairs_of(op) * n_tiles_of(op) >= places;
}

/* A map of an operand: lines of k, or k lines of its columns. */
static struct ash_cuda_tensor_map map_of(struct ash_exec *exec, const struct ash_cuda_lines *lines)
{
    struct ash_cuda_bf16_rows rows = {.data = lines->data, .stride = lines->stride};
    struct ash_cuda_tensor_map map = {0};

    rows.rows = lines->columns ? lines->k : lines->count;
    rows.cols = lines->columns ? lines->count : lines->k;
    ash_cuda_map_rows(exec->cuda->cuda, &rows, lines->columns ? ASH_CUDA_GEMM_TMA_K : ASH_CUDA_GEMM_TMA_M, &map);
    return map;
}

void ash_cuda_tma_gemm(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op)
{
    static const enum ash_cuda_kernel_id kernels[2][2] = {
        {ASH_KERNEL_gemm_tma_rows_rows, ASH_KERNEL_gemm_tma_rows_columns},
        {ASH_KERNEL_gemm_tma_columns_rows, ASH_KERNEL_gemm_tma_columns_columns}};
    struct ash_cuda_gemm_tma args = {.a = map_of(exec, &op->a),
                                     .b = map_of(exec, &op->b),
                                     .op = *op,
                                     .m_pairs = (uint32_t)m_pairs_of(op),
                                     .n_tiles = (uint32_t)n_tiles_of(op),
                                     .k_tiles = (uint32_t)ash_div_up(op->a.k, ASH_CUDA_GEMM_TMA_K)};
    size_t clusters = (size_t)ash_cuda_get_facts(exec->cuda->cuda)->sm_count / CLUSTER;

    ash_assert(op->a.k == op->b.k);
    ash_cuda_run(exec, kernels[op->a.columns][op->b.columns],
                 (struct ash_cuda_grid){.x = ash_min(clusters, (size_t)args.m_pairs * args.n_tiles) * CLUSTER,
                                        .y = 1,
                                        .threads = ASH_CUDA_GEMM_TMA_THREADS,
                                        .shared_bytes = ASH_CUDA_GEMM_TMA_BYTES},
                 &args);
}

/* Maps of matrices for a GPU's copy engine. */
#include <stdint.h>
#include "base/assert.h"
#include "infra/device/cuda_priv.h"

#define MATRICES_MAX ((uint64_t)1 << 31) /* coordinates are int */

/* rank: 2, or 3 for matrices one after the other. */
static void make_map(struct ash_cuda *cuda, const struct ash_cuda_bf16_rows *rows, unsigned rank, size_t matrix_bytes,
                     size_t box_rows, struct ash_cuda_tensor_map *map_out)
{
    uint64_t sizes[] = {rows->cols, rows->rows, MATRICES_MAX};
    uint64_t strides_bytes[] = {rows->stride * sizeof(uint16_t), matrix_bytes};
    unsigned box[] = {ASH_CUDA_MAP_COLS, (unsigned)box_rows, 1}, steps[] = {1, 1, 1};
    struct ash_cuda_tensor_map map = {0};

    ash_assert(box_rows <= 256 && (uintptr_t)rows->data % 16 == 0 && (strides_bytes[0] | matrix_bytes) % 16 == 0);
    if (cuda->has_failed) return;
    ash_cuda_check(cuda,
                   ash_cuda_driver_of(cuda)->map_tiled(&map, ASH_CUDA_MAP_BF16, rank, (void *)(uintptr_t)rows->data,
                                                       sizes, strides_bytes, box, steps, 0, ASH_CUDA_MAP_SWIZZLE_128,
                                                       ASH_CUDA_MAP_L2_256, 0),
                   "describing rows to the copy engine");
    *map_out = map;
}

void ash_cuda_map_rows(struct ash_cuda *cuda, const struct ash_cuda_bf16_rows *rows, size_t box_rows,
                       struct ash_cuda_tensor_map *map_out)
{
    make_map(cuda, rows, 2, 0, box_rows, map_out);
}

void ash_cuda_map_matrices(struct ash_cuda *cuda, const struct ash_cuda_bf16_rows *rows, size_t matrix_bytes,
                           size_t box_rows, struct ash_cuda_tensor_map *map_out)
{
    make_map(cuda, rows, 3, matrix_bytes, box_rows, map_out);
}

/* Maps of matrices for a GPU's copy engine. */
#include <stdint.h>
#include "base/assert.h"
#include "infra/device/cuda_priv.h"

void ash_cuda_map_rows(struct ash_cuda *cuda, const struct ash_cuda_bf16_rows *rows, size_t box_rows,
                       struct ash_cuda_tensor_map *map_out)
{
    uint64_t sizes[] = {rows->cols, rows->rows}, stride_bytes = rows->stride * sizeof(uint16_t);
    unsigned box[] = {ASH_CUDA_MAP_COLS, (unsigned)box_rows}, steps[] = {1, 1};
    struct ash_cuda_tensor_map map = {0};

    ash_assert(box_rows <= 256 && (uintptr_t)rows->data % 16 == 0 && stride_bytes % 16 == 0);
    if (cuda->has_failed) return;
    ash_cuda_check(cuda,
                   ash_cuda_driver_of(cuda)->map_tiled(&map, ASH_CUDA_MAP_BF16, 2, (void *)(uintptr_t)rows->data, sizes,
                                                       &stride_bytes, box, steps, 0, ASH_CUDA_MAP_SWIZZLE_128,
                                                       ASH_CUDA_MAP_L2_256, 0),
                   "describing rows to the copy engine");
    *map_out = map;
}

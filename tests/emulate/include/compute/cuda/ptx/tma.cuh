/* tma - the copy engine of boxes: src/compute/cuda/ptx/tma.cuh. */
#ifndef ASH_COMPUTE_CUDA_TMA_CUH
#define ASH_COMPUTE_CUDA_TMA_CUH

#include "compute/cuda/ptx/shared.cuh"

struct ash_cuda_tensor_map;

static inline void tma_prefetch(const struct ash_cuda_tensor_map *)
{
    emu_maybe_yield();
}

static inline void tma_load_2d(unsigned to, const struct ash_cuda_tensor_map *map, int x, int y, unsigned barrier)
{
    emu_tma_load(to, map, {x, y}, 2, barrier, (uint16_t)(1u << emu_now->block->rank));
}

static inline void tma_load_2d_to_all(unsigned to, const struct ash_cuda_tensor_map *map, int x, int y,
                                      unsigned barrier, uint16_t blocks)
{
    emu_tma_load(to, map, {x, y}, 2, barrier, blocks);
}

static inline void tma_load_3d(unsigned to, const struct ash_cuda_tensor_map *map, int x, int y, int z,
                               unsigned barrier)
{
    emu_tma_load(to, map, {x, y, z}, 3, barrier, (uint16_t)(1u << emu_now->block->rank));
}

static inline void tma_store_2d(const struct ash_cuda_tensor_map *map, int x, int y, unsigned from)
{
    emu_tma_store(map, {x, y}, 2, from);
}

static inline void tma_store_3d(const struct ash_cuda_tensor_map *map, int x, int y, int z, unsigned from)
{
    emu_tma_store(map, {x, y, z}, 3, from);
}

static inline void tma_store_commit(void)
{
    emu_store_commit();
}

template <int LEFT> static inline void tma_store_wait(void)
{
    emu_store_wait(LEFT, false);
}

template <int LEFT> static inline void tma_store_wait_done(void)
{
    emu_store_wait(LEFT, true);
}

#endif

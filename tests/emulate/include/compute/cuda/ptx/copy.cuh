/* copy - copies that land late: src/compute/cuda/ptx/copy.cuh. */
#ifndef ASH_COMPUTE_CUDA_COPY_CUH
#define ASH_COMPUTE_CUDA_COPY_CUH

#include "compute/cuda/ptx/shared.cuh"

static inline void copy_16(unsigned to, const void *from)
{
    emu_copy_async(to, from, 16, 16);
}

static inline void copy_16(unsigned to, const void *from, int bytes)
{
    emu_copy_async(to, from, 16, (unsigned)bytes);
}

static inline void copy_16_ahead(unsigned to, const void *from)
{
    emu_copy_async(to, from, 16, 16);
}

static inline void copy_16_ahead(unsigned to, const void *from, int bytes)
{
    emu_copy_async(to, from, 16, (unsigned)bytes);
}

static inline void copy_16_ahead_if(int is_on, unsigned to, const void *from, int bytes)
{
    if (is_on) emu_copy_async(to, from, 16, (unsigned)bytes);
}

static inline void copy_4(unsigned to, const void *from)
{
    emu_copy_async(to, from, 4, 4);
}

static inline void copy_8(unsigned to, const void *from)
{
    emu_copy_async(to, from, 8, 8);
}

static inline void copy_commit(void)
{
    emu_copy_commit();
}

template <int LEFT> static inline void copy_wait(void)
{
    emu_copy_wait(LEFT);
}

static inline void copy_bulk(unsigned to, const void *from, unsigned bytes, unsigned barrier)
{
    emu_copy_bulk(to, from, bytes, barrier, (uint16_t)(1u << emu_now->block->rank));
}

static inline void fetch_to_l2(const void *from, unsigned bytes)
{
    emu_check_memory(from, bytes, "fetch_to_l2");
    emu_run.fetched += bytes;
}

static inline void copy_to_all(unsigned to, const void *from, unsigned bytes, unsigned barrier, uint16_t blocks)
{
    emu_copy_bulk(to, from, bytes, barrier, blocks);
}

#endif

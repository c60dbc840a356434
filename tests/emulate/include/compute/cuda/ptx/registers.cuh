/* registers - who has how many does not matter here: src/compute/cuda/ptx/registers.cuh. */
#ifndef ASH_COMPUTE_CUDA_REGISTERS_CUH
#define ASH_COMPUTE_CUDA_REGISTERS_CUH

#include "emulate/cuda.h"

template <int N> static inline void registers_give(void)
{
    static_assert(N % 8 == 0 && N >= 24 && N <= 240, "a number that setmaxnreg takes");
    emu_meet(
        0xffffffffu, "registers_give", NULL, [](struct emu_meeting *) {}, true);
}

template <int N> static inline void registers_take(void)
{
    static_assert(N % 8 == 0 && N >= 24 && N <= 240, "a number that setmaxnreg takes");
    emu_meet(
        0xffffffffu, "registers_take", NULL, [](struct emu_meeting *) {}, true);
}

#endif

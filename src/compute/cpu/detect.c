/* Which kernels this processor can run, asked at run time: one build runs on every machine of its architecture. */
#include "compute/cpu/detect.h"

#include "infra/cpu.h"

#if defined(__aarch64__)

bool ash_cpu_has_bf16(void)
{
    return ash_cpu_get()->bf16;
}

#elif defined(__x86_64__)

bool ash_cpu_has_avx2(void)
{
    const struct ash_cpu *cpu = ash_cpu_get();

    return cpu->avx2 && cpu->fma && cpu->f16c;
}

bool ash_cpu_has_avx512(void)
{
    const struct ash_cpu *cpu = ash_cpu_get();

    return ash_cpu_has_avx2() && cpu->avx512f && cpu->avx512bw && cpu->avx512vl && cpu->avx512dq;
}

bool ash_cpu_has_amx(void)
{
    const struct ash_cpu *cpu = ash_cpu_get();

    return ash_cpu_has_avx512() && cpu->avx512_bf16 && cpu->amx_tile && cpu->amx_bf16;
}

#endif

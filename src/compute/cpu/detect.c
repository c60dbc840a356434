/* What the processor can do, asked once per question at run time: one build runs on every machine of its architecture.
 */
#include "compute/cpu/cpu_priv.h"

#include "infra/cpu.h"

#if defined(__aarch64__)

bool ash_cpu_has_bf16(void)
{
    return ash_cpu_get()->bf16;
}

#elif defined(__x86_64__)

bool ash_cpu_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool ash_cpu_has_avx512(void)
{
    return ash_cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

#endif

/* Every backend of this build, best first. */
#include "compute/backends/backends.h"

#include "base/assert.h"
#include "compute/cpu.h"
#include "compute/cpu/detect.h"

const struct ash_backend ash_backends[] = {
#if defined(__aarch64__)
    {&ash_ops_neon_bf16, ash_cpu_has_bf16},
    {&ash_ops_neon, NULL},
#elif defined(__x86_64__)
    {&ash_ops_amx, ash_cpu_has_amx}, /* no AMX without AVX-512 */
    {&ash_ops_avx512, ash_cpu_has_avx512},
    {&ash_ops_avx2, ash_cpu_has_avx2},
#endif
    {&ash_ops_portable, NULL},
    {&ash_ops_ref, NULL},
    {&ash_ops_ref_bfmmla, NULL},
    {&ash_ops_ref_tdpbf16, NULL},
    {&ash_ops_ref_wgmma, NULL},
};

const size_t ash_backend_count = ASH_COUNT(ash_backends);

_Static_assert(ASH_COUNT(ash_backends) <= ASH_BACKENDS_MAX, "readers size arrays by it");

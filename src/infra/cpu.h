/* cpu - what this machine's processors are and how much of them this process may use. Found once, then constant. */
#ifndef ASH_INFRA_CPU_H
#define ASH_INFRA_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ash_cpu {
    const char *arch;                                 /* "arm64", "x86-64" or "other" */
    char model[64];                                   /* "Neoverse V1"; empty when unknown */
    int core_count;                                   /* usable by this process: affinity and cgroup quota */
    size_t l1d_bytes, l2_bytes, l3_bytes, line_bytes; /* as the first core sees them; 0 when unknown */
    uint64_t memory_bytes;                            /* of the machine, or the cgroup's limit when that is less */
    /* Instruction sets that the processor has and the kernel lets us use. */
    bool asimd, fp16, dotprod, bf16, i8mm, sve; /* arm64 */
    bool avx2, fma, f16c;                       /* x86-64 */
    bool avx512f, avx512bw, avx512vl, avx512dq, avx512_bf16, avx512_vnni, avx512_fp16;
    bool amx_tile, amx_bf16, amx_int8; /* the kernel has been asked, and lets all threads of this process use tiles */
};

/* Any thread may call; the same pointer every time. */
const struct ash_cpu *ash_cpu_get(void);

/* "arm64 Neoverse V1, 2 cores, L1d 64 KiB, L2 1 MiB, L3 32 MiB, 23.4 GiB memory, asimd fp16 ..." into buf. Returns
 * buf. */
const char *ash_cpu_describe(const struct ash_cpu *cpu, char *buf, size_t buf_bytes);

#endif

/* target - instructions that not every GPU has. Kernels with them are compiled for every target, so that a build has
 * one list of kernels; where the instruction is missing they trap. The host launches them on GPUs that have it only
 * (host/backend_priv.h: has_wgmma). */
#ifndef ASH_COMPUTE_CUDA_TARGET_CUH
#define ASH_COMPUTE_CUDA_TARGET_CUH

/* Compute capability 9.0 and newer: barriers that count bytes, bulk copies, clusters, tensor maps. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define ASYNC_ASM(...) asm volatile(__VA_ARGS__)
#define ASYNC_VALUE_ASM(...) asm(__VA_ARGS__)
#define LAUNCH_ASM(...) asm volatile(__VA_ARGS__)
#else
#define ASYNC_ASM(...) __trap()
#define ASYNC_VALUE_ASM(...) __trap()
#define LAUNCH_ASM(...) (void)0
#endif

/* Compute capability 9.0, compiled as 90a: wgmma, and registers that warps give to each other. */
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WGMMA_ASM(...) asm volatile(__VA_ARGS__)
#else
#define WGMMA_ASM(...) __trap()
#endif

#endif

/* device_code - inline functions that the host and a GPU's kernels share, so that both compute the same bits. */
#ifndef ASH_BASE_DEVICE_CODE_H
#define ASH_BASE_DEVICE_CODE_H

#if defined(__CUDACC__)
#define ASH_INLINE static inline __host__ __device__
#else
#define ASH_INLINE static inline
#endif

#endif

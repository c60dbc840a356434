/* The vectorised backend of x86-64 with AVX-512: the kernel bodies, compiled for it. */
#if defined(__x86_64__)

#include "compute/cpu/vec_avx512.h"
#include "compute/cpu/ops_body.h"

const struct ash_ops ash_ops_avx512 = VEC_OPS("avx512", &ash_ops_ref, &vec_matrix);

#endif

/* The vectorised backend of x86-64 with AVX2: the kernel bodies, compiled for it. */
#if defined(__x86_64__)

#include "compute/cpu/vec/vec_avx2.h"
#include "compute/cpu/ops_body.h"

const struct ash_ops ash_ops_avx2 = VEC_OPS("avx2", &ash_ops_ref, &vec_matrix);

#endif

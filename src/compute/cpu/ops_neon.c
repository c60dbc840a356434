/* The vectorised backend of arm64: the kernel bodies, compiled for it. */
#if defined(__aarch64__)

#include "compute/cpu/vec_neon.h"
#include "compute/cpu/ops_body.h"

const struct ash_ops ash_ops_neon = VEC_OPS("neon");

#endif

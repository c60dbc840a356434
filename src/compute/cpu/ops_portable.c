/* The vectorised backend of any machine: the kernel bodies, compiled for it. */
#include "compute/cpu/vec/vec_portable.h"
#include "compute/cpu/ops_body.h"

const struct ash_ops ash_ops_portable = VEC_OPS("portable", &ash_ops_ref, &vec_matrix);

/* The reference backend: every op in plain C, written to be read. It is the specification: what it computes, to the
 * bit, is what every other backend computes. */
#include "compute/ref/ref_priv.h"

ASH_REF_OPS(ash_ops_ref, "ref", &ash_ref_matrix);

/* The reference backend: every op in plain C, written to be read. It is the specification: what it computes, to the
 * bit, is what every other backend computes. */
#include "compute/ref/ref_priv.h"

const struct ash_ops ash_ops_ref = {
    .name = "ref",
    .reference = &ash_ops_ref,
    .matrix = &ash_ref_matrix,
    .embed = &ash_ref_embed,
    .norm = &ash_ref_norm,
    .rope = &ash_ref_rope,
    .attn = &ash_ref_attn,
    .act = &ash_ref_act,
    .row = &ash_ref_row,
    .loss = &ash_ref_loss,
    .route = &ash_ref_route,
    .optim = &ash_ref_optim,
};

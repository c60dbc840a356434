/* ref - ops of the reference backend that serve other backends too. */
#ifndef ASH_COMPUTE_REF_H
#define ASH_COMPUTE_REF_H

#include "compute/ops.h"

struct ash_state_ops;

/* Routing is a few comparisons per token: every CPU backend uses this table. */
extern const struct ash_route_ops ash_ref_route;
/* The ops of some families, and attention with a cap: every CPU backend uses these. */
extern const struct ash_family_ops ash_ref_family;
/* Recurrent states: every backend whose memory the host can touch uses these. */
extern const struct ash_state_ops ash_ref_state;
/* ash_matrix_ops.project, composed of other ops of exec's own table, so it serves every table. No packed weights. */
void ash_ref_project(struct ash_exec *exec, const struct ash_project_args *args);
/* ash_attn_ops.kv_write, composed of the other ops of exec's own table. */
void ash_ref_kv_write(struct ash_exec *exec, const struct ash_kv_write_args *args);
/* ash_row_ops.copy. Vectors gain nothing that a compiler would not find: every CPU backend uses it. */
void ash_ref_copy(struct ash_exec *exec, const struct ash_copy_args *args);
/* ash_row_ops.drop: every CPU backend uses it. */
void ash_ref_drop(struct ash_exec *exec, const struct ash_drop_args *args);

/* ash_attn_ops.forward and backward. */
extern const struct ash_attn_ops ash_ref_attn;

#endif

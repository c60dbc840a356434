/* ref - ops of the reference backend that serve other backends too. */
#ifndef ASH_COMPUTE_REF_H
#define ASH_COMPUTE_REF_H

#include "compute/ops.h"

/* Routing is a few comparisons per token: every CPU backend uses this table. */
extern const struct ash_route_ops ash_ref_route;
/* ash_matrix_ops.project, composed of other ops of exec's own table, so it serves every table. No packed weights. */
void ash_ref_project(struct ash_exec *exec, const struct ash_project_args *args);
/* ash_attn_ops.kv_write, composed of the other ops of exec's own table. */
void ash_ref_kv_write(struct ash_exec *exec, const struct ash_kv_write_args *args);
/* ash_row_ops.copy. Vectors gain nothing that a compiler would not find: every CPU backend uses it. */
void ash_ref_copy(struct ash_exec *exec, const struct ash_copy_args *args);

#endif

/* ops_list - every op that computes, for tables that wrap all of them: OP(family, op, parameters, arguments). Not here:
 * packed_bytes, pack and backward_rounded, which a wrapped table does not have. */
OP(matrix, gemm, (struct ash_exec * exec, const struct ash_gemm_args *args), (exec, args))
OP(matrix, quant_gemm, (struct ash_exec * exec, const struct ash_quant_args *args), (exec, args))
OP(matrix, project, (struct ash_exec * exec, const struct ash_project_args *args), (exec, args))
OP(matrix, column_sum, (struct ash_exec * exec, const struct ash_column_sum_args *args), (exec, args))
OP(embed, gather, (struct ash_exec * exec, const struct ash_embed_args *args), (exec, args))
OP(embed, scatter_add,
   (struct ash_exec * exec, float *table, size_t cols, const int32_t *ids, size_t rows, const float *grad),
   (exec, table, cols, ids, rows, grad))
OP(norm, rms_forward, (struct ash_exec * exec, const struct ash_norm_args *args), (exec, args))
OP(norm, rms_backward, (struct ash_exec * exec, const struct ash_norm_args *args), (exec, args))
OP(norm, layer_forward, (struct ash_exec * exec, const struct ash_norm_args *args), (exec, args))
OP(norm, layer_backward, (struct ash_exec * exec, const struct ash_norm_args *args), (exec, args))
OP(rope, apply, (struct ash_exec * exec, const struct ash_rope_args *args), (exec, args))
OP(attn, forward, (struct ash_exec * exec, const struct ash_attn_args *args), (exec, args))
OP(attn, backward, (struct ash_exec * exec, const struct ash_attn_args *args), (exec, args))
OP(attn, kv_write, (struct ash_exec * exec, const struct ash_kv_write_args *args), (exec, args))
OP(act, swiglu_forward, (struct ash_exec * exec, const struct ash_swiglu_args *args), (exec, args))
OP(act, swiglu_backward, (struct ash_exec * exec, const struct ash_swiglu_grad_args *args), (exec, args))
OP(act, gelu_forward, (struct ash_exec * exec, enum ash_gelu kind, const float *x, size_t count, float *out),
   (exec, kind, x, count, out))
OP(act, gelu_backward,
   (struct ash_exec * exec, enum ash_gelu kind, const float *x, const float *dout, size_t count, float *dx),
   (exec, kind, x, dout, count, dx))
OP(row, copy, (struct ash_exec * exec, const struct ash_copy_args *args), (exec, args))
OP(row, add, (struct ash_exec * exec, const float *a, const float *b, size_t count, float *out),
   (exec, a, b, count, out))
OP(row, scale, (struct ash_exec * exec, float *x, float factor, size_t count), (exec, x, factor, count))
OP(row, scale_rows, (struct ash_exec * exec, const struct ash_scale_rows_args *args), (exec, args))
OP(row, round_bf16, (struct ash_exec * exec, const float *x, size_t count, float *out), (exec, x, count, out))
OP(row, gather, (struct ash_exec * exec, const float *x, size_t cols, const int32_t *index, size_t rows, float *out),
   (exec, x, cols, index, rows, out))
OP(row, combine, (struct ash_exec * exec, const struct ash_slots_args *args), (exec, args))
OP(row, slot_dot, (struct ash_exec * exec, const struct ash_slots_args *args), (exec, args))
OP(loss, cross_entropy, (struct ash_exec * exec, const struct ash_loss_part *part), (exec, part))
OP(loss, part_top, (struct ash_exec * exec, const struct ash_loss_part *part), (exec, part))
OP(loss, part_sum, (struct ash_exec * exec, const struct ash_loss_part *part), (exec, part))
OP(loss, part_end, (struct ash_exec * exec, const struct ash_loss_part *part), (exec, part))
OP(loss, distill, (struct ash_exec * exec, const struct ash_distill_args *args), (exec, args))
OP(route, forward, (struct ash_exec * exec, const struct ash_route_args *args), (exec, args))
OP(route, backward, (struct ash_exec * exec, const struct ash_route_args *args), (exec, args))
OP(route, group, (struct ash_exec * exec, const struct ash_route_group_args *args), (exec, args))
OP(sample, choose, (struct ash_exec * exec, const struct ash_sample_args *args), (exec, args))
OP(route, grouped, (struct ash_exec * exec, const struct ash_grouped_args *args), (exec, args))
OP(route, grouped_grad, (struct ash_exec * exec, const struct ash_grouped_grad_args *args), (exec, args))
OP(optim, adamw, (struct ash_exec * exec, const struct ash_adamw_args *args), (exec, args))
OP(optim, sum_squares, (struct ash_exec * exec, const struct ash_squares_args *args), (exec, args))
OP(optim, max_abs, (struct ash_exec * exec, const struct ash_squares_args *args), (exec, args))

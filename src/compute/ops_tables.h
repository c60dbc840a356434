/* ops_tables - the tables of a wrapper, of functions named FAMILY_OP: one for each OP of ops_list.h. Included once by
 * the file that defines them, as statics. */
static const struct ash_matrix_ops matrix_ops = {
    .gemm = matrix_gemm, .quant_gemm = matrix_quant_gemm, .project = matrix_project, .column_sum = matrix_column_sum};
static const struct ash_embed_ops embed_ops = {.gather = embed_gather, .scatter_add = embed_scatter_add};
static const struct ash_norm_ops norm_ops = {.rms_forward = norm_rms_forward,
                                             .rms_backward = norm_rms_backward,
                                             .layer_forward = norm_layer_forward,
                                             .layer_backward = norm_layer_backward};
static const struct ash_rope_ops rope_ops = {.apply = rope_apply};
static const struct ash_attn_ops attn_ops = {
    .forward = attn_forward, .backward = attn_backward, .kv_write = attn_kv_write};
static const struct ash_act_ops act_ops = {.swiglu_forward = act_swiglu_forward,
                                           .swiglu_backward = act_swiglu_backward,
                                           .gelu_forward = act_gelu_forward,
                                           .gelu_backward = act_gelu_backward};
static const struct ash_row_ops row_ops = {.copy = row_copy,
                                           .add = row_add,
                                           .scale = row_scale,
                                           .scale_rows = row_scale_rows,
                                           .round_bf16 = row_round_bf16,
                                           .gather = row_gather,
                                           .combine = row_combine,
                                           .slot_dot = row_slot_dot,
                                           .drop = row_drop};
static const struct ash_loss_ops loss_ops = {.cross_entropy = loss_cross_entropy,
                                             .part_top = loss_part_top,
                                             .part_sum = loss_part_sum,
                                             .part_end = loss_part_end,
                                             .distill = loss_distill};
static const struct ash_route_ops route_ops = {.forward = route_forward,
                                               .backward = route_backward,
                                               .group = route_group,
                                               .grouped = route_grouped,
                                               .grouped_grad = route_grouped_grad};
static const struct ash_family_ops family_ops = {.gated_forward = family_gated_forward,
                                                 .gated_backward = family_gated_backward,
                                                 .sink_forward = family_sink_forward,
                                                 .sink_backward = family_sink_backward,
                                                 .cap_forward = family_cap_forward,
                                                 .cap_backward = family_cap_backward};
static const struct ash_sample_ops sample_ops = {.choose = sample_choose};
static const struct ash_optim_ops optim_ops = {
    .adamw = optim_adamw, .lion = optim_lion, .sum_squares = optim_sum_squares, .max_abs = optim_max_abs};

#define ASH_WRAPPED_TABLES .matrix = &matrix_ops, ASH_WRAPPED_TABLES_BUT_MATRIX
#define ASH_WRAPPED_TABLES_BUT_MATRIX                                                                                  \
    .embed = &embed_ops, .norm = &norm_ops, .rope = &rope_ops, .attn = &attn_ops, .act = &act_ops, .row = &row_ops,    \
    .loss = &loss_ops, .route = &route_ops, .optim = &optim_ops, .family = &family_ops, .sample = &sample_ops

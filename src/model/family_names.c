/* The names of families' tensors, by role. A family without a name for a role has no such tensor. */
#include "model/family_priv.h"

/* What nearly all have. */
#define TOP_NAMES                                                                                                      \
    [ASH_ROLE_EMBED] = "embed_tokens.weight", [ASH_ROLE_FINAL_NORM] = "norm.weight", [ASH_ROLE_HEAD] = "lm_head.weight"
#define ATTN_NAMES                                                                                                     \
    [ASH_ROLE_Q] = "self_attn.q_proj.weight", [ASH_ROLE_Q_BIAS] = "self_attn.q_proj.bias",                             \
    [ASH_ROLE_K] = "self_attn.k_proj.weight", [ASH_ROLE_K_BIAS] = "self_attn.k_proj.bias",                             \
    [ASH_ROLE_V] = "self_attn.v_proj.weight", [ASH_ROLE_V_BIAS] = "self_attn.v_proj.bias",                             \
                                                                                                                       \
    [ASH_ROLE_OUT] = "self_attn.o_proj.weight", [ASH_ROLE_OUT_BIAS] = "self_attn.o_proj.bias"
#define QK_NORM_NAMES [ASH_ROLE_Q_NORM] = "self_attn.q_norm.weight", [ASH_ROLE_K_NORM] = "self_attn.k_norm.weight"
#define NORM_NAMES                                                                                                     \
    [ASH_ROLE_NORM1] = "input_layernorm.weight", [ASH_ROLE_NORM1_BIAS] = "input_layernorm.bias",                       \
    [ASH_ROLE_NORM2] = "post_attention_layernorm.weight", [ASH_ROLE_NORM2_BIAS] = "post_attention_layernorm.bias"
#define MLP_NAMES                                                                                                      \
    [ASH_ROLE_GATE] = "mlp.gate_proj.weight", [ASH_ROLE_GATE_BIAS] = "mlp.gate_proj.bias",                             \
    [ASH_ROLE_UP] = "mlp.up_proj.weight", [ASH_ROLE_UP_BIAS] = "mlp.up_proj.bias",                                     \
    [ASH_ROLE_DOWN] = "mlp.down_proj.weight", [ASH_ROLE_DOWN_BIAS] = "mlp.down_proj.bias"
#define EXPERT_NAMES                                                                                                   \
    [ASH_ROLE_EXPERT_GATE] = "mlp.experts.%zu.gate_proj.weight",                                                       \
    [ASH_ROLE_EXPERT_UP] = "mlp.experts.%zu.up_proj.weight",                                                           \
    [ASH_ROLE_EXPERT_DOWN] = "mlp.experts.%zu.down_proj.weight"

const char *const ash_names_llama[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    QK_NORM_NAMES,
    ATTN_NAMES,
    NORM_NAMES,
    MLP_NAMES,
    [ASH_ROLE_ROUTER] = "mlp.gate.weight",
    [ASH_ROLE_ROUTER_BIAS] = "mlp.gate.e_score_correction_bias",
    [ASH_ROLE_SHARED_GATE] = "mlp.shared_experts.gate_proj.weight",
    [ASH_ROLE_SHARED_UP] = "mlp.shared_experts.up_proj.weight",
    [ASH_ROLE_SHARED_DOWN] = "mlp.shared_experts.down_proj.weight",
    EXPERT_NAMES,
    [ASH_ROLE_Q_DOWN] = "self_attn.q_a_proj.weight",
    [ASH_ROLE_Q_DOWN_BIAS] = "self_attn.q_a_proj.bias",
    [ASH_ROLE_Q_DOWN_NORM] = "self_attn.q_a_layernorm.weight",
    [ASH_ROLE_Q_UP] = "self_attn.q_b_proj.weight",
    [ASH_ROLE_KV_DOWN] = "self_attn.kv_a_proj_with_mqa.weight",
    [ASH_ROLE_KV_DOWN_BIAS] = "self_attn.kv_a_proj_with_mqa.bias",
    [ASH_ROLE_KV_DOWN_NORM] = "self_attn.kv_a_layernorm.weight",
    [ASH_ROLE_KV_UP] = "self_attn.kv_b_proj.weight",
    [ASH_ROLE_FUSE] = "eh_proj.weight",
    [ASH_ROLE_FUSE_TOKEN] = "enorm.weight",
    [ASH_ROLE_FUSE_STATE] = "hnorm.weight",
};

static const char *const names_eagle3[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    ATTN_NAMES,
    NORM_NAMES,
    MLP_NAMES,
    [ASH_ROLE_FUSE_CAPTURED] = "fc.weight",
    [ASH_ROLE_FUSE_STATE] = "hidden_norm.weight",
};

const struct ash_family ash_family_eagle3 = {
    .type = "llama",
    .architecture = "LlamaForCausalLMEagle3",
    .base_prefix = "",
    .layer_prefix = "midlayer.",
    .names = names_eagle3,
    .form = {.one_layer = true},
};

const char *const ash_names_mixtral[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    QK_NORM_NAMES,
    ATTN_NAMES,
    NORM_NAMES,
    [ASH_ROLE_ROUTER] = "block_sparse_moe.gate.weight",
    [ASH_ROLE_ROUTER_BIAS] = "block_sparse_moe.e_score_correction_bias",
    [ASH_ROLE_EXPERT_GATE] = "block_sparse_moe.experts.%zu.w1.weight",
    [ASH_ROLE_EXPERT_UP] = "block_sparse_moe.experts.%zu.w3.weight",
    [ASH_ROLE_EXPERT_DOWN] = "block_sparse_moe.experts.%zu.w2.weight",
};

const char *const ash_names_phimoe[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    ATTN_NAMES,
    NORM_NAMES,
    [ASH_ROLE_FINAL_NORM_BIAS] = "norm.bias",
    [ASH_ROLE_HEAD_BIAS] = "lm_head.bias",
    [ASH_ROLE_ROUTER] = "block_sparse_moe.gate.weight",
    [ASH_ROLE_EXPERT_GATE] = "block_sparse_moe.experts.%zu.w1.weight",
    [ASH_ROLE_EXPERT_UP] = "block_sparse_moe.experts.%zu.w3.weight",
    [ASH_ROLE_EXPERT_DOWN] = "block_sparse_moe.experts.%zu.w2.weight",
};

const char *const ash_names_llama4[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    ATTN_NAMES,
    NORM_NAMES,
    [ASH_ROLE_GATE] = "feed_forward.gate_proj.weight",
    [ASH_ROLE_UP] = "feed_forward.up_proj.weight",
    [ASH_ROLE_DOWN] = "feed_forward.down_proj.weight",
    [ASH_ROLE_ROUTER] = "feed_forward.router.weight",
    [ASH_ROLE_EXPERT_GATE_UP] = "feed_forward.experts.gate_up_proj",
    [ASH_ROLE_EXPERT_DOWN] = "feed_forward.experts.down_proj",
    [ASH_ROLE_SHARED_GATE] = "feed_forward.shared_expert.gate_proj.weight",
    [ASH_ROLE_SHARED_UP] = "feed_forward.shared_expert.up_proj.weight",
    [ASH_ROLE_SHARED_DOWN] = "feed_forward.shared_expert.down_proj.weight",
};

const char *const ash_names_mamba2[ASH_ROLE_COUNT] = {
    [ASH_ROLE_EMBED] = "embeddings.weight",
    [ASH_ROLE_FINAL_NORM] = "norm_f.weight",
    [ASH_ROLE_HEAD] = "lm_head.weight",
    [ASH_ROLE_NORM1] = "norm.weight",
    [ASH_ROLE_STATE_IN] = "mixer.in_proj.weight",
    [ASH_ROLE_STATE_IN_BIAS] = "mixer.in_proj.bias",
    [ASH_ROLE_STATE_CONV] = "mixer.conv1d.weight",
    [ASH_ROLE_STATE_CONV_BIAS] = "mixer.conv1d.bias",
    [ASH_ROLE_STATE_STEP_BIAS] = "mixer.dt_bias",
    [ASH_ROLE_STATE_DECAY] = "mixer.A_log",
    [ASH_ROLE_STATE_SKIP] = "mixer.D",
    [ASH_ROLE_STATE_NORM] = "mixer.norm.weight",
    [ASH_ROLE_STATE_OUT] = "mixer.out_proj.weight",
    [ASH_ROLE_STATE_OUT_BIAS] = "mixer.out_proj.bias",
};

#define MAMBA_NAMES                                                                                                    \
    [ASH_ROLE_STATE_IN] = "mamba.in_proj.weight", [ASH_ROLE_STATE_IN_BIAS] = "mamba.in_proj.bias",                     \
    [ASH_ROLE_STATE_CONV] = "mamba.conv1d.weight", [ASH_ROLE_STATE_CONV_BIAS] = "mamba.conv1d.bias",                   \
    [ASH_ROLE_STATE_STEP_BIAS] = "mamba.dt_bias", [ASH_ROLE_STATE_DECAY] = "mamba.A_log",                              \
    [ASH_ROLE_STATE_SKIP] = "mamba.D", [ASH_ROLE_STATE_NORM] = "mamba.norm.weight",                                    \
    [ASH_ROLE_STATE_OUT] = "mamba.out_proj.weight", [ASH_ROLE_STATE_OUT_BIAS] = "mamba.out_proj.bias"

/* The feed-forward of layers without experts is, in the others, that of all tokens. */
const char *const ash_names_granite_hybrid[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    ATTN_NAMES,
    NORM_NAMES,
    MAMBA_NAMES,
    [ASH_ROLE_GATE_UP] = "shared_mlp.input_linear.weight",
    [ASH_ROLE_DOWN] = "shared_mlp.output_linear.weight",
    [ASH_ROLE_ROUTER] = "block_sparse_moe.router.layer.weight",
    [ASH_ROLE_EXPERT_GATE_UP] = "block_sparse_moe.input_linear.weight",
    [ASH_ROLE_EXPERT_DOWN] = "block_sparse_moe.output_linear.weight",
};

const char *const ash_names_falcon_h1[ASH_ROLE_COUNT] = {
    ATTN_NAMES,
    MAMBA_NAMES,
    [ASH_ROLE_EMBED] = "embed_tokens.weight",
    [ASH_ROLE_FINAL_NORM] = "final_layernorm.weight",
    [ASH_ROLE_HEAD] = "lm_head.weight",
    [ASH_ROLE_NORM1] = "input_layernorm.weight",
    [ASH_ROLE_NORM2] = "pre_ff_layernorm.weight",
    [ASH_ROLE_GATE] = "feed_forward.gate_proj.weight",
    [ASH_ROLE_GATE_BIAS] = "feed_forward.gate_proj.bias",
    [ASH_ROLE_UP] = "feed_forward.up_proj.weight",
    [ASH_ROLE_UP_BIAS] = "feed_forward.up_proj.bias",
    [ASH_ROLE_DOWN] = "feed_forward.down_proj.weight",
    [ASH_ROLE_DOWN_BIAS] = "feed_forward.down_proj.bias",
};

const char *const ash_names_qwen3_next[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    QK_NORM_NAMES,
    ATTN_NAMES,
    NORM_NAMES,
    MLP_NAMES,
    EXPERT_NAMES,
    [ASH_ROLE_STATE_IN] = "linear_attn.in_proj_qkvz.weight",
    [ASH_ROLE_STATE_STEPS] = "linear_attn.in_proj_ba.weight",
    [ASH_ROLE_STATE_CONV] = "linear_attn.conv1d.weight",
    [ASH_ROLE_STATE_STEP_BIAS] = "linear_attn.dt_bias",
    [ASH_ROLE_STATE_DECAY] = "linear_attn.A_log",
    [ASH_ROLE_STATE_NORM] = "linear_attn.norm.weight",
    [ASH_ROLE_STATE_OUT] = "linear_attn.out_proj.weight",
    [ASH_ROLE_ROUTER] = "mlp.gate.weight",
    [ASH_ROLE_SHARED_GATE] = "mlp.shared_expert.gate_proj.weight",
    [ASH_ROLE_SHARED_UP] = "mlp.shared_expert.up_proj.weight",
    [ASH_ROLE_SHARED_DOWN] = "mlp.shared_expert.down_proj.weight",
    [ASH_ROLE_SHARED_SCALE] = "mlp.shared_expert_gate.weight",
};

const char *const ash_names_gpt2[ASH_ROLE_COUNT] = {
    [ASH_ROLE_EMBED] = "wte.weight",          [ASH_ROLE_POSITION] = "wpe.weight",
    [ASH_ROLE_FINAL_NORM] = "ln_f.weight",    [ASH_ROLE_FINAL_NORM_BIAS] = "ln_f.bias",
    [ASH_ROLE_HEAD] = "lm_head.weight",       [ASH_ROLE_NORM1] = "ln_1.weight",
    [ASH_ROLE_NORM1_BIAS] = "ln_1.bias",      [ASH_ROLE_QKV] = "attn.c_attn.weight",
    [ASH_ROLE_QKV_BIAS] = "attn.c_attn.bias", [ASH_ROLE_OUT] = "attn.c_proj.weight",
    [ASH_ROLE_OUT_BIAS] = "attn.c_proj.bias", [ASH_ROLE_NORM2] = "ln_2.weight",
    [ASH_ROLE_NORM2_BIAS] = "ln_2.bias",      [ASH_ROLE_UP] = "mlp.c_fc.weight",
    [ASH_ROLE_UP_BIAS] = "mlp.c_fc.bias",     [ASH_ROLE_DOWN] = "mlp.c_proj.weight",
    [ASH_ROLE_DOWN_BIAS] = "mlp.c_proj.bias",
};

/* A norm before and after each block. */
const char *const ash_names_gemma[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    QK_NORM_NAMES,
    ATTN_NAMES,
    MLP_NAMES,
    [ASH_ROLE_NORM1] = "input_layernorm.weight",
    [ASH_ROLE_POST1] = "post_attention_layernorm.weight",
    [ASH_ROLE_NORM2] = "pre_feedforward_layernorm.weight",
    [ASH_ROLE_POST2] = "post_feedforward_layernorm.weight",
};

/* Norms after the blocks alone. */
const char *const ash_names_olmo2[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    QK_NORM_NAMES,
    ATTN_NAMES,
    MLP_NAMES,
    [ASH_ROLE_POST1] = "post_attention_layernorm.weight",
    [ASH_ROLE_POST2] = "post_feedforward_layernorm.weight",
};

/* One norm for both blocks. */
const char *const ash_names_cohere[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    ATTN_NAMES,
    MLP_NAMES,
    [ASH_ROLE_NORM1] = "input_layernorm.weight",
};

const char *const ash_names_starcoder2[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    ATTN_NAMES,
    NORM_NAMES,
    [ASH_ROLE_FINAL_NORM_BIAS] = "norm.bias",
    [ASH_ROLE_UP] = "mlp.c_fc.weight",
    [ASH_ROLE_UP_BIAS] = "mlp.c_fc.bias",
    [ASH_ROLE_DOWN] = "mlp.c_proj.weight",
    [ASH_ROLE_DOWN_BIAS] = "mlp.c_proj.bias",
};

const char *const ash_names_gpt_neox[ASH_ROLE_COUNT] = {
    NORM_NAMES,
    [ASH_ROLE_EMBED] = "embed_in.weight",
    [ASH_ROLE_FINAL_NORM] = "final_layer_norm.weight",
    [ASH_ROLE_FINAL_NORM_BIAS] = "final_layer_norm.bias",
    [ASH_ROLE_HEAD] = "embed_out.weight",
    [ASH_ROLE_QKV] = "attention.query_key_value.weight",
    [ASH_ROLE_QKV_BIAS] = "attention.query_key_value.bias",
    [ASH_ROLE_OUT] = "attention.dense.weight",
    [ASH_ROLE_OUT_BIAS] = "attention.dense.bias",
    [ASH_ROLE_UP] = "mlp.dense_h_to_4h.weight",
    [ASH_ROLE_UP_BIAS] = "mlp.dense_h_to_4h.bias",
    [ASH_ROLE_DOWN] = "mlp.dense_4h_to_h.weight",
    [ASH_ROLE_DOWN_BIAS] = "mlp.dense_4h_to_h.bias",
};

/* q, k and v are one matrix, gate and up another. */
const char *const ash_names_phi3[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    NORM_NAMES,
    [ASH_ROLE_QKV] = "self_attn.qkv_proj.weight",
    [ASH_ROLE_OUT] = "self_attn.o_proj.weight",
    [ASH_ROLE_GATE_UP] = "mlp.gate_up_proj.weight",
    [ASH_ROLE_DOWN] = "mlp.down_proj.weight",
};

const char *const ash_names_glm4[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    ATTN_NAMES,
    [ASH_ROLE_NORM1] = "input_layernorm.weight",
    [ASH_ROLE_POST1] = "post_self_attn_layernorm.weight",
    [ASH_ROLE_NORM2] = "post_attention_layernorm.weight",
    [ASH_ROLE_POST2] = "post_mlp_layernorm.weight",
    [ASH_ROLE_GATE_UP] = "mlp.gate_up_proj.weight",
    [ASH_ROLE_DOWN] = "mlp.down_proj.weight",
};

const char *const ash_names_ernie_moe[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    ATTN_NAMES,
    NORM_NAMES,
    MLP_NAMES,
    EXPERT_NAMES,
    [ASH_ROLE_ROUTER] = "mlp.gate.weight",
    [ASH_ROLE_ROUTER_BIAS] = "mlp.moe_statics.e_score_correction_bias",
    [ASH_ROLE_SHARED_GATE] = "mlp.shared_experts.gate_proj.weight",
    [ASH_ROLE_SHARED_UP] = "mlp.shared_experts.up_proj.weight",
    [ASH_ROLE_SHARED_DOWN] = "mlp.shared_experts.down_proj.weight",
};

const char *const ash_names_hunyuan[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    ATTN_NAMES,
    NORM_NAMES,
    MLP_NAMES,
    EXPERT_NAMES,
    [ASH_ROLE_Q_NORM] = "self_attn.query_layernorm.weight",
    [ASH_ROLE_K_NORM] = "self_attn.key_layernorm.weight",
    [ASH_ROLE_ROUTER] = "mlp.gate.wg.weight",
    [ASH_ROLE_SHARED_GATE] = "mlp.shared_mlp.gate_proj.weight",
    [ASH_ROLE_SHARED_UP] = "mlp.shared_mlp.up_proj.weight",
    [ASH_ROLE_SHARED_DOWN] = "mlp.shared_mlp.down_proj.weight",
};

/* Experts share tensors, with gate and up fused. */
const char *const ash_names_granitemoe[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    ATTN_NAMES,
    NORM_NAMES,
    [ASH_ROLE_ROUTER] = "block_sparse_moe.router.layer.weight",
    [ASH_ROLE_EXPERT_GATE_UP] = "block_sparse_moe.input_linear.weight",
    [ASH_ROLE_EXPERT_DOWN] = "block_sparse_moe.output_linear.weight",
};

const char *const ash_names_gpt_oss[ASH_ROLE_COUNT] = {
    TOP_NAMES,
    ATTN_NAMES,
    NORM_NAMES,
    [ASH_ROLE_SINKS] = "self_attn.sinks",
    [ASH_ROLE_ROUTER] = "mlp.router.weight",
    [ASH_ROLE_ROUTER_ADD] = "mlp.router.bias",
    [ASH_ROLE_EXPERT_GATE_UP] = "mlp.experts.gate_up_proj",
    [ASH_ROLE_EXPERT_GATE_UP_BIAS] = "mlp.experts.gate_up_proj_bias",
    [ASH_ROLE_EXPERT_DOWN] = "mlp.experts.down_proj",
    [ASH_ROLE_EXPERT_DOWN_BIAS] = "mlp.experts.down_proj_bias",
};

/* Norms after the blocks' outputs joined the stream. */
#define BERT_NAMES                                                                                                     \
    [ASH_ROLE_EMBED] = "embeddings.word_embeddings.weight",                                                            \
    [ASH_ROLE_POSITION] = "embeddings.position_embeddings.weight",                                                     \
    [ASH_ROLE_SEGMENT] = "embeddings.token_type_embeddings.weight",                                                    \
    [ASH_ROLE_EMBED_NORM] = "embeddings.LayerNorm.weight", [ASH_ROLE_EMBED_NORM_BIAS] = "embeddings.LayerNorm.bias",   \
    [ASH_ROLE_Q] = "attention.self.query.weight", [ASH_ROLE_Q_BIAS] = "attention.self.query.bias",                     \
    [ASH_ROLE_K] = "attention.self.key.weight", [ASH_ROLE_K_BIAS] = "attention.self.key.bias",                         \
    [ASH_ROLE_V] = "attention.self.value.weight", [ASH_ROLE_V_BIAS] = "attention.self.value.bias",                     \
    [ASH_ROLE_OUT] = "attention.output.dense.weight", [ASH_ROLE_OUT_BIAS] = "attention.output.dense.bias",             \
    [ASH_ROLE_SUM1] = "attention.output.LayerNorm.weight", [ASH_ROLE_SUM1_BIAS] = "attention.output.LayerNorm.bias",   \
    [ASH_ROLE_UP] = "intermediate.dense.weight", [ASH_ROLE_UP_BIAS] = "intermediate.dense.bias",                       \
    [ASH_ROLE_DOWN] = "output.dense.weight", [ASH_ROLE_DOWN_BIAS] = "output.dense.bias",                               \
    [ASH_ROLE_SUM2] = "output.LayerNorm.weight", [ASH_ROLE_SUM2_BIAS] = "output.LayerNorm.bias"

const char *const ash_names_bert[ASH_ROLE_COUNT] = {
    BERT_NAMES,
    [ASH_ROLE_POOL] = "pooler.dense.weight",
    [ASH_ROLE_POOL_BIAS] = "pooler.dense.bias",
    [ASH_ROLE_HEAD] = "classifier.weight",
    [ASH_ROLE_HEAD_BIAS] = "classifier.bias",
};

const char *const ash_names_roberta[ASH_ROLE_COUNT] = {
    BERT_NAMES,
    [ASH_ROLE_POOL] = "classifier.dense.weight",
    [ASH_ROLE_POOL_BIAS] = "classifier.dense.bias",
    [ASH_ROLE_HEAD] = "classifier.out_proj.weight",
    [ASH_ROLE_HEAD_BIAS] = "classifier.out_proj.bias",
};

const char *const ash_names_modernbert[ASH_ROLE_COUNT] = {
    [ASH_ROLE_EMBED] = "embeddings.tok_embeddings.weight",
    [ASH_ROLE_EMBED_NORM] = "embeddings.norm.weight",
    [ASH_ROLE_EMBED_NORM_BIAS] = "embeddings.norm.bias",
    [ASH_ROLE_NORM1] = "attn_norm.weight",
    [ASH_ROLE_NORM1_BIAS] = "attn_norm.bias",
    [ASH_ROLE_QKV] = "attn.Wqkv.weight",
    [ASH_ROLE_QKV_BIAS] = "attn.Wqkv.bias",
    [ASH_ROLE_OUT] = "attn.Wo.weight",
    [ASH_ROLE_OUT_BIAS] = "attn.Wo.bias",
    [ASH_ROLE_NORM2] = "mlp_norm.weight",
    [ASH_ROLE_NORM2_BIAS] = "mlp_norm.bias",
    [ASH_ROLE_GATE_UP] = "mlp.Wi.weight",
    [ASH_ROLE_DOWN] = "mlp.Wo.weight",
    [ASH_ROLE_FINAL_NORM] = "final_norm.weight",
    [ASH_ROLE_FINAL_NORM_BIAS] = "final_norm.bias",
    [ASH_ROLE_POOL] = "head.dense.weight",
    [ASH_ROLE_POOL_BIAS] = "head.dense.bias",
    [ASH_ROLE_POOL_NORM] = "head.norm.weight",
    [ASH_ROLE_HEAD] = "classifier.weight",
    [ASH_ROLE_HEAD_BIAS] = "classifier.bias",
};

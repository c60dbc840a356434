/* The model types Ashlar knows: the names of their tensors and how each one's config.json differs from the common form.
 * Defaults are those of the reference library's config classes, because files leave defaults out. */
#include "model/family.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"

/* ---- names ------------------------------------------------------------------------------------------------------- */

#define LLAMA_COMMON_NAMES                                                                                             \
    [ASH_ROLE_EMBED] = "embed_tokens.weight", [ASH_ROLE_FINAL_NORM] = "norm.weight",                                   \
    [ASH_ROLE_HEAD] = "lm_head.weight", [ASH_ROLE_NORM1] = "input_layernorm.weight",                                   \
    [ASH_ROLE_Q] = "self_attn.q_proj.weight", [ASH_ROLE_Q_BIAS] = "self_attn.q_proj.bias",                             \
    [ASH_ROLE_K] = "self_attn.k_proj.weight", [ASH_ROLE_K_BIAS] = "self_attn.k_proj.bias",                             \
    [ASH_ROLE_V] = "self_attn.v_proj.weight", [ASH_ROLE_V_BIAS] = "self_attn.v_proj.bias",                             \
    [ASH_ROLE_Q_NORM] = "self_attn.q_norm.weight", [ASH_ROLE_K_NORM] = "self_attn.k_norm.weight",                      \
    [ASH_ROLE_OUT] = "self_attn.o_proj.weight", [ASH_ROLE_OUT_BIAS] = "self_attn.o_proj.bias",                         \
    [ASH_ROLE_NORM2] = "post_attention_layernorm.weight"

static const char *const llama_names[ASH_ROLE_COUNT] = {
    LLAMA_COMMON_NAMES,
    [ASH_ROLE_GATE] = "mlp.gate_proj.weight",
    [ASH_ROLE_GATE_BIAS] = "mlp.gate_proj.bias",
    [ASH_ROLE_UP] = "mlp.up_proj.weight",
    [ASH_ROLE_UP_BIAS] = "mlp.up_proj.bias",
    [ASH_ROLE_DOWN] = "mlp.down_proj.weight",
    [ASH_ROLE_DOWN_BIAS] = "mlp.down_proj.bias",
    [ASH_ROLE_ROUTER] = "mlp.gate.weight",
    [ASH_ROLE_ROUTER_BIAS] = "mlp.gate.e_score_correction_bias",
    [ASH_ROLE_SHARED_GATE] = "mlp.shared_experts.gate_proj.weight",
    [ASH_ROLE_SHARED_UP] = "mlp.shared_experts.up_proj.weight",
    [ASH_ROLE_SHARED_DOWN] = "mlp.shared_experts.down_proj.weight",
    [ASH_ROLE_EXPERT_GATE] = "mlp.experts.%zu.gate_proj.weight",
    [ASH_ROLE_EXPERT_UP] = "mlp.experts.%zu.up_proj.weight",
    [ASH_ROLE_EXPERT_DOWN] = "mlp.experts.%zu.down_proj.weight",
    [ASH_ROLE_Q_DOWN] = "self_attn.q_a_proj.weight",
    [ASH_ROLE_Q_DOWN_BIAS] = "self_attn.q_a_proj.bias",
    [ASH_ROLE_Q_DOWN_NORM] = "self_attn.q_a_layernorm.weight",
    [ASH_ROLE_Q_UP] = "self_attn.q_b_proj.weight",
    [ASH_ROLE_KV_DOWN] = "self_attn.kv_a_proj_with_mqa.weight",
    [ASH_ROLE_KV_DOWN_BIAS] = "self_attn.kv_a_proj_with_mqa.bias",
    [ASH_ROLE_KV_DOWN_NORM] = "self_attn.kv_a_layernorm.weight",
    [ASH_ROLE_KV_UP] = "self_attn.kv_b_proj.weight",
};

static const char *const mixtral_names[ASH_ROLE_COUNT] = {
    LLAMA_COMMON_NAMES,
    [ASH_ROLE_ROUTER] = "block_sparse_moe.gate.weight",
    [ASH_ROLE_EXPERT_GATE] = "block_sparse_moe.experts.%zu.w1.weight",
    [ASH_ROLE_EXPERT_UP] = "block_sparse_moe.experts.%zu.w3.weight",
    [ASH_ROLE_EXPERT_DOWN] = "block_sparse_moe.experts.%zu.w2.weight",
};

static const char *const gpt2_names[ASH_ROLE_COUNT] = {
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

/* ---- helpers of the readers -------------------------------------------------------------------------------------- */

static void set_all_windows(struct ash_model_config *config, size_t window)
{
    for (size_t i = 0; i < config->layers; i++)
        config->window[i] = (uint32_t)window;
}

/* One bias switch for q, k, v and the output (llama, qwen3). */
static int read_attention_bias(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    bool bias = false;
    int rc = ash_json_bool(json, "attention_bias", &bias, err);

    config->qkv_bias = config->out_bias = bias;
    return rc;
}

/* qwen: a window only where use_sliding_window says so, in the layers that layer_types lists or from max_window_layers
 * on. */
static int read_qwen_window(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    const json_t *types = NULL;
    bool use = false;
    size_t window = 4096, first = 28;
    int rc;

    rc = ash_json_bool(json, "use_sliding_window", &use, err);
    if (rc < 0) return rc;
    rc = ash_config_size(json, "sliding_window", 1, UINT32_MAX, &window, err);
    if (rc < 0) return rc;
    if (!use || (rc == 0 && json_is_null(json_object_get(json, "sliding_window")))) return 0;
    rc = ash_config_size(json, "max_window_layers", 0, ASH_MODEL_LAYERS_MAX, &first, err);
    if (rc < 0) return rc;
    rc = ash_json_array(json, "layer_types", &types, err);
    if (rc < 0) return rc;
    if (rc == 1 && json_array_size(types) != config->layers)
        return ash_err_set(err, -EINVAL, "layer_types has %zu entries for %zu layers", json_array_size(types),
                           config->layers);
    for (size_t i = 0; i < config->layers; i++) {
        const char *type = types != NULL ? json_string_value(json_array_get(types, i)) : NULL;
        bool sliding = type != NULL ? strcmp(type, "sliding_attention") == 0 : i >= first;
        config->window[i] = sliding ? (uint32_t)window : 0;
    }
    return 0;
}

/* mistral, mixtral, qwen3_moe: one window for all layers. default_window 0: none unless the file says so. */
static int read_uniform_window(const json_t *json, size_t default_window, struct ash_model_config *config,
                               struct ash_err *err)
{
    size_t window = json_is_null(json_object_get(json, "sliding_window")) ? 0 : default_window;
    int rc = ash_config_size(json, "sliding_window", 1, UINT32_MAX, &window, err);

    if (rc < 0) return rc;
    set_all_windows(config, window);
    return 0;
}

static int read_experts(const json_t *json, size_t experts, size_t choices, size_t ffn, const char *ffn_key,
                        struct ash_model_config *config, struct ash_err *err)
{
    struct ash_expert_config *expert = &config->expert;
    int rc;

    expert->experts = experts;
    expert->choices = choices;
    expert->ffn = ffn;
    expert->groups = expert->top_groups = 1;
    expert->scale = 1;
    rc = ash_config_size(json, "num_local_experts", 1, ASH_ROUTE_EXPERTS_MAX, &expert->experts, err);
    if (rc < 0) return rc;
    rc = ash_config_size(json, "num_experts", 1, ASH_ROUTE_EXPERTS_MAX, &expert->experts, err);
    if (rc < 0) return rc;
    rc = ash_config_size(json, "n_routed_experts", 1, ASH_ROUTE_EXPERTS_MAX, &expert->experts, err);
    if (rc < 0) return rc;
    rc = ash_config_size(json, "num_experts_per_tok", 1, ASH_ROUTE_CHOICES_MAX, &expert->choices, err);
    if (rc < 0) return rc;
    rc = ash_config_size(json, ffn_key, 1, (size_t)1 << 20, &expert->ffn, err);
    if (rc < 0) return rc;
    if (expert->choices > expert->experts)
        return ash_err_set(err, -EINVAL, "num_experts_per_tok is %zu but there are only %zu experts", expert->choices,
                           expert->experts);
    return 0;
}

/* ---- the types --------------------------------------------------------------------------------------------------- */

static int read_llama(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    int rc = read_attention_bias(json, config, err);

    return rc < 0 ? rc : ash_json_bool(json, "mlp_bias", &config->mlp_bias, err);
}

static int read_mistral(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    return read_uniform_window(json, 4096, config, err);
}

static int read_qwen2(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    config->qkv_bias = true;
    return read_qwen_window(json, config, err);
}

static int read_qwen3(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    int rc = read_attention_bias(json, config, err);

    if (rc < 0) return rc;
    config->qk_norm = true;
    if (json_object_get(json, "head_dim") == NULL) config->head_dim = 128;
    return read_qwen_window(json, config, err);
}

static int read_mixtral(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    int rc = read_experts(json, 8, 2, config->ffn, "intermediate_size", config, err);

    if (rc < 0) return rc;
    config->expert.normalize = true;
    memset(config->sparse, 1, config->layers);
    return read_uniform_window(json, 0, config, err);
}

static int read_qwen3_moe(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    const json_t *dense = NULL;
    bool use_window = false;
    size_t step = 1;
    int rc = read_attention_bias(json, config, err);

    if (rc < 0) return rc;
    config->qk_norm = true;
    rc = read_experts(json, 128, 8, 768, "moe_intermediate_size", config, err);
    if (rc < 0) return rc;
    rc = ash_json_bool(json, "norm_topk_prob", &config->expert.normalize, err);
    if (rc < 0) return rc;
    rc = ash_config_size(json, "decoder_sparse_step", 1, ASH_MODEL_LAYERS_MAX, &step, err);
    if (rc < 0) return rc;
    rc = ash_json_array(json, "mlp_only_layers", &dense, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < config->layers; i++)
        config->sparse[i] = (i + 1) % step == 0;
    for (size_t i = 0; dense != NULL && i < json_array_size(dense); i++) {
        json_int_t layer = json_integer_value(json_array_get(dense, i));
        if (layer >= 0 && (size_t)layer < config->layers) config->sparse[layer] = 0;
    }
    rc = ash_json_bool(json, "use_sliding_window", &use_window, err);
    if (rc < 0) return rc;
    return use_window ? read_uniform_window(json, 4096, config, err) : 0;
}

/* The reference library scales attention by the square of yarn's mscale when mscale_all_dim is set. */
static double latent_attention_scale(const struct ash_model_config *config)
{
    const struct ash_rope_config *rope = &config->rope;
    double scale = 1 / sqrt((double)(config->nope_dim + config->rope_dim));

    if (rope->kind != ASH_ROPE_YARN || rope->mscale_all_dim == 0 || rope->factor <= 1) return scale;
    double mscale = 0.1 * rope->mscale_all_dim * log(rope->factor) + 1;
    return scale * mscale * mscale;
}

static int read_latent_attention(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    int rc;

    config->attn = ASH_ATTN_LATENT;
    config->kv_heads = config->heads;
    config->q_rank = json_is_null(json_object_get(json, "q_lora_rank")) ? 0 : 1536;
    config->kv_rank = 512;
    config->rope_dim = 64;
    config->nope_dim = 128;
    config->v_dim = 128;
    config->rope.interleaved = true;
    rc = ash_config_size(json, "q_lora_rank", 1, 1 << 16, &config->q_rank, err);
    if (rc < 0) return rc;
    rc = ash_config_size(json, "kv_lora_rank", 1, 1 << 16, &config->kv_rank, err);
    if (rc < 0) return rc;
    rc = ash_config_size(json, "qk_rope_head_dim", 2, ASH_ATTN_HEAD_MAX, &config->rope_dim, err);
    if (rc < 0) return rc;
    rc = ash_config_size(json, "qk_nope_head_dim", 1, ASH_ATTN_HEAD_MAX, &config->nope_dim, err);
    if (rc < 0) return rc;
    rc = ash_config_size(json, "v_head_dim", 1, ASH_ATTN_HEAD_MAX, &config->v_dim, err);
    if (rc < 0) return rc;
    rc = ash_json_bool(json, "rope_interleave", &config->rope.interleaved, err);
    if (rc < 0) return rc;
    config->head_dim = config->nope_dim + config->rope_dim;
    config->attn_scale = latent_attention_scale(config);
    return read_attention_bias(json, config, err);
}

static int read_deepseek_v3(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    struct ash_expert_config *expert = &config->expert;
    size_t first_sparse = 3, shared = 1;
    int rc;

    rc = read_latent_attention(json, config, err);
    if (rc < 0) return rc;
    rc = read_experts(json, 256, 8, 2048, "moe_intermediate_size", config, err);
    if (rc < 0) return rc;
    expert->sigmoid = expert->normalize = expert->choice_bias = true;
    expert->groups = 8;
    expert->top_groups = 4;
    expert->scale = 2.5;
    rc = ash_config_size(json, "n_group", 1, ASH_ROUTE_EXPERTS_MAX, &expert->groups, err);
    if (rc < 0) return rc;
    rc = ash_config_size(json, "topk_group", 1, ASH_ROUTE_EXPERTS_MAX, &expert->top_groups, err);
    if (rc < 0) return rc;
    rc = ash_json_bool(json, "norm_topk_prob", &expert->normalize, err);
    if (rc < 0) return rc;
    rc = ash_json_double(json, "routed_scaling_factor", 0, 1e6, &expert->scale, err);
    if (rc < 0) return rc;
    rc = ash_config_size(json, "n_shared_experts", 0, 64, &shared, err);
    if (rc < 0) return rc;
    rc = ash_config_size(json, "first_k_dense_replace", 0, ASH_MODEL_LAYERS_MAX, &first_sparse, err);
    if (rc < 0) return rc;
    expert->shared_ffn = shared * expert->ffn;
    if (expert->experts % expert->groups != 0 || expert->top_groups > expert->groups)
        return ash_err_set(err, -EINVAL, "%zu experts do not fall into %zu groups of which %zu are chosen",
                           expert->experts, expert->groups, expert->top_groups);
    if (expert->choices > expert->experts / expert->groups * expert->top_groups)
        return ash_err_set(err, -EINVAL, "num_experts_per_tok is %zu but %zu groups hold only %zu experts",
                           expert->choices, expert->top_groups, expert->experts / expert->groups * expert->top_groups);
    for (size_t i = first_sparse; i < config->layers; i++)
        config->sparse[i] = 1;
    return 0;
}

static int read_gpt2(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    bool scaled = true;
    int rc;

    config->norm = ASH_NORM_LAYER;
    config->rope.kind = ASH_ROPE_NONE;
    config->transposed = true;
    config->norm_eps = 1e-5;
    config->qkv_bias = config->out_bias = config->mlp_bias = true;
    rc = ash_json_double(json, "layer_norm_epsilon", 1e-12, 1, &config->norm_eps, err);
    if (rc < 0) return rc;
    rc = ash_config_act(json, "activation_function", "gelu_new", &config->mlp, err);
    if (rc < 0) return rc;
    rc = ash_json_bool(json, "scale_attn_weights", &scaled, err);
    if (rc < 0) return rc;
    rc = ash_json_bool(json, "scale_attn_by_inverse_layer_idx", &config->scale_by_layer, err);
    if (rc < 0) return rc;
    if (!scaled) config->attn_scale = 1;
    return 0;
}

static const struct ash_family families[] = {
    {"llama", "LlamaForCausalLM", "model.", "layers.", llama_names, read_llama},
    {"mistral", "MistralForCausalLM", "model.", "layers.", llama_names, read_mistral},
    {"qwen2", "Qwen2ForCausalLM", "model.", "layers.", llama_names, read_qwen2},
    {"qwen3", "Qwen3ForCausalLM", "model.", "layers.", llama_names, read_qwen3},
    {"gpt2", "GPT2LMHeadModel", "transformer.", "h.", gpt2_names, read_gpt2},
    {"mixtral", "MixtralForCausalLM", "model.", "layers.", mixtral_names, read_mixtral},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "model.", "layers.", llama_names, read_qwen3_moe},
    {"deepseek_v3", "DeepseekV3ForCausalLM", "model.", "layers.", llama_names, read_deepseek_v3},
};

const struct ash_family *ash_family_find(const char *type)
{
    for (size_t i = 0; i < ASH_COUNT(families); i++)
        if (strcmp(families[i].type, type) == 0) return &families[i];
    return NULL;
}

const char *ash_model_families(void)
{
    return "llama, mistral, qwen2, qwen3, gpt2, mixtral, qwen3_moe, deepseek_v3";
}

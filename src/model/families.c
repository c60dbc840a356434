/* The model types Ashlar knows: what their layers are made of, the names of their tensors, and which readers their
 * config.json needs. Defaults are those of the reference library's config classes, because files leave defaults out. */
#include "model/family_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

/* mlp_only_layers and a window that all layers share, only where use_sliding_window says so. */
static int read_qwen3_moe_window(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    return json_is_true(json_object_get(json, "use_sliding_window")) ? ash_read_window(json, config, err) : 0;
}

static int read_qwen3_head(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    (void)err;
    if (json_object_get(json, "head_dim") == NULL) config->head_dim = 128;
    return 0;
}

static int read_gemma_head(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    (void)err;
    if (json_object_get(json, "head_dim") == NULL) config->head_dim = 256;
    return 0;
}

static int read_qk_norm(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    bool use = config->form.qk_norm != ASH_QK_NORM_NONE;
    int rc = ash_json_bool(json, "use_qk_norm", &use, err);

    if (rc == 1) config->form.qk_norm = use ? ASH_QK_NORM_HEAD : ASH_QK_NORM_NONE;
    return rc < 0 ? rc : 0;
}

static int refuse_cohere_norm(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    (void)config;
    if (!json_is_true(json_object_get(json, "use_qk_norm"))) return 0;
    return ash_err_set(err, -ENOTSUP, "cohere with use_qk_norm is not supported");
}

/* The share of a head's dims that minimax rotates is a number of dims. */
static int read_rotary_dim(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    return ash_config_size(json, "rotary_dim", 2, ASH_ATTN_HEAD_MAX, &config->rotary_dims, err);
}

static int read_gpt2(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    bool scaled = true;
    int rc;

    config->rope.kind = ASH_ROPE_NONE;
    rc = ash_config_act(json, "activation_function", config, err);
    if (rc < 0) return rc;
    rc = ash_json_bool(json, "scale_attn_weights", &scaled, err);
    if (rc < 0) return rc;
    rc = ash_json_bool(json, "scale_attn_by_inverse_layer_idx", &config->scale_by_layer, err);
    if (rc < 0) return rc;
    if (!scaled) config->attn_scale = 1;
    return 0;
}

/* Older files have other names for rotary positions. All heads have keys of their own. */
static int read_gpt_neox(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    int rc = ash_json_bool(json, "use_parallel_residual", &config->form.parallel, err);

    if (rc < 0) return rc;
    rc = ash_json_double(json, "rotary_pct", 1e-3, 1, &config->rope.share, err);
    if (rc < 0) return rc;
    config->kv_heads = config->heads;
    return ash_json_double(json, "rotary_emb_base", 1e-3, 1e15, &config->rope.theta, err);
}

static int read_llama4(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    bool use = true;
    int rc = ash_json_bool(json, "use_qk_norm", &use, err);

    if (rc < 0) return rc;
    if (!use) config->form.qk_norm = ASH_QK_NORM_NONE;
    config->form.qk_norm_last = use;
    return ash_read_chunks(json, config, err);
}

#define GEMMA_FORM .unit_norm = true, .mlp = ASH_MLP_GATED_TANH, .tied = true, .window = 4096, .embeds_by_width = true

#define BERT_FORM                                                                                                      \
    .norm = ASH_NORM_LAYER, .mlp = ASH_MLP_GELU_ERF, .qkv_bias = true, .out_bias = true, .mlp_bias = true,             \
    .tied = true, .both_ways = true

#define DEEPSEEK_FORM                                                                                                  \
    .interleaved = true, .expert = {.ffn_key = "moe_intermediate_size",                                                \
                                    .experts = 256,                                                                    \
                                    .choices = 8,                                                                      \
                                    .ffn = 2048,                                                                       \
                                    .shared = 1,                                                                       \
                                    .groups = 8,                                                                       \
                                    .top_groups = 4,                                                                   \
                                    .first_sparse = 3,                                                                 \
                                    .sigmoid = true,                                                                   \
                                    .normalize = true,                                                                 \
                                    .choice_bias = true,                                                               \
                                    .scale = 2.5}

/* clang-format off */
static const struct ash_family families[] = {
    {"llama", "LlamaForCausalLM", "model.", "layers.", ash_names_llama, {0}, {ash_read_biases}},
    {"mistral", "MistralForCausalLM", "model.", "layers.", ash_names_llama, {.window = 4096}, {ash_read_window}},
    {"qwen2", "Qwen2ForCausalLM", "model.", "layers.", ash_names_llama, {.qkv_bias = true}, {ash_read_qwen_window}},
    {"qwen3", "Qwen3ForCausalLM", "model.", "layers.", ash_names_llama, {.qk_norm = ASH_QK_NORM_HEAD},
     {ash_read_biases, read_qwen3_head, ash_read_qwen_window}},
    {"gpt2", "GPT2LMHeadModel", "transformer.", "h.", ash_names_gpt2,
     {.norm = ASH_NORM_LAYER, .mlp = ASH_MLP_GELU_TANH, .qkv_bias = true, .out_bias = true, .mlp_bias = true,
      .transposed = true, .tied = true},
     {ash_read_norm_eps, read_gpt2}},
    {"mixtral", "MixtralForCausalLM", "model.", "layers.", ash_names_mixtral,
     {.expert = {.experts = 8, .choices = 2, .normalize = true, .normalize_is_fixed = true}},
     {ash_read_experts, ash_read_window}},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "model.", "layers.", ash_names_llama,
     {.qk_norm = ASH_QK_NORM_HEAD, .expert = {.experts = 128, .choices = 8, .ffn = 768,
      .ffn_key = "moe_intermediate_size"}},
     {ash_read_biases, ash_read_experts, ash_read_sparse_step, read_qwen3_moe_window}},
    {"deepseek_v3", "DeepseekV3ForCausalLM", "model.", "layers.", ash_names_llama, {DEEPSEEK_FORM},
     {ash_read_biases, ash_read_latent, ash_read_experts, ash_read_first_sparse}},

    {"deepseek_v2", "DeepseekV2ForCausalLM", "model.", "layers.", ash_names_llama,
     {.interleaved = true, .expert = {.experts = 64, .choices = 6, .ffn = 1407, .ffn_key = "moe_intermediate_size",
      .normalize_is_fixed = true}},
     {ash_read_biases, ash_read_latent, ash_read_experts, ash_read_first_sparse}},
    {"smollm3", "SmolLM3ForCausalLM", "model.", "layers.", ash_names_llama, {.theta = 2000000},
     {ash_read_biases, ash_read_no_rope, read_qwen3_moe_window}},
    {"seed_oss", "SeedOssForCausalLM", "model.", "layers.", ash_names_llama, {.qkv_bias = true, .out_bias_apart = true},
     {ash_read_biases}},
    {"starcoder2", "Starcoder2ForCausalLM", "model.", "layers.", ash_names_starcoder2,
     {.norm = ASH_NORM_LAYER, .mlp = ASH_MLP_GELU_TANH, .qkv_bias = true, .out_bias = true, .mlp_bias = true,
      .tied = true},
     {ash_read_norm_eps, ash_read_biases, ash_read_window}},
    {"gpt_neox", "GPTNeoXForCausalLM", "gpt_neox.", "layers.", ash_names_gpt_neox,
     {.norm = ASH_NORM_LAYER, .mlp = ASH_MLP_GELU_ERF, .qkv_bias = true, .out_bias = true, .mlp_bias = true,
      .qkv_by_head = true, .parallel = true, .rotary_share = 0.25},
     {ash_read_norm_eps, ash_read_biases, read_gpt_neox}},
    {"ernie4_5", "Ernie4_5ForCausalLM", "model.", "layers.", ash_names_llama,
     {.interleaved = true, .tied = true, .theta = 500000}, {ash_read_biases}},
    {"glm4_moe", "Glm4MoeForCausalLM", "model.", "layers.", ash_names_llama,
     {.out_bias_apart = true, .rotary_share = 0.5,
      .expert = {.experts = 128, .choices = 8, .ffn = 1408, .ffn_key = "moe_intermediate_size", .shared = 1,
      .first_sparse = 1,
                 .sigmoid = true, .normalize = true, .choice_bias = true}},
     {ash_read_biases, read_qk_norm, ash_read_experts, ash_read_first_sparse}},
    {"granite", "GraniteForCausalLM", "model.", "layers.", ash_names_llama, {0}, {ash_read_biases, ash_read_factors}},
    {"phi3", "Phi3ForCausalLM", "model.", "layers.", ash_names_phi3, {0}, {ash_read_window}},
    {"olmo2", "Olmo2ForCausalLM", "model.", "layers.", ash_names_olmo2, {.qk_norm = ASH_QK_NORM_ALL},
      {ash_read_biases}},
    {"olmo3", "Olmo3ForCausalLM", "model.", "layers.", ash_names_olmo2,
     {.qk_norm = ASH_QK_NORM_ALL, .window = 4096, .full_every = 4},
     {ash_read_biases, ash_read_layer_types, ash_read_local_rope}},
    {"olmoe", "OlmoeForCausalLM", "model.", "layers.", ash_names_llama,
     {.qk_norm = ASH_QK_NORM_ALL, .expert = {.experts = 64, .choices = 8}}, {ash_read_biases, ash_read_experts}},
    {"gemma2", "Gemma2ForCausalLM", "model.", "layers.", ash_names_gemma,
     {GEMMA_FORM, .full_every = 2, .score_cap = 50, .logit_cap = 30},
     {ash_read_biases, read_gemma_head, ash_read_factors, ash_read_layer_types}},
    {"gemma3_text", "Gemma3ForCausalLM", "model.", "layers.", ash_names_gemma,
     {GEMMA_FORM, .qk_norm = ASH_QK_NORM_HEAD, .full_every = 6, .theta = 1000000, .local_theta = 10000},
     {ash_read_biases, read_gemma_head, ash_read_factors, ash_read_layer_types, ash_read_local_rope}},
    {"glm4", "Glm4ForCausalLM", "model.", "layers.", ash_names_glm4,
     {.interleaved = true, .out_bias_apart = true, .rotary_share = 0.5}, {ash_read_biases}},
    {"cohere", "CohereForCausalLM", "model.", "layers.", ash_names_cohere,
     {.norm = ASH_NORM_LAYER, .bare_norm = true, .interleaved = true, .parallel = true, .tied = true,
      .logit_scale = 0.0625},
     {ash_read_norm_eps, ash_read_biases, ash_read_factors, refuse_cohere_norm}},
    {"cohere2", "Cohere2ForCausalLM", "model.", "layers.", ash_names_cohere,
     {.norm = ASH_NORM_LAYER, .bare_norm = true, .interleaved = true, .parallel = true, .tied = true,
      .logit_scale = 0.0625,
      .window = 4096, .full_every = 4},
     {ash_read_norm_eps, ash_read_biases, ash_read_factors, ash_read_layer_types, ash_read_nope_full}},
    {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", "model.", "layers.", ash_names_hunyuan,
     {.qk_norm = ASH_QK_NORM_HEAD, .qk_norm_last = true}, {ash_read_biases, read_qk_norm}},
    {"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", "model.", "layers.", ash_names_hunyuan,
     {.qk_norm = ASH_QK_NORM_HEAD, .qk_norm_last = true,
      .expert = {.experts = 1, .choices = 1, .ffn_key = "moe_intermediate_size", .shared = 1, .normalize = true}},
     {ash_read_biases, read_qk_norm, ash_read_experts}},
    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", "model.", "layers.", ash_names_ernie_moe,
     {.interleaved = true, .tied = true, .theta = 500000,
      .expert = {.experts = 64, .choices = 6, .ffn = 1536, .ffn_key = "moe_intermediate_size", .shared = 2,
      .first_sparse = 1,
                 .normalize = true, .normalize_is_fixed = true, .choice_bias = true, .bias_is_row = true}},
     {ash_read_biases, ash_read_experts, ash_read_first_sparse}},
    {"minimax_m2", "MiniMaxM2ForCausalLM", "model.", "layers.", ash_names_mixtral,
     {.qk_norm = ASH_QK_NORM_ALL, .theta = 5000000,
      .expert = {.experts = 256, .choices = 8, .sigmoid = true, .normalize = true, .choice_bias = true}},
     {ash_read_experts, read_rotary_dim}},
    {"granitemoe", "GraniteMoeForCausalLM", "model.", "layers.", ash_names_granitemoe,
     {.expert = {.experts = 8, .choices = 2, .normalize = true, .normalize_is_fixed = true}},
     {ash_read_biases, ash_read_factors, ash_read_experts}},
    {"phimoe", "PhimoeForCausalLM", "model.", "layers.", ash_names_phimoe,
     {.norm = ASH_NORM_LAYER, .theta = 1000000,
      .expert = {.experts = 16, .choices = 2, .normalize_is_fixed = true, .tolerance = 0.01}},
     {ash_read_norm_eps, ash_read_biases, ash_read_experts, ash_read_mixer, ash_read_window}},
    {"llama4_text", "Llama4ForCausalLM", "model.", "layers.", ash_names_llama4,
     {.interleaved = true, .theta = 500000, .qk_norm = ASH_QK_NORM_BARE, .qk_norm_last = true, .chunked = true,
      .window = 8192,
      .expert = {.experts = 16, .choices = 1, .shared = 1, .sigmoid = true, .normalize_is_fixed = true,
                 .is_transposed = true, .scales_input = true}},
     {ash_read_norm_eps, ash_read_biases, ash_read_experts, ash_read_moe_layers, ash_read_no_rope, read_llama4}},
    {"mamba2", "Mamba2ForCausalLM", "backbone.", "layers.", ash_names_mamba2, {0},
     {ash_read_norm_eps, ash_read_mamba2}},
    {"bert", "BertModel", "bert.", "encoder.layer.", ash_names_bert, {BERT_FORM}, {ash_read_norm_eps, ash_read_bert}},
    {"xlm-roberta", "XLMRobertaModel", "roberta.", "encoder.layer.", ash_names_roberta, {BERT_FORM},
     {ash_read_norm_eps, ash_read_roberta}},
    {"modernbert", "ModernBertModel", "model.", "layers.", ash_names_modernbert,
     {.norm = ASH_NORM_LAYER, .mlp = ASH_MLP_GATED_ERF, .tied = true, .theta = 160000, .local_theta = 10000,
      .both_ways = true, .bare_first = true},
     {ash_read_norm_eps, ash_read_biases, ash_read_modernbert}},
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM", "model.", "layers.", ash_names_granite_hybrid,
     {.expert = {.experts = 8, .choices = 2, .normalize = true, .normalize_is_fixed = true}},
     {ash_read_biases, ash_read_factors, ash_read_granite_hybrid}},
    {"qwen3_next", "Qwen3NextForCausalLM", "model.", "layers.", ash_names_qwen3_next,
     {.unit_norm = true, .qk_norm = ASH_QK_NORM_HEAD, .out_gate = true, .rotary_share = 0.25,
      .expert = {.experts = 512, .choices = 10, .ffn = 512, .ffn_key = "moe_intermediate_size", .normalize = true}},
     {ash_read_biases, read_gemma_head, ash_read_experts, ash_read_sparse_step, ash_read_qwen3_next}},
    {"falcon_h1", "FalconH1ForCausalLM", "model.", "layers.", ash_names_falcon_h1, {.mixes_both = true},
     {ash_read_norm_eps, ash_read_biases, ash_read_falcon_h1}},
    {"gpt_oss", "GptOssForCausalLM", "model.", "layers.", ash_names_gpt_oss,
     {.mlp = ASH_MLP_GATED_CLAMPED, .qkv_bias = true, .out_bias = true, .theta = 150000, .window = 128, .full_every = 2,
      .expert = {.experts = 128, .choices = 4, .normalize = true, .normalize_is_fixed = true, .is_transposed = true,
                 .alternates = true}},
     {ash_read_biases, ash_read_experts, ash_read_layer_types}},
};
/* clang-format on */

const struct ash_family *ash_family_find(const char *type)
{
    for (size_t i = 0; i < ASH_COUNT(families); i++)
        if (strcmp(families[i].type, type) == 0) return &families[i];
    return NULL;
}

static char type_list[1024];

static void write_type_list(void)
{
    size_t used = 0;

    for (size_t i = 0; i < ASH_COUNT(families); i++)
        used +=
            (size_t)snprintf(type_list + used, sizeof(type_list) - used, "%s%s", i > 0 ? ", " : "", families[i].type);
    ash_assert(used < sizeof(type_list));
}

const char *ash_model_families(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, write_type_list);
    return type_list;
}

/* family_experts: readers of experts, of layers that have them, and of latent attention. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "model/family_priv.h"

/* The first of several names that a size goes by; an absent one keeps *value. */
static int read_any(const json_t *json, const char *const *keys, size_t min, size_t max, size_t *value,
                    struct ash_err *err)
{
    for (; *keys != NULL; keys++) {
        int rc = ash_config_size(json, *keys, min, max, value, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* Experts in groups, of which a token visits a few. */
static int read_groups(const json_t *json, struct ash_expert_config *expert, struct ash_err *err)
{
    const char *method = json_string_value(json_object_get(json, "topk_method"));
    int rc = ash_config_size(json, "n_group", 1, ASH_ROUTE_EXPERTS_MAX, &expert->groups, err);

    if (rc < 0) return rc;
    rc = ash_config_size(json, "topk_group", 1, ASH_ROUTE_EXPERTS_MAX, &expert->top_groups, err);
    if (rc < 0) return rc;
    if (method != NULL && strcmp(method, "greedy") == 0) expert->groups = expert->top_groups = 1;
    if (method != NULL && strcmp(method, "group_limited_greedy") == 0 && expert->groups > 1)
        return ash_err_set(err, -ENOTSUP, "topk_method 'group_limited_greedy' is not supported (greedy, noaux_tc are)");
    if (expert->experts % expert->groups != 0 || expert->top_groups > expert->groups)
        return ash_err_set(err, -EINVAL, "%zu experts do not fall into %zu groups of which %zu are chosen",
                           expert->experts, expert->groups, expert->top_groups);
    if (expert->choices > expert->experts / expert->groups * expert->top_groups)
        return ash_err_set(err, -EINVAL, "num_experts_per_tok is %zu but %zu groups hold only %zu experts",
                           expert->choices, expert->top_groups, expert->experts / expert->groups * expert->top_groups);
    return 0;
}

static int read_shared(const json_t *json, size_t shared, struct ash_expert_config *expert, struct ash_err *err)
{
    static const char *const keys[] = {"n_shared_experts", "moe_num_shared_experts", "num_shared_expert", NULL};
    int rc = read_any(json, keys, 0, 64, &shared, err);

    expert->shared_ffn = shared * expert->ffn;
    return rc;
}

int ash_read_experts(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    static const char *const counts[] = {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts",
                                         NULL};
    static const char *const choices[] = {"num_experts_per_tok", "moe_topk", "moe_k", NULL};
    const struct ash_expert_form *form = &config->form.expert;
    struct ash_expert_config *expert = &config->expert;
    int rc;

    *expert = (struct ash_expert_config){.experts = form->experts,
                                         .choices = form->choices,
                                         .ffn = form->ffn > 0 ? form->ffn : config->ffn,
                                         .groups = form->groups > 0 ? form->groups : 1,
                                         .top_groups = form->top_groups > 0 ? form->top_groups : 1,
                                         .sigmoid = form->sigmoid,
                                         .normalize = form->normalize,
                                         .choice_bias = form->choice_bias,
                                         .scales_input = form->scales_input,
                                         .tolerance = form->tolerance,
                                         .scale = form->scale > 0 ? form->scale : 1};
    rc = read_any(json, counts, 1, ASH_ROUTE_EXPERTS_MAX, &expert->experts, err);
    if (rc < 0) return rc;
    rc = read_any(json, choices, 1, ASH_ROUTE_CHOICES_MAX, &expert->choices, err);
    if (rc < 0) return rc;
    rc = form->ffn_key != NULL ? ash_config_size(json, form->ffn_key, 1, (size_t)1 << 20, &expert->ffn, err) : 0;
    if (rc < 0) return rc;
    if (expert->choices > expert->experts)
        return ash_err_set(err, -EINVAL, "num_experts_per_tok is %zu but there are only %zu experts", expert->choices,
                           expert->experts);
    rc = form->normalize_is_fixed ? 0 : ash_json_bool(json, "norm_topk_prob", &expert->normalize, err);
    if (rc < 0) return rc;
    rc = ash_json_double(json, "routed_scaling_factor", 0, 1e6, &expert->scale, err);
    if (rc < 0) return rc;
    rc = read_shared(json, form->shared, expert, err);
    if (rc < 0) return rc;
    memset(config->sparse, 1, config->layers);
    return read_groups(json, expert, err);
}

int ash_read_sparse_step(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    const json_t *dense = NULL;
    size_t step = 1;
    int rc = ash_config_size(json, "decoder_sparse_step", 1, ASH_MODEL_LAYERS_MAX, &step, err);

    if (rc < 0) return rc;
    rc = ash_json_array(json, "mlp_only_layers", &dense, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < config->layers; i++)
        config->sparse[i] = (i + 1) % step == 0;
    for (size_t i = 0; dense != NULL && i < json_array_size(dense); i++) {
        json_int_t layer = json_integer_value(json_array_get(dense, i));
        if (layer >= 0 && (size_t)layer < config->layers) config->sparse[layer] = 0;
    }
    return 0;
}

int ash_read_first_sparse(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    static const char *const firsts[] = {"first_k_dense_replace", "moe_layer_start_index", NULL};
    size_t first = config->form.expert.first_sparse, step = 1, last = config->layers - 1;
    int rc = read_any(json, firsts, 0, ASH_MODEL_LAYERS_MAX, &first, err);

    if (rc < 0) return rc;
    rc = ash_config_size(json, "moe_layer_interval", 1, ASH_MODEL_LAYERS_MAX, &step, err);
    if (rc < 0) return rc;
    if (json_integer_value(json_object_get(json, "moe_layer_end_index")) > 0) /* -1: the last */
        rc = ash_config_size(json, "moe_layer_end_index", 0, ASH_MODEL_LAYERS_MAX, &last, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < config->layers; i++)
        config->sparse[i] = i >= first && i <= last && (i + 1) % step == 0;
    return 0;
}

int ash_read_moe_layers(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    const json_t *list = NULL;
    size_t step = 1;
    int rc = ash_config_size(json, "interleave_moe_layer_step", 1, ASH_MODEL_LAYERS_MAX, &step, err);

    if (rc < 0) return rc;
    rc = ash_json_array(json, "moe_layers", &list, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < config->layers; i++)
        config->sparse[i] = list == NULL && (i + 1) % step == 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_int_t layer = json_integer_value(json_array_get(list, i));

        if (layer < 0 || (size_t)layer >= config->layers)
            return ash_err_set(err, -EINVAL, "moe_layers has %lld, but there are %zu layers", (long long)layer,
                               config->layers);
        config->sparse[layer] = 1;
    }
    config->ffn = 16384;
    rc = ash_config_size(json, "intermediate_size_mlp", 1, (size_t)1 << 20, &config->ffn, err);
    return rc < 0 ? rc : 0;
}

int ash_read_mixer(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    int rc = ash_json_double(json, "router_jitter_noise", 1e-9, 1e6, &config->expert.tolerance, err);

    if (rc < 0) return rc;
    config->expert.tolerance *= 2;
    rc = ash_json_bool(json, "lm_head_bias", &config->form.head_bias, err);
    return rc < 0 ? rc : 0;
}

/* ---- latent attention -------------------------------------------------------------------------------------------- */

/* The reference library scales attention by the square of yarn's mscale when mscale_all_dim is set. */
static double latent_attention_scale(const struct ash_model_config *config)
{
    const struct ash_rope_config *rope = &config->rope;
    double scale = 1 / sqrt((double)(config->nope_dim + config->rope_dim));

    if (rope->kind != ASH_ROPE_YARN || rope->mscale_all_dim == 0 || rope->factor <= 1) return scale;
    double mscale = 0.1 * rope->mscale_all_dim * log(rope->factor) + 1;
    return scale * mscale * mscale;
}

int ash_read_latent(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    const struct {
        const char *key;
        size_t min, max, *value;
    } sizes[] = {
        {"q_lora_rank", 1, 1 << 16, &config->q_rank},
        {"kv_lora_rank", 1, 1 << 16, &config->kv_rank},
        {"qk_rope_head_dim", 2, ASH_ATTN_HEAD_MAX, &config->rope_dim},
        {"qk_nope_head_dim", 1, ASH_ATTN_HEAD_MAX, &config->nope_dim},
        {"v_head_dim", 1, ASH_ATTN_HEAD_MAX, &config->v_dim},
    };

    config->attn = ASH_ATTN_LATENT;
    config->kv_heads = config->heads;
    config->q_rank = json_is_null(json_object_get(json, "q_lora_rank")) ? 0 : 1536;
    config->kv_rank = 512;
    config->rope_dim = 64;
    config->nope_dim = 128;
    config->v_dim = 128;
    for (size_t i = 0; i < ASH_COUNT(sizes); i++) {
        int rc = ash_config_size(json, sizes[i].key, sizes[i].min, sizes[i].max, sizes[i].value, err);
        if (rc < 0) return rc;
    }
    config->head_dim = config->nope_dim + config->rope_dim;
    config->attn_scale = latent_attention_scale(config);
    return ash_json_bool(json, "rope_interleave", &config->rope.interleaved, err);
}

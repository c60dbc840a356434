/* family_read: readers of biases, factors, windows and positions. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "model/family_priv.h"

int ash_read_biases(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    struct ash_model_form *form = &config->form;
    int rc = ash_json_bool(json, "attention_bias", &form->qkv_bias, err);

    if (rc < 0) return rc;
    if (rc == 1 && !form->out_bias_apart) form->out_bias = form->qkv_bias;
    rc = ash_json_bool(json, "attention_out_bias", &form->out_bias, err);
    if (rc < 0) return rc;
    rc = ash_json_bool(json, "mlp_bias", &form->mlp_bias, err);
    if (rc < 0) return rc;
    rc = ash_json_bool(json, "use_bias", &form->mlp_bias, err);
    if (rc == 1) form->qkv_bias = form->out_bias = form->mlp_bias;
    return rc < 0 ? rc : 0;
}

/* A number that null takes away. */
static int read_number(const json_t *json, const char *key, double *value, struct ash_err *err)
{
    if (json_is_null(json_object_get(json, key))) {
        *value = 0;
        return 0;
    }
    return ash_json_double(json, key, 1e-9, 1e9, value, err);
}

int ash_read_factors(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    struct ash_model_form *form = &config->form;
    double divisor = 0, scalar = 0;
    const struct {
        const char *key;
        double *value;
    } fields[] = {
        {"embedding_multiplier", &form->embed_scale},  {"residual_multiplier", &form->residual_scale},
        {"attention_multiplier", &config->attn_scale}, {"logits_scaling", &divisor},
        {"logit_scale", &form->logit_scale},           {"attn_logit_softcapping", &form->score_cap},
        {"final_logit_softcapping", &form->logit_cap}, {"query_pre_attn_scalar", &scalar},
    };

    for (size_t i = 0; i < ASH_COUNT(fields); i++) {
        int rc = read_number(json, fields[i].key, fields[i].value, err);
        if (rc < 0) return rc;
    }
    if (divisor > 0) form->logit_scale = 1 / divisor;
    if (scalar > 0) config->attn_scale = 1 / sqrt(scalar);
    if (form->embeds_by_width) form->embed_scale = sqrt((double)config->hidden);
    return ash_config_act(json, "hidden_activation", config, err);
}

int ash_read_norm_eps(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    static const char *const keys[] = {"rms_norm_eps", "norm_epsilon", "layer_norm_eps", "layer_norm_epsilon"};

    config->norm_eps = 1e-5;
    for (size_t i = 0; i < ASH_COUNT(keys); i++) {
        int rc = ash_json_double(json, keys[i], 1e-12, 1, &config->norm_eps, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

/* The list of layers' kinds, or NULL. */
static int read_types(const json_t *json, const struct ash_model_config *config, const json_t **types_out,
                      struct ash_err *err)
{
    int rc = ash_json_array(json, "layer_types", types_out, err);

    if (rc == 1 && json_array_size(*types_out) != config->layers)
        return ash_err_set(err, -EINVAL, "layer_types has %zu entries for %zu layers", json_array_size(*types_out),
                           config->layers);
    return rc;
}

static bool is_sliding(const json_t *types, size_t layer)
{
    const char *type = json_string_value(json_array_get(types, layer));

    return type != NULL && strcmp(type, "sliding_attention") == 0;
}

/* qwen: a window only where use_sliding_window says so, in the layers that layer_types lists or from max_window_layers
 * on. */
int ash_read_qwen_window(const json_t *json, struct ash_model_config *config, struct ash_err *err)
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
    rc = read_types(json, config, &types, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < config->layers; i++) {
        bool sliding = types != NULL ? is_sliding(types, i) : i >= first;
        config->window[i] = sliding ? (uint32_t)window : 0;
    }
    return 0;
}

int ash_read_window(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    size_t window = json_is_null(json_object_get(json, "sliding_window")) ? 0 : config->form.window;
    bool use = true;
    int rc = ash_json_bool(json, "use_sliding_window", &use, err);

    if (rc < 0 || !use) return rc;
    if (rc == 1 && json_object_get(json, "sliding_window") == NULL && window == 0) window = 4096;
    rc = ash_config_size(json, "sliding_window", 1, UINT32_MAX, &window, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < config->layers; i++)
        config->window[i] = (uint32_t)window;
    return 0;
}

int ash_read_layer_types(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    size_t every = config->form.full_every;
    const json_t *types = NULL;
    int rc = ash_read_window(json, config, err);

    if (rc < 0) return rc;
    rc = ash_config_size(json, "sliding_window_pattern", 1, ASH_MODEL_LAYERS_MAX, &every, err);
    if (rc < 0) return rc;
    rc = read_types(json, config, &types, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < config->layers; i++)
        if (types != NULL ? !is_sliding(types, i) : every > 0 && (i + 1) % every == 0) config->window[i] = 0;
    return 0;
}

/* ---- positions --------------------------------------------------------------------------------------------------- */

int ash_read_no_rope(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    const json_t *list = NULL;
    size_t every = 4;
    int rc = ash_config_size(json, "no_rope_layer_interval", 1, ASH_MODEL_LAYERS_MAX, &every, err);

    if (rc < 0) return rc;
    rc = ash_json_array(json, "no_rope_layers", &list, err);
    if (rc < 0) return rc;
    if (json_array_size(list) > 0 && json_array_size(list) != config->layers)
        return ash_err_set(err, -EINVAL, "no_rope_layers has %zu entries for %zu layers", json_array_size(list),
                           config->layers);
    for (size_t i = 0; i < config->layers; i++) {
        bool rotates =
            json_array_size(list) > 0 ? json_integer_value(json_array_get(list, i)) != 0 : (i + 1) % every != 0;
        config->rope_at[i] = rotates ? ASH_ROPE_AT_ALL : ASH_ROPE_AT_NONE;
    }
    return 0;
}

/* The factor of queries in layers without positions. */
static int read_temper(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    bool use = true;
    int rc = json_is_integer(json_object_get(json, "attn_temperature_tuning"))
                 ? 0 /* older files have a number */
                 : ash_json_bool(json, "attn_temperature_tuning", &use, err);

    if (rc < 0) return rc;
    config->temper_floor = 8192;
    config->temper_scale = 0.1;
    rc = ash_json_double(json, "floor_scale", 1, 1e12, &config->temper_floor, err);
    if (rc < 0) return rc;
    rc = ash_json_double(json, "attn_scale", 0, 1e6, &config->temper_scale, err);
    if (rc < 0 || !use) return rc;
    if (config->rope.share < 1)
        return ash_err_set(err, -ENOTSUP, "attn_temperature_tuning with a partial_rotary_factor is not supported");
    for (size_t i = 0; i < config->layers; i++)
        if (config->rope_at[i] == ASH_ROPE_AT_NONE) config->rope_at[i] = ASH_ROPE_AT_TEMPERED;
    return 0;
}

int ash_read_chunks(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    size_t chunk = json_is_null(json_object_get(json, "attention_chunk_size")) ? 0 : config->form.window;
    const json_t *types = NULL;
    int rc = ash_config_size(json, "attention_chunk_size", 1, UINT32_MAX, &chunk, err);

    if (rc < 0) return rc;
    rc = read_types(json, config, &types, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < config->layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        bool is_chunked = types != NULL ? type != NULL && strcmp(type, "chunked_attention") == 0
                                        : config->rope_at[i] == ASH_ROPE_AT_ALL;

        config->window[i] = is_chunked ? (uint32_t)chunk : 0;
    }
    return read_temper(json, config, err);
}

int ash_read_local_rope(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    (void)json;
    (void)err;
    for (size_t i = 0; i < config->layers; i++)
        if (config->window[i] != 0) config->rope_at[i] = ASH_ROPE_AT_LOCAL;
    return 0;
}

int ash_read_nope_full(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    (void)json;
    (void)err;
    for (size_t i = 0; i < config->layers; i++)
        if (config->window[i] == 0) config->rope_at[i] = ASH_ROPE_AT_NONE;
    return 0;
}

/* family_encoder: readers of encoders, whose attention sees later tokens, too. */
#include <errno.h>
#include <string.h>

#include "model/family_priv.h"

/* Positions come from a table; those relative to a key were never published in numbers. */
int ash_read_bert(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    const char *kind = "absolute";
    bool is_decoder = false;
    int rc = ash_json_string(json, "position_embedding_type", &kind, err);

    if (rc < 0) return rc;
    if (strcmp(kind, "absolute") != 0)
        return ash_err_set(err, -ENOTSUP, "position_embedding_type '%s' is not supported (absolute is)", kind);
    rc = ash_json_bool(json, "is_decoder", &is_decoder, err);
    if (rc < 0) return rc;
    if (is_decoder)
        return ash_err_set(err, -ENOTSUP, "%s with is_decoder is not supported: it is an encoder here",
                           config->family->type);
    config->rope.kind = ASH_ROPE_NONE;
    config->max_positions = 512;
    rc = ash_config_size(json, "max_position_embeddings", 1, (size_t)1 << 27, &config->max_positions, err);
    if (rc < 0) return rc;
    config->pool_bias = true;
    config->segments = 2;
    rc = ash_config_size(json, "type_vocab_size", 1, 1024, &config->segments, err);
    return rc < 0 ? rc : 0;
}

int ash_read_roberta(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    size_t pad = 1;
    int rc = ash_read_bert(json, config, err);

    if (rc < 0) return rc;
    rc = ash_config_size(json, "pad_token_id", 0, (size_t)1 << 22, &pad, err);
    if (rc < 0) return rc;
    config->first_position = pad + 1;
    if (config->max_positions <= config->first_position)
        return ash_err_set(err, -EINVAL, "max_position_embeddings %zu leaves no position after pad_token_id %zu",
                           config->max_positions, pad);
    config->max_positions -= config->first_position;
    return 0;
}

/* Which layers see all tokens: those that layer_types calls so, or every n-th from the first on. */
static int read_windows(const json_t *json, size_t window, struct ash_model_config *config, struct ash_err *err)
{
    const json_t *types = NULL;
    size_t every = 3;
    int rc = ash_config_size(json, "global_attn_every_n_layers", 1, ASH_MODEL_LAYERS_MAX, &every, err);

    if (rc < 0) return rc;
    rc = ash_json_array(json, "layer_types", &types, err);
    if (rc < 0) return rc;
    if (types != NULL && json_array_size(types) != config->layers)
        return ash_err_set(err, -EINVAL, "layer_types has %zu entries for %zu layers", json_array_size(types),
                           config->layers);
    for (size_t i = 0; i < config->layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        bool is_full = type != NULL ? strcmp(type, "full_attention") == 0 : i % every == 0;

        config->window[i] = is_full ? 0 : (uint32_t)window;
    }
    return 0;
}

/* How a classifier pools. */
static int read_classifier(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    const char *pooling = "cls", *act = "gelu";
    int rc = ash_json_string(json, "classifier_pooling", &pooling, err);

    if (rc < 0) return rc;
    rc = ash_json_string(json, "classifier_activation", &act, err);
    if (rc < 0) return rc;
    rc = ash_json_bool(json, "classifier_bias", &config->pool_bias, err);
    if (rc < 0) return rc;
    config->pools_mean = strcmp(pooling, "mean") == 0;
    if (!config->pools_mean && strcmp(pooling, "cls") != 0)
        return ash_err_set(err, -ENOTSUP, "classifier_pooling '%s' is not supported (cls and mean are)", pooling);
    if (strcmp(act, "gelu") != 0)
        return ash_err_set(err, -ENOTSUP, "classifier_activation '%s' is not supported (gelu is)", act);
    return 0;
}

int ash_read_modernbert(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    bool norm_bias = false;
    size_t window = 128;
    int rc = ash_json_bool(json, "norm_bias", &norm_bias, err);

    if (rc < 0) return rc;
    config->form.bare_norm = !norm_bias;
    if (config->form.mlp_bias) return ash_err_set(err, -ENOTSUP, "modernbert with mlp_bias is not supported");
    rc = read_classifier(json, config, err);
    if (rc < 0) return rc;
    rc = ash_json_double(json, "norm_eps", 1e-12, 1, &config->norm_eps, err);
    if (rc < 0) return rc;
    rc = ash_json_double(json, "global_rope_theta", 1e-3, 1e15, &config->rope.theta, err);
    if (rc < 0) return rc;
    rc = ash_json_double(json, "local_rope_theta", 1e-3, 1e15, &config->local_rope.theta, err);
    if (rc < 0) return rc;
    rc = ash_config_size(json, "local_attention", 2, UINT32_MAX, &window, err);
    if (rc < 0) return rc;
    rc = ash_config_act(json, "hidden_activation", config, err);
    if (rc < 0) return rc;
    rc = read_windows(json, window / 2, config, err);
    return rc < 0 ? rc : ash_read_local_rope(json, config, err);
}

/* Reads a config.json into the normalised description: the fields all families share, under any of the names they go
 * by, then what the family adds, then a check that the whole makes sense. */
#include "model/config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "model/family.h"

#define SCORE_SUFFIX "ForSequenceClassification"

/* eos_token_id is a number, a list of numbers, or absent. */
static int read_token_ids(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    const json_t *eos = json_object_get(json, "eos_token_id");
    int64_t bos = -1;
    int rc = ash_json_int(json, "bos_token_id", -1, INT32_MAX, &bos, err);
    size_t limit = sizeof(config->eos) / sizeof(config->eos[0]);

    if (rc < 0) return rc;
    config->bos = (int32_t)bos;
    config->eos_count = 0;
    if (json_is_integer(eos) && json_integer_value(eos) >= 0) {
        config->eos[config->eos_count++] = (int32_t)json_integer_value(eos);
    } else if (json_is_array(eos)) {
        for (size_t i = 0; i < json_array_size(eos) && config->eos_count < limit; i++)
            config->eos[config->eos_count++] = (int32_t)json_integer_value(json_array_get(eos, i));
    }
    return 0;
}

/* A size and the names that it goes by; other is NULL if it has only one. */
struct size_row {
    const char *key, *other;
    size_t max, *value;
};

/* Returns 1 if it is present, 0 if not, or -EINVAL. */
static int read_size(const json_t *json, const struct size_row *row, struct ash_err *err)
{
    int rc = ash_config_size(json, row->key, 1, row->max, row->value, err);

    return rc != 0 || row->other == NULL ? rc : ash_config_size(json, row->other, 1, row->max, row->value, err);
}

static int read_rows(const json_t *json, const struct size_row *rows, size_t count, bool is_required,
                     struct ash_err *err)
{
    for (size_t i = 0; i < count; i++) {
        int rc = read_size(json, &rows[i], err);
        if (rc < 0) return rc;
        if (rc == 0 && is_required) return ash_err_set(err, -EINVAL, "'%s' is missing", rows[i].key);
    }
    return 0;
}

/* Sizes that every family has. */
static int read_sizes(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    const struct size_row required[] = {
        {"vocab_size", NULL, (size_t)1 << 22, &config->vocab},
        {"hidden_size", "n_embd", (size_t)1 << 17, &config->hidden},
        {"num_hidden_layers", "n_layer", ASH_MODEL_LAYERS_MAX, &config->layers},
        {"num_attention_heads", "n_head", 1024, &config->heads},
    };
    bool attends = config->family->names[ASH_ROLE_OUT] != NULL;
    const struct size_row optional[] = {
        {"num_key_value_heads", NULL, 1024, &config->kv_heads},
        {"intermediate_size", "n_inner", (size_t)1 << 20, &config->ffn},
        {"max_position_embeddings", "n_positions", (size_t)1 << 27, &config->max_positions},
        {"head_dim", NULL, ASH_ATTN_HEAD_MAX, &config->head_dim},
    };
    int rc = read_rows(json, required, ASH_COUNT(required) - !attends, true, err);

    if (rc < 0) return rc;
    if (!attends) config->heads = 1;
    config->kv_heads = config->heads;
    config->ffn = 4 * config->hidden;
    config->max_positions = 2048;
    config->head_dim = config->hidden / config->heads;
    return read_rows(json, optional, ASH_COUNT(optional), false, err);
}

static int read_common(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    int rc = read_sizes(json, config, err);

    if (rc < 0) return rc;
    config->norm_eps = 1e-6;
    config->init_std = 0.02;
    config->attn_scale = 0; /* the family may set it */
    rc = ash_json_double(json, "rms_norm_eps", 1e-12, 1, &config->norm_eps, err);
    if (rc < 0) return rc;
    rc = ash_json_double(json, "initializer_range", 0, 10, &config->init_std, err);
    if (rc < 0) return rc;
    rc = ash_config_rope(json, config, err);
    if (rc < 0) return rc;
    return read_token_ids(json, config, err);
}

/* Is it a sequence classifier? With one label it is a reward model; others are not supported. */
static int read_labels(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    const char *name = json_string_value(json_array_get(json_object_get(json, "architectures"), 0));
    size_t labels = json_object_size(json_object_get(json, "id2label"));
    int64_t count = labels > 0 ? (int64_t)labels : 2;
    int rc;

    if (name == NULL || strstr(name, SCORE_SUFFIX) == NULL) return 0;
    rc = ash_json_int(json, "num_labels", 1, 1 << 20, &count, err);
    if (rc < 0) return rc;
    if (count != 1)
        return ash_err_set(err, -ENOTSUP, "%s with %lld labels is not supported: a reward model has one", name,
                           (long long)count);
    config->labels = 1;
    config->tied = false;
    return 0;
}

int ash_model_config_score(struct ash_model_config *config, struct ash_err *err)
{
    const char *name = config->family->architecture, *end = strstr(name, "For");
    char text[128];
    json_t *source;

    if (config->labels > 0) return 0;
    snprintf(text, sizeof(text), "%.*s%s", (int)(end != NULL ? end - name : (ptrdiff_t)strlen(name)), name,
             SCORE_SUFFIX);
    source = json_deep_copy(config->source);
    if (source == NULL || json_object_set_new(source, "architectures", json_pack("[s]", text)) < 0 ||
        json_object_set_new(source, "num_labels", json_integer(1)) < 0 ||
        json_object_set_new(source, "id2label", json_pack("{s:s}", "0", "LABEL_0")) < 0 ||
        json_object_set_new(source, "label2id", json_pack("{s:i}", "LABEL_0", 0)) < 0) {
        json_decref(source);
        return ash_err_set(err, -ENOMEM, "out of memory for a reward model's config");
    }
    json_decref(config->source);
    config->source = source;
    config->labels = 1;
    config->tied = false;
    return ash_config_rope_finish(config, err); /* it borrows from the source */
}

/* What config.json says in its family's own way. */
static int read_family(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    const struct ash_family *family = config->family;
    int rc;

    config->tied = config->form.tied;
    rc = ash_json_bool(json, "tie_word_embeddings", &config->tied, err);
    if (rc < 0) return rc;
    rc = ash_config_act(json, "hidden_act", config, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < ASH_FAMILY_READS_MAX && family->reads[i] != NULL; i++) {
        rc = family->reads[i](json, config, err);
        if (rc < 0) return rc;
    }
    if (config->expert.experts > 0 && config->form.mlp != family->form.mlp)
        return ash_err_set(err, -ENOTSUP, "experts with this hidden_act are not supported (silu is)");
    rc = read_labels(json, config, err);
    if (rc < 0) return rc;
    if (config->attn_scale == 0) config->attn_scale = 1 / sqrt((double)config->head_dim);
    return 0;
}

static int check(const struct ash_model_config *config, struct ash_err *err)
{
    if (config->attn == ASH_ATTN_GROUPED && config->heads % config->kv_heads != 0)
        return ash_err_set(err, -EINVAL, "%zu attention heads cannot share %zu key-value heads", config->heads,
                           config->kv_heads);
    if (config->head_dim == 0 || config->head_dim > ASH_ATTN_HEAD_MAX)
        return ash_err_set(err, -EINVAL, "a head of %zu dimensions is not supported (1 to %d are)", config->head_dim,
                           ASH_ATTN_HEAD_MAX);
    if (config->rope.kind != ASH_ROPE_NONE &&
        (config->attn == ASH_ATTN_LATENT ? config->rope_dim : config->rotary_dims) % 2 != 0)
        return ash_err_set(err, -EINVAL, "rotary positions need an even head dimension, not %zu", config->head_dim);
    for (size_t i = 0; i < config->eos_count; i++)
        if (config->eos[i] < 0) return ash_err_set(err, -EINVAL, "eos_token_id %d is no token", config->eos[i]);
    return 0;
}

int ash_model_config_parse(const json_t *json, struct ash_model_config *config_out, struct ash_err *err)
{
    struct ash_model_config config = {0};
    const char *type = NULL;
    int rc;

    if (!json_is_object(json)) return ash_err_set(err, -EINVAL, "the configuration is not a JSON object");
    rc = ash_json_string(json, "model_type", &type, err);
    if (rc < 0) return rc;
    if (type == NULL) return ash_err_set(err, -EINVAL, "'model_type' is missing");
    config.family = ash_family_find(type);
    if (config.family == NULL)
        return ash_err_set(err, -ENOTSUP, "model type '%.60s' is not known; these are: %s", type, ash_model_families());
    config.form = config.family->form;
    rc = read_common(json, &config, err);
    if (rc < 0) return rc;
    rc = read_family(json, &config, err);
    if (rc < 0) return rc;
    config.source = json_deep_copy(json);
    if (config.source == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = ash_config_rope_finish(&config, err);
    if (rc == 0) rc = check(&config, err);
    if (rc < 0) {
        json_decref(config.source);
        return rc;
    }
    *config_out = config;
    return 0;
}

/* Are there only the factors and caps of llama? */
static bool has_no_factors(const struct ash_model_form *form)
{
    return form->embed_scale == 0 && form->residual_scale == 0 && form->logit_scale == 0 && form->logit_cap == 0 &&
           form->score_cap == 0 && !form->head_bias;
}

bool ash_model_form_is_plain(const struct ash_model_config *config)
{
    const struct ash_model_form *form = &config->form;
    const char *const *names = config->family->names;

    return names[ASH_ROLE_NORM1] != NULL && names[ASH_ROLE_NORM2] != NULL && names[ASH_ROLE_POST1] == NULL &&
           names[ASH_ROLE_GATE_UP] == NULL && !form->parallel && !form->qkv_by_head && !form->qk_norm_last &&
           form->qk_norm != ASH_QK_NORM_ALL && form->mlp <= ASH_MLP_GELU_ERF && names[ASH_ROLE_SINKS] == NULL &&
           names[ASH_ROLE_EXPERT_GATE_UP] == NULL && names[ASH_ROLE_STATE_IN] == NULL && has_no_factors(form);
}

size_t ash_config_count_attending(const struct ash_model_config *config, size_t end)
{
    size_t count = 0;

    for (size_t i = 0; i < end; i++)
        count += ash_config_attends(config, i);
    return count;
}

size_t ash_config_count_states(const struct ash_model_config *config, size_t end)
{
    size_t count = 0;

    for (size_t i = 0; i < end; i++)
        count += ash_config_has_state(config, i);
    return count;
}

bool ash_config_has_ffn(const struct ash_model_config *config)
{
    const char *const *names = config->family->names;

    return names[ASH_ROLE_DOWN] != NULL || names[ASH_ROLE_EXPERT_DOWN] != NULL;
}

void ash_model_config_fini(struct ash_model_config *config)
{
    json_decref(config->source);
    *config = (struct ash_model_config){0};
}

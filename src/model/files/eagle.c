/* Heads of EAGLE-3, as SafeAILab's EAGLE and SpecForge write them: config.json of a llama model of one layer, and
 * tensors fc, midlayer.*, norm, lm_head, d2t (the token of output i is i + d2t[i]) and perhaps embed_tokens. */
#include "model/files/eagle.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "model/files/folder_priv.h"
#include "model/files/open_priv.h"
#include "model/model_priv.h"

static int load_json(const char *dir, json_t **json_out, struct ash_err *err)
{
    char path[PATH_MAX];

    if (ash_path_join(path, sizeof(path), dir, "config.json") < 0)
        return ash_err_set(err, -ENAMETOOLONG, "'%.100s' is too long a path", dir);
    return ash_json_load(path, json_out, err);
}

bool ash_eagle_is(const char *dir)
{
    struct ash_err ignored = {0};
    json_t *json = NULL;
    const char *name;
    bool is_eagle;

    if (load_json(dir, &json, &ignored) < 0) return false;
    name = json_string_value(json_array_get(json_object_get(json, "architectures"), 0));
    is_eagle = name != NULL && strstr(name, "Eagle3") != NULL;
    json_decref(json);
    return is_eagle;
}

/* ---- its config -------------------------------------------------------------------------------------------------- */

/* What some heads have and this one must not. */
static int refuse_others(const json_t *json, const struct ash_model_config *config, struct ash_err *err)
{
    if (config->layers != 1)
        return ash_err_set(err, -ENOTSUP, "it has %zu layers: heads of one are read", config->layers);
    if (config->tied) return ash_err_set(err, -ENOTSUP, "tie_word_embeddings is not supported in a head");
    if (json_is_true(json_object_get(json, "norm_before_residual")))
        return ash_err_set(err, -ENOTSUP, "norm_before_residual is not supported in a head");
    return 0;
}

static int read_config(const json_t *json, struct ash_model_config *config_out, struct ash_err *err)
{
    struct ash_model_config config;
    size_t outputs, target_hidden;
    int rc = ash_model_config_parse(json, &config, err);

    if (rc < 0) return rc;
    outputs = config.vocab;
    target_hidden = config.hidden;
    rc = strcmp(config.family->type, "llama") == 0
             ? refuse_others(json, &config, err)
             : ash_err_set(err, -ENOTSUP, "a head of type %s is not supported (llama is)", config.family->type);
    if (rc == 0 && !json_is_null(json_object_get(json, "draft_vocab_size")))
        rc = ash_config_size(json, "draft_vocab_size", 1, config.vocab, &outputs, err);
    if (rc >= 0) rc = ash_config_size(json, "target_hidden_size", 1, (size_t)1 << 17, &target_hidden, err);
    if (rc < 0) {
        ash_model_config_fini(&config);
        return rc;
    }
    config.family = &ash_family_eagle3;
    config.fuses_states = config.is_eagle = true;
    config.captured = ASH_MODEL_CAPTURES * target_hidden;
    config.embed_vocab = config.vocab;
    config.vocab = outputs;
    *config_out = config;
    return 0;
}

/* The layers of the target that the head was trained with: the third, the middle one and the last but two, unless
 * config.json says others. */
static int read_layers(const json_t *json, const struct ash_model_config *target, size_t layers[ASH_MODEL_CAPTURES],
                       struct ash_err *err)
{
    const json_t *list = json_object_get(json_object_get(json, "eagle_config"), "eagle_aux_hidden_state_layer_ids");
    const size_t usual[ASH_MODEL_CAPTURES] = {2, target->layers / 2, target->layers - 3};

    if (list == NULL && target->layers < 4)
        return ash_err_set(err, -EINVAL, "the model has %zu layers, too few for three in its middle", target->layers);
    if (list != NULL && json_array_size(list) != ASH_MODEL_CAPTURES)
        return ash_err_set(err, -EINVAL, "eagle_aux_hidden_state_layer_ids has not %d layers", ASH_MODEL_CAPTURES);
    for (size_t i = 0; i < ASH_MODEL_CAPTURES; i++) {
        json_int_t layer = list != NULL ? json_integer_value(json_array_get(list, i)) : (json_int_t)usual[i];

        if (layer < 0 || (size_t)layer >= target->layers)
            return ash_err_set(err, -EINVAL, "eagle_aux_hidden_state_layer_ids has %lld, but the model has %zu layers",
                               (long long)layer, target->layers);
        layers[i] = (size_t)layer;
    }
    return 0;
}

static int check_target(const struct ash_model_config *head, const struct ash_model_config *target, struct ash_err *err)
{
    if (head->captured != ASH_MODEL_CAPTURES * target->hidden)
        return ash_err_set(err, -EINVAL, "it reads streams of %zu numbers, the model's have %zu",
                           head->captured / ASH_MODEL_CAPTURES, target->hidden);
    if (head->embed_vocab != target->vocab)
        return ash_err_set(err, -EINVAL, "it knows %zu tokens, the model %zu: take a head of this model",
                           head->embed_vocab, target->vocab);
    return 0;
}

/* ---- its tensors ------------------------------------------------------------------------------------------------- */

/* Without an embedding it has the target's. */
static int share_embedding(struct ash_model *head, const char *dir, const struct ash_model *target, struct ash_err *err)
{
    struct ash_param *own = &head->params[head->top.param[ASH_ROLE_EMBED]];
    const struct ash_param *theirs = &target->params[target->top.param[ASH_ROLE_EMBED]];
    struct ash_safetensors *files = NULL;
    int rc = ash_safetensors_open_lazy(dir, &files, err);
    bool has_own = rc == 0 && ash_safetensors_find(files, own->name) != NULL;

    ash_safetensors_close(files);
    if (rc < 0 || has_own) return rc;
    if (target->top.param[ASH_ROLE_EMBED] < 0 || theirs->dims[0] != own->dims[0] || theirs->dims[1] != own->dims[1])
        return ash_err_set(err, -EINVAL, "it has no embed_tokens.weight, and the model's does not fit");
    own->data = theirs->mapped != NULL ? theirs->mapped : theirs->data;
    own->dtype = theirs->dtype;
    return 0;
}

/* The tokens of its outputs. */
static int read_ids(const struct ash_model *head, int32_t **ids_out, struct ash_err *err)
{
    const struct ash_model_config *c = &head->config;
    const struct ash_tensor_view *view = ash_safetensors_find(head->files, "d2t");
    int32_t *ids;

    if (view == NULL && c->vocab != c->embed_vocab)
        return ash_err_set(err, -EINVAL, "the weights lack tensor 'd2t', which says the tokens of its %zu outputs",
                           c->vocab);
    if (view != NULL && (view->dtype != ASH_I64 || view->dim_count != 1 || view->dims[0] != c->vocab))
        return ash_err_set(err, -EINVAL, "tensor 'd2t' is not one of %zu 64-bit integers", c->vocab);
    ids = calloc(c->vocab, sizeof(*ids));
    if (ids == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the tokens of a head");
    for (size_t i = 0; i < c->vocab; i++) {
        int64_t offset = 0;

        if (view != NULL) memcpy(&offset, (const char *)view->data + i * sizeof(offset), sizeof(offset));
        if (offset < -(int64_t)i || offset >= (int64_t)(c->embed_vocab - i)) {
            free(ids);
            return ash_err_set(err, -EINVAL, "tensor 'd2t' gives output %zu a token outside the vocabulary", i);
        }
        ids[i] = (int32_t)((int64_t)i + offset);
    }
    *ids_out = ids;
    return 0;
}

static int open_model(const char *dir, const struct ash_model_config *config, const struct ash_model *target,
                      struct ash_eagle *eagle, struct ash_err *err)
{
    int rc = ash_model_alloc(config, NULL, &eagle->model, err);

    if (rc == 0) rc = share_embedding(eagle->model, dir, target, err);
    if (rc == 0) rc = ash_folder_map(eagle->model, dir, err);
    if (rc == 0) rc = ash_open_want_vectors(eagle->model, err);
    if (rc == 0) rc = read_ids(eagle->model, &eagle->ids, err);
    if (rc == 0) ash_model_refresh(eagle->model);
    return rc;
}

int ash_eagle_open(const char *dir, const struct ash_model *target, struct ash_eagle *eagle_out, struct ash_err *err)
{
    struct ash_eagle eagle = {0};
    struct ash_model_config config;
    json_t *json = NULL;
    int rc = load_json(dir, &json, err);

    *eagle_out = (struct ash_eagle){0};
    if (rc == 0) rc = read_config(json, &config, err);
    if (rc < 0) {
        json_decref(json);
        return ash_err_prefix(err, rc, "%s", dir);
    }
    rc = check_target(&config, &target->whole, err);
    if (rc == 0) rc = read_layers(json, &target->whole, eagle.layers, err);
    if (rc < 0)
        ash_model_config_fini(&config);
    else
        rc = open_model(dir, &config, target, &eagle, err);
    json_decref(json);
    if (rc < 0) {
        ash_eagle_close(&eagle);
        return ash_err_prefix(err, rc, "%s", dir);
    }
    *eagle_out = eagle;
    return 0;
}

void ash_eagle_close(struct ash_eagle *eagle)
{
    ash_model_close(eagle->model);
    free(eagle->ids);
    *eagle = (struct ash_eagle){0};
}

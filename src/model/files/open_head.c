/* open_head: the layer of multi-token prediction behind a model's own layers, as published by DeepSeek and GLM. To the
 * list of parameters it is a slice of a model with one more layer: that layer, the embedding and the output matrix. */
#include <errno.h>
#include <stdio.h>

#include "base/file.h"
#include "model/files/folder_priv.h"
#include "model/files/open.h"
#include "model/files/open_priv.h"
#include "storage/safetensors/safetensors.h"

static int none(const char *path, struct ash_err *err)
{
    return ash_err_set(err, -ENOENT, "'%.200s' has no head for drafts (num_nextn_predict_layers)", path);
}

/* The config of the model with one more layer. Returns 0, -ENOENT or another negative errno. */
static int load_config(const char *path, struct ash_model_config *config_out, struct ash_err *err)
{
    struct ash_model_config config;
    int64_t heads = 0;
    json_t *json;
    int rc = ash_model_config_load(path, &config, err);

    if (rc < 0) return rc;
    rc = ash_json_int(config.source, "num_nextn_predict_layers", 0, ASH_MODEL_LAYERS_MAX, &heads, err);
    if (rc >= 0 && (heads == 0 || config.family->names[ASH_ROLE_FUSE] == NULL)) rc = none(path, err);
    json = rc >= 0 ? json_copy(config.source) : NULL;
    if (rc >= 0 && (json == NULL ||
                    json_object_set_new(json, "num_hidden_layers", json_integer((json_int_t)config.layers + 1)) < 0))
        rc = ash_err_set(err, -ENOMEM, "out of memory for the config of a head");
    ash_model_config_fini(&config);
    if (rc >= 0) rc = ash_model_config_parse(json, config_out, err);
    json_decref(json);
    if (rc == 0) config_out->fuses_states = true;
    return rc;
}

static struct ash_slice last_layer(const struct ash_model_config *config)
{
    struct ash_slice slice = ash_slice_whole(config);

    for (size_t i = 0; i + 1 < config->layers; i++)
        slice.layers[i] = 0;
    return slice;
}

/* Has the folder the first tensor of the head? Some that name one in config.json have not. */
static int has_tensors(const struct ash_model *head, const char *dir, struct ash_err *err)
{
    const char *name = head->params[head->layers[0].param[ASH_ROLE_FUSE_TOKEN]].name;
    struct ash_safetensors *files = NULL;
    int rc = ash_safetensors_open_lazy(dir, &files, err);

    if (rc == 0 && ash_safetensors_find(files, name) == NULL) rc = none(dir, err);
    ash_safetensors_close(files);
    return rc;
}

int ash_model_open_head(const char *path, struct ash_model **head_out, struct ash_err *err)
{
    struct ash_model_config config;
    struct ash_model *head = NULL;
    struct ash_slice slice;
    char file[ASH_GGUF_PATH_BYTES];
    int rc = ash_gguf_locate(path, file) ? none(path, err) : load_config(path, &config, err);

    if (rc < 0) return rc;
    slice = last_layer(&config);
    rc = ash_model_alloc(&config, &slice, &head, err);
    if (rc < 0) return rc;
    rc = has_tensors(head, path, err);
    if (rc < 0) goto fail;
    rc = ash_folder_map(head, path, err);
    if (rc == -ENOENT) rc = -EINVAL; /* it has some of the head */
    if (rc == 0) rc = ash_open_want_vectors(head, err);
    if (rc < 0) goto fail;
    ash_model_refresh(head);
    *head_out = head;
    return 0;

fail:
    ash_model_close(head);
    return rc;
}

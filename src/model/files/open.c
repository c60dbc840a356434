/* open: a model from a Hugging Face folder, a PEFT folder or a GGUF file. */
#include "model/files/open.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"
#include "model/files/lora_folder.h"
#include "model/files/open_priv.h"
#include "storage/gguf/gguf.h"

int ash_model_home(const char *path, char *buf, size_t buf_bytes)
{
    int used;

    if (ash_gguf_named(path)) return ash_gguf_home(path, buf, buf_bytes);
    used = snprintf(buf, buf_bytes, "%s", path);
    return used >= 0 && (size_t)used < buf_bytes ? 0 : -ENAMETOOLONG;
}

int ash_model_open_adapted(const char *dir, const char *base, struct ash_model **model_out, struct ash_err *err)
{
    struct ash_lora *lora = NULL;
    int rc = ash_lora_open_model(dir, base, &lora, model_out, err);

    if (rc == 0) (*model_out)->own_lora = lora;
    return rc;
}

/* Adapters beside whole weights are not asked for: the weights are. */
static bool has_weights(const char *dir)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    char path[PATH_MAX];

    for (size_t i = 0; i < 2; i++)
        if (ash_path_join(path, sizeof(path), dir, names[i]) >= 0 && ash_path_exists(path)) return true;
    return false;
}

int ash_model_open_lazy(const char *path, struct ash_model **model_out, struct ash_err *err)
{
    if (ash_lora_exists(path) && !has_weights(path)) return ash_model_open_adapted(path, NULL, model_out, err);
    return ash_open_plain(path, model_out, err);
}

int ash_model_open(const char *path, struct ash_model **model_out, struct ash_err *err)
{
    struct ash_model *model = NULL;
    int rc = ash_model_open_lazy(path, &model, err);

    return ash_open_bring(rc, model, model_out, err);
}

int ash_model_open_slice(const char *path, const struct ash_slice *slice, struct ash_model **model_out,
                         struct ash_err *err)
{
    char file[ASH_GGUF_PATH_BYTES];

    if (slice == NULL) return ash_model_open(path, model_out, err);
    if (!ash_gguf_locate(path, file)) return ash_open_folder(path, slice, false, model_out, err);
    if (slice->gathers) return ash_open_gguf(file, slice, model_out, err);
    return ash_err_set(err, -ENOTSUP, "'%s' is a GGUF file: training starts from a Hugging Face folder", file);
}

int ash_model_open_scorer(const char *path, const struct ash_slice *slice, uint64_t seed, struct ash_model **model_out,
                          struct ash_err *err)
{
    struct ash_slice whole;
    struct ash_model_config config;
    struct ash_model *model = NULL;
    const struct ash_param *score;
    float *values;
    int rc;

    if (slice == NULL) {
        rc = ash_model_config_load(path, &config, err);
        if (rc < 0) return rc;
        whole = ash_slice_whole(&config);
        ash_model_config_fini(&config);
        slice = &whole;
    }
    rc = ash_open_folder(path, slice, true, &model, err);
    if (rc < 0) return rc;
    score = ash_model_find(model, "score.weight");
    values = score != NULL && model->lacks_score ? (float *)model->values.data + score->offset : NULL;
    for (size_t i = 0; values != NULL && i < score->count; i++)
        values[i] = (float)(model->config.init_std * ash_rng_normal(seed, ash_hash_str(score->name), i));
    ash_model_refresh(model);
    *model_out = model;
    return 0;
}

const struct ash_quantised *ash_model_quantised(const struct ash_model *model)
{
    return model->quantised;
}

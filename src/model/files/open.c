/* open: a model from a Hugging Face folder or a GGUF file, and its weights on their way into memory. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"
#include "model/files/folder_priv.h"
#include "model/files/gguf_model_priv.h"
#include "model/files/load.h"
#include "model/lora_priv.h"
#include "model/model_priv.h"

/* ---- opening ----------------------------------------------------------------------------------------------------- */

int ash_model_home(const char *path, char *buf, size_t buf_bytes)
{
    int used;

    if (ash_gguf_named(path)) return ash_gguf_home(path, buf, buf_bytes);
    used = snprintf(buf, buf_bytes, "%s", path);
    return used >= 0 && (size_t)used < buf_bytes ? 0 : -ENAMETOOLONG;
}

/* Small tensors lie between large ones: asked for at once, they are read at once. Remote ones are there after it. */
static int want_vectors(const struct ash_model *model, struct ash_err *err)
{
    int rc = ash_model_bring_vectors(model, err);

    for (size_t i = 0; i < model->param_count; i++) {
        const struct ash_param *param = &model->params[i];

        if (!param->is_matrix) ash_map_want(param->data, ash_dtype_size(param->dtype, param->count));
    }
    return rc;
}

static int open_gguf(const char *path, struct ash_model **model_out, struct ash_err *err)
{
    struct ash_model_config config;
    struct ash_gguf *file = NULL;
    struct ash_model *model = NULL;
    int rc = ash_gguf_open(path, &file, err);

    if (rc < 0) return rc;
    rc = ash_gguf_model_config(file, &config, err);
    if (rc == 0) rc = ash_model_alloc(&config, NULL, &model, err);
    if (rc < 0) {
        ash_gguf_close(file);
        return ash_err_prefix(err, rc, "%s", path);
    }
    rc = ash_gguf_model_map(model, file, err);
    if (rc == 0) rc = want_vectors(model, err);
    if (rc < 0) {
        ash_model_close(model);
        return ash_err_prefix(err, rc, "%s", path);
    }
    ash_model_refresh(model);
    *model_out = model;
    return 0;
}

/* scores: as a reward model. */
static int open_folder(const char *path, const struct ash_slice *slice, bool scores, struct ash_model **model_out,
                       struct ash_err *err)
{
    struct ash_model_config config;
    struct ash_model *model = NULL;
    int rc;

    rc = ash_model_config_load(path, &config, err);
    if (rc < 0) return rc;
    rc = scores ? ash_model_config_score(&config, err) : 0;
    if (rc < 0) {
        ash_model_config_fini(&config);
        return rc;
    }
    rc = ash_model_alloc(&config, slice, &model, err);
    if (rc < 0) return rc;
    rc = ash_folder_map(model, path, err);
    if (rc < 0) goto fail;
    if (slice != NULL) { /* the files hold whole tensors */
        rc = ash_model_own(model, err);
    } else {
        rc = want_vectors(model, err);
    }
    if (rc < 0) goto fail;
    ash_model_refresh(model);
    *model_out = model;
    return 0;

fail:
    ash_model_close(model);
    return rc;
}

/* A PEFT folder: its base is the one that it names. */
static int open_adapted(const char *path, struct ash_model **model_out, struct ash_err *err)
{
    struct ash_lora *lora = NULL;
    int rc = ash_lora_open_model(path, NULL, &lora, model_out, err);

    if (rc == 0) (*model_out)->own_lora = lora;
    return rc;
}

/* What computes by itself: no adapters. */
static int open_plain(const char *path, struct ash_model **model_out, struct ash_err *err)
{
    char file[ASH_GGUF_PATH_BYTES];

    if (ash_gguf_locate(path, file)) return open_gguf(file, model_out, err);
    return open_folder(path, NULL, false, model_out, err);
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
    if (ash_lora_exists(path) && !has_weights(path)) return open_adapted(path, model_out, err);
    return open_plain(path, model_out, err);
}

/* Whether it was opened or not, rc says so; a model whose weights cannot be brought is closed. */
static int bring(int rc, struct ash_model *model, struct ash_model **model_out, struct ash_err *err)
{
    if (rc == 0) rc = ash_model_bring(model, err);
    if (rc == 0)
        *model_out = model;
    else
        ash_model_close(model);
    return rc;
}

int ash_model_open(const char *path, struct ash_model **model_out, struct ash_err *err)
{
    struct ash_model *model = NULL;
    int rc = ash_model_open_lazy(path, &model, err);

    return bring(rc, model, model_out, err);
}

int ash_model_open_base(const char *path, struct ash_model **model_out, struct ash_err *err)
{
    struct ash_model *model = NULL;
    int rc = open_plain(path, &model, err);

    return bring(rc, model, model_out, err);
}

int ash_model_open_slice(const char *path, const struct ash_slice *slice, struct ash_model **model_out,
                         struct ash_err *err)
{
    char file[ASH_GGUF_PATH_BYTES];

    if (slice == NULL) return ash_model_open(path, model_out, err);
    if (!ash_gguf_locate(path, file)) return open_folder(path, slice, false, model_out, err);
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
    rc = open_folder(path, slice, true, &model, err);
    if (rc < 0) return rc;
    score = ash_model_find(model, "score.weight");
    values = score != NULL && model->lacks_score ? (float *)model->values.data + score->offset : NULL;
    for (size_t i = 0; values != NULL && i < score->count; i++)
        values[i] = (float)(model->config.init_std * ash_rng_normal(seed, ash_hash_str(score->name), i));
    ash_model_refresh(model);
    *model_out = model;
    return 0;
}

/* ---- reading ahead ----------------------------------------------------------------------------------------------- */

/* Parameters are listed in the order of use, but for an embedding: a few of its rows are looked up first, and all of it
 * is read last if it is the output matrix too. */
static void start_prefetch(struct ash_model *model)
{
    size_t embed = (size_t)model->top.param[ASH_ROLE_EMBED], count = 0;
    struct ash_prefetch_range *ranges;

    ranges = calloc(model->param_count, sizeof(*ranges));
    if (ranges == NULL) return;
    for (size_t i = 0; i < model->param_count; i++) {
        const struct ash_param *param = &model->params[i];

        if (i != embed)
            ranges[count++] = (struct ash_prefetch_range){param->data, ash_dtype_size(param->dtype, param->count)};
    }
    if (model->config.tied) {
        const struct ash_param *param = &model->params[embed];

        ranges[count++] = (struct ash_prefetch_range){param->data, ash_dtype_size(param->dtype, param->count)};
    }
    model->prefetcher = ash_prefetcher_start(ranges, count);
    free(ranges);
}

int ash_model_prefetch(struct ash_model *model, const struct ash_exec *exec, struct ash_err *err)
{
    bool can_pack = ash_model_packs_on_host(exec);

    if (model->values.data != NULL || model->prefetcher != NULL || model->packed_for != NULL) return 0;
    if (ash_model_is_remote(model)) {
        if (!can_pack) return ash_model_bring(model, err);
        return model->load != NULL ? 0 : ash_load_open(model, exec, &model->load, err);
    }
    if (can_pack && ash_load_wanted(model, exec) && ash_load_open(model, exec, &model->load, NULL) == 0) return 0;
    start_prefetch(model);
    return 0;
}

/* open_plain: a model that computes by itself, without adapters, from a Hugging Face folder or a GGUF file. */
#include "model/files/open_priv.h"

#include "base/file.h"
#include "model/files/folder_priv.h"
#include "model/files/gguf_model_priv.h"
#include "model/files/open.h"
#include "model/files/part.h"

/* Small tensors lie between large ones: asked for at once, they are read at once. Remote ones are there after it. */
int ash_open_want_vectors(const struct ash_model *model, struct ash_err *err)
{
    int rc = ash_model_bring_vectors(model, err);

    for (size_t i = 0; i < model->param_count; i++) {
        const struct ash_param *param = &model->params[i];

        if (!param->is_matrix) ash_map_want(param->data, ash_dtype_size(param->dtype, param->count));
    }
    return rc;
}

int ash_open_gguf(const char *path, const struct ash_slice *slice, struct ash_model **model_out, struct ash_err *err)
{
    struct ash_model_config config;
    struct ash_gguf *file = NULL;
    struct ash_model *model = NULL;
    int rc = ash_gguf_open(path, &file, err);

    if (rc < 0) return rc;
    rc = ash_gguf_model_config(file, &config, err);
    if (rc == 0) rc = ash_model_alloc(&config, slice, &model, err);
    if (rc < 0) {
        ash_gguf_close(file);
        return ash_err_prefix(err, rc, "%s", path);
    }
    rc = ash_gguf_model_map(model, file, err);
    if (rc == 0 && slice != NULL) rc = ash_part_bind_all(model, err);
    if (rc == 0) rc = ash_open_want_vectors(model, err);
    if (rc < 0) {
        ash_model_close(model);
        return ash_err_prefix(err, rc, "%s", path);
    }
    ash_model_refresh(model);
    *model_out = model;
    return 0;
}

int ash_open_folder(const char *path, const struct ash_slice *slice, bool scores, struct ash_model **model_out,
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
    if (slice != NULL && !slice->gathers) { /* the files hold whole tensors */
        rc = ash_model_own(model, err);
    } else {
        if (slice != NULL) rc = ash_part_bind_all(model, err);
        if (rc == 0) rc = ash_open_want_vectors(model, err);
    }
    if (rc < 0) goto fail;
    ash_model_refresh(model);
    *model_out = model;
    return 0;

fail:
    ash_model_close(model);
    return rc;
}

int ash_open_plain(const char *path, struct ash_model **model_out, struct ash_err *err)
{
    char file[ASH_GGUF_PATH_BYTES];

    if (ash_gguf_locate(path, file)) return ash_open_gguf(file, NULL, model_out, err);
    return ash_open_folder(path, NULL, false, model_out, err);
}

int ash_open_bring(int rc, struct ash_model *model, struct ash_model **model_out, struct ash_err *err)
{
    if (rc == 0) rc = ash_model_bring(model, err);
    if (rc == 0)
        *model_out = model;
    else
        ash_model_close(model);
    return rc;
}

int ash_model_open_base(const char *path, struct ash_model **model_out, struct ash_err *err)
{
    struct ash_model *model = NULL;
    int rc = ash_open_plain(path, &model, err);

    return ash_open_bring(rc, model, model_out, err);
}

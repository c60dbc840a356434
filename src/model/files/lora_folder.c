/* lora_folder: the adapters of a PEFT folder as a model. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "model/files/lora_files_priv.h"
#include "model/files/open.h"
#include "storage/safetensors/safetensors.h"

/* Is this what PEFT calls the parameter? Before it wrapped modules, their biases were called as in the base. */
static bool is_called(const struct ash_param *param, const char *name)
{
    char base[sizeof(param->name)];

    if (strcmp(param->name, name) == 0) return true;
    if (param->is_adapter || strncmp(name, ASH_LORA_PREFIX, strlen(ASH_LORA_PREFIX)) != 0) return false;
    ash_lora_base_name(param, base);
    return strcmp(base, name + strlen(ASH_LORA_PREFIX)) == 0;
}

/* A constant of the base that PEFT saves with all biases, as "bias" is in its name. */
static bool is_constant(const struct ash_model *model, const char *name)
{
    if (strncmp(name, ASH_LORA_PREFIX, strlen(ASH_LORA_PREFIX)) != 0) return false;
    for (size_t i = 0; i < model->base_count; i++) {
        const struct ash_param *base = &model->params[model->param_count + i];

        if (!base->is_trained && strcmp(base->name, name + strlen(ASH_LORA_PREFIX)) == 0) return true;
    }
    return false;
}

/* A tensor that belongs to no module: the adapter was made for another base. */
static int check_tensors(const struct ash_model *model, const struct ash_safetensors *file, struct ash_err *err)
{
    for (size_t i = 0; i < ash_safetensors_size(file); i++) {
        const char *name = ash_safetensors_at(file, i)->name;
        size_t at = 0;

        while (at < model->param_count && !is_called(&model->params[at], name))
            at++;
        if (at == model->param_count && !is_constant(model, name))
            return ash_err_set(err, -EINVAL,
                               "tensor '%s' belongs to no module of the base: the adapter is of another base or config",
                               name);
    }
    return 0;
}

static const struct ash_tensor_view *find_tensor(const struct ash_safetensors *file, const struct ash_param *param)
{
    for (size_t i = 0; i < ash_safetensors_size(file); i++)
        if (is_called(param, ash_safetensors_at(file, i)->name)) return ash_safetensors_at(file, i);
    return NULL;
}

static int read_tensor(struct ash_model *model, const struct ash_param *param, const struct ash_safetensors *file,
                       struct ash_err *err)
{
    const struct ash_tensor_view *view = find_tensor(file, param);

    if (view == NULL && !param->is_matrix && model->config.lora->bias == ASH_LORA_BIAS_ADAPTED)
        return ash_lora_take_base(model, param, err);
    if (view == NULL)
        return ash_err_set(err, -EINVAL, "there is no tensor '%s': the adapter is of another base or config",
                           param->name);
    if (view->dim_count != param->dim_count || view->dims[0] != param->full[0] ||
        (param->dim_count == 2 && view->dims[1] != param->full[1]) ||
        (view->dtype != ASH_F32 && view->dtype != ASH_BF16 && view->dtype != ASH_F16))
        return ash_err_set(err, -EINVAL, "tensor '%s' has another shape or type than [%zu%s%.0zu] of numbers",
                           param->name, param->full[0], param->dim_count == 2 ? ", " : "", param->full[1]);
    ash_param_take(param, view->data, view->dtype, (float *)model->values.data + param->offset);
    return 0;
}

static int read_tensors(struct ash_model *model, const struct ash_safetensors *file, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < model->param_count; i++)
        rc = read_tensor(model, &model->params[i], file, err);
    if (rc < 0 || model->config.layers < model->whole.layers) return rc; /* other stages have the other tensors */
    return check_tensors(model, file, err);
}

int ash_lora_read(struct ash_model *model, const char *dir, struct ash_err *err)
{
    struct ash_safetensors *file = NULL;
    char path[PATH_MAX];
    int rc;

    if (ash_path_join(path, sizeof(path), dir, ASH_LORA_WEIGHTS_FILE) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "'%s' is too long a path", dir);
    rc = ash_safetensors_open(path, &file, err);
    if (rc < 0) return rc;
    rc = read_tensors(model, file, err);
    ash_safetensors_close(file);
    ash_model_refresh(model);
    return rc < 0 ? ash_err_prefix(err, rc, "%s", path) : 0;
}

int ash_lora_open_model(const char *dir, const char *base_dir, struct ash_lora **lora_out, struct ash_model **model_out,
                        struct ash_err *err)
{
    struct ash_lora *lora = NULL;
    struct ash_model_config config = {0};
    struct ash_model *model = NULL;
    int rc = ash_lora_load(dir, base_dir, &lora, err);

    if (rc == 0) rc = ash_model_config_load(lora->base_dir, &config, err);
    config.lora = lora;
    if (rc == 0) lora->follows_rows = true;
    if (rc == 0) rc = ash_model_blank_slice(&config, NULL, &model, err);
    if (rc == 0) rc = ash_lora_read(model, dir, err);
    if (rc == 0) rc = ash_lora_follow_rows(model, model->base, err);
    if (rc < 0) {
        ash_model_close(model);
        ash_lora_close(lora);
        return rc;
    }
    *lora_out = lora;
    *model_out = model;
    return 0;
}

int ash_lora_open_base(const struct ash_lora *lora, struct ash_model **model_out, struct ash_err *err)
{
    struct ash_model_config config = {0};
    struct ash_model *model = NULL;
    int rc = ash_model_config_load(lora->base_dir, &config, err);

    config.lora = lora;
    if (rc == 0) rc = ash_model_blank_slice(&config, NULL, &model, err);
    if (rc == 0) rc = ash_lora_init(model, 0, err); /* what A multiplies is zero */
    if (rc < 0) {
        if (model == NULL) ash_model_config_fini(&config);
        ash_model_close(model);
        return rc;
    }
    *model_out = model;
    return 0;
}

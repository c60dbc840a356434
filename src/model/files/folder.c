/* A model's folder: finds each parameter in the mapped files, and writes weights, config.json and
 * generation_config.json. */
#include "model/files/folder_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "base/file.h"
#include "base/math.h"
#include "model/files/lora_folder.h"
#include "model/files/save.h"
#include "model/quantised/quantised.h"
#include "model/stored.h"
#include "model/weight.h"

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* The first bert's norms have gamma and beta. */
static const struct ash_tensor_view *find_old_norm(const struct ash_model *model, const char *name)
{
    const char *end = strstr(name, "LayerNorm.");
    char old[128];

    if (end == NULL || !model->config.form.both_ways) return NULL;
    end += strlen("LayerNorm.");
    snprintf(old, sizeof(old), "%.*s%s", (int)(end - name), name, strcmp(end, "weight") == 0 ? "gamma" : "beta");
    return ash_safetensors_find(model->files, old);
}

/* Some files of the field leave the base model's prefix out of their names (the first gpt2 does). */
static const struct ash_tensor_view *find_tensor(const struct ash_model *model, const char *name)
{
    const char *prefix = model->config.family->base_prefix;
    const struct ash_tensor_view *view = ash_safetensors_find(model->files, name);

    if (view == NULL && strncmp(name, prefix, strlen(prefix)) == 0)
        view = ash_safetensors_find(model->files, name + strlen(prefix));
    return view != NULL ? view : find_old_norm(model, name);
}

static void format_shape(const size_t *dims, int count, char *buf, size_t buf_bytes)
{
    size_t used = (size_t)snprintf(buf, buf_bytes, "[");

    for (int i = 0; i < count && used < buf_bytes; i++)
        used += (size_t)snprintf(buf + used, buf_bytes - used, "%s%zu", i > 0 ? ", " : "", dims[i]);
    if (used < buf_bytes) snprintf(buf + used, buf_bytes - used, "]");
}

/* A tensor of the files. Returns 0 or why it cannot be the parameter's. */
static int bind_plain(struct ash_model *model, struct ash_param *param, const struct ash_stored *stored,
                      const char *dir, struct ash_err *err)
{
    const struct ash_tensor_view *view = find_tensor(model, stored->name);

    if (view == NULL && model->config.labels > 0 && strcmp(param->name, "score.weight") == 0) {
        model->lacks_score = true;
        return 0;
    }
    if (view == NULL) return ash_err_set(err, -ENOENT, "%s: the weights lack tensor '%s'", dir, stored->name);
    if (view->dtype != ASH_F32 && view->dtype != ASH_BF16 && view->dtype != ASH_F16)
        return ash_err_set(err, -ENOTSUP,
                           "%s: tensor '%s' is %s, and config.json's quantization_config does not say how to read it; "
                           "F32, BF16 and F16 can be used",
                           dir, stored->name, ash_dtype_name(view->dtype));
    if (view->dim_count != stored->dim_count ||
        memcmp(view->dims, stored->dims, (size_t)stored->dim_count * sizeof(size_t)) != 0) {
        char found[128], wanted[128];
        format_shape(view->dims, view->dim_count, found, sizeof(found));
        format_shape(stored->dims, stored->dim_count, wanted, sizeof(wanted));
        return ash_err_set(err, -EINVAL, "%s: tensor '%s' is %s but config.json makes it %s", dir, stored->name, found,
                           wanted);
    }
    param->data = (const char *)view->data + ash_dtype_size(view->dtype, param->part * ash_param_full_count(param));
    param->dtype = view->dtype;
    return 0;
}

/* As find_tensor, among the quantised ones. */
static int find_quantised(struct ash_model *model, const struct ash_stored *stored, size_t *index_out,
                          struct ash_err *err)
{
    const char *prefix = model->config.family->base_prefix;
    size_t length = strlen(prefix);
    int rc = ash_quantised_find(model->quantised, stored->name, stored->dims, stored->dim_count, index_out, err);

    if (rc != 0 || strncmp(stored->name, prefix, length) != 0) return rc;
    return ash_quantised_find(model->quantised, stored->name + length, stored->dims, stored->dim_count, index_out, err);
}

/* Are they parts of one tensor? */
static bool share_tensor(const struct ash_param *a, const struct ash_param *b)
{
    size_t length = strcspn(a->name, "[");

    return a->parts > 0 && b->parts > 0 && length == strcspn(b->name, "[") && strncmp(a->name, b->name, length) == 0;
}

#define PLAIN SIZE_MAX /* a parameter that is not quantised */

/* Bind the plain parameters, and number the quantised ones: their floats have no address before all are known. The
 * parameters that share a tensor follow each other. */
static int bind_params(struct ash_model *model, const char *dir, size_t *numbers, struct ash_err *err)
{
    for (size_t i = 0; i < model->param_count; i++) {
        struct ash_param *param = &model->params[i];
        struct ash_stored stored = ash_param_stored(param, param->full);
        bool is_same = i > 0 && numbers[i - 1] != PLAIN && share_tensor(param - 1, param);
        int rc = 0;

        numbers[i] = is_same ? numbers[i - 1] : PLAIN;
        if (param->data != NULL) continue; /* it is another model's */
        if (!is_same && model->quantised != NULL) rc = find_quantised(model, &stored, &numbers[i], err);
        if (rc < 0) return ash_err_prefix(err, rc, "%s", dir);
        if (numbers[i] == PLAIN) rc = bind_plain(model, param, &stored, dir, err);
        if (rc < 0) return rc;
    }
    return 0;
}

static int bind_quantised(struct ash_model *model, const size_t *numbers, struct ash_err *err)
{
    int rc = ash_quantised_map(model->quantised, err);

    for (size_t i = 0; rc == 0 && i < model->param_count; i++) {
        struct ash_param *param = &model->params[i];
        const char *data = numbers[i] != PLAIN ? ash_quantised_data(model->quantised, numbers[i]) : NULL;

        if (data == NULL) continue;
        param->dtype = ash_quantised_dtype(model->quantised);
        param->data = data + ash_dtype_size(param->dtype, param->part * ash_param_full_count(param));
    }
    return rc;
}

static int bind_all(struct ash_model *model, const char *dir, struct ash_err *err)
{
    size_t *numbers = calloc(model->param_count, sizeof(*numbers));
    int rc = numbers != NULL ? bind_params(model, dir, numbers, err) : ash_err_set(err, -ENOMEM, "out of memory");

    if (rc == 0 && model->quantised != NULL) rc = bind_quantised(model, numbers, err);
    free(numbers);
    return rc;
}

/* ModelOpt's first folders say in a file of their own how they are quantised. */
static int open_quantised(struct ash_model *model, const char *dir, struct ash_err *err)
{
    json_t *config = json_copy(model->config.source), *other = NULL, *quantisation;
    char path[PATH_MAX];
    int rc = 0;

    if (json_object_get(config, "quantization_config") == NULL &&
        ash_path_join(path, sizeof(path), dir, ASH_FOLDER_MODELOPT) == 0 && ash_path_exists(path)) {
        rc = ash_json_load(path, &other, err);
        quantisation = json_object_get(other, "quantization");
        if (rc == 0 && !json_is_object(quantisation))
            rc = ash_err_set(err, -EINVAL, "%s has no 'quantization'", ASH_FOLDER_MODELOPT);
        if (rc == 0) {
            json_object_set_new(quantisation, "quant_method", json_string("modelopt"));
            json_object_set(config, "quantization_config", quantisation);
        }
    }
    if (rc == 0) rc = ash_quantised_open(config, model->files, &model->quantised, err);
    json_decref(other);
    json_decref(config);
    return rc < 0 ? ash_err_prefix(err, rc, "%s", dir) : 0;
}

int ash_folder_map(struct ash_model *model, const char *dir, struct ash_err *err)
{
    char path[4096];
    int rc;

    rc = ash_safetensors_open_lazy(dir, &model->files, err);
    if (rc < 0) return rc;
    rc = open_quantised(model, dir, err);
    if (rc < 0) return rc;
    rc = bind_all(model, dir, err);
    if (rc < 0) return rc;
    if (ash_path_join(path, sizeof(path), dir, "generation_config.json") == 0 && ash_path_exists(path))
        return ash_json_load(path, &model->generation, err);
    return 0;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

#define CONVERT_CHUNK 4096 /* elements converted at a time */

struct writer {
    ash_model_read read;
    void *ctx;
    enum ash_dtype dtype;
    const struct ash_model *model;
    size_t
        *firsts; /* of each tensor in files: its parameter, or the first of those that share it, one after the other */
};

static void convert(const float *values, size_t count, enum ash_dtype dtype, void *out)
{
    uint16_t *half = out;

    if (dtype == ASH_F32) memcpy(out, values, count * sizeof(float));
    for (size_t i = 0; dtype != ASH_F32 && i < count; i++)
        half[i] = dtype == ASH_BF16 ? ash_f32_to_bf16(values[i]) : ash_f32_to_f16(values[i]);
}

/* A model's own values, and the progress callback of a save. */
struct own {
    const struct ash_model *model;
    const struct ash_save_watch *watch;
    size_t count, total;
};

/* The master weights if there are any, else the file's. */
static int read_own(void *ctx, size_t index, size_t first, size_t count, float *out)
{
    struct own *own = ctx;
    const struct ash_model *model = own->model;
    const struct ash_param *param = &model->params[index];
    const float *owned = model->values.data;

    ash_assert(index < model->param_count);
    ash_weights_to_f32(owned != NULL ? (const void *)(owned + param->offset) : param->data,
                       owned != NULL ? ASH_F32 : param->dtype, first, count, out);
    own->count += count;
    if (own->watch != NULL) own->watch->saved(own->watch->ctx, own->count, own->total);
    return 0;
}

static int fill_tensor(void *ctx, size_t index, size_t first_byte, void *buf, size_t size_bytes)
{
    const struct writer *writer = ctx;
    size_t width = ash_dtype_bytes(writer->dtype), first = first_byte / width, count = size_bytes / width;
    size_t each = writer->model->params[writer->firsts[index]].count, part;
    float values[CONVERT_CHUNK];

    for (size_t done = 0; done < count; done += part) {
        size_t at = (first + done) % each, param = writer->firsts[index] + (first + done) / each;
        int rc;

        part = ash_min(ash_min(count - done, CONVERT_CHUNK), each - at);
        rc = writer->read(writer->ctx, param, at, part, values);
        if (rc < 0) return rc;
        convert(values, part, writer->dtype, (char *)buf + done * width);
    }
    return 0;
}

static const char *torch_dtype_name(enum ash_dtype dtype)
{
    return dtype == ASH_F32 ? "float32" : dtype == ASH_BF16 ? "bfloat16" : "float16";
}

static int save_json(const char *dir, const char *name, const json_t *json, struct ash_err *err)
{
    char path[4096];
    int rc = ash_path_join(path, sizeof(path), dir, name);

    return rc < 0 ? ash_err_set(err, rc, "%s: the path is too long", dir) : ash_json_save(path, json, err);
}

static int save_config_json(const struct ash_model *model, const char *dir, enum ash_dtype dtype, struct ash_err *err)
{
    json_t *json = json_copy(model->config.source);
    const char *key = json_object_get(json, "torch_dtype") != NULL ? "torch_dtype" : "dtype";
    int rc;

    json_object_del(json, "quantization_config"); /* the new weights are floats */
    if (json == NULL || json_object_set_new(json, key, json_string(torch_dtype_name(dtype))) < 0) {
        json_decref(json);
        return ash_err_set(err, -ENOMEM, "out of memory for config.json");
    }
    rc = save_json(dir, "config.json", json, err);
    json_decref(json);
    return rc;
}

/* The file's own, or the token ids that config.json names. */
static int save_generation_config(const struct ash_model *model, const char *dir, struct ash_err *err)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    json_t *json;
    int rc;

    if (model->generation != NULL) return save_json(dir, "generation_config.json", model->generation, err);
    json = json_object();
    for (size_t i = 0; i < ASH_COUNT(keys); i++) {
        json_t *value = json_object_get(model->config.source, keys[i]);
        if (value != NULL && !json_is_null(value)) json_object_set(json, keys[i], value);
    }
    rc = save_json(dir, "generation_config.json", json, err);
    json_decref(json);
    return rc;
}

int ash_model_save_config(const struct ash_model *model, const char *dir, enum ash_dtype dtype, struct ash_err *err)
{
    int rc = save_config_json(model, dir, dtype, err);

    return rc < 0 ? rc : save_generation_config(model, dir, err);
}

int ash_model_save(const struct ash_model *model, const char *dir, enum ash_dtype dtype, size_t max_shard_bytes,
                   const struct ash_save_watch *watch, struct ash_err *err)
{
    struct own own = {.model = model, .watch = watch, .total = ash_model_weight_count(model)};

    return ash_model_save_from(model, read_own, &own, dir, dtype, max_shard_bytes, err);
}

/* PEFT's files: adapters are small, so they are one. */
static int write_adapters(const struct ash_model *model, const char *dir, const struct ash_tensor_spec *specs,
                          struct writer *writer, struct ash_err *err)
{
    const struct ash_metadata metadata = {"format", "pt"};
    char path[PATH_MAX];
    int rc = ash_lora_save_config(model->config.lora, dir, err);

    if (rc < 0) return rc;
    if (ash_path_join(path, sizeof(path), dir, ASH_LORA_WEIGHTS_FILE) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "'%s' is too long a path", dir);
    return ash_safetensors_write(path, specs, model->param_count, &metadata, 1, fill_tensor, writer, err);
}

/* The tensors of the files, into specs and writer->firsts. Returns how many. */
static size_t list_tensors(const struct ash_model *model, enum ash_dtype dtype, struct ash_stored *stored,
                           struct ash_tensor_spec *specs, size_t *firsts)
{
    size_t count = 0;

    for (size_t i = 0; i < model->param_count; i++) {
        const struct ash_param *param = &model->params[i];

        if (param->parts > 0 && param->part > 0) continue;
        stored[count] = ash_param_stored(param, param->dims);
        specs[count] =
            (struct ash_tensor_spec){.name = stored[count].name, .dtype = dtype, .dim_count = stored[count].dim_count};
        memcpy(specs[count].dims, stored[count].dims, sizeof(stored[count].dims));
        firsts[count++] = i;
    }
    return count;
}

static int write_folder(const struct ash_model *model, const char *dir, size_t max_shard_bytes, struct writer *writer,
                        struct ash_err *err)
{
    struct ash_tensor_spec *specs = calloc(model->param_count, sizeof(*specs));
    struct ash_stored *stored = calloc(model->param_count, sizeof(*stored));
    size_t count;
    int rc;

    writer->firsts = calloc(model->param_count, sizeof(*writer->firsts));
    if (specs == NULL || stored == NULL || writer->firsts == NULL) {
        rc = ash_err_set(err, -ENOMEM, "out of memory for the list of tensors");
        goto end;
    }
    count = list_tensors(model, writer->dtype, stored, specs, writer->firsts);
    rc = ash_dir_make(dir, err);
    if (rc == 0 && model->config.lora != NULL)
        rc = write_adapters(model, dir, specs, writer, err);
    else if (rc == 0)
        rc = ash_safetensors_write_folder(dir, specs, count, max_shard_bytes, fill_tensor, writer, err);
end:
    free(writer->firsts);
    free(stored);
    free(specs);
    return rc;
}

int ash_model_save_from(const struct ash_model *model, ash_model_read read, void *ctx, const char *dir,
                        enum ash_dtype dtype, size_t max_shard_bytes, struct ash_err *err)
{
    struct writer writer = {.read = read, .ctx = ctx, .dtype = dtype, .model = model};
    int rc;

    if (model->gguf != NULL)
        return ash_err_set(err, -ENOTSUP, "a model from a GGUF file cannot be written as a folder");
    rc = write_folder(model, dir, max_shard_bytes, &writer, err);
    return rc < 0 ? rc : ash_model_save_config(model, dir, dtype, err);
}

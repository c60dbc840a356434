/* Weights go through the model; small files next to them are copied. */
#include "model/files/convert.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "base/file.h"
#include "model/files/folder_priv.h"
#include "model/files/open.h"
#include "model/files/save.h"
#include "storage/commit/commit.h"

#define COPY_MAX_BYTES ((size_t)256 << 20) /* tokenizers and notes are far smaller */
#define PATH_BYTES 4096
#define F16_MAX 65504.0f

static bool ends_with(const char *name, const char *suffix)
{
    size_t name_bytes = strlen(name), suffix_bytes = strlen(suffix);

    return name_bytes >= suffix_bytes && strcmp(name + name_bytes - suffix_bytes, suffix) == 0;
}

/* Tokenizer, templates and notes travel along; weights in any format, files that the writer makes, and those that
 * describe the old weights do not. */
static bool is_companion(const char *name)
{
    static const char *const suffixes[] = {".json", ".jinja", ".txt", ".model", ".md", ".tiktoken"};
    static const char *const written[] = {"config.json", "generation_config.json", ASH_COMMIT_MANIFEST,
                                          ASH_FOLDER_MODELOPT};

    if (ends_with(name, ".index.json")) return false;
    for (size_t i = 0; i < ASH_COUNT(written); i++)
        if (strcmp(name, written[i]) == 0) return false;
    for (size_t i = 0; i < ASH_COUNT(suffixes); i++)
        if (ends_with(name, suffixes[i])) return true;
    return strncmp(name, "LICENSE", strlen("LICENSE")) == 0;
}

static int copy_file(const char *from_dir, const char *to_dir, const char *name, struct ash_err *err)
{
    char from[PATH_BYTES], to[PATH_BYTES], *data = NULL;
    struct stat info;
    size_t size_bytes = 0;
    int rc;

    if (ash_path_join(from, sizeof(from), from_dir, name) < 0 || ash_path_join(to, sizeof(to), to_dir, name) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "the path of '%s' is too long", name);
    if (stat(from, &info) < 0 || !S_ISREG(info.st_mode)) return 0;
    rc = ash_file_read(from, COPY_MAX_BYTES, &data, &size_bytes, err);
    if (rc < 0) return rc;
    rc = ash_file_replace(to, data, size_bytes, err);
    free(data);
    return rc;
}

static int copy_companions(const char *from_dir, const char *to_dir, struct ash_err *err)
{
    DIR *dir = opendir(from_dir);
    const struct dirent *entry;
    int rc = 0;

    if (dir == NULL) return ash_err_set(err, -errno, "cannot list '%s': %s", from_dir, strerror(errno));
    while (rc == 0 && (entry = readdir(dir)) != NULL)
        if (is_companion(entry->d_name)) rc = copy_file(from_dir, to_dir, entry->d_name, err);
    closedir(dir);
    return rc;
}

static float value_at(const struct ash_param *param, size_t index)
{
    return param->dtype == ASH_F32 ? ((const float *)param->data)[index]
                                   : ash_bf16_to_f32(((const uint16_t *)param->data)[index]);
}

/* A value that f16 cannot hold would become infinite: better no folder than one that is broken. */
static int check_f16(const struct ash_model *model, struct ash_err *err)
{
    for (size_t i = 0; i < ash_model_param_count(model); i++) {
        const struct ash_param *param = ash_model_param(model, i);

        if (ash_dtype_block(param->dtype) > 1) continue; /* quantised with scales of f16, and not saved */
        for (size_t e = 0; param->dtype != ASH_F16 && e < param->count; e++)
            if (value_at(param, e) > F16_MAX || value_at(param, e) < -F16_MAX)
                return ash_err_set(err, -ERANGE, "tensor '%s' holds %g, which f16 cannot: use --dtype bf16",
                                   param->name, (double)value_at(param, e));
    }
    return 0;
}

static int publish(const struct ash_convert_opts *opts, struct ash_model *model, struct ash_publish_cost *cost_out,
                   struct ash_err *err)
{
    size_t count = ash_model_param_count(model);
    struct ash_inputs *inputs = opts->observe != NULL ? calloc(count, sizeof(*inputs)) : NULL;
    const struct ash_publish_opts publish_opts = {opts->encoding, inputs, opts->dir, opts->max_shard_bytes,
                                                  opts->watch};
    int rc = 0;

    if (opts->observe != NULL)
        rc = inputs != NULL ? opts->observe(opts->observe_ctx, model, inputs, err)
                            : ash_err_set(err, -ENOMEM, "out of memory for the inputs of layers");
    if (rc == 0) rc = ash_model_publish(model, &publish_opts, cost_out, err);
    if (inputs != NULL) ash_inputs_free(inputs, count);
    free(inputs);
    return rc;
}

static int save(const struct ash_convert_opts *opts, struct ash_model *model, struct ash_str *notes,
                struct ash_publish_cost *cost_out, struct ash_err *err)
{
    char path[PATH_BYTES];

    if (opts->encoding != NULL) return publish(opts, model, cost_out, err);
    if (!opts->is_gguf) return ash_model_save(model, opts->dir, opts->dtype, opts->max_shard_bytes, opts->watch, err);
    if (ash_path_join(path, sizeof(path), opts->dir, "model.gguf") < 0)
        return ash_err_set(err, -ENAMETOOLONG, "the path '%s' is too long", opts->dir);
    return ash_model_save_gguf(model, opts->source, path, opts->dtype, notes, opts->watch, err);
}

int ash_convert_folder(const struct ash_convert_opts *opts, struct ash_str *notes, size_t *weights_out,
                       struct ash_publish_cost *cost_out, struct ash_err *err)
{
    struct ash_model *model = NULL;
    int rc = ash_model_open(opts->source, &model, err);

    if (rc == 0 && ash_model_get_config(model)->lora != NULL)
        rc = ash_err_set(err, -ENOTSUP, "%s has adapters: `ashlar model merge` adds them to their base first",
                         opts->source);
    if (rc == 0 && opts->encoding == NULL && opts->dtype == ASH_F16) rc = check_f16(model, err);
    if (rc == 0) rc = save(opts, model, notes, cost_out, err);
    if (rc == 0) rc = copy_companions(opts->source, opts->dir, err);
    if (rc == 0) *weights_out = ash_model_weight_count(model);
    ash_model_close(model);
    return rc;
}

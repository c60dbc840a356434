/* pooled: the modules of a folder of sentence transformers, of which transformer, pooling and normalising are known. */
#include "serve/pooled.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"

/* Older files have a switch for each way, newer ones a name. */
static const struct {
    const char *key, *name;
    enum ash_pooling pooling;
} ways[] = {
    {"pooling_mode_cls_token", "cls", ASH_POOLING_FIRST},
    {"pooling_mode_mean_tokens", "mean", ASH_POOLING_MEAN},
    {"pooling_mode_lasttoken", "lasttoken", ASH_POOLING_LAST},
    {"pooling_mode_max_tokens", "max", ASH_POOLING_NONE},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", ASH_POOLING_NONE},
    {"pooling_mode_weightedmean_tokens", "weightedmean", ASH_POOLING_NONE},
};

static void refuse(struct ash_pooled *pooled, const char *what, const char *name)
{
    snprintf(pooled->refusal, sizeof(pooled->refusal),
             "the folder's %s '%.40s' is not supported (pooling of the first token, the last one or all of them is)",
             what, name);
}

static int read_pooling(const json_t *json, struct ash_pooled *pooled, struct ash_err *err)
{
    const char *mode = NULL;
    size_t count = 0;
    int rc = ash_json_string(json, "pooling_mode", &mode, err);

    for (size_t i = 0; rc >= 0 && i < sizeof(ways) / sizeof(ways[0]); i++) {
        bool is_on = false;

        rc = ash_json_bool(json, ways[i].key, &is_on, err);
        if (mode != NULL) is_on = strcmp(mode, ways[i].name) == 0;
        if (rc < 0 || !is_on) continue;
        count++;
        pooled->embedding = ways[i].pooling;
        if (ways[i].pooling == ASH_POOLING_NONE) refuse(pooled, "pooling", ways[i].name);
    }
    if (rc < 0) return rc;
    if (count != 1) refuse(pooled, "pooling", count == 0 && mode != NULL ? mode : "of several kinds");
    return 0;
}

static int load_pooling(const char *dir, const char *path, struct ash_pooled *pooled, struct ash_err *err)
{
    char folder[PATH_MAX], file[PATH_MAX];
    json_t *json = NULL;
    int rc;

    if (ash_path_join(folder, sizeof(folder), dir, path) < 0 ||
        ash_path_join(file, sizeof(file), folder, "config.json") < 0)
        return ash_err_set(err, -EINVAL, "modules.json names a path that is too long");
    rc = ash_json_load(file, &json, err);
    if (rc == 0) rc = read_pooling(json, pooled, err);
    json_decref(json);
    return rc < 0 ? ash_err_prefix(err, rc, "modules.json") : 0;
}

static int read_module(const char *dir, const json_t *module, struct ash_pooled *pooled, struct ash_err *err)
{
    const char *type = NULL, *path = "", *name;
    int rc = ash_json_string(module, "type", &type, err);

    if (rc >= 0) rc = ash_json_string(module, "path", &path, err);
    if (rc < 0) return ash_err_prefix(err, rc, "modules.json");
    if (type == NULL) return ash_err_set(err, -EINVAL, "modules.json has a module without a type");
    name = strrchr(type, '.') != NULL ? strrchr(type, '.') + 1 : type;
    if (strcmp(name, "Transformer") == 0) return 0;
    if (strcmp(name, "Pooling") == 0) return load_pooling(dir, path, pooled, err);
    if (strcmp(name, "Normalize") == 0)
        pooled->is_normalized = true;
    else
        refuse(pooled, "module", name);
    return 0;
}

int ash_pooled_load(const char *dir, const struct ash_model_config *config, struct ash_pooled *pooled_out,
                    struct ash_err *err)
{
    bool is_encoder = config->form.both_ways;
    struct ash_pooled pooled = {.embedding = is_encoder ? ASH_POOLING_MEAN : ASH_POOLING_LAST, .is_normalized = true};
    char path[PATH_MAX];
    json_t *modules = NULL;
    int rc = 0;

    if (config->labels == 1)
        pooled.score = !is_encoder ? ASH_POOLING_LAST : config->pools_mean ? ASH_POOLING_MEAN : ASH_POOLING_FIRST;
    if (ash_path_join(path, sizeof(path), dir, "modules.json") == 0 && ash_path_exists(path)) {
        pooled.is_normalized = false;
        rc = ash_json_load(path, &modules, err);
        if (rc == 0 && !json_is_array(modules)) rc = ash_err_set(err, -EINVAL, "%s is not a list of modules", path);
    }
    for (size_t i = 0; rc == 0 && i < json_array_size(modules); i++)
        rc = read_module(dir, json_array_get(modules, i), &pooled, err);
    json_decref(modules);
    if (rc == 0) *pooled_out = pooled;
    return rc;
}

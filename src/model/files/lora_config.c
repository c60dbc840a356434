/* lora_config: adapter_config.json of PEFT, and which modules of a base it or a user names. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "model/files/lora_files_priv.h"
#include "model/files/lora_names.h"
#include "model/files/open.h"
#include "storage/gguf/gguf.h"

/* What adapter_config.json says, or a user. */
struct request {
    const struct ash_model *base; /* an outline */
    size_t rank;
    double alpha;
    bool rslora;
    const json_t *targets; /* an array of names, or a string */
    const json_t *rank_pattern, *alpha_pattern;
    const json_t *layers; /* layers_to_transform: null, a number or an array */
    const json_t *saved;
    enum ash_dtype quant;
    double dropout;
    enum ash_lora_bias bias;
    bool is_users; /* not read from a folder */
};

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static double number_or(const json_t *value, double otherwise)
{
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static int add_module(const struct request *request, const struct ash_param *param, struct ash_lora *lora,
                      struct ash_err *err)
{
    struct ash_lora_module module = {0};
    int length = (int)(strlen(param->name) - strlen(".weight"));
    double rank, alpha;

    snprintf(module.name, sizeof(module.name), "%.*s", length, param->name);
    if (ash_lora_is_listed(request->saved, module.name)) {
        if (request->base->config.tied && param->layer < 0)
            return ash_err_set(err, -ENOTSUP, "modules_to_save: '%s' is tied to the embedding", module.name);
    } else if (ash_lora_is_target(request->targets, request->layers, module.name, param->layer)) {
        if (param->is_expert || strstr(module.name, ".mlp.gate.") != NULL)
            return ash_err_set(err, -ENOTSUP, "'%s': experts have no adapters", module.name);
        if (param->layer < 0)
            return ash_err_set(err, -ENOTSUP,
                               "'%s': embeddings and heads have no adapters: modules_to_save trains them", module.name);
        rank = number_or(ash_lora_pattern_value(request->rank_pattern, module.name), (double)request->rank);
        alpha = number_or(ash_lora_pattern_value(request->alpha_pattern, module.name), request->alpha);
        if (!(rank >= 1 && rank <= 65536))
            return ash_err_set(err, -EINVAL, "'%s' would have an adapter of rank %g", module.name, rank);
        module.rank = (size_t)rank;
        module.scale = (float)(request->rslora ? alpha / sqrt(rank) : alpha / rank);
    } else {
        return 0;
    }
    lora->modules[lora->count++] = module;
    return 0;
}

/* all-linear means all but experts and routers, as they are no modules of their own. */
static bool is_skipped(const struct request *request, const struct ash_param *param)
{
    bool all = json_is_string(request->targets)
                   ? strcmp(json_string_value(request->targets), "all-linear") == 0
                   : json_array_size(request->targets) == 1 &&
                         strcmp(json_string_value(json_array_get(request->targets, 0)), "all-linear") == 0;

    return !param->is_matrix || (all && (param->is_expert || ash_lora_name_ends(param->name, "mlp.gate.weight")));
}

static int find_modules(const struct request *request, struct ash_lora *lora, struct ash_err *err)
{
    int rc = 0;

    lora->modules = calloc(request->base->param_count, sizeof(*lora->modules));
    if (lora->modules == NULL) return ash_err_set(err, -ENOMEM, "out of memory for adapters");
    for (size_t i = 0; rc == 0 && i < request->base->param_count; i++)
        if (!is_skipped(request, &request->base->params[i]))
            rc = add_module(request, &request->base->params[i], lora, err);
    if (rc == 0 && lora->count == 0)
        rc = ash_err_set(err, -EINVAL, "no matrix of %s has a name among the adapters' targets", lora->base_dir);
    return rc;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

bool ash_lora_exists(const char *dir)
{
    char path[PATH_MAX];

    return ash_path_join(path, sizeof(path), dir, ASH_LORA_CONFIG_FILE) >= 0 && ash_path_exists(path);
}

static int open_outline(const char *base_dir, struct ash_model **outline_out, struct ash_err *err)
{
    struct ash_model_config config = {0};
    int rc = ash_model_config_load(base_dir, &config, err);

    if (rc < 0) return rc;
    rc = ash_model_outline(&config, outline_out, err);
    ash_model_config_fini(&config);
    return rc;
}

/* Takes over a reference to config. The base is the request's, or the one in base_dir. */
static int open_lora(struct request *request, const char *base_dir, json_t *config, struct ash_lora **lora_out,
                     struct ash_err *err)
{
    struct ash_lora *lora = calloc(1, sizeof(*lora));
    struct ash_model *outline = NULL;
    char path[ASH_GGUF_PATH_BYTES];
    int rc = 0;

    if (lora == NULL || (lora->base_dir = strdup(base_dir)) == NULL)
        rc = ash_err_set(err, -ENOMEM, "out of memory for adapters");
    if (lora != NULL) {
        lora->config = config;
        lora->base = request->base;
        lora->base_is_gguf = ash_gguf_locate(base_dir, path);
        lora->quant = request->quant;
        lora->dropout = request->dropout;
        lora->bias = request->bias;
    }
    if (rc == 0 && request->base == NULL) {
        rc = open_outline(base_dir, &outline, err);
        request->base = outline;
    }
    if (rc == 0) rc = find_modules(request, lora, err);
    if (rc == 0) rc = ash_lora_check_names(lora, request->saved, request->is_users ? request->rank_pattern : NULL, err);
    if (rc == 0 && request->is_users) rc = ash_lora_check_targets(lora, request->targets, err);
    if (rc == 0 && request->is_users) /* as PEFT writes them, which takes no "all-linear" in a list */
        json_object_set_new(lora->config, "target_modules", ash_lora_list_targets(lora, request->base));
    ash_model_close(outline);
    if (rc < 0) {
        if (lora == NULL) json_decref(config);
        ash_lora_close(lora);
        return rc;
    }
    *lora_out = lora;
    return 0;
}

static json_t *string_array(const char *const *items, size_t count)
{
    json_t *array = json_array();

    for (size_t i = 0; i < count; i++)
        if (items[i][0] != '\0') json_array_append_new(array, json_string(items[i]));
    return array;
}

/* "NAME:RANK" as an object. */
static int pattern_object(const char *const *items, size_t count, json_t *object, struct ash_err *err)
{
    for (size_t i = 0; i < count; i++) {
        const char *colon = strrchr(items[i], ':');
        char name[256], *end = NULL;
        long rank = colon != NULL ? strtol(colon + 1, &end, 10) : 0;

        if (items[i][0] == '\0') continue;
        if (colon == NULL || end == colon + 1 || *end != '\0' || rank < 1)
            return ash_err_set(err, -EINVAL, "lora.rank_pattern: '%s' is not NAME:RANK", items[i]);
        snprintf(name, sizeof(name), "%.*s", (int)(colon - items[i]), items[i]);
        json_object_set_new(object, name, json_integer(rank));
    }
    return 0;
}

int ash_lora_open(const struct ash_lora_opts *opts, struct ash_lora **lora_out, struct ash_err *err)
{
    json_t *targets = string_array(opts->targets, opts->target_count),
           *saved = string_array(opts->saved, opts->saved_count), *ranks = json_object();
    struct request request = {.rank = opts->rank,
                              .alpha = opts->alpha,
                              .rslora = opts->rslora,
                              .targets = targets,
                              .rank_pattern = ranks,
                              .saved = saved,
                              .quant = opts->quant,
                              .dropout = opts->dropout,
                              .bias = opts->bias,
                              .is_users = true};
    json_t *config;
    int rc = pattern_object(opts->rank_pattern, opts->rank_pattern_count, ranks, err);

    config = json_pack("{s:s, s:s, s:s, s:s, s:b, s:b, s:b, s:I, s:f, s:f, s:O, s:O, s:O, s:{}, s:b, s:n, s:n, s:b}",
                       "peft_type", "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path", opts->base_dir, "bias",
                       ash_lora_bias_names[opts->bias], "inference_mode", 1, "use_rslora", (int)opts->rslora,
                       "use_dora", 0, "r", (json_int_t)opts->rank, "lora_alpha", opts->alpha, "lora_dropout",
                       opts->dropout, "target_modules", targets, "modules_to_save",
                       json_array_size(saved) > 0 ? saved : json_null(), "rank_pattern", ranks, "alpha_pattern",
                       "fan_in_fan_out", 0, "layers_to_transform", "layers_pattern", "init_lora_weights", 1);
    if (rc == 0 && config == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory for adapters");
    if (rc == 0)
        rc = open_lora(&request, opts->base_dir, config, lora_out, err);
    else
        json_decref(config);
    json_decref(targets);
    json_decref(saved);
    json_decref(ranks);
    return rc;
}

/* What this is not. */
static int refuse_others(const json_t *config, struct ash_err *err)
{
    static const char *const kinds[] = {"use_dora",
                                        "use_qalora",
                                        "lora_bias",
                                        "use_bdlora",
                                        "alora_invocation_tokens",
                                        "layer_replication",
                                        "trainable_token_indices",
                                        "megatron_config"};
    const char *type = json_string_value(json_object_get(config, "peft_type"));

    if (type == NULL || strcmp(type, "LORA") != 0)
        return ash_err_set(err, -ENOTSUP, "peft_type '%.40s' is not supported, only LORA is", type != NULL ? type : "");
    if (json_array_size(json_object_get(config, "target_parameters")) > 0)
        return ash_err_set(err, -ENOTSUP, "target_parameters is not supported");
    for (size_t i = 0; i < ASH_COUNT(kinds); i++) {
        const json_t *value = json_object_get(config, kinds[i]);

        if (value != NULL && !json_is_null(value) && !json_is_false(value))
            return ash_err_set(err, -ENOTSUP, "%s is not supported", kinds[i]);
    }
    return 0;
}

/* The base that a config names: as it is, or relative to the folder. */
static int find_base(const char *dir, const json_t *config, char path[PATH_MAX], struct ash_err *err)
{
    const char *name = json_string_value(json_object_get(config, "base_model_name_or_path"));

    if (name == NULL) return ash_err_set(err, -EINVAL, "base_model_name_or_path is missing: name the base");
    if (ash_path_join(path, PATH_MAX, dir, name) >= 0 && ash_path_exists(path)) return 0;
    snprintf(path, PATH_MAX, "%s", name);
    if (ash_path_exists(path)) return 0;
    return ash_err_set(err, -ENOENT, "its base '%s' is not there: name one (--model BASE --lora DIR, or model.from)",
                       name);
}

static int read_bias(const json_t *config, enum ash_lora_bias *bias, struct ash_err *err)
{
    const char *name = json_string_value(json_object_get(config, "bias"));

    *bias = ASH_LORA_BIAS_NONE;
    for (size_t i = 0; name != NULL; i++) {
        if (ash_lora_bias_names[i] == NULL)
            return ash_err_set(err, -ENOTSUP, "bias '%.40s' is not supported, only none, lora_only and all are", name);
        *bias = (enum ash_lora_bias)i;
        if (strcmp(name, ash_lora_bias_names[i]) == 0) break;
    }
    return 0;
}

/* base: one that is open already; else base_dir, or what the config names. */
static int read_config(const char *dir, const struct ash_model *base, const char *base_dir, json_t *config,
                       struct ash_lora **lora_out, struct ash_err *err)
{
    struct request request = {.base = base,
                              .targets = json_object_get(config, "target_modules"),
                              .rank_pattern = json_object_get(config, "rank_pattern"),
                              .alpha_pattern = json_object_get(config, "alpha_pattern"),
                              .layers = json_object_get(config, "layers_to_transform"),
                              .saved = json_object_get(config, "modules_to_save")};
    char found[PATH_MAX];
    int64_t rank = 0;
    int rc = refuse_others(config, err);

    if (rc >= 0) rc = ash_json_int(config, "r", 1, 65536, &rank, err);
    if (rc >= 0) rc = ash_json_double(config, "lora_alpha", 0, 1e9, &request.alpha, err);
    if (rc >= 0) rc = ash_json_bool(config, "use_rslora", &request.rslora, err);
    if (rc >= 0) rc = read_bias(config, &request.bias, err);
    if (rc >= 0 && base_dir == NULL) rc = find_base(dir, config, found, err);
    if (rc < 0) return rc;
    if (rank == 0) return ash_err_set(err, -EINVAL, "'r' is missing: the adapters' rank");
    request.rank = (size_t)rank;
    json_incref(config);
    return open_lora(&request, base_dir != NULL ? base_dir : found, config, lora_out, err);
}

static int load(const char *dir, const struct ash_model *base, const char *base_dir, struct ash_lora **lora_out,
                struct ash_err *err)
{
    char path[PATH_MAX];
    json_t *config = NULL;
    int rc;

    if (ash_path_join(path, sizeof(path), dir, ASH_LORA_CONFIG_FILE) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "'%s' is too long a path", dir);
    rc = ash_json_load(path, &config, err);
    if (rc < 0) return rc;
    rc = read_config(dir, base, base_dir, config, lora_out, err);
    json_decref(config);
    return rc < 0 ? ash_err_prefix(err, rc, "%s", path) : 0;
}

int ash_lora_load(const char *dir, const char *base_dir, struct ash_lora **lora_out, struct ash_err *err)
{
    return load(dir, NULL, base_dir, lora_out, err);
}

int ash_lora_load_over(const char *dir, const struct ash_model *base, struct ash_lora **lora_out, struct ash_err *err)
{
    return load(dir, base, "", lora_out, err);
}

int ash_lora_save_config(const struct ash_lora *lora, const char *dir, struct ash_err *err)
{
    char path[PATH_MAX];

    if (ash_path_join(path, sizeof(path), dir, ASH_LORA_CONFIG_FILE) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "'%s' is too long a path", dir);
    return ash_json_save(path, lora->config, err);
}

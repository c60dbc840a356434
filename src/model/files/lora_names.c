/* lora_names: what users call the modules of adapters, and what PEFT calls them. */
#include "model/files/lora_names.h"

#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>

#include "model/model_priv.h"

bool ash_lora_name_ends(const char *name, const char *end)
{
    size_t length = strlen(name), size = strlen(end);

    if (length < size || strcmp(name + length - size, end) != 0) return false;
    return length == size || name[length - size - 1] == '.';
}

/* Does a regular expression fit the whole name? */
static bool name_fits(const char *pattern, const char *name)
{
    regex_t regex;
    regmatch_t match;
    char anchored[1024];
    bool is_fit;

    snprintf(anchored, sizeof(anchored), "^(%s)$", pattern);
    if (regcomp(&regex, anchored, REG_EXTENDED) != 0) return false;
    is_fit = regexec(&regex, name, 1, &match, 0) == 0;
    regfree(&regex);
    return is_fit;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

const json_t *ash_lora_pattern_value(const json_t *patterns, const char *name)
{
    const char *key;
    json_t *value;
    char pattern[512];

    json_object_foreach((json_t *)(uintptr_t)patterns, key, value) {
        snprintf(pattern, sizeof(pattern), "(.*\\.)?(%s)", key);
        if (name_fits(pattern, name)) return value;
    }
    return NULL;
}

static bool names_layer(const json_t *layers, int layer)
{
    size_t i;
    json_t *item;

    if (layers == NULL || json_is_null(layers)) return true;
    if (json_is_integer(layers)) return json_integer_value(layers) == layer;
    json_array_foreach((json_t *)(uintptr_t)layers, i, item)
        if (json_integer_value(item) == layer) return true;
    return false;
}

bool ash_lora_is_target(const json_t *targets, const json_t *layers, const char *name, int layer)
{
    const char *text = json_string_value(targets);
    size_t i;
    json_t *item;

    if (!names_layer(layers, layer)) return false;
    if (text != NULL) return strcmp(text, "all-linear") == 0 ? layer >= 0 : name_fits(text, name);
    json_array_foreach((json_t *)(uintptr_t)targets, i, item) {
        const char *target = json_string_value(item);

        if (target == NULL) continue;
        if (strcmp(target, "all-linear") == 0 ? layer >= 0 : ash_lora_name_ends(name, target)) return true;
    }
    return json_array_size(targets) == 1 && layer >= 0 &&
           name_fits(json_string_value(json_array_get(targets, 0)), name);
}

bool ash_lora_is_listed(const json_t *list, const char *name)
{
    size_t i;
    json_t *item;

    json_array_foreach((json_t *)(uintptr_t)list, i, item)
        if (json_is_string(item) && ash_lora_name_ends(name, json_string_value(item))) return true;
    return false;
}

/* ---- what a user named and nothing has --------------------------------------------------------------------------- */

static bool is_saved_here(const struct ash_lora *lora, const char *end)
{
    for (size_t i = 0; i < lora->count; i++)
        if (lora->modules[i].rank == 0 && ash_lora_name_ends(lora->modules[i].name, end)) return true;
    return false;
}

static bool is_ranked_here(const struct ash_lora *lora, const char *key)
{
    char pattern[512];

    snprintf(pattern, sizeof(pattern), "(.*\\.)?(%s)", key);
    for (size_t i = 0; i < lora->count; i++)
        if (lora->modules[i].rank > 0 && name_fits(pattern, lora->modules[i].name)) return true;
    return false;
}

static bool is_target_here(const struct ash_lora *lora, const char *target)
{
    for (size_t i = 0; i < lora->count; i++)
        if (lora->modules[i].rank > 0 &&
            (strcmp(target, "all-linear") == 0 || ash_lora_name_ends(lora->modules[i].name, target)))
            return true;
    return false;
}

int ash_lora_check_targets(const struct ash_lora *lora, const json_t *targets, struct ash_err *err)
{
    json_t *item;
    size_t i;

    if (json_array_size(targets) < 2) return 0; /* one alone may be a regular expression, and has fitted */
    json_array_foreach((json_t *)(uintptr_t)targets, i, item)
        if (!is_target_here(lora, json_string_value(item)))
            return ash_err_set(err, -EINVAL, "targets: no matrix of %s is called '%s'", lora->base_dir,
                               json_string_value(item));
    return 0;
}

int ash_lora_check_names(const struct ash_lora *lora, const json_t *saved, const json_t *ranks, struct ash_err *err)
{
    const char *key;
    json_t *item;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)saved, i, item)
        if (!is_saved_here(lora, json_string_value(item)))
            return ash_err_set(err, -EINVAL,
                               "modules_to_save: %s has no separate matrix '%s' (a tied head is the embedding)",
                               lora->base_dir, json_string_value(item));
    json_object_foreach((json_t *)(uintptr_t)ranks, key, item)
        if (!is_ranked_here(lora, key))
            return ash_err_set(err, -EINVAL, "rank_pattern: no module with an adapter is called '%s'", key);
    return 0;
}

/* ---- PEFT's list ------------------------------------------------------------------------------------------------- */

static bool has_adapter(const struct ash_lora *lora, const char *name)
{
    for (size_t i = 0; i < lora->count; i++)
        if (lora->modules[i].rank > 0 && strcmp(lora->modules[i].name, name) == 0) return true;
    return false;
}

/* Have all matrices of the base whose names end so an adapter? */
static bool is_ending_whole(const struct ash_lora *lora, const struct ash_model *base, const char *end)
{
    for (size_t i = 0; i < base->param_count; i++) {
        const struct ash_param *param = &base->params[i];
        char name[sizeof(param->name)];
        char *suffix;

        snprintf(name, sizeof(name), "%s", param->name);
        suffix = strstr(name, ".weight");
        if (!param->is_matrix || suffix == NULL) continue;
        *suffix = '\0';
        if (ash_lora_name_ends(name, end) && !has_adapter(lora, name)) return false;
    }
    return true;
}

static bool is_listed(const json_t *list, const char *name)
{
    json_t *item;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)list, i, item)
        if (strcmp(json_string_value(item), name) == 0) return true;
    return false;
}

json_t *ash_lora_list_targets(const struct ash_lora *lora, const struct ash_model *base)
{
    json_t *list = json_array();

    for (size_t i = 0; i < lora->count; i++) {
        const char *name = lora->modules[i].name, *dot = strrchr(name, '.'), *end = dot != NULL ? dot + 1 : name;

        if (lora->modules[i].rank == 0 || is_listed(list, end)) continue;
        json_array_append_new(list, json_string(is_ending_whole(lora, base, end) ? end : name));
    }
    return list;
}

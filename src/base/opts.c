/* Options: binds tables to structs, finds keys, and is the one place that reads the environment. */
#include "base/opts.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/opts_priv.h"
#include "base/spelling.h"

#define ARENA_BYTES 4096
#define ENV_PREFIX "ASHLAR_"
#define JOB_SECTION "job" /* what a job asks of a cluster: for `ashlar submit` */

static char fold(char c)
{
    return c == '-' ? '_' : c;
}

bool ash_opts_same_key(const char *a, const char *b)
{
    while (*a != '\0' && fold(*a) == fold(*b))
        a++, b++;
    return *a == *b;
}

struct ash_opt_slot *ash_opts_find(const struct ash_opts *opts, const char *key)
{
    for (size_t i = 0; i < opts->count; i++)
        if (ash_opts_same_key(opts->slots[i].key, key)) return &opts->slots[i];
    return NULL;
}

const struct ash_opt_slot *ash_opts_nearest(const struct ash_opts *opts, const char *key)
{
    const struct ash_opt_slot *nearest = NULL;
    size_t least = SIZE_MAX;

    for (size_t i = 0; i < opts->count; i++) {
        const struct ash_opt_slot *slot = &opts->slots[i];
        size_t distance = ash_spelling_nearness(key, slot->key);
        size_t bare = ash_spelling_nearness(key, slot->opt->name); /* `steps` for `train.steps` */

        if (bare != SIZE_MAX) distance = ash_min(distance, bare + 1); /* the whole key wins a tie */
        if (distance >= least) continue;
        nearest = slot;
        least = distance;
    }
    return nearest;
}

int ash_opts_unknown(const struct ash_opts *opts, const char *key, const char *source, struct ash_err *err)
{
    const struct ash_opt_slot *nearest = ash_opts_nearest(opts, key);
    const char *colon = source != NULL ? ": " : "";

    if (source == NULL) source = "";
    if (nearest == NULL) return ash_err_set(err, -ENOENT, "%s%sthere is no setting '%.100s'", source, colon, key);
    return ash_err_set(err, -ENOENT, "%s%sthere is no setting '%.100s'; did you mean '%s'?", source, colon, key,
                       nearest->key);
}

/* "section.name" in the set's memory, or NULL. */
static const char *make_key(struct ash_opts *opts, const struct ash_opt_table *table, const struct ash_opt *opt)
{
    char key[ASH_OPT_KEY_BYTES];
    int used = snprintf(key, sizeof(key), "%s%s%s", table->section, table->section[0] != '\0' ? "." : "", opt->name);

    return used > 0 && (size_t)used < sizeof(key) ? ash_arena_strdup(opts->arena, key) : NULL;
}

/* A setting without a default is zero, whatever the caller's struct held. */
static void clear_field(const struct ash_opt *opt, void *field)
{
    switch (opt->type) {
    case ASH_OPT_INT:
        *(int64_t *)field = 0;
        break;
    case ASH_OPT_DOUBLE:
        *(double *)field = 0.0;
        break;
    case ASH_OPT_BOOL:
        *(bool *)field = false;
        break;
    case ASH_OPT_STRING:
        *(const char **)field = NULL;
        break;
    case ASH_OPT_CHOICE:
        *(int *)field = 0;
        break;
    case ASH_OPT_LIST:
    case ASH_OPT_TEXTS:
        *(struct ash_opt_list *)field = (struct ash_opt_list){0};
        break;
    }
}

static int add_slot(struct ash_opts *opts, const struct ash_opt_binding *binding, const struct ash_opt *opt,
                    struct ash_err *err)
{
    struct ash_opt_slot *slot = &opts->slots[opts->count];
    const char *key = make_key(opts, binding->table, opt);

    if (key == NULL) return ash_err_set(err, -ENOMEM, "options: no room for the key '%s'", opt->name);
    if (ash_opts_find(opts, key) != NULL)
        return ash_err_set(err, -EINVAL, "options: two tables have the key '%s'", key);
    *slot = (struct ash_opt_slot){
        .table = binding->table, .opt = opt, .field = (char *)binding->object + opt->offset, .key = key};
    opts->count++;
    clear_field(opt, slot->field);
    return opt->default_text != NULL ? ash_opts_store(opts, slot, opt->default_text, "default", err) : 0;
}

int ash_opts_open(const struct ash_opt_binding *bindings, size_t count, struct ash_opts **opts_out, struct ash_err *err)
{
    struct ash_opts *opts = calloc(1, sizeof(*opts));
    size_t total = 0;
    int rc = -ENOMEM;

    ash_err_set(err, -ENOMEM, "options: out of memory");
    if (opts == NULL) goto fail;
    for (size_t b = 0; b < count; b++)
        total += bindings[b].table->count;
    opts->arena = ash_arena_open(ARENA_BYTES);
    if (opts->arena == NULL) goto fail;
    opts->slots = ash_arena_calloc(opts->arena, total, sizeof(*opts->slots));
    if (opts->slots == NULL) goto fail;
    for (size_t b = 0; b < count; b++) {
        for (size_t i = 0; i < bindings[b].table->count; i++) {
            rc = add_slot(opts, &bindings[b], &bindings[b].table->opts[i], err);
            if (rc < 0) goto fail;
        }
    }
    if (err != NULL) *err = (struct ash_err){0};
    *opts_out = opts;
    return 0;

fail:
    ash_opts_close(opts);
    return rc;
}

void ash_opts_close(struct ash_opts *opts)
{
    if (opts == NULL) return;
    ash_arena_close(opts->arena);
    free(opts);
}

void ash_opts_pass_others(struct ash_opts *opts)
{
    opts->passes_others = true;
}

bool ash_opts_is_passed(const struct ash_opts *opts, const char *key)
{
    size_t length = strcspn(key, ".");

    if (!opts->passes_others && (length != strlen(JOB_SECTION) || strncmp(key, JOB_SECTION, length) != 0)) return false;
    for (size_t i = 0; i < opts->count; i++) {
        const char *section = opts->slots[i].table->section;

        if (strncmp(section, key, length) == 0 && (section[length] == '\0' || section[length] == '.')) return false;
    }
    return true;
}

int ash_opts_set(struct ash_opts *opts, const char *key, const char *value, const char *source, struct ash_err *err)
{
    struct ash_opt_slot *slot = ash_opts_find(opts, key);

    if (slot == NULL && strchr(key, '.') != NULL && ash_opts_is_passed(opts, key)) return 0;
    if (slot == NULL) return ash_opts_unknown(opts, key, source, err);
    opts->generation++;
    return ash_opts_store(opts, slot, value, source, err);
}

/* ASHLAR_SECTION_NAME of a key. */
static void env_name(const char *key, char *name, size_t name_bytes)
{
    snprintf(name, name_bytes, "%s%s", ENV_PREFIX, key);
    for (char *c = name; *c != '\0'; c++)
        *c = *c == '.' || *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

const char *ash_env_get(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : NULL; /* set to nothing is how a shell says unset */
}

int ash_opts_set_env(struct ash_opts *opts, struct ash_err *err)
{
    opts->generation++;
    for (size_t i = 0; i < opts->count; i++) {
        char name[sizeof(ENV_PREFIX) + ASH_OPT_KEY_BYTES];
        const char *value;
        int rc;
        env_name(opts->slots[i].key, name, sizeof(name));
        value = ash_env_get(name);
        if (value == NULL) continue;
        rc = ash_opts_store(opts, &opts->slots[i], value, name, err);
        if (rc < 0) return rc;
    }
    return 0;
}

size_t ash_opts_count(const struct ash_opts *opts)
{
    return opts->count;
}

const struct ash_opt *ash_opts_at(const struct ash_opts *opts, size_t index, const struct ash_opt_table **table_out)
{
    ash_assert(index < opts->count);
    if (table_out != NULL) *table_out = opts->slots[index].table;
    return opts->slots[index].opt;
}

bool ash_opts_is_set(const struct ash_opts *opts, const char *key)
{
    const struct ash_opt_slot *slot = ash_opts_find(opts, key);

    return slot != NULL && slot->is_set;
}

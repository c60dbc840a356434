/* ashlar store pin, release and status: what of remote places is on this machine. */
#include "cmd/store_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "cmd/units.h"
#include "storage/s3/url.h"

#define FLAG(name) offsetof(struct ash_store_flags, name)

/* A namespace and the name of one object in it, or "" for all below. */
struct scope {
    struct ash_namespace *space;
    char key[ASH_TIER_KEY_BYTES];
};

static int open_scope(const char *url, const struct ash_store_flags *flags, const struct ash_s3_opts *s3,
                      struct scope *scope_out, struct ash_err *err)
{
    struct ash_s3_url parsed = {0};
    char bucket[sizeof(parsed.bucket) + 8];
    int rc = ash_s3_url_parse(url, &parsed, err);

    if (rc < 0) return rc;
    snprintf(bucket, sizeof(bucket), "s3://%s", parsed.bucket);
    snprintf(scope_out->key, sizeof(scope_out->key), "%s", parsed.key);
    return ash_namespace_open(bucket, &flags->cache, s3, &scope_out->space, err);
}

/* The objects that a command works on: the one that was named, or those below it in the remote place. */
static int list_scope(const char *url, const struct ash_s3_opts *s3, const struct scope *scope,
                      struct ash_store_keys *keys, struct ash_err *err)
{
    struct ash_tier *tier = NULL;
    char bucket[512];
    int rc;

    snprintf(bucket, sizeof(bucket), "%.*s", (int)(5 + strcspn(url + 5, "/")), url);
    rc = ash_tier_open(bucket, s3, &tier, err);
    if (rc == 0) rc = ash_store_keys_read(tier, scope->key, keys, err);
    if (rc == 0 && keys->count == 0) rc = ash_err_set(err, -ENOENT, "there is nothing at %.300s", url);
    ash_tier_close(tier);
    return rc;
}

/* ---- pin --------------------------------------------------------------------------------------------------------- */

static const struct ash_cmd_usage pin_usage = {
    .synopsis = "ashlar store pin URL",
    .about = "Brings an object of S3 here and keeps it: it is not released when room runs low. --off takes that back.\n"
             "--recursive pins a folder and all below it.",
    .examples = "  ashlar store pin s3://models/gpt2/ --recursive\n"
                "  ashlar store pin s3://models/gpt2/model.safetensors --off",
};
static const struct ash_opt pin_opts[] = {
    {"recursive", ASH_OPT_BOOL, FLAG(is_recursive), "false", "all below a folder", 0, 0, NULL},
    {"off", ASH_OPT_BOOL, FLAG(is_off), "false", "no longer keep it", 0, 0, NULL},
};

static int pin_one(struct ash_namespace *space, const char *key, bool is_off, struct ash_err *err)
{
    struct ash_store_progress progress = {0};
    const struct ash_namespace_watch watch = {ash_store_progress_watch, &progress};
    int rc = 0;

    ash_progress_bar_init(&progress.bar);
    if (!is_off) rc = ash_namespace_fetch(space, key, &watch, NULL, err);
    ash_progress_bar_clear(&progress.bar);
    return rc < 0 ? rc : ash_namespace_pin(space, key, !is_off, err);
}

static int pin_respond(const struct ash_store_flags *flags, const struct ash_s3_opts *s3, const char *const *words,
                       struct ash_err *err)
{
    struct ash_store_keys keys = {0};
    struct scope scope = {0};
    int rc = open_scope(words[0], flags, s3, &scope, err);

    if (rc == 0 && !flags->is_recursive) rc = pin_one(scope.space, scope.key, flags->is_off, err);
    if (rc == 0 && flags->is_recursive) rc = list_scope(words[0], s3, &scope, &keys, err);
    for (size_t i = 0; rc == 0 && i < keys.count; i++)
        rc = pin_one(scope.space, keys.keys[i], flags->is_off, err);
    if (rc == 0)
        printf("%s %zu objects\n", flags->is_off ? "unpinned" : "pinned", flags->is_recursive ? keys.count : (size_t)1);
    ash_store_keys_fini(&keys);
    ash_namespace_close(scope.space);
    return rc;
}

/* ---- release ----------------------------------------------------------------------------------------------------- */

static const struct ash_cmd_usage release_usage = {
    .synopsis = "ashlar store release URL",
    .about = "Gives the room of an object's local bytes back; its metadata stays, and reading brings it back.\n"
             "Objects that are not exported yet, and pinned ones, are refused (--recursive passes them by).",
    .examples = "  ashlar store release s3://data/tokens/ --recursive",
};
static const struct ash_opt release_opts[] = {
    {"recursive", ASH_OPT_BOOL, FLAG(is_recursive), "false", "all below a folder", 0, 0, NULL},
};

struct release_state {
    const char *prefix;
    struct ash_store_keys keys; /* of objects that have bytes here */
};

static int note_here(void *ctx, const char *key, const struct ash_object_info *info)
{
    struct release_state *state = ctx;

    if (!ash_store_is_below(key, state->prefix) || info->here_bytes == 0) return 0;
    if (info->state == ASH_OBJECT_LOCAL || info->is_pinned) return 0;
    return ash_store_keys_add(&state->keys, key, info->here_bytes);
}

static int release_respond(const struct ash_store_flags *flags, const struct ash_s3_opts *s3, const char *const *words,
                           struct ash_err *err)
{
    char size[ASH_UNITS_BYTES];
    struct scope scope = {0};
    struct release_state state = {.prefix = scope.key};
    struct ash_object_info info = {0};
    int rc = open_scope(words[0], flags, s3, &scope, err);

    if (rc == 0 && flags->is_recursive) rc = ash_namespace_each(scope.space, note_here, &state, err);
    if (rc == 0 && !flags->is_recursive) {
        rc = ash_namespace_stat(scope.space, scope.key, &info, err);
        if (rc == 0) rc = ash_store_keys_add(&state.keys, scope.key, info.here_bytes);
    }
    for (size_t i = 0; rc == 0 && i < state.keys.count; i++)
        rc = ash_namespace_release(scope.space, state.keys.keys[i], err);
    if (rc == 0)
        printf("released %zu objects, %s\n", state.keys.count,
               ash_units_bytes((size_t)state.keys.total_bytes, size, sizeof(size)));
    ash_store_keys_fini(&state.keys);
    ash_namespace_close(scope.space);
    return rc;
}

/* ---- status ------------------------------------------------------------------------------------------------------ */

static const struct ash_cmd_usage status_usage = {
    .synopsis = "ashlar store status URL",
    .about =
        "Says what of a place is on this machine, without asking the server: how many objects are local (here alone),\n"
        "exported (here and there) and released (there; known here), what waits to be exported and for how long.\n"
        "--recursive lists the objects. --export sends what waits.",
    .examples = "  ashlar store status s3://data/\n"
                "  ashlar store status s3://data/ --export",
};
static const struct ash_opt status_opts[] = {
    {"recursive", ASH_OPT_BOOL, FLAG(is_recursive), "false", "list the objects", 0, 0, NULL},
    {"export", ASH_OPT_BOOL, FLAG(wants_export), "false", "export what waits first", 0, 0, NULL},
    {"json", ASH_OPT_BOOL, FLAG(wants_json), "false", "print JSON", 0, 0, NULL},
};

struct status_state {
    const char *prefix;
    size_t counts[ASH_OBJECT_REMOTE + 1], pinned;
    uint64_t sizes[ASH_OBJECT_REMOTE + 1], here_bytes;
    double oldest_s; /* when the object was put that waits longest; 0: none */
    json_t *list;
};

static int status_one(void *ctx, const char *key, const struct ash_object_info *info)
{
    struct status_state *state = ctx;
    json_t *item;

    if (strncmp(key, state->prefix, strlen(state->prefix)) != 0) return 0;
    state->counts[info->state]++;
    state->sizes[info->state] += info->size_bytes;
    state->here_bytes += info->here_bytes;
    state->pinned += info->is_pinned;
    if (info->state == ASH_OBJECT_LOCAL && (state->oldest_s <= 0 || info->waits_s < state->oldest_s))
        state->oldest_s = info->waits_s;
    if (state->list == NULL) return 0;
    item = json_pack("{s:s, s:s, s:I, s:I, s:b}", "key", key, "state", ash_object_state_name(info->state), "size",
                     (json_int_t)info->size_bytes, "here", (json_int_t)info->here_bytes, "pinned", info->is_pinned);
    return json_array_append_new(state->list, item) < 0 ? -ENOMEM : 0;
}

static void print_objects(const json_t *list)
{
    const json_t *item;
    size_t i;

    json_array_foreach(list, i, item) {
        printf("%-9s %15lld %15lld  %s  %s\n", json_string_value(json_object_get(item, "state")),
               (long long)json_integer_value(json_object_get(item, "size")),
               (long long)json_integer_value(json_object_get(item, "here")),
               json_is_true(json_object_get(item, "pinned")) ? "pinned" : "      ",
               json_string_value(json_object_get(item, "key")));
    }
}

static int print_status(const struct ash_store_flags *flags, const struct status_state *state, const char *folder,
                        struct ash_err *err)
{
    double age_s = state->oldest_s > 0 ? ash_clock_wall_s() - state->oldest_s : 0;
    char size[ASH_UNITS_BYTES], age[32];

    if (flags->wants_json)
        return ash_cmd_print_json(json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:O?}", "folder", folder, "local",
                                            (json_int_t)state->counts[ASH_OBJECT_LOCAL], "exported",
                                            (json_int_t)state->counts[ASH_OBJECT_EXPORTED], "released",
                                            (json_int_t)state->counts[ASH_OBJECT_RELEASED], "not_durable_bytes",
                                            (json_int_t)state->sizes[ASH_OBJECT_LOCAL], "oldest_waits_s", age_s,
                                            "pinned", (json_int_t)state->pinned, "here_bytes",
                                            (json_int_t)state->here_bytes, "objects", state->list),
                                  err);
    if (state->list != NULL) print_objects(state->list);
    for (size_t s = ASH_OBJECT_LOCAL; s < ASH_OBJECT_REMOTE; s++)
        printf("%-9s %zu objects, %s\n", ash_object_state_name((enum ash_object_state)s), state->counts[s],
               ash_units_bytes((size_t)state->sizes[s], size, sizeof(size)));
    printf("here      %s in %s, %zu pinned\n", ash_units_bytes((size_t)state->here_bytes, size, sizeof(size)), folder,
           state->pinned);
    if (state->counts[ASH_OBJECT_LOCAL] > 0)
        printf("not yet durable in S3: %s, the oldest for %s; --export sends them\n",
               ash_units_bytes((size_t)state->sizes[ASH_OBJECT_LOCAL], size, sizeof(size)),
               ash_clock_format(age_s, age, sizeof(age)));
    return 0;
}

static int status_respond(const struct ash_store_flags *flags, const struct ash_s3_opts *s3, const char *const *words,
                          struct ash_err *err)
{
    struct ash_store_progress progress = {0};
    const struct ash_namespace_watch watch = {ash_store_progress_watch, &progress};
    struct scope scope = {0};
    struct status_state state = {.prefix = scope.key};
    int rc = open_scope(words[0], flags, s3, &scope, err);

    ash_progress_bar_init(&progress.bar);
    if (rc == 0 && flags->wants_export) rc = ash_namespace_export(scope.space, &watch, err);
    ash_progress_bar_clear(&progress.bar);
    if (flags->is_recursive) state.list = json_array();
    if (rc == 0) rc = ash_namespace_each(scope.space, status_one, &state, err);
    if (rc == 0) rc = print_status(flags, &state, ash_namespace_folder(scope.space), err);
    json_decref(state.list);
    ash_namespace_close(scope.space);
    return rc;
}

/* ---- the commands ------------------------------------------------------------------------------------------------ */

#define FORM(name)                                                                                                     \
    static int name##_run(int argc, char **argv)                                                                       \
    {                                                                                                                  \
        const struct ash_store_form form = {.usage = &name##_usage,                                                    \
                                            .opts = name##_opts,                                                       \
                                            .opt_count = ASH_COUNT(name##_opts),                                       \
                                            .word_count = 1,                                                           \
                                            .missing_word = "name an object or a place: s3://bucket/key",              \
                                            .respond = name##_respond};                                                \
        return ash_store_run(&form, argc, argv);                                                                       \
    }

FORM(pin)
FORM(release)
FORM(status)

const struct ash_cmd ash_cmd_store_pin = {"pin", "bring objects here and keep them", pin_run};
const struct ash_cmd ash_cmd_store_release = {"release", "give back the room of local copies", release_run};
const struct ash_cmd ash_cmd_store_status = {"status", "what of a place is here, and what waits", status_run};

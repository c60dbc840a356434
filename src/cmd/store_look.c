/* ashlar store ls, stat, verify, rm and gc: looking at objects, checking and removing them. */
#include "cmd/store_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/log.h"
#include "cmd/units.h"

#define FLAG(name) offsetof(struct ash_store_flags, name)
#define RECURSIVE                                                                                                      \
    {                                                                                                                  \
        "recursive", ASH_OPT_BOOL, FLAG(is_recursive), "false", "all below a folder", 0, 0, NULL                       \
    }
#define JSON                                                                                                           \
    {                                                                                                                  \
        "json", ASH_OPT_BOOL, FLAG(wants_json), "false", "print JSON", 0, 0, NULL                                      \
    }

static const char *format_time(double seconds, char *buf, size_t buf_bytes)
{
    time_t when = (time_t)seconds;
    struct tm utc;

    gmtime_r(&when, &utc);
    if (seconds <= 0 || strftime(buf, buf_bytes, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) snprintf(buf, buf_bytes, "-");
    return buf;
}

static json_t *object_json(const char *key, const struct ash_tier_object *object)
{
    char when[32];

    return json_pack("{s:s, s:I, s:s, s:s, s:b}", "key", key, "size", (json_int_t)object->size_bytes, "modified",
                     format_time(object->modified_s, when, sizeof(when)), "version", object->version, "released",
                     object->is_released);
}

/* A subcommand's target: one object, or all with a key prefix. */
struct target {
    struct ash_tier *tier;
    char key[ASH_TIER_KEY_BYTES];
};

/* Open the place of url. With takes_folder its key may be empty, or a folder's name with a slash at its end. */
static int open_target(const char *url, bool takes_folder, const struct ash_s3_opts *s3, struct target *target_out,
                       struct ash_err *err)
{
    struct ash_tier_object object;
    size_t length = strlen(url);
    int rc;

    target_out->key[0] = '\0';
    /* A bucket, or anything that ends with a slash, is a folder ... */
    if (takes_folder && length > 0 &&
        (url[length - 1] == '/' || (ash_tier_is_url(url) && strchr(url + 5, '/') == NULL)))
        return ash_tier_open(url, s3, &target_out->tier, err);
    if (ash_tier_is_url(url) || !takes_folder)
        return ash_tier_open_object(url, s3, &target_out->tier, target_out->key, err);
    /* ... and so is a path that is not a file. */
    rc = ash_tier_open_object(url, s3, &target_out->tier, target_out->key, NULL);
    if (rc == 0 && ash_tier_stat(target_out->tier, target_out->key, &object, NULL) == 0) return 0;
    if (rc == 0) ash_tier_close(target_out->tier);
    target_out->key[0] = '\0';
    return ash_tier_open(url, s3, &target_out->tier, err);
}

/* ---- ls ---------------------------------------------------------------------------------------------------------- */

static const struct ash_cmd_usage ls_usage = {
    .synopsis = "ashlar store ls URL",
    .about =
        "Lists the objects below a place, or whose name begins so: size, time, name. Names up to a slash come once;\n"
        "--recursive lists all. URL is s3://bucket/prefix or a path.",
    .examples = "  ashlar store ls s3://models/\n"
                "  ashlar store ls s3://models/llama- --recursive --json",
};
static const struct ash_opt ls_opts[] = {
    {"recursive", ASH_OPT_BOOL, FLAG(is_recursive), "false", "all objects whose name begins so", 0, 0, NULL}, JSON};

struct ls_state {
    json_t *list; /* NULL: print lines */
    size_t count;
};

static int ls_one(void *ctx, const char *key, const struct ash_tier_object *object)
{
    struct ls_state *state = ctx;
    char when[32];

    state->count++;
    if (state->list != NULL) {
        json_t *item = object != NULL ? object_json(key, object) : json_pack("{s:s}", "prefix", key);

        return json_array_append_new(state->list, item) < 0 ? -ENOMEM : 0;
    }
    if (object == NULL)
        printf("%15s  %-20s  %s\n", "", "", key);
    else
        printf("%15llu  %-20s  %s\n", (unsigned long long)object->size_bytes,
               format_time(object->modified_s, when, sizeof(when)), key);
    return 0;
}

static int ls_respond(const struct ash_store_flags *flags, const struct ash_s3_opts *s3, const char *const *words,
                      struct ash_err *err)
{
    struct ls_state state = {.list = flags->wants_json ? json_array() : NULL};
    struct target target = {0};
    int rc = open_target(words[0], true, s3, &target, err);

    if (rc == 0) rc = ash_tier_list(target.tier, target.key, flags->is_recursive, ls_one, &state, err);
    if (rc == 0 && state.count == 0 && state.list == NULL)
        rc = ash_err_set(err, -ENOENT, "there is nothing at %.300s", words[0]);
    if (rc == 0 && state.list != NULL) rc = ash_cmd_print_json(json_incref(state.list), err);
    json_decref(state.list);
    ash_tier_close(target.tier);
    return rc;
}

/* ---- stat -------------------------------------------------------------------------------------------------------- */

static const struct ash_cmd_usage stat_usage = {
    .synopsis = "ashlar store stat URL",
    .about = "Prints the metadata of an object: size, time, version (the ETag, or inode, size and time of a file).",
    .examples = "  ashlar store stat s3://models/gpt2/model.safetensors",
};
static const struct ash_opt stat_opts[] = {JSON};

/* What of an object of S3 is on this machine. False where nothing is known of it here. */
static bool find_here(const char *url, const struct ash_store_flags *flags, const struct ash_s3_opts *s3,
                      struct ash_object_info *info_out)
{
    const char *slash = strchr(url + strlen("s3://"), '/');
    struct ash_namespace *space = NULL;
    char bucket[256];
    bool is_known = false;

    if (!ash_tier_is_url(url) || slash == NULL || slash[1] == '\0') return false;
    snprintf(bucket, sizeof(bucket), "%.*s", (int)(slash - url), url);
    if (ash_namespace_open(bucket, &flags->cache, s3, &space, NULL) < 0) return false;
    is_known = ash_namespace_recall(space, slash + 1, info_out);
    ash_namespace_close(space);
    return is_known;
}

static void print_here(const struct ash_object_info *info)
{
    char here[ASH_UNITS_BYTES];

    printf("  here      %s, %s%s\n", ash_object_state_name(info->state),
           ash_units_bytes((size_t)info->here_bytes, here, sizeof(here)), info->is_pinned ? ", pinned" : "");
}

static int stat_respond(const struct ash_store_flags *flags, const struct ash_s3_opts *s3, const char *const *words,
                        struct ash_err *err)
{
    struct ash_tier_object object = {0};
    struct target target = {0};
    struct ash_object_info info = {0};
    char when[32], size[ASH_UNITS_BYTES];
    bool is_here = find_here(words[0], flags, s3, &info);
    int rc = open_target(words[0], false, s3, &target, err);

    if (rc == 0 && is_here && info.state == ASH_OBJECT_LOCAL)
        object = (struct ash_tier_object){.size_bytes = info.size_bytes, .modified_s = info.waits_s};
    else if (rc == 0)
        rc = ash_tier_stat(target.tier, target.key, &object, err);
    if (rc == 0 && flags->wants_json) {
        rc = ash_cmd_print_json(object_json(words[0], &object), err);
    } else if (rc == 0) {
        printf("%s\n  size      %llu bytes (%s)\n  modified  %s\n  version   %s\n", words[0],
               (unsigned long long)object.size_bytes, ash_units_bytes(object.size_bytes, size, sizeof(size)),
               format_time(object.modified_s, when, sizeof(when)), object.version);
        if (object.is_released) printf("  archive   released: reading brings its bytes back\n");
        if (is_here) print_here(&info);
    }
    ash_tier_close(target.tier);
    return rc;
}

/* ---- verify ------------------------------------------------------------------------------------------------------ */

static const struct ash_cmd_usage verify_usage = {
    .synopsis = "ashlar store verify URL",
    .about =
        "Reads objects from their first byte to their last and compares them with the checksums of their ETags. Says\n"
        "where there is none to compare with: files, and objects whose ETag is not a sum of their bytes.",
    .examples = "  ashlar store verify s3://models/gpt2/model.safetensors\n"
                "  ashlar store verify s3://models/gpt2/ --recursive",
};
static const struct ash_opt verify_opts[] = {RECURSIVE};

static int verify_take(void *ctx, const void *data, size_t size_bytes, struct ash_err *err)
{
    (void)data;
    return ash_store_progress_add(ctx, size_bytes, err);
}

/* Check one object and print its line. A damaged one is counted, not an error that ends the rest. */
static int verify_one(struct ash_tier *tier, const char *key, struct ash_store_progress *progress, size_t *bad,
                      struct ash_err *err)
{
    const struct ash_s3_sink sink = {verify_take, progress};
    int rc = ash_tier_stream(tier, key, &sink, err);

    ash_progress_bar_clear(&progress->bar);
    if (rc == -EBADMSG) {
        printf("damaged   %s\n", key);
        ash_log(ASH_LOG_ERROR, "%s", err->text);
        (*bad)++;
        return 0;
    }
    if (rc < 0) return rc;
    printf("%s  %s\n", rc == 1 ? "right   " : "readable", key);
    return 0;
}

static int verify_respond(const struct ash_store_flags *flags, const struct ash_s3_opts *s3, const char *const *words,
                          struct ash_err *err)
{
    struct ash_store_progress progress = {0};
    struct ash_store_keys keys = {0};
    struct target target = {0};
    size_t bad = 0;
    int rc = open_target(words[0], flags->is_recursive, s3, &target, err);

    ash_progress_bar_init(&progress.bar);
    if (rc == 0 && !flags->is_recursive) rc = verify_one(target.tier, target.key, &progress, &bad, err);
    if (rc == 0 && flags->is_recursive) {
        rc = ash_store_keys_read(target.tier, target.key, &keys, err);
        progress.total_bytes = keys.total_bytes;
        if (rc == 0 && keys.count == 0) rc = ash_err_set(err, -ENOENT, "there is nothing at %.300s", words[0]);
        for (size_t i = 0; rc == 0 && i < keys.count; i++)
            rc = verify_one(target.tier, keys.keys[i], &progress, &bad, err);
    }
    ash_store_keys_fini(&keys);
    ash_tier_close(target.tier);
    return rc == 0 && bad > 0 ? 1 : rc;
}

/* ---- rm ---------------------------------------------------------------------------------------------------------- */

static const struct ash_cmd_usage rm_usage = {
    .synopsis = "ashlar store rm URL",
    .about =
        "Removes an object, or with --recursive a folder and all below it; a `*` at the end of an address means all\n"
        "whose name begins so. A whole bucket needs --whole. Removing cannot be undone.",
    .examples = "  ashlar store rm s3://models/old/model.safetensors\n"
                "  ashlar store rm s3://models/old/ --recursive",
};
static const struct ash_opt rm_opts[] = {
    RECURSIVE,
    {"whole", ASH_OPT_BOOL, FLAG(is_whole), "false", "also a whole bucket", 0, 0, NULL},
};

/* One word too few should not cost a bucket or a disk. */
static int check_whole(const char *url, bool is_whole, struct ash_err *err)
{
    const char *slash = ash_tier_is_url(url) ? strchr(url + strlen("s3://"), '/') : NULL;
    char path[PATH_MAX];

    if (ash_tier_is_url(url))
        return is_whole || (slash != NULL && slash[1] != '\0' && slash[1] != '*')
                   ? 0
                   : ash_err_set(err, -EPERM, "%.300s is a whole bucket: --whole removes all of it", url);
    if (realpath(url, path) == NULL || strcmp(path, "/") != 0) return 0;
    return ash_err_set(err, -EPERM, "%.300s is the root of all disks: name a folder", url);
}

static int rm_respond(const struct ash_store_flags *flags, const struct ash_s3_opts *s3, const char *const *words,
                      struct ash_err *err)
{
    struct ash_tier_object object;
    struct ash_store_keys keys = {0};
    struct target target = {0};
    int rc = flags->is_recursive ? check_whole(words[0], flags->is_whole, err) : 0;

    if (rc == 0) rc = open_target(words[0], flags->is_recursive, s3, &target, err);
    if (rc == 0 && !flags->is_recursive) {
        rc = ash_tier_stat(target.tier, target.key, &object, err); /* a name that is not there is a mistake here */
        if (rc == 0) rc = ash_tier_remove(target.tier, target.key, err);
    } else if (rc == 0) {
        rc = ash_store_keys_read(target.tier, target.key, &keys, err);
        for (size_t i = 0; rc == 0 && i < keys.count; i++)
            rc = ash_tier_remove(target.tier, keys.keys[i], err);
        if (rc == 0) printf("removed %zu objects\n", keys.count);
    }
    ash_store_keys_fini(&keys);
    ash_tier_close(target.tier);
    return rc;
}

/* ---- gc ---------------------------------------------------------------------------------------------------------- */

static const struct ash_cmd_usage gc_usage = {
    .synopsis = "ashlar store gc URL",
    .about =
        "Removes what writers that died left behind below a place: unfinished uploads, hidden files. Servers charge\n"
        "for parts of unfinished uploads, and lists do not show them.",
    .examples = "  ashlar store gc s3://models/ --older-than-h 24",
};
static const struct ash_opt gc_opts[] = {
    {"older_than_h", ASH_OPT_DOUBLE, FLAG(older_than_h), "24", "hours since it was begun", 0, 1e6, NULL},
};

static int gc_respond(const struct ash_store_flags *flags, const struct ash_s3_opts *s3, const char *const *words,
                      struct ash_err *err)
{
    struct target target = {0};
    size_t count = 0;
    int rc = open_target(words[0], true, s3, &target, err);

    if (rc == 0) rc = ash_tier_sweep(target.tier, target.key, flags->older_than_h * 3600, &count, err);
    if (rc == 0) printf("removed %zu unfinished objects\n", count);
    ash_tier_close(target.tier);
    return rc;
}

/* ---- the commands ------------------------------------------------------------------------------------------------ */

#define FORM(name, missing)                                                                                            \
    static int name##_run(int argc, char **argv)                                                                       \
    {                                                                                                                  \
        const struct ash_store_form form = {.usage = &name##_usage,                                                    \
                                            .opts = name##_opts,                                                       \
                                            .opt_count = ASH_COUNT(name##_opts),                                       \
                                            .word_count = 1,                                                           \
                                            .missing_word = missing,                                                   \
                                            .respond = name##_respond};                                                \
        return ash_store_run(&form, argc, argv);                                                                       \
    }

FORM(ls, "name a place: s3://bucket/prefix or a path")
FORM(stat, "name an object: s3://bucket/key or a path")
FORM(verify, "name an object: s3://bucket/key or a path")
FORM(rm, "name an object: s3://bucket/key or a path")
FORM(gc, "name a place: s3://bucket/prefix or a path")

const struct ash_cmd ash_cmd_store_ls = {"ls", "list objects", ls_run};
const struct ash_cmd ash_cmd_store_stat = {"stat", "size, time and version of an object", stat_run};
const struct ash_cmd ash_cmd_store_verify = {"verify", "read objects and compare checksums", verify_run};
const struct ash_cmd ash_cmd_store_rm = {"rm", "remove objects", rm_run};
const struct ash_cmd ash_cmd_store_gc = {"gc", "remove what dead writers left", gc_run};

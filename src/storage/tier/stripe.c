/* Several folders as one place: an object's bytes go round them in chunks, each folder written and read by its own
 * thread. A folder gets one file of chunks per object, below .stripes/; a small JSON object under the key has their
 * layout, is written last and to every folder, so that lists and sizes survive the loss of any of them. A folder that
 * fails is left out of later writes, with a warning; nothing is overwritten. There is no redundancy: the chunks of a
 * folder that is gone are gone, and reading them names it. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "storage/tier/stripe_priv.h"

#define FORMAT "ashlar-stripe-1"
#define OUTLINE_MAX_BYTES 4096

/* A folder fails: nothing is written to it any more. */
void ash_stripe_leave_out(struct ash_stripe *stripe, size_t folder, const struct ash_err *err)
{
    if (!stripe->is_failed[folder])
        ash_log(ASH_LOG_WARN, "%s is left out of later writes: %s", stripe->paths[folder], err->text);
    stripe->is_failed[folder] = true;
}

/* ---- outlines ---------------------------------------------------------------------------------------------------- */

int ash_stripe_parse(const char *text, size_t size_bytes, size_t folder_count, struct ash_stripe_outline *outline_out)
{
    json_t *json = json_loadb(text, size_bytes, 0, NULL);
    const json_t *folders = json_object_get(json, "folders");
    const char *format = json_string_value(json_object_get(json, "format"));
    const char *id = json_string_value(json_object_get(json, "id"));
    json_int_t size = json_integer_value(json_object_get(json, "size"));
    struct ash_stripe_outline outline = {.size_bytes = (uint64_t)size, .folder_count = json_array_size(folders)};
    int rc = -EBADMSG;

    if (format == NULL || strcmp(format, FORMAT) != 0 || id == NULL || strlen(id) >= sizeof(outline.id)) goto fail;
    if (size < 0 || outline.folder_count == 0 || outline.folder_count > ASH_STRIPE_FOLDERS_MAX ||
        strchr(id, '/') != NULL)
        goto fail;
    if (json_integer_value(json_object_get(json, "chunk")) != (json_int_t)ASH_STRIPE_CHUNK_BYTES) goto fail;
    for (size_t i = 0; i < outline.folder_count; i++) {
        json_int_t folder = json_integer_value(json_array_get(folders, i));

        if (folder < 0 || (size_t)folder >= folder_count) goto fail;
        outline.folders[i] = (size_t)folder;
    }
    memcpy(outline.id, id, strlen(id) + 1);
    outline.sequence = (uint64_t)json_integer_value(json_object_get(json, "sequence"));
    *outline_out = outline;
    rc = 0;
fail:
    json_decref(json);
    return rc;
}

static int load_outline(struct ash_stripe *stripe, size_t folder, const char *key,
                        struct ash_stripe_outline *outline_out, struct ash_err *err)
{
    struct ash_tier_object object = {0};
    struct ash_tier_range range = {.key = key};
    char text[OUTLINE_MAX_BYTES];
    int rc = ash_tier_stat(stripe->folders[folder], key, &object, err);

    ash_assert(folder < stripe->count);
    if (rc < 0) return rc;
    if (object.size_bytes > sizeof(text))
        return ash_err_set(err, -EBADMSG, "%s/%.200s is no object of a stripe", stripe->paths[folder], key);
    range.size_bytes = (size_t)object.size_bytes;
    rc = ash_tier_read(stripe->folders[folder], &range, text, err);
    if (rc == 0) rc = ash_stripe_parse(text, range.size_bytes, stripe->count, outline_out);
    if (rc == -EBADMSG)
        ash_err_set(err, rc, "%s/%.200s is no object of these %zu folders", stripe->paths[folder], key, stripe->count);
    if (rc == 0) outline_out->modified_s = object.modified_s;
    return rc;
}

/* The newest outline of key that any folder has. */
int ash_stripe_find(struct ash_stripe *stripe, const char *key, struct ash_stripe_outline *outline_out,
                    struct ash_err *err)
{
    struct ash_err first = {0};
    bool is_found = false;
    int rc = -ENOENT;

    for (size_t i = 0; i < stripe->count; i++) {
        struct ash_stripe_outline outline;
        struct ash_err why = {0};
        int one = load_outline(stripe, i, key, &outline, &why);

        if (one == 0 && (!is_found || outline.sequence > outline_out->sequence)) *outline_out = outline;
        is_found = is_found || one == 0;
        if (one < 0 && (first.code == 0 || (first.code == -ENOENT && one != -ENOENT))) first = why;
    }
    if (is_found) return 0;
    rc = first.code;
    if (err != NULL) *err = first;
    return rc;
}

int ash_stripe_save(struct ash_stripe *stripe, size_t folder, const char *key, const struct ash_stripe_outline *outline,
                    struct ash_err *err)
{
    struct ash_tier *tier = stripe->folders[folder];
    json_t *folders = json_array(), *json;
    struct ash_tier_write *write = NULL;
    char *text;
    int rc;

    for (size_t i = 0; i < outline->folder_count; i++)
        json_array_append_new(folders, json_integer((json_int_t)outline->folders[i]));
    json = json_pack("{s:s, s:s, s:I, s:I, s:I, s:o}", "format", FORMAT, "id", outline->id, "size",
                     (json_int_t)outline->size_bytes, "chunk", (json_int_t)ASH_STRIPE_CHUNK_BYTES, "sequence",
                     (json_int_t)outline->sequence, "folders", folders);
    text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (text == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = ash_tier_write_open(tier, key, strlen(text), false, &write, err);
    if (rc == 0) rc = ash_tier_write_add(tier, write, text, strlen(text), err);
    if (rc == 0) rc = ash_tier_write_finish(tier, write, err);
    ash_tier_write_close(tier, write, false);
    free(text);
    return rc;
}

void ash_stripe_part_key(const struct ash_stripe_outline *outline, char key[ASH_STRIPE_PART_BYTES])
{
    snprintf(key, ASH_STRIPE_PART_BYTES, "%s%s", ASH_STRIPE_PARTS, outline->id);
}

static int stripe_stat(struct ash_tier *tier, const char *key, struct ash_tier_object *object_out, struct ash_err *err)
{
    struct ash_stripe_outline outline;
    int rc = ash_stripe_find(ash_stripe_of(tier), key, &outline, err);

    if (rc < 0) return rc;
    *object_out = (struct ash_tier_object){.size_bytes = outline.size_bytes, .modified_s = outline.modified_s};
    snprintf(object_out->version, sizeof(object_out->version), "%s", outline.id);
    return 0;
}

/* ---- lists, removing --------------------------------------------------------------------------------------------- */

struct merged {
    struct ash_stripe *stripe;
    json_t *names; /* an object whose keys are names; prefixes have null */
};

static int note_name(void *ctx, const char *key, const struct ash_tier_object *object)
{
    const struct merged *merged = ctx;

    if (strncmp(key, ASH_STRIPE_PARTS, strlen(ASH_STRIPE_PARTS)) == 0) return 0;
    return json_object_set_new(merged->names, key, object != NULL ? json_true() : json_null()) < 0 ? -ENOMEM : 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Call each for the names in order. */
static int tell_names(struct ash_stripe *stripe, json_t *names, ash_tier_list_fn each, void *ctx)
{
    size_t count = 0, total = json_object_size(names);
    const char **sorted = calloc(total + 1, sizeof(*sorted)), *name;
    json_t *kind;
    int rc = sorted != NULL ? 0 : -ENOMEM;

    if (rc == 0) {
        json_object_foreach(names, name, kind)
            sorted[count++] = name;
        qsort(sorted, count, sizeof(*sorted), compare_names);
    }
    for (size_t i = 0; rc >= 0 && i < count; i++) {
        struct ash_tier_object object;

        if (json_is_null(json_object_get(names, sorted[i])))
            rc = each(ctx, sorted[i], NULL);
        else if (stripe_stat(&stripe->base, sorted[i], &object, NULL) == 0)
            rc = each(ctx, sorted[i], &object);
    }
    free(sorted);
    return rc;
}

static int stripe_list(struct ash_tier *tier, const char *prefix, bool is_flat, ash_tier_list_fn each, void *ctx,
                       struct ash_err *err)
{
    struct ash_stripe *stripe = ash_stripe_of(tier);
    struct merged merged = {stripe, json_object()};
    struct ash_err first = {0};
    size_t listed = 0;
    int rc = 0;

    for (size_t i = 0; i < stripe->count; i++) {
        struct ash_err why = {0};
        int one = ash_tier_list(stripe->folders[i], prefix, is_flat, note_name, &merged, &why);

        listed += one == 0;
        if (one < 0 && first.code == 0) first = why;
    }
    if (listed == 0) {
        rc = first.code;
        if (err != NULL) *err = first;
    }
    if (rc == 0) rc = tell_names(stripe, merged.names, each, ctx);
    json_decref(merged.names);
    return rc;
}

static int stripe_remove(struct ash_tier *tier, const char *key, struct ash_err *err)
{
    struct ash_stripe *stripe = ash_stripe_of(tier);
    struct ash_stripe_outline outline;
    char part[ASH_STRIPE_PART_BYTES];
    int rc = ash_stripe_find(stripe, key, &outline, err);

    if (rc == -ENOENT) return 0;
    if (rc < 0) return rc;
    ash_stripe_part_key(&outline, part);
    for (size_t i = 0; i < stripe->count; i++) { /* the outlines first: chunks without one are swept some day */
        int one = ash_tier_remove(stripe->folders[i], key, err);

        rc = rc < 0 ? rc : one;
    }
    for (size_t i = 0; rc == 0 && i < outline.folder_count; i++)
        rc = ash_tier_remove(stripe->folders[outline.folders[i]], part, err);
    return rc;
}

/* Chunks whose object is gone. */
struct sweeping {
    struct ash_stripe *stripe;
    json_t *ids;
    double before_s;
    size_t folder, count;
};

static int note_id(void *ctx, const char *key, const struct ash_tier_object *object)
{
    struct sweeping *sweeping = ctx;
    struct ash_stripe_outline outline;

    (void)object;
    if (ash_stripe_find(sweeping->stripe, key, &outline, NULL) < 0) return 0;
    return json_object_set_new(sweeping->ids, outline.id, json_true()) < 0 ? -ENOMEM : 0;
}

static int sweep_part(void *ctx, const char *key, const struct ash_tier_object *object)
{
    struct sweeping *sweeping = ctx;

    if (object == NULL || object->modified_s > sweeping->before_s) return 0;
    if (json_object_get(sweeping->ids, key + strlen(ASH_STRIPE_PARTS)) != NULL) return 0;
    sweeping->count++;
    return ash_tier_remove(sweeping->stripe->folders[sweeping->folder], key, NULL);
}

static int stripe_sweep(struct ash_tier *tier, const char *prefix, double age_s, size_t *count_out, struct ash_err *err)
{
    struct ash_stripe *stripe = ash_stripe_of(tier);
    struct sweeping sweeping = {stripe, json_object(), ash_clock_wall_s() - age_s, 0, 0};
    int rc = stripe_list(tier, "", true, note_id, &sweeping, err);

    for (size_t i = 0; rc == 0 && i < stripe->count; i++) {
        size_t hidden = 0;

        sweeping.folder = i;
        rc = ash_tier_list(stripe->folders[i], ASH_STRIPE_PARTS, true, sweep_part, &sweeping, err);
        if (rc == 0) rc = ash_tier_sweep(stripe->folders[i], prefix, age_s, &hidden, err);
        sweeping.count += hidden;
    }
    json_decref(sweeping.ids);
    if (rc == 0) *count_out = sweeping.count;
    return rc;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void stripe_close(struct ash_tier *tier)
{
    struct ash_stripe *stripe = ash_stripe_of(tier);

    for (size_t i = 0; i < stripe->count; i++) {
        ash_tier_close(stripe->folders[i]);
        free(stripe->paths[i]);
    }
    ash_workers_close(stripe->workers);
    free(stripe);
}

static const struct ash_tier_ops stripe_tier_ops = {
    .size = sizeof(stripe_tier_ops),
    .name = "stripe",
    .stat = stripe_stat,
    .list = stripe_list,
    .read = ash_stripe_read,
    .read_pieces = ash_tier_read_one_by_one,
    .stream = ash_stripe_stream,
    .compare = ash_tier_no_compare,
    .remove = stripe_remove,
    .write_if = ash_tier_no_write_if,
    .sweep = stripe_sweep,
    .write_open = ash_stripe_write_open,
    .write_add = ash_stripe_write_add,
    .write_finish = ash_stripe_write_finish,
    .write_help = ash_tier_no_write_help,
    .write_resumed_bytes = ash_stripe_write_resumed_bytes,
    .write_close = ash_stripe_write_close,
    .close = stripe_close,
};

int ash_tier_stripe_open(const char *paths, struct ash_tier **tier_out, struct ash_err *err)
{
    struct ash_stripe *stripe = calloc(1, sizeof(*stripe));
    const char *path = paths;
    int rc = 0;

    if (stripe == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    stripe->base.ops = &stripe_tier_ops;
    while (rc == 0 && *path != '\0') {
        size_t length = strcspn(path, ","), i = stripe->count;

        if (length == 0 || i == ASH_STRIPE_FOLDERS_MAX) {
            rc = ash_err_set(err, -EINVAL, "a stripe is 1 to %d folders with commas between them, not '%.200s'",
                             ASH_STRIPE_FOLDERS_MAX, paths);
            break;
        }
        stripe->paths[i] = strndup(path, length);
        rc = stripe->paths[i] == NULL ? ash_err_set(err, -ENOMEM, "out of memory")
                                      : ash_tier_dir_open(stripe->paths[i], false, &stripe->folders[i], err);
        if (rc < 0) free(stripe->paths[i]);
        stripe->count += rc == 0;
        path += length + (path[length] == ',');
    }
    if (rc == 0 && stripe->count == 0) rc = ash_err_set(err, -EINVAL, "a stripe needs folders: stripe:/a,/b");
    if (rc == 0) rc = ash_workers_open((int)stripe->count, &stripe->workers, err);
    if (rc < 0) {
        stripe_close(&stripe->base);
        return rc;
    }
    *tier_out = &stripe->base;
    return 0;
}

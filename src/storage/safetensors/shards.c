/* Safetensors as a Hugging Face folder: cuts a list of tensors into shards, writes them and then the index that names
 * them. */
#include "storage/safetensors/safetensors_priv.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/math.h"
#include "storage/io/io_priv.h"

#define NAME_BYTES 64

static const struct ash_metadata folder_metadata[] = {{"format", "pt"}};

/* Shards are runs of the list: shard s holds tensors [starts[s], starts[s + 1]). */
struct cut {
    size_t *bytes, *starts;
    size_t shard_count, total_bytes;
};

static void cut_fini(struct cut *cut)
{
    free(cut->bytes);
    free(cut->starts);
}

static int cut_init(struct cut *cut, const struct ash_tensor_source *source, size_t max_bytes, struct ash_err *err)
{
    size_t filled = 0;
    int rc;

    *cut = (struct cut){0};
    cut->bytes = calloc(source->count + 1, sizeof(*cut->bytes));
    cut->starts = calloc(source->count + 2, sizeof(*cut->starts));
    if (cut->bytes == NULL || cut->starts == NULL) {
        cut_fini(cut);
        return ash_err_set(err, -ENOMEM, "no memory to list %zu tensors", source->count);
    }
    rc = ash_tensor_source_bytes(source, cut->bytes, err);
    if (rc < 0) {
        cut_fini(cut);
        return rc;
    }
    cut->shard_count = 1;
    for (size_t i = 0; i < source->count; i++) {
        if (max_bytes > 0 && filled > 0 && cut->bytes[i] > max_bytes - ash_min(filled, max_bytes)) {
            cut->starts[cut->shard_count++] = i;
            filled = 0;
        }
        filled += cut->bytes[i];
        cut->total_bytes += cut->bytes[i];
    }
    ash_assert(cut->shard_count <= source->count + 1);
    cut->starts[cut->shard_count] = source->count;
    return 0;
}

static void name_shard(const struct cut *cut, size_t shard, char name[NAME_BYTES])
{
    if (cut->shard_count == 1)
        snprintf(name, NAME_BYTES, ASH_SAFETENSORS_FILE);
    else
        snprintf(name, NAME_BYTES, "model-%05zu-of-%05zu.safetensors", shard + 1, cut->shard_count);
}

static int write_shard(const char *dir, const struct ash_tensor_source *source, const struct cut *cut, size_t shard,
                       struct ash_err *err)
{
    struct ash_tensor_source part = *source;
    char name[NAME_BYTES], path[PATH_MAX];

    ash_assert(shard < cut->shard_count && cut->starts[shard] <= cut->starts[shard + 1]);
    name_shard(cut, shard, name);
    if (ash_path_join(path, sizeof(path), dir, name) < 0)
        return ash_io_fail(err, -ENAMETOOLONG, dir, "write weights to");
    part.specs += cut->starts[shard];
    part.first += cut->starts[shard];
    part.count = cut->starts[shard + 1] - cut->starts[shard];
    return ash_safetensors_write_source(path, &part, folder_metadata, 1, err);
}

/* {"metadata": {"total_size": N}, "weight_map": {tensor: shard}}, or NULL when out of memory. */
static json_t *make_index(const struct ash_tensor_source *source, const struct cut *cut)
{
    json_t *map = json_object();
    char name[NAME_BYTES];

    for (size_t shard = 0; shard < cut->shard_count; shard++) {
        name_shard(cut, shard, name);
        for (size_t i = cut->starts[shard]; i < cut->starts[shard + 1]; i++)
            if (json_object_set_new(map, source->specs[i].name, json_string(name)) < 0) {
                json_decref(map);
                return NULL;
            }
    }
    return json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)cut->total_bytes, "weight_map", map);
}

static int write_index(const char *dir, const struct ash_tensor_source *source, const struct cut *cut,
                       struct ash_err *err)
{
    char path[PATH_MAX];
    json_t *index;
    int rc;

    if (ash_path_join(path, sizeof(path), dir, ASH_SAFETENSORS_INDEX) < 0)
        return ash_io_fail(err, -ENAMETOOLONG, dir, "write weights to");
    index = make_index(source, cut);
    if (index == NULL) return ash_err_set(err, -ENOMEM, "%s: no memory for the index", path);
    rc = ash_json_save(path, index, err);
    json_decref(index);
    return rc;
}

/* The number that text begins with, five digits or more, moving *text past it; 0 if there is none. */
static size_t take_number(const char **text)
{
    char *end = NULL;
    unsigned long number = strtoul(*text, &end, 10);

    if (**text < '0' || **text > '9' || end - *text < 5) return 0;
    *text = end;
    return number;
}

/* Is name a weights file of a folder, but not one of this cut? */
static bool is_stale(const struct cut *cut, const char *name)
{
    size_t number, count;

    if (strcmp(name, ASH_SAFETENSORS_FILE) == 0) return cut->shard_count > 1;
    if (strcmp(name, ASH_SAFETENSORS_INDEX) == 0) return cut->shard_count == 1;
    if (strncmp(name, "model-", 6) != 0) return false;
    name += 6;
    number = take_number(&name);
    if (number == 0 || strncmp(name, "-of-", 4) != 0) return false;
    name += 4;
    count = take_number(&name);
    return count != 0 && strcmp(name, ".safetensors") == 0 && (count != cut->shard_count || cut->shard_count == 1);
}

static int remove_stale(const char *dir, const struct cut *cut, struct ash_err *err)
{
    DIR *entries = opendir(dir);
    struct dirent *entry;
    int rc = 0;

    if (entries == NULL) return ash_io_fail(err, -errno, dir, "list");
    while (rc == 0 && (entry = readdir(entries)) != NULL) {
        if (!is_stale(cut, entry->d_name) || unlinkat(dirfd(entries), entry->d_name, 0) == 0 || errno == ENOENT)
            continue;
        rc = ash_io_fail(err, -errno, dir, "remove the old weights in");
    }
    closedir(entries);
    return rc;
}

/* A name twice is caught inside a shard by its writer, and over shards here, before anything is written. */
static int check_names(const struct ash_tensor_source *source, struct ash_err *err)
{
    json_t *seen = json_object();
    char label[ASH_LABEL_BYTES];
    int rc = 0;

    for (size_t i = 0; i < source->count && rc == 0; i++) {
        const char *name = source->specs[i].name;
        if (json_object_get(seen, name) != NULL)
            rc = ash_err_set(err, -EINVAL, "two tensors are named '%s'", ash_tensor_label(name, label));
        else if (json_object_set_new(seen, name, json_null()) < 0)
            rc = ash_err_set(err, -ENOMEM, "no memory to list %zu tensors", source->count);
    }
    json_decref(seen);
    return rc;
}

int ash_safetensors_write_folder(const char *dir, const struct ash_tensor_spec *specs, size_t count,
                                 size_t max_shard_bytes, ash_tensor_fill_fn fill, void *ctx, struct ash_err *err)
{
    struct ash_tensor_source source = {.specs = specs, .count = count, .fill = fill, .ctx = ctx};
    struct cut cut;
    int rc;

    rc = cut_init(&cut, &source, max_shard_bytes, err);
    if (rc < 0) return ash_err_prefix(err, rc, "%s", dir);
    rc = check_names(&source, err);
    if (rc < 0) ash_err_prefix(err, rc, "%s", dir);
    if (rc == 0) rc = ash_dir_make(dir, err);
    for (size_t shard = 0; shard < cut.shard_count && rc == 0; shard++)
        rc = write_shard(dir, &source, &cut, shard, err);
    if (rc == 0 && cut.shard_count > 1) rc = write_index(dir, &source, &cut, err);
    if (rc == 0) rc = remove_stale(dir, &cut, err);
    cut_fini(&cut);
    return rc;
}

/* Safetensors by path: one file, or a Hugging Face folder with one file or an index and its shards.
 * An index is outside input too: it may only name files of its folder, and must agree with their contents. */
#include "storage/safetensors/safetensors_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/math.h"
#include "storage/io/remote_file.h"

#define HEADER_GUESS_BYTES ((size_t)256 << 10) /* of a remote file, brought at once: most headers are shorter */

static int bring(const struct ash_map *map, size_t size_bytes, struct ash_err *err)
{
    struct ash_direct_range range = {map, map->base, ash_min(size_bytes, map->size_bytes)};

    return ash_remote_file_bring(&range, 1, err);
}

/* The header of a remote file. One that is no safetensors file is found out later. */
static int bring_header(const struct ash_map *map, struct ash_err *err)
{
    uint64_t length = 0;
    int rc = map->remote != NULL ? bring(map, HEADER_GUESS_BYTES, err) : 0;

    if (rc < 0 || map->remote == NULL || map->size_bytes < ASH_SAFETENSORS_LENGTH_BYTES) return rc;
    for (int i = ASH_SAFETENSORS_LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | map->base[i];
    if (length <= HEADER_GUESS_BYTES - ASH_SAFETENSORS_LENGTH_BYTES || length > ASH_SAFETENSORS_HEADER_MAX) return 0;
    return bring(map, (size_t)length + ASH_SAFETENSORS_LENGTH_BYTES, err);
}

/* Map and read one more file. */
static int add_file(struct ash_safetensors *set, const char *path, struct ash_err *err)
{
    struct ash_map *map;
    int rc = ash_safetensors_name_file(set, path, err);

    if (rc < 0) return rc;
    map = &set->files[set->file_count - 1].map;
    rc = ash_remote_file_map(path, map, err);
    if (rc == 0) rc = bring_header(map, err);
    if (rc < 0) return rc;
    return ash_safetensors_read(set, map->base, map->size_bytes, err);
}

static int open_file(const char *path, struct ash_safetensors **set_out, struct ash_err *err)
{
    struct ash_safetensors *set = ash_safetensors_new(1);
    int rc;

    if (set == NULL) return ash_err_set(err, -ENOMEM, "%s: no memory to open it", path);
    rc = add_file(set, path, err);
    if (rc < 0) goto fail;
    rc = ash_safetensors_sort(set, err);
    if (rc < 0) goto fail;
    *set_out = set;
    return 0;

fail:
    ash_safetensors_close(set);
    return rc;
}

/* A file of the index's folder: nothing that leads out of the folder or hides. */
static bool is_plain_name(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL;
}

static int compare_strings(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* The distinct shard names of weight_map, sorted; *names_out is malloc'd and borrows the strings. */
static int list_shards(const char *path, json_t *weight_map, const char ***names_out, size_t *count_out,
                       struct ash_err *err)
{
    char tensor[ASH_LABEL_BYTES], shard[ASH_LABEL_BYTES];
    const char **names, *key;
    size_t count = 0, kept = 0;
    json_t *value;

    if (json_object_size(weight_map) == 0) return ash_err_set(err, -EINVAL, "%s: its weight_map lists no tensor", path);
    names = calloc(json_object_size(weight_map), sizeof(*names));
    if (names == NULL) return ash_err_set(err, -ENOMEM, "%s: no memory for the list of shards", path);
    json_object_foreach(weight_map, key, value) {
        const char *name = json_string_value(value);
        if (name == NULL || !is_plain_name(name)) {
            free(names);
            return ash_err_set(err, -EINVAL, "%s: tensor '%s': '%s' is not the name of a file in this folder", path,
                               ash_tensor_label(key, tensor),
                               ash_tensor_label(name != NULL ? name : "(not a string)", shard));
        }
        names[count++] = name;
    }
    qsort(names, count, sizeof(*names), compare_strings);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(names[i], names[kept - 1]) != 0) names[kept++] = names[i];
    *names_out = names;
    *count_out = kept;
    return 0;
}

static int add_shard(struct ash_safetensors *set, const char *dir, const char *name, struct ash_err *err)
{
    char path[PATH_MAX], label[ASH_LABEL_BYTES];
    int rc = ash_path_join(path, sizeof(path), dir, name);

    if (rc < 0)
        return ash_err_set(err, rc, "%s: the path of shard '%s' is too long", dir, ash_tensor_label(name, label));
    if (!ash_path_exists(path))
        return ash_err_set(err, -ENOENT, "%s: this shard is missing although " ASH_SAFETENSORS_INDEX " lists it", path);
    return add_file(set, path, err);
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* Every tensor of the index must be in the shard that it names. */
static int check_index(const struct ash_safetensors *set, const char *path, json_t *weight_map, struct ash_err *err)
{
    char label[ASH_LABEL_BYTES];
    const char *key;
    json_t *value;

    json_object_foreach(weight_map, key, value) {
        const struct ash_safetensors_entry *entry = (const void *)ash_safetensors_find(set, key); /* view comes first */
        const char *file;

        if (entry == NULL)
            return ash_err_set(err, -EINVAL, "%s: tensor '%s' is not in %s", path, ash_tensor_label(key, label),
                               json_string_value(value));
        file = last_part(set->files[entry->file].name);
        if (strcmp(file, json_string_value(value)) != 0)
            return ash_err_set(err, -EINVAL, "%s: tensor '%s' is in %s, not in %s", path, ash_tensor_label(key, label),
                               file, json_string_value(value));
    }
    return 0;
}

static int open_shards(const char *dir, const char *path, json_t *weight_map, struct ash_safetensors **set_out,
                       struct ash_err *err)
{
    struct ash_safetensors *set = NULL;
    const char **names = NULL;
    size_t count = 0;
    int rc = list_shards(path, weight_map, &names, &count, err);

    if (rc < 0) return rc;
    set = ash_safetensors_new(count);
    if (set == NULL) rc = ash_err_set(err, -ENOMEM, "%s: no memory to open %zu shards", path, count);
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = add_shard(set, dir, names[i], err);
    if (rc == 0) rc = ash_safetensors_sort(set, err);
    if (rc == 0) rc = check_index(set, path, weight_map, err);
    free(names);
    if (rc < 0) goto fail;
    *set_out = set;
    return 0;

fail:
    ash_safetensors_close(set);
    return rc;
}

static int open_index(const char *dir, const char *path, struct ash_safetensors **set_out, struct ash_err *err)
{
    json_t *root = NULL, *weight_map;
    int rc = ash_json_load_unique(path, &root, err);

    if (rc < 0) return rc;
    weight_map = json_object_get(root, "weight_map");
    if (json_is_object(weight_map))
        rc = open_shards(dir, path, weight_map, set_out, err);
    else
        rc = ash_err_set(err, -EINVAL, "%s: it has no \"weight_map\" object", path);
    json_decref(root);
    return rc;
}

static int open_folder(const char *dir, struct ash_safetensors **set_out, struct ash_err *err)
{
    char path[PATH_MAX];

    if (ash_path_join(path, sizeof(path), dir, ASH_SAFETENSORS_INDEX) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "%s: this path is too long", dir);
    if (ash_path_join(path, sizeof(path), dir, ASH_SAFETENSORS_FILE) == 0 && ash_path_exists(path))
        return open_file(path, set_out, err);
    if (ash_path_join(path, sizeof(path), dir, ASH_SAFETENSORS_INDEX) == 0 && ash_path_exists(path))
        return open_index(dir, path, set_out, err);
    return ash_err_set(err, -ENOENT,
                       "%s: this folder has neither " ASH_SAFETENSORS_FILE " nor " ASH_SAFETENSORS_INDEX
                       "; name a Hugging Face model folder with safetensors weights",
                       dir);
}

int ash_safetensors_open_lazy(const char *path, struct ash_safetensors **set_out, struct ash_err *err)
{
    struct stat st;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return open_folder(path, set_out, err);
    return open_file(path, set_out, err);
}

int ash_safetensors_open(const char *path, struct ash_safetensors **set_out, struct ash_err *err)
{
    struct ash_safetensors *set = NULL;
    int rc = ash_safetensors_open_lazy(path, &set, err);

    for (size_t i = 0; rc == 0 && i < set->file_count; i++)
        rc = bring(&set->files[i].map, SIZE_MAX, err);
    if (rc == 0)
        *set_out = set;
    else
        ash_safetensors_close(set);
    return rc;
}

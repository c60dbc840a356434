/* The manifest of a data folder: JSON to struct and back. A reader trusts nothing in it: names stay inside the folder,
 * counts are bounded, and ash_dataset_open compares each line with the shard itself. */
#include "train/data/dataset_folder.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "train/data/examples.h"

void ash_data_manifest_fini(struct ash_data_manifest *manifest)
{
    free(manifest->shards);
    json_decref(manifest->source);
    *manifest = (struct ash_data_manifest){0};
}

static struct ash_folder_shard *new_shard(struct ash_data_manifest *manifest)
{
    if (ash_array_reserve(&manifest->shards, &manifest->shard_capacity, manifest->shard_count + 1,
                          sizeof(*manifest->shards)) < 0)
        return NULL;
    return &manifest->shards[manifest->shard_count++];
}

int ash_data_manifest_add(struct ash_data_manifest *manifest, const struct ash_shard_info *info)
{
    struct ash_folder_shard *shard;

    if (manifest->shard_count >= ASH_FOLDER_SHARDS_MAX) return -EFBIG;
    shard = new_shard(manifest);
    if (shard == NULL) return -ENOMEM;
    *shard = (struct ash_folder_shard){.tokens = info->tokens, .documents = info->documents, .hash = info->hash};
    snprintf(shard->file, sizeof(shard->file), "shard-%05zu.safetensors", manifest->shard_count - 1);
    return 0;
}

json_t *ash_data_manifest_shards_json(const struct ash_data_manifest *manifest)
{
    json_t *list = json_array();

    for (size_t i = 0; list != NULL && i < manifest->shard_count; i++) {
        const struct ash_folder_shard *shard = &manifest->shards[i];
        char hash[24];
        json_t *entry;

        snprintf(hash, sizeof(hash), "%016" PRIx64, shard->hash);
        entry = json_pack("{s:s, s:I, s:I, s:s}", "file", shard->file, "tokens", (json_int_t)shard->tokens, "documents",
                          (json_int_t)shard->documents, "hash", hash);
        if (entry == NULL || json_array_append_new(list, entry) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* A required 64-bit hexadecimal string. */
static int parse_hash(const json_t *obj, const char *key, uint64_t *hash_out, struct ash_err *err)
{
    const char *text = NULL;
    int rc = ash_json_string(obj, key, &text, err);
    unsigned long long value = 0;
    char rest = 0;

    if (rc < 0) return rc;
    if (text == NULL || strspn(text, "0123456789abcdef") != 16 || strlen(text) != 16 ||
        sscanf(text, "%llx%c", &value, &rest) != 1)
        return ash_err_set(err, -EINVAL, "'%s' must be 16 hexadecimal digits", key);
    *hash_out = value;
    return 0;
}

/* A required count of at least 1. */
static int parse_count(const json_t *obj, const char *key, int64_t max, size_t *count_out, struct ash_err *err)
{
    int64_t value = 0;
    int rc = ash_json_int(obj, key, 1, max, &value, err);

    if (rc < 0) return rc;
    if (rc == 0) return ash_err_set(err, -EINVAL, "'%s' is missing", key);
    *count_out = (size_t)value;
    return 0;
}

static int parse_shard(const json_t *entry, struct ash_folder_shard *shard, struct ash_err *err)
{
    const char *file = NULL;
    int rc;

    if (!json_is_object(entry)) return ash_err_set(err, -EINVAL, "it is not an object");
    rc = ash_json_string(entry, "file", &file, err);
    if (rc < 0) return rc;
    if (file == NULL || file[0] == '\0' || file[0] == '.' || strchr(file, '/') != NULL ||
        strlen(file) >= sizeof(shard->file))
        return ash_err_set(err, -EINVAL, "'file' must be a plain file name of the folder");
    memcpy(shard->file, file, strlen(file) + 1);
    rc = parse_count(entry, "tokens", INT64_MAX / 2 / ASH_FOLDER_SHARDS_MAX, &shard->tokens, err);
    if (rc < 0) return rc;
    rc = parse_count(entry, "documents", (int64_t)shard->tokens, &shard->documents, err);
    if (rc < 0) return rc;
    return parse_hash(entry, "hash", &shard->hash, err);
}

int ash_data_manifest_parse_shards(struct ash_data_manifest *manifest, const json_t *shards, struct ash_err *err)
{
    for (size_t i = 0; i < json_array_size(shards); i++) {
        struct ash_folder_shard shard = {0}, *place;
        int rc;

        if (i >= ASH_FOLDER_SHARDS_MAX)
            return ash_err_set(err, -EFBIG, "more than %d shards; use larger ones", ASH_FOLDER_SHARDS_MAX);
        rc = parse_shard(json_array_get(shards, i), &shard, err);
        if (rc < 0) return ash_err_prefix(err, rc, "shards[%zu]", i);
        place = new_shard(manifest);
        if (place == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
        *place = shard;
    }
    return 0;
}

static int parse_manifest(const json_t *json, struct ash_data_manifest *manifest, struct ash_err *err)
{
    const json_t *shards = NULL, *source = NULL;
    const char *format = NULL;
    int64_t eos_id = -1;
    int rc;

    if (!json_is_object(json)) return ash_err_set(err, -EINVAL, "it is not a JSON object");
    rc = ash_json_string(json, "format", &format, err);
    if (rc < 0) return rc;
    if (format == NULL || strcmp(format, ASH_FOLDER_FORMAT) != 0)
        return ash_err_set(err, -EINVAL, "it does not describe token shards: 'format' must be \"%s\"",
                           ASH_FOLDER_FORMAT);
    rc = parse_count(json, "vocab_size", (int64_t)ASH_SHARD_VOCAB_MAX, &manifest->vocab_size, err);
    if (rc < 0) return rc;
    rc = parse_hash(json, "tokenizer_hash", &manifest->tokenizer_hash, err);
    if (rc < 0) return rc;
    rc = ash_json_int(json, "eos_token_id", 0, (int64_t)manifest->vocab_size - 1, &eos_id, err);
    if (rc < 0) return rc;
    manifest->eos_id = (int32_t)eos_id;
    rc = ash_json_object(json, "source", &source, err);
    if (rc < 0) return rc;
    manifest->source = json_deep_copy(source);
    rc = ash_json_array(json, "shards", &shards, err);
    if (rc < 0) return rc;
    if (json_array_size(shards) == 0) return ash_err_set(err, -EINVAL, "it lists no shards");
    return ash_data_manifest_parse_shards(manifest, shards, err);
}

int ash_data_manifest_load(const char *dir, struct ash_data_manifest *manifest_out, struct ash_err *err)
{
    struct ash_data_manifest manifest = {0};
    char path[PATH_MAX];
    json_t *json = NULL;
    int rc;

    if (ash_path_join(path, sizeof(path), dir, ASH_FOLDER_MANIFEST) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", dir);
    if (!ash_path_exists(path))
        return ash_err_set(err, -ENOENT,
                           "%s: there is no %s: not a folder of token shards, or `ashlar data` did not finish it", dir,
                           ASH_FOLDER_MANIFEST);
    if (ash_examples_exist(dir))
        return ash_err_set(
            err, -EINVAL,
            "%s holds examples or pairs, not token shards: `ashlar data show` prints them, `ashlar sft`, "
            "`dpo`, `reward` or `distill` trains on them",
            dir);
    rc = ash_json_load(path, &json, err);
    if (rc < 0) return rc;
    rc = parse_manifest(json, &manifest, err);
    json_decref(json);
    if (rc < 0) {
        ash_data_manifest_fini(&manifest);
        return ash_err_prefix(err, rc, "%s", path);
    }
    *manifest_out = manifest;
    return 0;
}

int ash_data_manifest_save(const char *dir, const struct ash_data_manifest *manifest, struct ash_err *err)
{
    size_t tokens = 0, documents = 0;
    char path[PATH_MAX], hash[24];
    json_t *json;
    int rc;

    for (size_t i = 0; i < manifest->shard_count; i++) {
        tokens += manifest->shards[i].tokens;
        documents += manifest->shards[i].documents;
    }
    if (ash_path_join(path, sizeof(path), dir, ASH_FOLDER_MANIFEST) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", dir);
    snprintf(hash, sizeof(hash), "%016" PRIx64, manifest->tokenizer_hash);
    json = json_pack("{s:s, s:I, s:s, s:o, s:I, s:I, s:o, s:O?}", "format", ASH_FOLDER_FORMAT, "vocab_size",
                     (json_int_t)manifest->vocab_size, "tokenizer_hash", hash, "eos_token_id",
                     manifest->eos_id < 0 ? json_null() : json_integer(manifest->eos_id), "tokens", (json_int_t)tokens,
                     "documents", (json_int_t)documents, "shards", ash_data_manifest_shards_json(manifest), "source",
                     manifest->source);
    if (json == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory", path);
    rc = ash_json_save(path, json, err);
    json_decref(json);
    return rc;
}

/* The manifest and the shard were written by the same run, or the folder is a mixture of two. */
int ash_data_manifest_check(const struct ash_data_manifest *manifest, size_t index, const struct ash_shard *shard,
                            const char *path, struct ash_err *err)
{
    const struct ash_folder_shard *listed = &manifest->shards[index];
    const struct ash_shard_info *info = ash_shard_get_info(shard);

    ash_assert(index < manifest->shard_count);
    if (info->tokens != listed->tokens || info->documents != listed->documents || info->hash != listed->hash)
        return ash_err_set(err, -EINVAL, "%s: it is not the file that the folder's list describes; make the data again",
                           path);
    if (info->vocab_size != manifest->vocab_size || info->tokenizer_hash != manifest->tokenizer_hash)
        return ash_err_set(err, -EINVAL,
                           "%s: it was made with another tokenizer than the rest of the folder; make the data again",
                           path);
    return 0;
}

int ash_data_manifest_check_all(const struct ash_data_manifest *manifest, const char *dir, struct ash_err *err)
{
    for (size_t i = 0; i < manifest->shard_count; i++) {
        struct ash_shard *shard = NULL;
        char path[PATH_MAX], away[PATH_MAX + sizeof(ASH_FOLDER_AWAY)];
        int rc;

        if (ash_path_join(path, sizeof(path), dir, manifest->shards[i].file) < 0)
            return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", dir);
        snprintf(away, sizeof(away), "%s%s", path, ASH_FOLDER_AWAY);
        if (!ash_path_exists(path) && ash_path_exists(away)) continue;
        rc = ash_shard_open(path, &shard, err);
        if (rc < 0) return rc;
        rc = ash_data_manifest_check(manifest, i, shard, path, err);
        ash_shard_close(shard);
        if (rc < 0) return rc;
    }
    return 0;
}

/* Whose run a data folder belongs to. state.json holds the run's key (all that decides its output), the shards that are
 * on disk and where to continue; it is replaced after each shard, so a killed run loses one shard's work at most. */
#include "train/data/dataset_folder.h"
#include "train/data/dataset_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "train/data/tokenizer_files.h"

#define STATE_FORMAT "ashlar-data-state-1"

static int refuse(const struct ash_folder *folder, const char *why, struct ash_err *err)
{
    return ash_err_set(err, -EEXIST, "%s: %s; choose another folder, or replace what is there with --overwrite",
                       folder->dir, why);
}

/* The first setting that is not as it was, for the message. */
static int refuse_key(const struct ash_folder *folder, const json_t *was, json_t *now, struct ash_err *err)
{
    const char *name = NULL;
    json_t *value = NULL;
    char why[128] = "it was begun by another command";

    json_object_foreach(now, name, value) {
        if (json_equal(json_object_get(was, name), value)) continue;
        snprintf(why, sizeof(why), "it was begun with other settings (not the same: %s)", name);
        break;
    }
    return refuse(folder, why, err);
}

static int load_shards(struct ash_folder *folder, const json_t *state, struct ash_err *err)
{
    const json_t *shards = NULL;
    int rc;

    if (folder->complete) return ash_data_manifest_load(folder->dir, &folder->manifest, err);
    rc = ash_json_array(state, "shards", &shards, err);
    if (rc < 0) return rc;
    return ash_data_manifest_parse_shards(&folder->manifest, shards, err);
}

/* Has a run finished nothing? It ended at its first shard: another one loses nothing of it. */
static bool is_empty(const struct ash_folder *folder, const json_t *state)
{
    const json_t *shards = NULL;

    return !folder->complete && ash_json_array(state, "shards", &shards, NULL) > 0 && json_array_size(shards) == 0;
}

/* Take over the run that the folder's state.json describes, if it is ours. Returns 1, 0 if it has finished nothing of
 * other settings, or an error. */
static int resume(struct ash_folder *folder, const char *path, json_t *key, json_t **state_out, struct ash_err *err)
{
    const json_t *was = NULL, *saved = NULL;
    const char *format = NULL;
    json_t *state = NULL;
    int rc = ash_json_load(path, &state, err);

    if (rc < 0) return rc;
    rc = ash_json_string(state, "format", &format, err);
    if (rc >= 0) rc = ash_json_object(state, "key", &was, err);
    if (rc >= 0) rc = ash_json_object(state, "state", &saved, err);
    if (rc >= 0 && (format == NULL || strcmp(format, STATE_FORMAT) != 0))
        rc = refuse(folder, "its " ASH_FOLDER_STATE " is of another kind", err);
    if (rc >= 0 && !json_equal(was, key)) {
        rc = is_empty(folder, state) ? 0 : refuse_key(folder, was, key, err);
        json_decref(state);
        return rc;
    }
    if (rc >= 0) rc = load_shards(folder, state, err);
    if (rc >= 0) *state_out = json_incref((json_t *)(uintptr_t)saved);
    json_decref(state);
    return rc < 0 ? rc : 1;
}

/* Does the folder's file of that name have our format field? */
static bool has_format(const struct ash_folder *folder, const char *name, const char *format)
{
    char path[PATH_MAX];
    const char *found = NULL;
    json_t *json = NULL;
    bool is_ours = false;

    if (ash_path_join(path, sizeof(path), folder->dir, name) < 0 || ash_json_load(path, &json, NULL) < 0) return false;
    if (ash_json_string(json, "format", &found, NULL) > 0) is_ours = strcmp(found, format) == 0;
    json_decref(json);
    return is_ours;
}

/* Refuse a folder of something else (a model, a checkpoint) that has files which the run would replace. */
static int check_not_foreign(const struct ash_folder *folder, struct ash_err *err)
{
    const char *file = NULL;

    if (has_format(folder, ASH_FOLDER_STATE, STATE_FORMAT) ||
        has_format(folder, ASH_FOLDER_MANIFEST, ASH_FOLDER_FORMAT))
        return 0;
    if (faccessat(folder->lock_fd, ASH_FOLDER_MANIFEST, F_OK, 0) == 0)
        file = ASH_FOLDER_MANIFEST;
    else if (faccessat(folder->lock_fd, ASH_FOLDER_STATE, F_OK, 0) == 0)
        file = ASH_FOLDER_STATE;
    else
        file = ash_tokenizer_files_first(folder->dir);
    if (file == NULL) return 0;
    return ash_err_set(err, -EEXIST, "%s: it is no data folder, and its %s would be overwritten; choose another folder",
                       folder->dir, file);
}

int ash_folder_claim(struct ash_folder *folder, json_t *key, bool overwrite, json_t **state_out, struct ash_err *err)
{
    char state[PATH_MAX], manifest[PATH_MAX];
    int rc;

    if (ash_path_join(state, sizeof(state), folder->dir, ASH_FOLDER_STATE) < 0 ||
        ash_path_join(manifest, sizeof(manifest), folder->dir, ASH_FOLDER_MANIFEST) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", folder->dir);
    rc = check_not_foreign(folder, err);
    if (rc < 0) return rc;
    ash_data_manifest_fini(&folder->manifest);
    folder->complete = !overwrite && ash_path_exists(manifest);
    folder->key = key;
    if (!overwrite && ash_path_exists(state)) {
        rc = resume(folder, state, key, state_out, err);
        if (rc != 0) return rc;
    }
    rc = overwrite ? ash_folder_clear(folder, err) : ash_folder_has_shards(folder, err);
    if (rc < 0) return rc;
    if (rc > 0 || folder->complete) return refuse(folder, "it holds other data", err);
    *state_out = NULL;
    return ash_folder_save_state(folder, NULL, err);
}

int ash_folder_save_state(struct ash_folder *folder, const json_t *state, struct ash_err *err)
{
    char path[PATH_MAX];
    json_t *json;
    int rc;

    if (ash_path_join(path, sizeof(path), folder->dir, ASH_FOLDER_STATE) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", folder->dir);
    json = json_pack("{s:s, s:O, s:O?, s:o}", "format", STATE_FORMAT, "key", folder->key, "state", state, "shards",
                     ash_data_manifest_shards_json(&folder->manifest));
    if (json == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory", path);
    rc = ash_json_save(path, json, err);
    json_decref(json);
    return rc;
}

bool ash_folder_is_complete(const struct ash_folder *folder)
{
    return folder->complete;
}

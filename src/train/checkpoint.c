/* checkpoint: a job's state as a committed folder and back. Weights are saved as a model, moments as one more
 * safetensors file next to them (train/save/), counters in the manifest. Whole tensors are written, however they are
 * sharded, and each rank reads its part of them: a checkpoint has no layout. */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "storage/commit/commit.h"
#include "train/save/place.h"
#include "train/save/saver.h"

#define PREFIX "step-"

/* ---- saving ------------------------------------------------------------------------------------------------------ */

json_t *ash_checkpoint_encode(const struct ash_state *state, const struct ash_checkpoint_facts *facts)
{
    char state_hash[24], data_hash[24], weights_hash[24], run[24];
    json_t *json;

    snprintf(state_hash, sizeof(state_hash), "%016" PRIx64, facts->state_hash);
    snprintf(data_hash, sizeof(data_hash), "%016" PRIx64, facts->data_hash);
    snprintf(weights_hash, sizeof(weights_hash), "%016" PRIx64, facts->weights_hash);
    snprintf(run, sizeof(run), "%016" PRIx64, facts->run);
    json = json_pack("{s:I, s:I, s:s, s:s, s:s, s:s, s:o, s:s, s:s}", "step", (json_int_t)state->step, "updates",
                     (json_int_t)state->updates, "state_hash", state_hash, "weights_hash", weights_hash, "data_hash",
                     data_hash, ASH_PLACE_RUN, run, "guard", ash_guard_encode(&state->guard), "arithmetic",
                     facts->arithmetic, "job", facts->job_yaml);
    if (json != NULL && facts->kept != NULL) json_object_set(json, "kept", facts->kept);
    json_decref(facts->kept);
    return json;
}

int ash_checkpoint_path(const char *root, uint64_t step, char *buf, size_t buf_bytes)
{
    return ash_place_dir(root, step, buf, buf_bytes);
}

int ash_checkpoint_prune(const char *root, size_t keep, struct ash_err *err)
{
    return ash_commit_prune(root, PREFIX, keep > 0 ? keep : SIZE_MAX, err);
}

int ash_checkpoint_prune_complete(const char *root, size_t keep, uint64_t pinned, struct ash_err *err)
{
    return ash_commit_prune_complete(root, PREFIX, keep > 0 ? keep : SIZE_MAX, pinned, err);
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

void ash_checkpoint_fini(struct ash_checkpoint *checkpoint)
{
    free(checkpoint->job_yaml);
    free(checkpoint->arithmetic);
    json_decref(checkpoint->kept);
    memset(checkpoint, 0, sizeof(*checkpoint));
}

/* The number of a folder "step-<digits>"; false for other names. */
static bool parse_name(const char *name, uint64_t *step_out)
{
    char *end = NULL;

    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || name[strlen(PREFIX)] < '0' || name[strlen(PREFIX)] > '9')
        return false;
    errno = 0;
    *step_out = strtoull(name + strlen(PREFIX), &end, 10);
    return errno == 0 && *end == '\0';
}

size_t ash_checkpoint_count(const char *root)
{
    DIR *dir = opendir(root);
    size_t count = 0;

    if (dir == NULL) return 0;
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char path[PATH_MAX];

        uint64_t number;

        if (!parse_name(entry->d_name, &number)) continue;
        count += ash_path_join(path, sizeof(path), root, entry->d_name) < 0 || !ash_commit_is_unfinished(path);
    }
    closedir(dir);
    return count;
}

static int decode_hash(const json_t *json, const char *key, uint64_t *hash_out, struct ash_err *err)
{
    const char *text = NULL;
    char *end = NULL;
    int rc = ash_json_string(json, key, &text, err);

    if (rc < 0) return rc;
    if (rc == 0 || text[0] == '\0') return ash_err_set(err, -EBADMSG, "the manifest has no %s", key);
    *hash_out = strtoull(text, &end, 16);
    return *end == '\0' ? 0 : ash_err_set(err, -EBADMSG, "the manifest's %s is not hexadecimal", key);
}

/* The state's members of a manifest; missing members keep their values. */
struct manifest_state {
    int64_t step, updates;
    const json_t *guard;
    const char *job, *arithmetic;
};

static int read_members(const json_t *state, struct manifest_state *out, struct ash_err *err)
{
    int rc = ash_json_int(state, "step", 0, INT64_MAX, &out->step, err);

    if (rc >= 0) rc = ash_json_int(state, "updates", 0, INT64_MAX, &out->updates, err);
    if (rc >= 0) rc = ash_json_object(state, "guard", &out->guard, err);
    if (rc >= 0) rc = ash_json_string(state, "arithmetic", &out->arithmetic, err);
    if (rc >= 0) rc = ash_json_string(state, "job", &out->job, err);
    if (rc < 0) return rc;
    if (out->step < 0 || out->updates < 0 || out->guard == NULL || out->arithmetic == NULL || out->job == NULL)
        return ash_err_set(err, -EBADMSG,
                           "the manifest's state lacks step, updates, guard, arithmetic or job: is this a training "
                           "checkpoint?");
    return 0;
}

int ash_checkpoint_decode(const json_t *manifest, struct ash_checkpoint *checkpoint, struct ash_err *err)
{
    struct manifest_state found = {.step = -1, .updates = -1};
    const json_t *state = NULL;
    int rc = ash_json_object(manifest, "state", &state, err);

    if (rc < 0) return rc;
    if (state == NULL) return ash_err_set(err, -EBADMSG, "the manifest has no state");
    rc = read_members(state, &found, err);
    if (rc < 0) return rc;
    rc = decode_hash(state, "state_hash", &checkpoint->state_hash, err);
    if (rc < 0) return rc;
    rc = decode_hash(state, "data_hash", &checkpoint->data_hash, err);
    if (rc < 0) return rc;
    checkpoint->run = ash_place_manifest_run(manifest);
    checkpoint->weights_hash = checkpoint->state_hash; /* there was one alone, once */
    if (json_object_get(state, "weights_hash") != NULL) {
        rc = decode_hash(state, "weights_hash", &checkpoint->weights_hash, err);
        if (rc < 0) return rc;
    }
    checkpoint->kept = json_incref(json_object_get(state, "kept"));
    rc = ash_guard_decode(found.guard, &checkpoint->guard, err);
    if (rc < 0) return rc;
    checkpoint->step = (uint64_t)found.step;
    checkpoint->updates = (uint64_t)found.updates;
    checkpoint->job_yaml = strdup(found.job);
    checkpoint->arithmetic = strdup(found.arithmetic);
    if (checkpoint->job_yaml == NULL || checkpoint->arithmetic == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory");
    return 0;
}

int ash_checkpoint_newest(const char *root, uint64_t *step_out)
{
    struct ash_commit_found found = {0};
    int rc = ash_commit_latest(root, PREFIX, false, &found, NULL);

    if (rc < 0) return rc;
    *step_out = found.number;
    ash_commit_found_fini(&found);
    return 0;
}

static int clear_folder(const char *root, const char *name, struct ash_err *err)
{
    char path[PATH_MAX], aside[PATH_MAX];
    int used, rc;

    if (ash_path_join(path, sizeof(path), root, name) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", root);
    if (ash_commit_is_unfinished(path)) return ash_commit_discard(path, err);
    used = snprintf(aside, sizeof(aside), "%s.damaged", path);
    if (used < 0 || (size_t)used >= sizeof(aside))
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", root);
    rc = ash_dir_remove(aside, err);
    if (rc < 0) return rc;
    return rename(path, aside) == 0 ? 0 : ash_err_set(err, -errno, "%s: %s", path, strerror(errno));
}

int ash_checkpoint_clear_newer(const char *root, uint64_t step, struct ash_err *err)
{
    struct dirent **entries = NULL;
    int count = scandir(root, &entries, NULL, alphasort), rc = 0;

    if (count < 0) return errno == ENOENT ? 0 : ash_err_set(err, -errno, "%s: %s", root, strerror(errno));
    for (int i = 0; i < count; i++) {
        uint64_t number;

        if (rc == 0 && parse_name(entries[i]->d_name, &number) && number > step)
            rc = clear_folder(root, entries[i]->d_name, err);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

int ash_checkpoint_load(const struct ash_checkpoint *checkpoint, struct ash_stages *stages, struct ash_err *err)
{
    uint64_t hash;
    int rc;

    for (size_t i = 0; i < stages->chunk_count; i++) {
        struct ash_state *state = &stages->chunks[i].state;

        state->step = checkpoint->step;
        state->updates = checkpoint->updates;
        state->guard = checkpoint->guard;
    }
    rc = ash_stages_renew(stages, err);
    if (rc < 0) return rc;
    rc = ash_stages_hash(stages, &hash, err);
    if (rc < 0) return rc;
    if (hash == checkpoint->weights_hash) return 0;
    return ash_err_set(err, -EUCLEAN,
                       "%s: the state that was read has hash %016" PRIx64 " but %016" PRIx64
                       " was saved; files or memory are damaged",
                       checkpoint->dir, hash, checkpoint->weights_hash);
}

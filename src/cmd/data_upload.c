/* Data folders on their way to S3. FILE.away is written before FILE leaves the folder: a run that is killed in between
 * finds the file itself and puts it again. */
#include "cmd/data_upload.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "cmd/progress_bar.h"
#include "cmd/remote.h"
#include "cmd/units.h"
#include "storage/namespace/settings.h"
#include "train/data/dataset_folder.h"
#include "train/data/tokenizer_files.h"

struct ash_data_upload {
    struct ash_namespace_settings settings;
    struct ash_namespace *space;
    struct ash_str folder;
    char *url;
    size_t shards; /* that have left */
    struct ash_progress_bar bar;
    bool is_finished;
};

static int show(void *ctx, const char *key, uint64_t done_bytes, uint64_t total_bytes, struct ash_err *err)
{
    struct ash_progress_bar *bar = ctx;
    char done[ASH_UNITS_BYTES], total[ASH_UNITS_BYTES];

    (void)err;
    if (!ash_progress_bar_due(bar)) return 0;
    ash_progress_bar_say(bar, "exporting to %.60s: %s of %s", key,
                         ash_units_bytes((size_t)done_bytes, done, sizeof(done)),
                         ash_units_bytes((size_t)total_bytes, total, sizeof(total)));
    return 0;
}

/* Finished data of another run must not be mixed with new ones. */
static int check_place(struct ash_data_upload *upload, bool overwrite, struct ash_err *err)
{
    char path[PATH_MAX];
    struct ash_tier *tier = NULL;
    int rc = ash_cmd_is_there(upload->url, ASH_FOLDER_MANIFEST, err);

    if (rc <= 0) return rc;
    if (!overwrite) {
        if (ash_path_join(path, sizeof(path), upload->folder.data, ASH_FOLDER_STATE) == 0 && ash_path_exists(path))
            return 0; /* this very run, which was stopped before it could clean up */
        return ash_err_set(err, -EEXIST,
                           "%.300s: it holds finished data; choose another place, or replace them with --overwrite",
                           upload->url);
    }
    rc = ash_tier_open(upload->url, &upload->settings.s3, &tier, err);
    if (rc == 0) rc = ash_tier_remove(tier, ASH_FOLDER_MANIFEST, err);
    ash_tier_close(tier);
    return rc;
}

int ash_data_upload_open(const char *url, bool overwrite, struct ash_data_upload **upload_out, struct ash_err *err)
{
    struct ash_data_upload *upload = calloc(1, sizeof(*upload));
    int rc;

    if (upload == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    ash_progress_bar_init(&upload->bar);
    upload->url = strdup(url);
    rc = upload->url != NULL ? ash_namespace_settings_init(&upload->settings, err)
                             : ash_err_set(err, -ENOMEM, "out of memory");
    if (rc == 0) rc = ash_cmd_stage(url, &upload->folder, err);
    if (rc == 0) rc = check_place(upload, overwrite, err);
    if (rc == 0) rc = ash_namespace_open(url, &upload->settings.cache, &upload->settings.s3, &upload->space, err);
    if (rc == 0) rc = ash_namespace_export_start(upload->space, err);
    if (rc < 0) {
        ash_data_upload_close(upload);
        return rc;
    }
    *upload_out = upload;
    return 0;
}

void ash_data_upload_close(struct ash_data_upload *upload)
{
    if (upload == NULL) return;
    ash_namespace_close(upload->space);
    if (upload->is_finished) ash_dir_remove(upload->folder.data, NULL);
    ash_namespace_settings_fini(&upload->settings);
    ash_str_fini(&upload->folder);
    free(upload->url);
    free(upload);
}

const char *ash_data_upload_folder(const struct ash_data_upload *upload)
{
    return upload->folder.data;
}

/* One file of the folder, if it exists. */
static int put_file(struct ash_data_upload *upload, const char *name, bool wants_move, struct ash_err *err)
{
    char path[PATH_MAX], away[PATH_MAX + sizeof(ASH_FOLDER_AWAY)];
    int rc = ash_path_join(path, sizeof(path), upload->folder.data, name);

    if (rc < 0) return ash_err_set(err, rc, "the path is too long: %.200s", upload->folder.data);
    if (!ash_path_exists(path)) return 0;
    snprintf(away, sizeof(away), "%s%s", path, ASH_FOLDER_AWAY);
    if (wants_move) rc = ash_file_replace(away, "", 0, err);
    return rc < 0 ? rc : ash_namespace_put(upload->space, name, path, wants_move, err);
}

int ash_data_upload_shards(struct ash_data_upload *upload, size_t count, struct ash_err *err)
{
    int64_t limit = upload->settings.cache.bytes;
    int rc = 0;

    for (; rc == 0 && upload->shards < count; upload->shards++) {
        char name[ASH_FOLDER_NAME_BYTES];

        snprintf(name, sizeof(name), "shard-%05zu.safetensors", upload->shards);
        rc = put_file(upload, name, true, err);
        /* with a limit, what waits is sent before more is written */
        if (rc == 0 && limit > 0) rc = ash_namespace_export_wait(upload->space, NULL, err);
        if (rc == 0) rc = ash_namespace_make_room(upload->space, 0, err);
    }
    return rc;
}

int ash_data_upload_finish(struct ash_data_upload *upload, struct ash_err *err)
{
    const struct ash_namespace_watch watch = {show, &upload->bar};
    struct ash_data_manifest manifest = {0};
    int rc = ash_data_manifest_load(upload->folder.data, &manifest, err);

    if (rc == 0) rc = ash_data_upload_shards(upload, manifest.shard_count, err);
    ash_data_manifest_fini(&manifest);
    for (size_t i = 0; rc == 0 && ash_tokenizer_files_at(i) != NULL; i++)
        rc = put_file(upload, ash_tokenizer_files_at(i), false, err);
    if (rc == 0) rc = ash_namespace_export_wait(upload->space, &watch, err);
    if (rc == 0) rc = put_file(upload, ASH_FOLDER_MANIFEST, false, err);
    if (rc == 0) rc = ash_namespace_export_wait(upload->space, &watch, err);
    ash_progress_bar_clear(&upload->bar);
    upload->is_finished = rc == 0;
    return rc;
}

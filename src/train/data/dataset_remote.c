/* Data in S3: manifest and tokenizer as files of the namespace, shards as ranges of its objects. */
#include "train/data/dataset_remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "storage/namespace/ahead.h"
#include "train/data/tokenizer_files.h"

#define MEMORY_BYTES ((size_t)64 << 20) /* of ranges that were fetched ahead */
#define INTERRUPT_S 60.0                /* a step that is being computed at Ctrl-C gets its data */
#define ENDING ".safetensors"

struct range_source {
    struct ash_shard_source source; /* its ctx is this */
    struct ash_dataset_remote *remote;
    size_t index;
};

struct ash_dataset_remote {
    struct ash_namespace_settings settings;
    struct ash_data_manifest manifest;
    bool has_manifest;
    char *url, *folder;
    struct ash_ahead *ahead;
    struct range_source *sources;
    size_t count;
};

static int read_range(void *ctx, uint64_t offset, size_t size_bytes, void *data, struct ash_err *err)
{
    const struct range_source *source = ctx;
    const struct ash_ahead_range range = {source->index, offset, size_bytes};

    return ash_ahead_read(source->remote->ahead, &range, data, err);
}

/* Fetch a file that every checkpoint gets a copy of, and pin it: a cache smaller than the data would evict it as least
 * recently read. */
static int fetch_kept(struct ash_namespace *space, const char *key, struct ash_err *err)
{
    int rc = ash_namespace_fetch(space, key, NULL, NULL, err);

    return rc == 0 ? ash_namespace_pin(space, key, true, err) : rc;
}

/* Bring manifest and tokenizer here. A place without a tokenizer is fine. */
static int fetch_small(struct ash_dataset_remote *remote, const char *url, struct ash_err *err)
{
    struct ash_namespace *space = NULL;
    int rc = ash_namespace_open(url, &remote->settings.cache, &remote->settings.s3, &space, err);

    if (rc == 0) remote->folder = strdup(ash_namespace_files(space));
    if (rc == 0 && remote->folder == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory");
    if (rc == 0) rc = fetch_kept(space, ASH_FOLDER_MANIFEST, err);
    if (rc == -ENOENT && (err == NULL || strstr(err->text, "no bucket") == NULL))
        ash_err_set(err, rc, "%.300s: there is no %s: no token shards, or `ashlar data` did not finish them", url,
                    ASH_FOLDER_MANIFEST);
    for (size_t i = 0; rc == 0 && ash_tokenizer_files_at(i) != NULL; i++) {
        rc = fetch_kept(space, ash_tokenizer_files_at(i), err);
        if (rc == -ENOENT) rc = 0;
    }
    ash_namespace_close(space);
    if (rc == 0) rc = ash_data_manifest_load(remote->folder, &remote->manifest, err);
    remote->has_manifest = rc == 0;
    return rc;
}

/* Open the shards that keys name below place. */
static int open_shards(struct ash_dataset_remote *remote, const char *place, const char *const *keys,
                       struct ash_err *err)
{
    int rc;

    remote->sources = calloc(remote->count, sizeof(*remote->sources));
    if (remote->sources == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = ash_ahead_open(&(struct ash_ahead_opts){.url = place,
                                                 .keys = keys,
                                                 .count = remote->count,
                                                 .settings = &remote->settings,
                                                 .memory_bytes = MEMORY_BYTES},
                        &remote->ahead, err);
    for (size_t i = 0; rc == 0 && i < remote->count; i++)
        remote->sources[i] =
            (struct range_source){.source = {read_range, &remote->sources[i], ash_ahead_size(remote->ahead, i)},
                                  .remote = remote,
                                  .index = i};
    return rc;
}

static int open_folder(struct ash_dataset_remote *remote, const char *url, struct ash_err *err)
{
    const char **keys;
    int rc = fetch_small(remote, url, err);

    if (rc < 0) return rc;
    remote->count = remote->manifest.shard_count;
    keys = calloc(remote->count + 1, sizeof(*keys));
    if (keys == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < remote->count; i++)
        keys[i] = remote->manifest.shards[i].file;
    rc = open_shards(remote, url, keys, err);
    free(keys);
    return rc;
}

static int open_file(struct ash_dataset_remote *remote, const char *url, struct ash_err *err)
{
    const char *slash = strrchr(url, '/'), *keys[] = {slash + 1};
    char *place = strndup(url, (size_t)(slash - url));
    int rc = place != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory");

    remote->count = 1;
    if (rc == 0) rc = open_shards(remote, place, keys, err);
    free(place);
    return rc;
}

int ash_dataset_remote_open(const char *url, struct ash_dataset_remote **remote_out, struct ash_err *err)
{
    struct ash_dataset_remote *remote = calloc(1, sizeof(*remote));
    size_t length = strlen(url), ending = strlen(ENDING);
    int rc;

    if (remote == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    remote->url = strdup(url);
    rc = remote->url != NULL ? ash_namespace_settings_init(&remote->settings, err)
                             : ash_err_set(err, -ENOMEM, "out of memory");
    remote->settings.s3.interrupt_s = INTERRUPT_S;
    if (rc == 0 && length > ending && strcmp(url + length - ending, ENDING) == 0)
        rc = open_file(remote, url, err);
    else if (rc == 0)
        rc = open_folder(remote, url, err);
    if (rc < 0) {
        ash_dataset_remote_close(remote);
        return rc;
    }
    *remote_out = remote;
    return 0;
}

void ash_dataset_remote_close(struct ash_dataset_remote *remote)
{
    if (remote == NULL) return;
    if (remote->ahead != NULL) {
        struct ash_ahead_totals totals = ash_ahead_get_totals(remote->ahead);

        if (totals.wanted > 0)
            ash_log(ASH_LOG_INFO, "%s: read %llu bytes, fetched %llu of them from S3", remote->url,
                    (unsigned long long)totals.read_bytes, (unsigned long long)totals.fetched_bytes);
    }
    ash_ahead_close(remote->ahead);
    ash_data_manifest_fini(&remote->manifest);
    ash_namespace_settings_fini(&remote->settings);
    free(remote->sources);
    free(remote->folder);
    free(remote->url);
    free(remote);
}

const struct ash_data_manifest *ash_dataset_remote_manifest(const struct ash_dataset_remote *remote)
{
    return remote->has_manifest ? &remote->manifest : NULL;
}

size_t ash_dataset_remote_count(const struct ash_dataset_remote *remote)
{
    return remote->count;
}

const struct ash_shard_source *ash_dataset_remote_source(const struct ash_dataset_remote *remote, size_t index)
{
    ash_assert(index < remote->count);
    return &remote->sources[index].source;
}

const char *ash_dataset_remote_folder(const struct ash_dataset_remote *remote)
{
    return remote->folder;
}

void ash_dataset_remote_want(struct ash_dataset_remote *remote, size_t index, uint64_t offset, size_t size_bytes,
                             uint64_t order, bool is_kept)
{
    const struct ash_ahead_range range = {index, offset, size_bytes};

    ash_ahead_want(remote->ahead, &range, order, is_kept);
}

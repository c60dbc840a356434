/* Building a data folder: shards one after the other, each complete on disk before the next
 * begins, the manifest last. */
#include "train/data/dataset_folder.h"
#include "train/data/dataset_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"

/* Files that only `ashlar data` writes. The tokenizer's files are not removed: the run may read them. */
static bool is_shard(const char *name, size_t length)
{
    static const char ending[] = ".safetensors";
    size_t digits = strspn(name + (length > 6 ? 6 : length), "0123456789");

    return length > 6 && strncmp(name, "shard-", 6) == 0 && digits >= 5 && length == 6 + digits + strlen(ending) &&
           strncmp(name + 6 + digits, ending, strlen(ending)) == 0;
}

static bool is_named(const char *name, size_t length, const char *whole)
{
    return length == strlen(whole) && strncmp(name, whole, length) == 0;
}

static int select_shards(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name), ending = strlen(ASH_FOLDER_AWAY);

    if (length > ending && strcmp(entry->d_name + length - ending, ASH_FOLDER_AWAY) == 0) length -= ending;
    return is_shard(entry->d_name, length);
}

/* Temporary files that a killed process left next to a file that it was replacing. */
static int select_leftovers(const struct dirent *entry)
{
    const char *name = entry->d_name, *end = strstr(name, ".tmp-");
    size_t length;

    if (end == NULL) end = strstr(name, ".spill.");
    if (end == NULL) return 0;
    length = (size_t)(end - name);
    return is_shard(name, length) || is_named(name, length, ASH_FOLDER_MANIFEST) ||
           is_named(name, length, ASH_FOLDER_STATE);
}

static int remove_file(const struct ash_folder *folder, const char *name, struct ash_err *err)
{
    if (unlinkat(folder->lock_fd, name, 0) == 0 || errno == ENOENT) return 0;
    return ash_err_set(err, -errno, "%s/%s: cannot remove it: %s", folder->dir, name, strerror(errno));
}

static int remove_selected(const struct ash_folder *folder, int (*select)(const struct dirent *entry),
                           struct ash_err *err)
{
    struct dirent **entries = NULL;
    int rc = 0, count = scandir(folder->dir, &entries, select, alphasort);

    if (count < 0) return ash_err_set(err, -errno, "%s: cannot list the folder: %s", folder->dir, strerror(errno));
    for (int i = 0; i < count; i++) {
        if (rc == 0) rc = remove_file(folder, entries[i]->d_name, err);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

int ash_folder_open(const char *dir, struct ash_folder **folder_out, struct ash_err *err)
{
    struct ash_folder *folder = NULL;
    int rc = ash_dir_make(dir, err);

    if (rc < 0) return rc;
    folder = calloc(1, sizeof(*folder));
    if (folder == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory", dir);
    folder->dir = strdup(dir);
    folder->lock_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->dir == NULL || folder->lock_fd < 0) {
        rc = ash_err_set(err, folder->dir == NULL ? -ENOMEM : -errno, "%s: cannot open the folder", dir);
        goto fail;
    }
    if (flock(folder->lock_fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
        rc = ash_err_set(err, -EBUSY, "%s: another process is writing data there; wait for it or choose another folder",
                         dir);
        goto fail;
    }
    rc = remove_selected(folder, select_leftovers, err);
    if (rc < 0) goto fail;
    *folder_out = folder;
    return 0;

fail:
    ash_folder_close(folder);
    return rc;
}

void ash_folder_close(struct ash_folder *folder)
{
    if (folder == NULL) return;
    ash_shard_writer_close(folder->writer);
    ash_data_manifest_fini(&folder->manifest);
    if (folder->lock_fd >= 0) close(folder->lock_fd);
    free(folder->description);
    free(folder->dir);
    free(folder);
}

int ash_folder_clear(struct ash_folder *folder, struct ash_err *err)
{
    int rc = remove_file(folder, ASH_FOLDER_MANIFEST, err);

    if (rc == 0) rc = remove_file(folder, ASH_FOLDER_STATE, err);
    if (rc == 0) rc = remove_selected(folder, select_shards, err);
    return rc;
}

int ash_folder_has_shards(struct ash_folder *folder, struct ash_err *err)
{
    struct dirent **entries = NULL;
    int count = scandir(folder->dir, &entries, select_shards, NULL);

    if (count < 0) return ash_err_set(err, -errno, "%s: cannot list the folder: %s", folder->dir, strerror(errno));
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return count > 0;
}

int ash_folder_begin(struct ash_folder *folder, const struct ash_folder_opts *opts, struct ash_err *err)
{
    ash_assert(opts->shard_tokens > 0 && folder->shard_tokens == 0);
    if (opts->description != NULL) {
        folder->description = strdup(opts->description);
        if (folder->description == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory", folder->dir);
    }
    folder->manifest.vocab_size = opts->vocab_size;
    folder->manifest.tokenizer_hash = opts->tokenizer_hash;
    folder->manifest.eos_id = opts->eos_id;
    folder->shard_tokens = opts->shard_tokens;
    return ash_data_manifest_check_all(&folder->manifest, folder->dir, err);
}

static int open_writer(struct ash_folder *folder, struct ash_err *err)
{
    char name[ASH_FOLDER_NAME_BYTES], path[PATH_MAX];

    snprintf(name, sizeof(name), "shard-%05zu.safetensors", folder->manifest.shard_count);
    if (ash_path_join(path, sizeof(path), folder->dir, name) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", folder->dir);
    return ash_shard_writer_open(path, folder->manifest.vocab_size, folder->manifest.tokenizer_hash,
                                 folder->description, &folder->writer, err);
}

static int finish_shard(struct ash_folder *folder, struct ash_err *err)
{
    struct ash_shard_info info;
    int rc = ash_shard_writer_finish(folder->writer, &info, err);

    if (rc < 0) return rc;
    ash_shard_writer_close(folder->writer);
    folder->writer = NULL;
    rc = ash_data_manifest_add(&folder->manifest, &info);
    if (rc == -EFBIG)
        return ash_err_set(err, rc, "%s: more than %d shards; use larger ones", folder->dir, ASH_FOLDER_SHARDS_MAX);
    if (rc < 0) return ash_err_set(err, rc, "%s: out of memory", folder->dir);
    return 0;
}

int ash_folder_add(struct ash_folder *folder, const int32_t *ids, size_t count, struct ash_err *err)
{
    int rc;

    ash_assert(folder->shard_tokens > 0 && count > 0);
    if (folder->writer == NULL) {
        rc = open_writer(folder, err);
        if (rc < 0) return rc;
    }
    rc = ash_shard_writer_add(folder->writer, ids, count, err);
    if (rc < 0) return rc;
    if (ash_shard_writer_tokens(folder->writer) < folder->shard_tokens) return 0;
    rc = finish_shard(folder, err);
    return rc < 0 ? rc : 1;
}

int ash_folder_finish(struct ash_folder *folder, json_t *source, struct ash_err *err)
{
    int rc;

    if (folder->writer != NULL) {
        rc = finish_shard(folder, err);
        if (rc < 0) return rc;
    }
    if (folder->manifest.shard_count == 0)
        return ash_err_set(err, -EINVAL, "%s: there is no document to write", folder->dir);
    folder->manifest.source = json_incref(source);
    return ash_data_manifest_save(folder->dir, &folder->manifest, err);
}

const struct ash_data_manifest *ash_folder_manifest(const struct ash_folder *folder)
{
    return &folder->manifest;
}

/* Opening a namespace, paths of its files, and local facts of objects. */
#include "storage/namespace/namespace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/cache_dir.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/thread.h"
#include "storage/io/io_priv.h"
#include "storage/namespace/namespace_priv.h"
#include "storage/s3/url.h"
#include "storage/tier/dir_priv.h"

static const struct ash_opt cache_opts[] = {
    {"dir", ASH_OPT_STRING, offsetof(struct ash_cache_opts, dir), NULL,
     "folder of remote objects that were fetched (else XDG_CACHE_HOME/ashlar, ~/.cache/ashlar)", 0, 0, NULL},
    {"bytes", ASH_OPT_INT, offsetof(struct ash_cache_opts, bytes), "0",
     "most bytes of one bucket that are kept; 0: as long as a tenth of the disk is free", 0, 1e18, NULL},
};

const struct ash_opt_table ash_cache_table = {"cache", "cached objects", cache_opts, ASH_COUNT(cache_opts)};

const char *ash_object_state_name(enum ash_object_state state)
{
    static const char *const names[] = {"local", "exported", "released", "remote"};

    ash_assert((size_t)state < ASH_COUNT(names));
    return names[state];
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Split the caller's url into the bucket (or folder) and the prefix of keys. */
static int set_place(struct ash_namespace *space, const char *url, struct ash_s3_url *parsed, struct ash_err *err)
{
    struct ash_str place = {0}, prefix = {0};
    size_t length;
    int rc = 0;

    if (!ash_tier_is_url(url)) {
        rc = ash_str_adds(&place, url);
    } else {
        rc = ash_s3_url_parse(url, parsed, err);
        if (rc < 0) return rc;
        length = strlen(parsed->key);
        rc = ash_str_addf(&place, "s3://%s", parsed->bucket);
        if (rc == 0)
            rc = ash_str_addf(&prefix, "%s%s", parsed->key, length > 0 && parsed->key[length - 1] != '/' ? "/" : "");
    }
    if (rc == 0) rc = ash_str_adds(&prefix, "");
    space->url = place.data;
    space->prefix = prefix.data;
    return rc;
}

/* The local folder of a bucket at a server: <root>/s3/<bucket>-<hash of both>. */
static int add_folder(const struct ash_namespace *space, const char *bucket, struct ash_str *folder,
                      struct ash_err *err)
{
    const char *given = space->s3.endpoint, *server = given != NULL ? given : ash_env_get("AWS_ENDPOINT_URL_S3");
    bool is_bucket = bucket[0] != '\0';
    struct ash_str name = {0};
    int rc = space->cache.dir != NULL ? ash_str_adds(folder, space->cache.dir) : ash_cache_dir(folder, err);

    if (server == NULL) server = ash_env_get("AWS_ENDPOINT_URL");
    if (rc == 0) rc = ash_str_addf(&name, "%s %s", is_bucket && server != NULL ? server : "", space->url);
    if (rc == 0)
        rc = ash_str_addf(folder, "/%s/%s-%016" PRIx64, is_bucket ? "s3" : "dir", is_bucket ? bucket : "place",
                          ash_hash_str(name.data));
    ash_str_fini(&name);
    return rc;
}

static int make_folders(struct ash_namespace *space, const char *bucket, struct ash_err *err)
{
    static const char *const names[] = {"odd", "extents", "put", "data"};
    struct ash_str folder = {0}, files = {0};
    char path[PATH_MAX];
    int rc = add_folder(space, bucket, &folder, err);

    space->folder = folder.data;
    for (size_t i = 0; rc == 0 && i < ASH_COUNT(names); i++) {
        rc = ash_path_join(path, sizeof(path), space->folder, names[i]);
        if (rc == 0) rc = ash_dir_make(path, err);
    }
    if (rc == 0) rc = ash_tier_open(path, &space->s3, &space->local, err);
    if (rc == 0) rc = ash_str_addf(&files, "%s/%s", path, space->prefix);
    if (rc == 0) files.data[files.size_bytes - 1] = '\0'; /* no slash at its end */
    space->files = files.data;
    if (rc == 0) rc = ash_path_join(path, sizeof(path), space->folder, "journal");
    if (rc == 0) rc = ash_journal_open(path, &space->journal, NULL, err);
    if (rc == 0) rc = ash_dir_sync(space->folder, err);
    return rc;
}

int ash_namespace_open(const char *url, const struct ash_cache_opts *cache, const struct ash_s3_opts *s3,
                       struct ash_namespace **space_out, struct ash_err *err)
{
    struct ash_namespace *space = calloc(1, sizeof(*space));
    struct ash_s3_url parsed = {0};
    int rc;

    if (space == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    space->cache = *cache;
    space->s3 = *s3;
    pthread_mutex_init(&space->lock, NULL);
    ash_cond_init(&space->changed);
    rc = set_place(space, url, &parsed, err);
    if (rc == 0) rc = make_folders(space, parsed.bucket, err);
    if (rc < 0) {
        ash_namespace_close(space);
        return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory") : rc;
    }
    *space_out = space;
    return 0;
}

void ash_namespace_close(struct ash_namespace *space)
{
    if (space == NULL) return;
    if (space->is_exporting) {
        pthread_mutex_lock(&space->lock);
        space->is_stopping = true;
        pthread_cond_broadcast(&space->changed);
        pthread_mutex_unlock(&space->lock);
        pthread_join(space->exporter, NULL);
    }
    ash_journal_close(space->journal);
    ash_tier_close(space->tier);
    ash_tier_close(space->local);
    pthread_cond_destroy(&space->changed);
    pthread_mutex_destroy(&space->lock);
    free(space->prefix);
    free(space->files);
    free(space->folder);
    free(space->url);
    free(space);
}

int ash_namespace_tier(struct ash_namespace *space, struct ash_err *err)
{
    return space->tier != NULL ? 0 : ash_tier_open(space->url, &space->s3, &space->tier, err);
}

const char *ash_namespace_folder(const struct ash_namespace *space)
{
    return space->folder;
}

uint64_t ash_namespace_fetched_bytes(const struct ash_namespace *space)
{
    return space->fetched_bytes;
}

const char *ash_namespace_files(const struct ash_namespace *space)
{
    return space->files;
}

int ash_namespace_full_key(const struct ash_namespace *space, const char *key, char full[ASH_TIER_KEY_BYTES],
                           struct ash_err *err)
{
    int length = snprintf(full, ASH_TIER_KEY_BYTES, "%s%s", space->prefix, key);

    if (key[0] != '\0' && length < ASH_TIER_KEY_BYTES) return 0;
    return ash_err_set(err, -EINVAL, "a key has 1 to 1024 bytes, not %d", key[0] == '\0' ? 0 : length);
}

/* ---- paths ------------------------------------------------------------------------------------------------------- */

static int hashed_path(const struct ash_namespace *space, const char *dir, const char *key, char path[PATH_MAX],
                       struct ash_err *err)
{
    int length = snprintf(path, PATH_MAX, "%s/%s/%016" PRIx64, space->folder, dir, ash_hash_str(key));

    return length < PATH_MAX ? 0 : ash_err_set(err, -ENAMETOOLONG, "the path is too long: %.200s", space->folder);
}

int ash_namespace_log_path(const struct ash_namespace *space, const char *key, char path[PATH_MAX], struct ash_err *err)
{
    return hashed_path(space, "extents", key, path, err);
}

int ash_namespace_file_path(const struct ash_namespace *space, const char *key, bool is_odd, char path[PATH_MAX],
                            struct ash_err *err)
{
    if (is_odd) return hashed_path(space, "odd", key, path, err);
    return ash_tier_dir_path((const struct ash_tier_dir *)(const void *)space->local, key, path, err);
}

int ash_namespace_put_path(const struct ash_namespace *space, const char *file, char path[PATH_MAX],
                           struct ash_err *err)
{
    int length = snprintf(path, PATH_MAX, "%s/put/%s", space->folder, file);

    return length < PATH_MAX ? 0 : ash_err_set(err, -ENAMETOOLONG, "the path is too long: %.200s", space->folder);
}

static int open_at(const char *path, uint64_t size_bytes)
{
    char parent[PATH_MAX];
    struct stat info;
    int fd, rc = ash_io_parent(parent, sizeof(parent), path);

    if (rc == 0) rc = ash_dir_make(parent, NULL);
    if (rc < 0) return rc;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return -errno;
    if (fstat(fd, &info) == 0 && (uint64_t)info.st_size == size_bytes) return fd;
    if (ftruncate(fd, (off_t)size_bytes) == 0) return fd;
    rc = -errno;
    close(fd);
    return rc;
}

int ash_namespace_open_file(const struct ash_namespace *space, const struct ash_tier_object *remote, const char *key,
                            bool *is_odd_out, struct ash_err *err)
{
    char path[PATH_MAX];
    int fd = -EINVAL;

    if (!*is_odd_out && ash_namespace_file_path(space, key, false, path, NULL) == 0) {
        fd = open_at(path, remote->size_bytes);
        if (fd >= 0) return fd;
        /* "a" and "a/b" may both be keys; only one of them can be a file */
        if (fd != -ENOTDIR && fd != -EISDIR && fd != -EEXIST && fd != -ENAMETOOLONG)
            return ash_io_fail(err, fd, path, "write");
    }
    *is_odd_out = true;
    fd = ash_namespace_file_path(space, key, true, path, err);
    if (fd == 0) fd = open_at(path, remote->size_bytes);
    return fd < 0 ? ash_io_fail(err, fd, path, "write") : fd;
}

uint64_t ash_namespace_stamp(const struct stat *info)
{
    const int64_t facts[] = {(int64_t)info->st_ino, (int64_t)info->st_size, (int64_t)info->st_mtim.tv_sec,
                             (int64_t)info->st_mtim.tv_nsec};

    return ash_hash_bytes(facts, sizeof(facts), 0) | 1;
}

/* ---- local facts ------------------------------------------------------------------------------------------------- */

bool ash_namespace_waits(struct ash_namespace *space, const char *key, struct ash_journal_entry *entry_out,
                         char file_out[64])
{
    const struct ash_journal_entry *entry;

    pthread_mutex_lock(&space->lock);
    ash_journal_refresh(space->journal, NULL);
    entry = ash_journal_find(space->journal, key);
    if (entry != NULL) {
        *entry_out = *entry;
        snprintf(file_out, 64, "%s", entry->file);
        entry_out->file = file_out;
        entry_out->key = key;
    }
    pthread_mutex_unlock(&space->lock);
    return entry != NULL;
}

static void describe(const struct ash_extents *extents, struct ash_object_info *info)
{
    const struct ash_extents_head *head = ash_extents_get_head(extents);

    info->size_bytes = head->size_bytes;
    memcpy(info->version, head->version, sizeof(info->version));
    info->here_bytes = ash_extents_bytes(extents);
    if (info->here_bytes > info->size_bytes) info->here_bytes = info->size_bytes;
    info->state = ash_extents_cover(extents) ? ASH_OBJECT_EXPORTED : ASH_OBJECT_RELEASED;
}

/* key is full. */
static bool recall(struct ash_namespace *space, const char *key, struct ash_object_info *info_out)
{
    struct ash_object_info info = {0};
    struct ash_extents *extents = NULL;
    struct ash_journal_entry entry;
    char path[PATH_MAX], file[64];
    bool is_known = true;

    if (ash_namespace_waits(space, key, &entry, file))
        info = (struct ash_object_info){.state = ASH_OBJECT_LOCAL,
                                        .size_bytes = entry.size_bytes,
                                        .here_bytes = entry.size_bytes,
                                        .waits_s = entry.put_s};
    else if (ash_namespace_log_path(space, key, path, NULL) == 0 && ash_extents_open(path, NULL, &extents, NULL) == 0 &&
             strcmp(ash_extents_get_head(extents)->key, key) == 0)
        describe(extents, &info);
    else
        is_known = false;
    ash_extents_close(extents);
    pthread_mutex_lock(&space->lock);
    info.is_pinned = ash_journal_is_pinned(space->journal, key);
    pthread_mutex_unlock(&space->lock);
    *info_out = info;
    return is_known;
}

bool ash_namespace_recall(struct ash_namespace *space, const char *name, struct ash_object_info *info_out)
{
    char key[ASH_TIER_KEY_BYTES];

    return ash_namespace_full_key(space, name, key, NULL) == 0 && recall(space, key, info_out);
}

int ash_namespace_stat(struct ash_namespace *space, const char *name, struct ash_object_info *info_out,
                       struct ash_err *err)
{
    struct ash_object_info info = {0};
    struct ash_tier_object remote;
    char key[ASH_TIER_KEY_BYTES];
    int rc = ash_namespace_full_key(space, name, key, err);

    if (rc < 0) return rc;
    if (!recall(space, key, &info)) {
        rc = ash_namespace_tier(space, err);
        if (rc == 0) rc = ash_tier_stat(space->tier, key, &remote, err);
        if (rc < 0) return rc;
        info.state = ASH_OBJECT_REMOTE;
        info.size_bytes = remote.size_bytes;
        memcpy(info.version, remote.version, sizeof(info.version));
    }
    *info_out = info;
    return 0;
}

/* What waits. */
static int each_waiting(struct ash_namespace *space, ash_object_each_fn each, void *ctx)
{
    const struct ash_journal_entry *entry;
    int rc = 0;

    for (size_t i = 0; rc >= 0 && (entry = ash_journal_at(space->journal, i)) != NULL; i++) {
        struct ash_object_info info = {.state = ASH_OBJECT_LOCAL,
                                       .is_pinned = ash_journal_is_pinned(space->journal, entry->key),
                                       .size_bytes = entry->size_bytes,
                                       .here_bytes = entry->size_bytes,
                                       .waits_s = entry->put_s};

        rc = each(ctx, entry->key, &info);
    }
    return rc;
}

static int each_log(struct ash_namespace *space, const char *path, ash_object_each_fn each, void *ctx)
{
    struct ash_extents *extents = NULL;
    struct ash_object_info info = {0};
    const char *key;
    int rc = 0;

    if (ash_extents_open(path, NULL, &extents, NULL) < 0) return 0; /* one that is being replaced, or damaged */
    key = ash_extents_get_head(extents)->key;
    describe(extents, &info);
    info.is_pinned = ash_journal_is_pinned(space->journal, key);
    if (ash_journal_find(space->journal, key) == NULL) rc = each(ctx, key, &info);
    ash_extents_close(extents);
    return rc;
}

int ash_namespace_each_full(struct ash_namespace *space, ash_object_each_fn each, void *ctx, struct ash_err *err)
{
    char dir[PATH_MAX], path[PATH_MAX];
    DIR *folder;
    int rc = ash_path_join(dir, sizeof(dir), space->folder, "extents");

    if (rc < 0) return ash_err_set(err, rc, "the path is too long: %.200s", space->folder);
    folder = opendir(dir);
    if (folder == NULL) return ash_io_fail(err, -errno, dir, "list");
    pthread_mutex_lock(&space->lock);
    ash_journal_refresh(space->journal, NULL);
    rc = each_waiting(space, each, ctx);
    for (const struct dirent *entry = readdir(folder); rc >= 0 && entry != NULL; entry = readdir(folder))
        if (entry->d_name[0] != '.' && ash_path_join(path, sizeof(path), dir, entry->d_name) == 0)
            rc = each_log(space, path, each, ctx);
    pthread_mutex_unlock(&space->lock);
    closedir(folder);
    return rc;
}

struct below {
    const struct ash_namespace *space;
    ash_object_each_fn each;
    void *ctx;
};

static int each_below(void *ctx, const char *key, const struct ash_object_info *info)
{
    const struct below *below = ctx;
    size_t length = strlen(below->space->prefix);

    return strncmp(key, below->space->prefix, length) == 0 ? below->each(below->ctx, key + length, info) : 0;
}

int ash_namespace_each(struct ash_namespace *space, ash_object_each_fn each, void *ctx, struct ash_err *err)
{
    struct below below = {space, each, ctx};

    return ash_namespace_each_full(space, each_below, &below, err);
}

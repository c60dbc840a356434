/* The tier of a folder: keys are paths below it. Folders are made when they are needed and go with their last object,
 * as keys have none. A shared folder (Lustre, FSx, NFS) is the same with less assumed: no O_DIRECT, no flushed
 * folders. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/math.h"
#include "storage/io/io_priv.h"
#include "storage/tier/dir_priv.h"
#include "storage/tier/lustre_priv.h"

#define WINDOW_BYTES ((size_t)8 << 20)

static struct ash_tier_dir *self(struct ash_tier *tier)
{
    return (struct ash_tier_dir *)(void *)tier;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Open an object; *object_out describes it. Returns the descriptor or a negative errno. */
static int open_object(struct ash_tier *tier, const char *key, struct ash_tier_object *object_out, struct ash_err *err)
{
    char path[PATH_MAX];
    struct stat info;
    int rc = ash_tier_dir_path(self(tier), key, path, err), fd;

    if (rc < 0) return rc;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        ash_tier_dir_describe(&info, object_out);
        return fd;
    }
    rc = fd < 0 ? -errno : -ENOENT;
    if (fd >= 0) close(fd);
    if (rc == -ENOENT || rc == -ENOTDIR || rc == -ENXIO)
        return ash_err_set(err, -ENOENT, "%s: there is no such file", path);
    return ash_io_fail(err, rc, path, "read");
}

static int dir_stat(struct ash_tier *tier, const char *key, struct ash_tier_object *object_out, struct ash_err *err)
{
    struct ash_tier_object object;
    char path[PATH_MAX];
    int fd = open_object(tier, key, &object, err);

    if (fd < 0) return fd;
    close(fd);
    if (self(tier)->is_lustre && ash_tier_dir_path(self(tier), key, path, NULL) == 0)
        object.is_released = ash_lustre_is_released(path);
    *object_out = object;
    return 0;
}

static int read_fully(int fd, uint64_t offset, size_t size_bytes, uint8_t *data)
{
    while (size_bytes > 0) {
        ssize_t bytes = pread(fd, data, size_bytes, (off_t)offset);

        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0) return -errno;
        if (bytes == 0) return -ESTALE; /* shorter than it was */
        data += bytes;
        offset += (uint64_t)bytes;
        size_bytes -= (size_t)bytes;
    }
    return 0;
}

static int dir_read(struct ash_tier *tier, const struct ash_tier_range *range, void *data, struct ash_err *err)
{
    const char *root = self(tier)->root, *key = range->key;
    struct ash_tier_object object;
    int fd = open_object(tier, key, &object, err), rc;

    if (fd < 0) return fd;
    if (range->version != NULL && strcmp(range->version, object.version) != 0) {
        rc = ash_err_set(err, -ESTALE, "%s/%s: the file has changed", root, key);
    } else if (range->offset > object.size_bytes || range->size_bytes > object.size_bytes - range->offset) {
        rc = ash_err_set(err, -ERANGE, "%s/%s: the range is not inside the file", root, key);
    } else {
        rc = read_fully(fd, range->offset, range->size_bytes, data);
        if (rc < 0) ash_io_fail(err, rc, key, "read");
    }
    close(fd);
    return rc;
}

static int dir_stream(struct ash_tier *tier, const char *key, const struct ash_s3_sink *sink, struct ash_err *err)
{
    struct ash_tier_object object;
    uint8_t *window = NULL;
    int fd = open_object(tier, key, &object, err), rc = 0;

    if (fd < 0) return fd;
    window = malloc(WINDOW_BYTES);
    if (window == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory");
    for (uint64_t at = 0; rc == 0 && at < object.size_bytes;) {
        size_t bytes = ash_min(WINDOW_BYTES, (size_t)(object.size_bytes - at));

        rc = read_fully(fd, at, bytes, window);
        if (rc < 0)
            rc = ash_io_fail(err, rc, key, "read");
        else
            rc = sink->take(sink->ctx, window, bytes, err);
        at += bytes;
    }
    free(window);
    close(fd);
    return rc;
}

/* ---- removing ---------------------------------------------------------------------------------------------------- */

/* Remove the folders of key that are empty now. */
static void prune_folders(const struct ash_tier_dir *dir, char *path)
{
    size_t root_bytes = strlen(dir->root);

    for (;;) {
        char *slash = strrchr(path, '/');

        if (slash == NULL || (size_t)(slash - path) <= root_bytes) return;
        *slash = '\0';
        if (rmdir(path) < 0) return;
    }
}

static int dir_remove(struct ash_tier *tier, const char *key, struct ash_err *err)
{
    char path[PATH_MAX], parent[PATH_MAX];
    int rc = ash_tier_dir_path(self(tier), key, path, err);

    if (rc < 0) return rc;
    if (unlink(path) < 0) {
        rc = -errno;
        if (rc == -ENOENT || rc == -ENOTDIR || rc == -EISDIR) return 0;
        return ash_io_fail(err, rc, path, "remove");
    }
    if (ash_io_parent(parent, sizeof(parent), path) == 0) rc = ash_dir_sync(parent, err);
    prune_folders(self(tier), path);
    return rc;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void dir_close(struct ash_tier *tier)
{
    free(self(tier)->root);
    free(tier);
}

static const struct ash_tier_ops dir_tier_ops = {
    .size = sizeof(dir_tier_ops),
    .name = "dir",
    .stat = dir_stat,
    .list = ash_tier_dir_list,
    .read = dir_read,
    .read_pieces = ash_tier_read_one_by_one,
    .stream = dir_stream,
    .compare = ash_tier_no_compare,
    .remove = dir_remove,
    .write_if = ash_tier_no_write_if,
    .sweep = ash_tier_dir_sweep,
    .write_open = ash_tier_dir_write_open,
    .write_add = ash_tier_dir_write_add,
    .write_finish = ash_tier_dir_write_finish,
    .write_help = ash_tier_no_write_help,
    .write_resumed_bytes = ash_tier_dir_write_resumed_bytes,
    .write_close = ash_tier_dir_write_close,
    .close = dir_close,
};

int ash_tier_dir_open(const char *path, bool is_shared, struct ash_tier **tier_out, struct ash_err *err)
{
    struct ash_tier_dir *dir = calloc(1, sizeof(*dir));
    size_t length = strlen(path);

    while (length > 1 && path[length - 1] == '/')
        length--;
    if (dir != NULL) dir->root = strndup(length > 0 ? path : ".", length > 0 ? length : 1);
    if (dir == NULL || dir->root == NULL) {
        free(dir);
        return ash_err_set(err, -ENOMEM, "out of memory");
    }
    dir->base.ops = &dir_tier_ops;
    dir->is_shared = is_shared;
    dir->is_lustre = is_shared && ash_lustre_is(dir->root);
    *tier_out = &dir->base;
    return 0;
}

/* Page files in a folder. They are not flushed to disk: one that a crash tore has another checksum, and is computed
 * again. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "serve/kv/store.h"

#define SUFFIX ".kv"
#define TEMPORARY ".ashlar-kv-%ld-%u" /* process, serial */
#define LEFT_SECONDS 60               /* a file that was begun longer ago is of a process that died */

struct dir {
    struct ash_kv_store base;
    int fd;
    unsigned serial; /* of temporary files */
};

static struct dir *dir_of(struct ash_kv_store *store)
{
    return (struct dir *)(void *)store;
}

static void file_name(struct ash_kv_name name, char file_out[NAME_MAX])
{
    ash_kv_name_print(name, file_out);
    snprintf(file_out + strlen(file_out), sizeof(SUFFIX), "%s", SUFFIX);
}

/* Did a writer of pages make this temporary file? Others in the folder are not touched. */
static bool is_temporary(const char *text)
{
    unsigned serial;
    long process;
    char again[NAME_MAX];

    if (sscanf(text, TEMPORARY, &process, &serial) != 2) return false;
    snprintf(again, sizeof(again), TEMPORARY, process, serial);
    return strcmp(text, again) == 0;
}

/* Is the entry a page file? A temporary file that a writer left is removed. */
static bool read_entry(const struct dir *dir, const char *text, struct ash_kv_listed *file_out)
{
    char name[ASH_KV_NAME_BYTES] = "";
    struct stat stat;

    if (fstatat(dir->fd, text, &stat, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(stat.st_mode)) return false;
    if (is_temporary(text)) {
        if (stat.st_mtime + LEFT_SECONDS < time(NULL)) unlinkat(dir->fd, text, 0);
        return false;
    }
    if (strlen(text) != sizeof(name) - 1 + strlen(SUFFIX) || strcmp(text + sizeof(name) - 1, SUFFIX) != 0) return false;
    memcpy(name, text, sizeof(name) - 1);
    file_out->bytes = (uint64_t)stat.st_size;
    file_out->modified_s = (double)stat.st_mtim.tv_sec + 1e-9 * (double)stat.st_mtim.tv_nsec;
    return ash_kv_name_read(name, &file_out->name);
}

static int list_dir(struct ash_kv_store *store, uint64_t fingerprint, ash_kv_listed_fn each, void *ctx,
                    struct ash_err *err)
{
    const struct dir *dir = dir_of(store);
    int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;

    (void)fingerprint;
    if (stream == NULL) {
        rc = ash_err_set(err, -errno, "cannot list it: %s", strerror(errno));
        if (fd >= 0) close(fd);
        return rc;
    }
    while (rc == 0 && (entry = readdir(stream)) != NULL) {
        struct ash_kv_listed file;

        if (read_entry(dir, entry->d_name, &file)) rc = each(ctx, &file);
    }
    closedir(stream);
    return rc;
}

static int read_page(struct ash_kv_store *store, uint64_t fingerprint, struct ash_kv_name name, void *data,
                     size_t bytes)
{
    char file[NAME_MAX];
    size_t at = 0;
    ssize_t got = 1;
    int fd;

    (void)fingerprint;
    file_name(name, file);
    fd = openat(dir_of(store)->fd, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return -errno;
    while (at < bytes && got > 0) {
        got = pread(fd, (char *)data + at, bytes - at, (off_t)at);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0)
            at += (size_t)got;
    }
    close(fd);
    return got < 0 ? -EIO : at < bytes ? -EBADMSG : 0;
}

static int write_all(int fd, const void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t put = write(fd, (const char *)data + at, bytes - at);

        if (put < 0 && errno != EINTR) return -errno;
        if (put == 0) return -EIO;
        if (put > 0) at += (size_t)put;
    }
    return 0;
}

static int write_page(struct ash_kv_store *store, uint64_t fingerprint, struct ash_kv_name name, const void *data,
                      size_t bytes)
{
    struct dir *dir = dir_of(store);
    char file[NAME_MAX], temporary[NAME_MAX];
    int fd, rc;

    (void)fingerprint;
    file_name(name, file);
    snprintf(temporary, sizeof(temporary), TEMPORARY, (long)getpid(), dir->serial++);
    unlinkat(dir->fd, temporary, 0); /* of an earlier process with this number */
    fd = openat(dir->fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return -errno;
    rc = write_all(fd, data, bytes);
    if (close(fd) < 0 && rc == 0) rc = -errno;
    if (rc == 0 && renameat(dir->fd, temporary, dir->fd, file) < 0) rc = -errno;
    if (rc < 0) unlinkat(dir->fd, temporary, 0);
    return rc;
}

static int remove_page(struct ash_kv_store *store, uint64_t fingerprint, struct ash_kv_name name)
{
    char file[NAME_MAX];

    (void)fingerprint;
    file_name(name, file);
    return unlinkat(dir_of(store)->fd, file, 0) < 0 ? -errno : 0;
}

static void touch_page(struct ash_kv_store *store, struct ash_kv_name name)
{
    char file[NAME_MAX];

    file_name(name, file);
    (void)utimensat(dir_of(store)->fd, file, NULL, AT_SYMLINK_NOFOLLOW);
}

static void close_dir(struct ash_kv_store *store)
{
    if (dir_of(store)->fd >= 0) close(dir_of(store)->fd);
    free(store);
}

static const struct ash_kv_store_ops dir_ops = {.size = sizeof(dir_ops),
                                                .name = "dir",
                                                .list = list_dir,
                                                .read = read_page,
                                                .write = write_page,
                                                .remove = remove_page,
                                                .touch = touch_page,
                                                .close = close_dir};

/* The folder, mode 0700 where it is new. */
static int make_dir(const char *path, struct ash_err *err)
{
    char parent[PATH_MAX];
    size_t bytes = strlen(path);

    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    while (bytes > 0 && path[bytes - 1] != '/')
        bytes--;
    if (bytes > 1 && bytes < sizeof(parent)) {
        int rc;

        memcpy(parent, path, bytes);
        parent[bytes] = '\0';
        rc = ash_dir_make(parent, err);
        if (rc < 0) return rc;
    }
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return ash_err_set(err, -errno, "cannot make the folder '%.200s': %s", path, strerror(errno));
    return 0;
}

int ash_kv_store_open_dir(const char *path, struct ash_kv_store **store_out, struct ash_err *err)
{
    struct dir *dir = calloc(1, sizeof(*dir));
    int rc = dir != NULL ? make_dir(path, err) : ash_err_set(err, -ENOMEM, "out of memory");

    if (rc < 0) {
        free(dir);
        return rc;
    }
    dir->base.ops = &dir_ops;
    dir->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir->fd < 0) rc = ash_err_set(err, -errno, "cannot open the folder '%.200s': %s", path, strerror(errno));
    if (rc == 0 && faccessat(dir->fd, ".", R_OK | W_OK | X_OK, 0) < 0)
        rc = ash_err_set(err, -errno, "cannot write to the folder '%.200s': %s", path, strerror(errno));
    if (rc < 0) {
        close_dir(&dir->base);
        return rc;
    }
    *store_out = &dir->base;
    return 0;
}

void ash_kv_store_close(struct ash_kv_store *store)
{
    if (store != NULL) store->ops->close(store);
}

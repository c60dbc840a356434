/* Whole files. A replaced file is written next to the old one, flushed, and renamed over it: after a crash, a full disk
 * or a kill the path holds the old bytes or the new ones. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/math.h"

#define WALK_FDS_MAX 32
#define HASH_PART_BYTES ((size_t)16 << 20)
#define TEMP_TRIES_MAX 100
#define WRITE_BYTES_MAX ((size_t)1 << 30) /* one write call never takes more than 2 GiB anyway */

/* What a user can do about it, for known causes. */
static const char *cause(int code)
{
    switch (-code) {
    case ENOSPC:
        return "disk full: free some space and try again";
    case EDQUOT:
        return "disk full: the quota is used up";
    case EFBIG:
        return "disk full: the file size limit (ulimit -f) is reached";
    default:
        return strerror(-code);
    }
}

static int fail(struct ash_err *err, int code, const char *verb, const char *path)
{
    return ash_err_set(err, code, "cannot %s '%s': %s", verb, path, cause(code));
}

/* Open a regular file for reading and tell its size. Returns a descriptor or a negative errno. */
static int open_regular(const char *path, size_t *size_out, struct ash_err *err)
{
    struct stat info;
    int fd, code;

    fd = open(path,
              O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: a pipe must not make us wait before it is refused */
    if (fd < 0) return fail(err, -errno, "open", path);
    if (fstat(fd, &info) < 0) {
        code = fail(err, -errno, "open", path);
        close(fd);
        return code;
    }
    if (!S_ISREG(info.st_mode)) {
        close(fd);
        code = S_ISDIR(info.st_mode) ? -EISDIR : -EINVAL;
        return ash_err_set(err, code, "cannot open '%s': it is %s, not a file", path,
                           S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
    }
    *size_out = (size_t)info.st_size;
    return fd;
}

int ash_map_open(const char *path, struct ash_map *map_out, struct ash_err *err)
{
    size_t size_bytes = 0;
    void *base = NULL;
    int rc = 0, fd = open_regular(path, &size_bytes, err);

    if (fd < 0) return fd;
    if (size_bytes > 0) base = mmap(NULL, size_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) rc = fail(err, -errno, "map", path);
    if (rc < 0 || base == NULL) close(fd);
    if (rc == 0) *map_out = (struct ash_map){.base = base, .size_bytes = size_bytes, .fd = base != NULL ? fd : -1};
    return rc;
}

void ash_map_close(struct ash_map *map)
{
    if (map == NULL) return;
    if (map->base != NULL) {
        munmap((void *)(uintptr_t)map->base, map->size_bytes);
        if (map->fd >= 0) close(map->fd);
    }
    *map = (struct ash_map){0};
}

bool ash_map_holds(const struct ash_map *map, const void *data)
{
    return (uintptr_t)data - (uintptr_t)map->base < map->size_bytes;
}

void ash_map_drop(const void *data, size_t size_bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = ash_round_up((uintptr_t)data, page),
              end = ((uintptr_t)data + size_bytes) / page * page;

    if (first < end) madvise((void *)first, end - first, MADV_DONTNEED); /* advice: nothing depends on it */
}

int ash_file_hash(const char *path, uint64_t *hash, struct ash_err *err)
{
    struct ash_map map = {0};
    int rc = ash_map_open(path, &map, err);

    if (rc < 0) return rc;
    for (size_t at = 0; at < map.size_bytes; at += HASH_PART_BYTES) {
        size_t bytes = ash_min(map.size_bytes - at, HASH_PART_BYTES);

        *hash = ash_hash_bytes((const char *)map.base + at, bytes, *hash);
        ash_map_drop((const char *)map.base + at, bytes);
    }
    ash_map_close(&map);
    return 0;
}

/* The page of an address. */
static uintptr_t page_of(const void *data)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    return (uintptr_t)data / page * page;
}

void ash_map_want(const void *data, size_t size_bytes)
{
    uintptr_t first = page_of(data);

    if (size_bytes > 0) madvise((void *)first, (uintptr_t)data + size_bytes - first, MADV_WILLNEED); /* advice */
}

bool ash_map_cached(const void *data)
{
    unsigned char there = 0;

    return mincore((void *)page_of(data), 1, &there) != 0 || (there & 1) != 0;
}

/* Fill data from fd; a file that shrank meanwhile gives fewer bytes. Returns 0 or a negative errno. */
static int read_all(int fd, char *data, size_t size_bytes, size_t *done_out)
{
    size_t done = 0;

    while (done < size_bytes) {
        ssize_t got = read(fd, data + done, size_bytes - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -errno;
        if (got == 0) break;
        done += (size_t)got;
    }
    *done_out = done;
    return 0;
}

int ash_file_read(const char *path, size_t max_bytes, char **data_out, size_t *size_out, struct ash_err *err)
{
    size_t size_bytes = 0, done = 0;
    char *data = NULL;
    int rc, fd = open_regular(path, &size_bytes, err);

    if (fd < 0) return fd;
    if (size_bytes > max_bytes) {
        rc = ash_err_set(err, -EFBIG, "cannot read '%s': it has %zu bytes, more than the %zu that are allowed here",
                         path, size_bytes, max_bytes);
        goto out;
    }
    data = malloc(size_bytes + 1);
    rc = data == NULL ? -ENOMEM : read_all(fd, data, size_bytes, &done);
    if (rc < 0) {
        rc = fail(err, rc, "read", path);
        goto out;
    }
    data[done] = '\0';
    *data_out = data;
    *size_out = done;
    data = NULL;

out:
    free(data);
    close(fd);
    return rc;
}

static int write_all(int fd, const char *data, size_t size_bytes)
{
    while (size_bytes > 0) {
        ssize_t done = write(fd, data, ash_min(size_bytes, WRITE_BYTES_MAX));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return -errno;
        if (done == 0) return -ENOSPC;
        data += done;
        size_bytes -= (size_t)done;
    }
    return 0;
}

/* Create a new file in the folder of path; its name goes to temp. Returns a descriptor or a negative errno. */
static int temp_open(const char *path, char *temp, size_t temp_bytes)
{
    static _Atomic unsigned serial;

    for (int i = 0; i < TEMP_TRIES_MAX; i++) {
        unsigned n = atomic_fetch_add_explicit(&serial, 1, memory_order_relaxed);
        int fd, used = snprintf(temp, temp_bytes, "%s.tmp-%ld-%u", path, (long)getpid(), n);
        if (used < 0 || (size_t)used >= temp_bytes) return -ENAMETOOLONG;
        fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) return fd;
        if (errno != EEXIST) return -errno; /* EEXIST: left by a process of the same number that was killed */
    }
    return -EEXIST;
}

/* Does name end as temp_open ends it? */
static bool is_temp(const char *name)
{
    const char *end = strrchr(name, '.');
    int length = 0;

    return end != NULL && sscanf(end, ".tmp-%*[0-9]-%*[0-9]%n", &length) == 0 && length > 0 && end[length] == '\0';
}

int ash_file_sweep(const char *dir, struct ash_err *err)
{
    DIR *listing = opendir(dir);
    struct dirent *entry;
    int rc = 0;

    if (listing == NULL) return ash_err_set(err, -errno, "%s: cannot list the folder: %s", dir, strerror(errno));
    while (rc == 0 && (entry = readdir(listing)) != NULL) {
        if (!is_temp(entry->d_name) || unlinkat(dirfd(listing), entry->d_name, 0) == 0) continue;
        if (errno == ENOENT || errno == EISDIR) continue; /* an unfinished folder belongs to storage/commit */
        rc = ash_err_set(err, -errno, "%s/%s: cannot remove it: %s", dir, entry->d_name, strerror(errno));
    }
    closedir(listing);
    return rc;
}

/* The folder that holds path, into dir. path fits into dir. */
static void parent_of(const char *path, char *dir)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : (size_t)(slash - path);

    if (slash == NULL) {
        dir[length++] = '.';
    } else {
        if (length == 0) length = 1; /* the root */
        memcpy(dir, path, length);
    }
    dir[length] = '\0';
}

int ash_file_replace(const char *path, const void *data, size_t size_bytes, struct ash_err *err)
{
    char temp[PATH_MAX], dir[PATH_MAX];
    int rc, fd = temp_open(path, temp, sizeof(temp));

    if (fd < 0) return fail(err, fd, "write", path);
    rc = write_all(fd, data, size_bytes);
    if (rc == 0 && fsync(fd) < 0) rc = -errno;
    if (close(fd) < 0 && rc == 0) rc = -errno;
    if (rc == 0 && rename(temp, path) < 0) rc = -errno;
    if (rc < 0) {
        unlink(temp);
        return fail(err, rc, "write", path);
    }
    parent_of(path, dir);
    return ash_dir_sync(dir, err);
}

static int make_one(const char *path)
{
    struct stat info;

    if (mkdir(path, 0777) == 0) return 0;
    if (errno != EEXIST) return -errno;
    if (stat(path, &info) < 0) return -errno;
    return S_ISDIR(info.st_mode) ? 0 : -ENOTDIR;
}

int ash_dir_make(const char *path, struct ash_err *err)
{
    char part[PATH_MAX];
    size_t length = strlen(path);
    int rc = 0;

    if (length == 0) return fail(err, -ENOENT, "make folder", path);
    if (length >= sizeof(part)) return fail(err, -ENAMETOOLONG, "make folder", path);
    memcpy(part, path, length + 1);
    for (size_t i = 1; i <= length && rc == 0; i++) {
        if (part[i] != '/' && part[i] != '\0') continue;
        part[i] = '\0';
        rc = make_one(part);
        if (i < length) part[i] = '/';
    }
    return rc == 0 ? 0 : fail(err, rc, "make folder", path);
}

int ash_dir_sync(const char *path, struct ash_err *err)
{
    int rc = 0, fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) return fail(err, -errno, "flush folder", path);
    if (fsync(fd) < 0 && errno != EINVAL && errno != ENOTSUP) rc = -errno; /* some file systems have nothing to flush */
    close(fd);
    return rc == 0 ? 0 : fail(err, rc, "flush folder", path);
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info, (void)type, (void)place;
    return remove(path) < 0 && errno != ENOENT ? -errno : 0;
}

int ash_dir_remove(const char *path, struct ash_err *err)
{
    struct stat info;
    int rc;

    if (lstat(path, &info) < 0) return errno == ENOENT ? 0 : fail(err, -errno, "remove", path);
    rc = nftw(path, remove_entry, WALK_FDS_MAX, FTW_DEPTH | FTW_PHYS);
    if (rc == -1) rc = -errno;
    return rc == 0 ? 0 : fail(err, rc, "remove", path);
}

bool ash_dir_is_empty(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    bool is_empty = dir != NULL;

    if (dir == NULL) return false;
    while (is_empty && (entry = readdir(dir)) != NULL)
        is_empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(dir);
    return is_empty;
}

bool ash_path_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

int ash_path_join(char *buf, size_t buf_bytes, const char *dir, const char *name)
{
    size_t length = strlen(dir);
    const char *slash = length > 0 && dir[length - 1] != '/' ? "/" : "";
    int used = snprintf(buf, buf_bytes, "%s%s%s", dir, slash, name);

    return used >= 0 && (size_t)used < buf_bytes ? 0 : -ENAMETOOLONG;
}

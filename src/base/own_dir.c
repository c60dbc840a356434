/* own_dir: a file with the kind's name. It is locked (flock) by those that hold the folder: the kernel ends a lock when
 * the last process that inherited it has ended, so no process id can be mistaken for another. */
#include "base/own_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define KIND_BYTES 64

static int fail(struct ash_err *err, int code, const char *path)
{
    return ash_err_set(err, code, "cannot use folder '%s': %s", path, strerror(-code));
}

static int fail_others(const char *path, const char *kind, struct ash_err *err)
{
    return ash_err_set(err, -EEXIST, "'%s' was not made by `ashlar %s`, and is left as it is: choose another folder",
                       path, kind);
}

/* Open the file that names the kind. Returns a descriptor, -ENOENT if it is missing or names another kind, or a
 * negative errno. */
static int open_mark(const char *path, const char *kind, int flags)
{
    char mark[PATH_MAX], text[KIND_BYTES + 2] = "", wanted[KIND_BYTES + 2];
    ssize_t got;
    int fd;

    if (ash_path_join(mark, sizeof(mark), path, ASH_OWN_DIR_MARK) < 0) return -ENAMETOOLONG;
    fd = open(mark, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | flags);
    if (fd < 0) return -errno;
    snprintf(wanted, sizeof(wanted), "%s\n", kind);
    got = pread(fd, text, sizeof(text) - 1, 0);
    if (got >= 0 && strcmp(text, wanted) == 0) return fd;
    close(fd);
    return -ENOENT;
}

bool ash_own_dir_is(const char *path, const char *kind)
{
    int fd = open_mark(path, kind, O_CLOEXEC);

    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* Name the kind, in one step: a folder without that file is never swept, so it is held before it has its name.
 * Returns the descriptor that holds it, or a negative errno. */
static int write_mark(const char *path, const char *kind)
{
    char mark[PATH_MAX], draft[PATH_MAX], text[KIND_BYTES + 2];
    int used = snprintf(text, sizeof(text), "%s\n", kind), fd, rc = 0;

    if (ash_path_join(mark, sizeof(mark), path, ASH_OWN_DIR_MARK) < 0 ||
        ash_path_join(draft, sizeof(draft), path, ASH_OWN_DIR_MARK ".new") < 0)
        return -ENAMETOOLONG;
    fd = open(draft, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600); /* inherited: children hold the folder, too */
    if (fd < 0) return -errno;
    if (write(fd, text, (size_t)used) != used) rc = -EIO;
    if (rc == 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno != ENOLCK && errno != EOPNOTSUPP) rc = -errno;
    if (rc == 0 && rename(draft, mark) < 0) rc = -errno;
    if (rc == 0) return fd;
    unlink(draft);
    close(fd);
    return rc;
}

int ash_own_dir_new(const char *parent, const char *kind, char *path_out, size_t path_bytes, int *hold_out,
                    struct ash_err *err)
{
    char name[KIND_BYTES + 32], path[PATH_MAX];
    int rc = ash_dir_make(parent, err), fd;

    if (rc < 0) return rc;
    snprintf(name, sizeof(name), "ashlar-%.*s-XXXXXX", KIND_BYTES, kind);
    if (ash_path_join(path, sizeof(path), parent, name) < 0 || strlen(path) >= path_bytes)
        return fail(err, -ENAMETOOLONG, parent);
    if (mkdtemp(path) == NULL) return fail(err, -errno, parent);
    fd = write_mark(path, kind);
    if (fd < 0) {
        rmdir(path);
        return fail(err, fd, path);
    }
    memcpy(path_out, path, strlen(path) + 1);
    if (hold_out != NULL)
        *hold_out = fd;
    else
        close(fd);
    return 0;
}

int ash_own_dir_remove(const char *path, const char *kind, struct ash_err *err)
{
    if (!ash_path_exists(path)) return 0;
    return ash_own_dir_is(path, kind) ? ash_dir_remove(path, err) : fail_others(path, kind, err);
}

/* Remove all but the file that names the kind: it is locked. */
static int empty(const char *path, struct ash_err *err)
{
    DIR *listing = opendir(path);
    char inner[PATH_MAX];
    struct dirent *entry;
    int rc = 0;

    if (listing == NULL) return fail(err, -errno, path);
    while (rc == 0 && (entry = readdir(listing)) != NULL) {
        const char *name = entry->d_name;

        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, ASH_OWN_DIR_MARK) == 0) continue;
        rc = ash_path_join(inner, sizeof(inner), path, name);
        rc = rc < 0 ? fail(err, rc, path) : ash_dir_remove(inner, err);
    }
    closedir(listing);
    return rc;
}

int ash_own_dir_renew(const char *path, const char *kind, struct ash_err *err)
{
    int rc, fd;

    if (ash_own_dir_is(path, kind)) return empty(path, err);
    if (ash_path_exists(path) && !ash_dir_is_empty(path)) return fail_others(path, kind, err);
    rc = ash_dir_make(path, err);
    if (rc < 0) return rc;
    fd = write_mark(path, kind);
    if (fd < 0) return fail(err, fd, path);
    close(fd);
    return 0;
}

/* Remove one folder if it is not held. */
static void sweep_one(const char *path, const char *kind)
{
    struct stat info;
    int fd;

    if (lstat(path, &info) < 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) return;
    fd = open_mark(path, kind, O_CLOEXEC);
    if (fd < 0) return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) ash_dir_remove(path, NULL);
    close(fd);
}

void ash_own_dir_sweep(const char *parent, const char *kind)
{
    DIR *listing = opendir(parent);
    char prefix[KIND_BYTES + 32], path[PATH_MAX];
    struct dirent *entry;

    if (listing == NULL) return;
    snprintf(prefix, sizeof(prefix), "ashlar-%.*s-", KIND_BYTES, kind);
    while ((entry = readdir(listing)) != NULL)
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 &&
            ash_path_join(path, sizeof(path), parent, entry->d_name) == 0)
            sweep_one(path, kind);
    closedir(listing);
}

void ash_own_dir_leave(int hold, const char *parent, const char *kind)
{
    close(hold);
    ash_own_dir_sweep(parent, kind);
}

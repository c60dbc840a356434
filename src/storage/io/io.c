/* Writing whole files: the few calls every writer here shares, and the sentences for what can go wrong with a disk. */
#include "storage/io/io_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/assert.h"

/* Advice beyond the system's message, or NULL. */
static const char *advice(int code)
{
    switch (-code) {
    case ENOSPC:
        return "the disk is full: free some space or choose another place";
    case EDQUOT:
        return "your disk quota is used up: free some space or choose another place";
    case EACCES:
    case EPERM:
        return "no permission: choose another place, or ask its owner";
    case EROFS:
        return "the file system is read-only";
    case EFBIG:
        return "the file would be larger than this system or its limits allow";
    case ENOENT:
        return "no such file or folder";
    case EIO:
        return "the disk reports an input/output error: it may be failing";
    default:
        return NULL;
    }
}

int ash_io_fail(struct ash_err *err, int code, const char *path, const char *action)
{
    const char *known = advice(code);
    char buf[128];

    return ash_err_set(err, code, "%s: cannot %s: %s", path, action,
                       known != NULL ? known : strerror_r(-code, buf, sizeof(buf)));
}

int ash_io_write(int fd, const void *data, size_t size_bytes)
{
    const char *at = data;

    ash_assert(fd >= 0 && (data != NULL || size_bytes == 0));
    while (size_bytes > 0) {
        ssize_t done = write(fd, at, size_bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return -errno;
        at += done;
        size_bytes -= (size_t)done;
    }
    return 0;
}

int ash_io_read_at(int fd, uint64_t offset, void *data, size_t size_bytes)
{
    char *to = data;

    while (size_bytes > 0) {
        ssize_t bytes = pread(fd, to, size_bytes, (off_t)offset);

        if (bytes < 0 && errno == EINTR) continue;
        if (bytes <= 0) return bytes < 0 ? -errno : -EIO;
        to += bytes;
        offset += (uint64_t)bytes;
        size_bytes -= (size_t)bytes;
    }
    return 0;
}

int ash_io_flush_close(int fd)
{
    int rc = 0;

    ash_assert(fd >= 0);
    if (fsync(fd) != 0) rc = -errno;
    if (close(fd) != 0 && rc == 0) rc = -errno;
    return rc;
}

int ash_io_parent(char *buf, size_t buf_bytes, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL || slash == path ? 1 : (size_t)(slash - path);

    if (length >= buf_bytes) return -ENAMETOOLONG;
    memcpy(buf, slash == NULL ? "." : path, length);
    buf[length] = '\0';
    return 0;
}

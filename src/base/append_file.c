/* append_file: appending that survives a full disk. */
#include "base/append_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int ash_append_file_open(struct ash_append_file *file, const char *path, size_t size_bytes, struct ash_err *err)
{
    int rc;

    file->path = strdup(path);
    if (file->path == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    file->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file->fd >= 0 && ftruncate(file->fd, (off_t)size_bytes) == 0) return 0;
    rc = -errno;
    ash_append_file_close(file);
    return ash_err_set(err, rc, "%s: cannot be written: %s", path, strerror(-rc));
}

int ash_append_file_flush(struct ash_append_file *file, struct ash_err *err)
{
    size_t done = 0, size_bytes = file->pending.size_bytes;
    int rc = 0;

    while (rc == 0 && done < size_bytes) {
        ssize_t wrote = write(file->fd, file->pending.data + done, size_bytes - done);

        if (wrote > 0)
            done += (size_t)wrote;
        else if (wrote == 0 || errno != EINTR)
            rc = wrote < 0 ? -errno : -EIO;
    }
    if (done > 0) {
        memmove(file->pending.data, file->pending.data + done, size_bytes - done);
        ash_str_cut(&file->pending, size_bytes - done);
    }
    return rc < 0 ? ash_err_set(err, rc, "%s: %s", file->path, strerror(-rc)) : 0;
}

void ash_append_file_close(struct ash_append_file *file)
{
    if (file->path == NULL) return;
    if (file->fd >= 0) {
        (void)ash_append_file_flush(file, NULL);
        close(file->fd);
    }
    ash_str_fini(&file->pending);
    free(file->path);
    *file = (struct ash_append_file){.fd = -1};
}

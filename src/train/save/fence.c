/* fence: a word in a file. */
#include "train/save/fence.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"

#define WORD_BYTES 17 /* 16 digits and a line's end */

int ash_fence_set(const char *path, int fd, struct ash_fence *fence_out, struct ash_err *err)
{
    struct ash_fence fence = {0};
    char text[WORD_BYTES + 1];

    if (strlen(path) >= sizeof(fence.path)) return ash_err_set(err, -ENAMETOOLONG, "%s: too long", path);
    snprintf(fence.path, sizeof(fence.path), "%s", path);
    fence.word = ash_hash_mix(ash_clock_ns() ^ ash_hash_mix((uint64_t)getpid() + 1) ^ ash_hash_str(path)) | 1;
    snprintf(text, sizeof(text), "%016" PRIx64 "\n", fence.word);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, WORD_BYTES, 0) != WORD_BYTES)
        return ash_err_set(err, -(errno != 0 ? errno : EIO), "%s: %s", path, strerror(errno));
    *fence_out = fence;
    return 0;
}

/* The folder is there but the file is not: the run is over, or in other hands. */
static bool is_folder_there(const char *path)
{
    char folder[PATH_MAX];
    char *slash;

    snprintf(folder, sizeof(folder), "%s", path);
    slash = strrchr(folder, '/');
    if (slash == NULL) return true;
    *slash = '\0';
    return ash_path_exists(folder[0] != '\0' ? folder : "/");
}

int ash_fence_check(const struct ash_fence *fence, struct ash_err *err)
{
    char text[WORD_BYTES + 1] = {0};
    ssize_t got;
    int fd;

    if (fence->word == 0) return 0;
    fd = open(fence->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && (errno != ENOENT || !is_folder_there(fence->path))) return 0;
    if (fd < 0)
        return ash_err_set(err, -ESTALE,
                           "%s is gone: the run's folder was moved or removed, or the run has continued without this "
                           "process, or is over; this process ends and leaves checkpoints alone",
                           fence->path);
    got = pread(fd, text, WORD_BYTES, 0);
    close(fd);
    if (got < 0 || (got == WORD_BYTES && strtoull(text, NULL, 16) == fence->word)) return 0;
    return ash_err_set(err, -ESTALE,
                       "%s is another process's now: the run has continued without this process, or is over; this "
                       "process ends and leaves checkpoints alone",
                       fence->path);
}

/* Keys of a folder as paths, and what a file is as an object. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/utf8.h"
#include "storage/tier/dir_priv.h"

/* A key that would leave the folder, or that another key names as well, is none. */
static bool is_path(const char *key)
{
    const char *part = key;

    if (key[0] == '\0') return false;
    for (;;) {
        size_t length = strcspn(part, "/");

        if (length == 0 || length > NAME_MAX || (length == 1 && part[0] == '.') ||
            (length == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        if (part[length] == '\0') return true;
        part += length + 1;
    }
}

int ash_tier_dir_path(const struct ash_tier_dir *dir, const char *key, char *path, struct ash_err *err)
{
    size_t length = strlen(key);

    if (length >= ASH_TIER_KEY_BYTES)
        return ash_err_set(err, -EINVAL, "a key of %zu bytes is too long: the limit is 1024 (%.60s...)", length, key);
    if (ash_utf8_valid_prefix(key, length) != length) return ash_err_set(err, -EINVAL, "a key must be UTF-8");
    if (!is_path(key))
        return ash_err_set(err, -EINVAL, "'%.200s' cannot be a file below %.200s: no empty names, no . and no ..", key,
                           dir->root);
    if (ash_path_join(path, PATH_MAX, dir->root, key) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "the path of '%.200s' is too long", key);
    return 0;
}

void ash_tier_dir_describe(const struct stat *info, struct ash_tier_object *object_out)
{
    *object_out =
        (struct ash_tier_object){.size_bytes = (uint64_t)info->st_size,
                                 .modified_s = (double)info->st_mtim.tv_sec + (double)info->st_mtim.tv_nsec / 1e9};
    snprintf(object_out->version, sizeof(object_out->version), "%" PRIu64 "-%" PRIu64 "-%" PRId64 ".%09ld",
             (uint64_t)info->st_ino, (uint64_t)info->st_size, (int64_t)info->st_mtim.tv_sec, info->st_mtim.tv_nsec);
}

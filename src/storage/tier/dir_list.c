/* Lists of a folder in the order of keys: a folder's name counts with the slash that follows it ("a.b" comes before
 * "a/b"). Links to files count as files; links to folders are not followed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "storage/io/io_priv.h"
#include "storage/tier/dir_priv.h"

#define DEPTH_MAX 64

/* One run over the folder. */
struct walk {
    const struct ash_tier_dir *dir;
    const char *prefix;
    bool is_flat, wants_temporary;
    ash_tier_list_fn each;
    void *ctx;
    struct ash_err *err;
};

struct names {
    char **items; /* folders end with a slash */
    size_t count, capacity;
};

static void names_fini(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->items[i]);
    free(names->items);
}

static int names_add(struct names *names, const char *name, const char *suffix)
{
    size_t bytes = strlen(name) + strlen(suffix) + 1;
    char *copy;

    if (ash_array_reserve(&names->items, &names->capacity, names->count + 1, sizeof(*names->items)) < 0) return -ENOMEM;
    copy = malloc(bytes);
    if (copy == NULL) return -ENOMEM;
    snprintf(copy, bytes, "%s%s", name, suffix);
    names->items[names->count++] = copy;
    return 0;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_temporary(const char *name)
{
    return strncmp(name, "." ASH_TIER_DIR_TEMPORARY "-", strlen("." ASH_TIER_DIR_TEMPORARY "-")) == 0;
}

/* Is it a folder, a file, or neither? */
static int note_entry(int fd, const char *name, struct names *names)
{
    struct stat info;
    bool is_folder;

    if (fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) < 0) return 0; /* gone again */
    is_folder = S_ISDIR(info.st_mode);
    if (!is_folder && (fstatat(fd, name, &info, 0) < 0 || !S_ISREG(info.st_mode))) return 0;
    return names_add(names, name, is_folder ? "/" : "");
}

/* The names in folder path, sorted. A folder that is not there has none. */
static int read_names(const struct walk *walk, const char *path, struct names *names)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    int rc = 0;

    if (folder == NULL) return errno == ENOENT || errno == ENOTDIR ? 0 : ash_io_fail(walk->err, -errno, path, "list");
    while (rc == 0 && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (is_temporary(entry->d_name) && !walk->wants_temporary) continue;
        rc = note_entry(dirfd(folder), entry->d_name, names);
    }
    closedir(folder);
    if (rc < 0) return ash_err_set(walk->err, rc, "out of memory");
    if (names->count > 1) qsort(names->items, names->count, sizeof(*names->items), by_bytes);
    return 0;
}

/* Do keys that begin with key, or key itself, begin with the prefix? */
static bool may_hold(const struct walk *walk, const char *key)
{
    size_t length = strlen(key), prefix_length = strlen(walk->prefix);
    bool is_folder = length > 0 && key[length - 1] == '/';

    if (length >= prefix_length) return strncmp(key, walk->prefix, prefix_length) == 0;
    return is_folder && strncmp(key, walk->prefix, length) == 0;
}

static int tell_file(const struct walk *walk, const char *key)
{
    char path[PATH_MAX];
    struct ash_tier_object object;
    struct stat info;

    /* What no key can name (bytes that are not UTF-8) is not listed. */
    if (ash_tier_dir_path(walk->dir, key, path, NULL) < 0 || stat(path, &info) < 0) return 0;
    ash_tier_dir_describe(&info, &object);
    return walk->each(walk->ctx, key, &object);
}

/* folder: "" or "a/b/". */
static int visit(const struct walk *walk, const char *folder, int depth)
{
    struct names names = {0};
    char path[PATH_MAX];
    int rc;

    if (depth > DEPTH_MAX) return 0;
    if (snprintf(path, sizeof(path), "%s/%s", walk->dir->root, folder) >= (int)sizeof(path)) return 0;
    rc = read_names(walk, path, &names);
    for (size_t i = 0; rc >= 0 && i < names.count; i++) {
        char key[ASH_TIER_KEY_BYTES];
        size_t length = (size_t)snprintf(key, sizeof(key), "%s%s", folder, names.items[i]);

        if (length >= sizeof(key) || !may_hold(walk, key)) continue;
        if (key[length - 1] != '/')
            rc = tell_file(walk, key);
        else if (walk->is_flat || length <= strlen(walk->prefix))
            rc = visit(walk, key, depth + 1);
        else
            rc = walk->each(walk->ctx, key, NULL);
    }
    names_fini(&names);
    return rc < 0 ? rc : 0;
}

int ash_tier_dir_list(struct ash_tier *tier, const char *prefix, bool is_flat, ash_tier_list_fn each, void *ctx,
                      struct ash_err *err)
{
    struct walk walk = {.dir = (const struct ash_tier_dir *)(const void *)tier,
                        .prefix = prefix,
                        .is_flat = is_flat,
                        .each = each,
                        .ctx = ctx,
                        .err = err};

    return visit(&walk, "", 0);
}

/* ---- sweeping ---------------------------------------------------------------------------------------------------- */

struct sweep {
    const struct ash_tier_dir *dir;
    double before_s;
    size_t count;
};

static int sweep_one(void *ctx, const char *key, const struct ash_tier_object *object)
{
    struct sweep *sweep = ctx;
    const char *slash = strrchr(key, '/'), *name = slash != NULL ? slash + 1 : key;
    char path[PATH_MAX];

    if (object == NULL || !is_temporary(name) || object->modified_s > sweep->before_s) return 0;
    if (ash_tier_dir_path(sweep->dir, key, path, NULL) == 0 && unlink(path) == 0) sweep->count++;
    return 0;
}

int ash_tier_dir_sweep(struct ash_tier *tier, const char *prefix, double age_s, size_t *count_out, struct ash_err *err)
{
    const struct ash_tier_dir *dir = (const struct ash_tier_dir *)(const void *)tier;
    struct sweep sweep = {dir, ash_clock_wall_s() - age_s, 0};
    struct walk walk = {.dir = dir,
                        .prefix = prefix,
                        .is_flat = true,
                        .wants_temporary = true,
                        .each = sweep_one,
                        .ctx = &sweep,
                        .err = err};
    int rc = visit(&walk, "", 0);

    if (rc == 0) *count_out = sweep.count;
    return rc;
}

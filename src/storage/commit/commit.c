/* Commits: a manifest that is written last, in a folder that is marked until then, or in a hidden folder next to the
 * final one, renamed into place when it is whole and on disk. */
#include "storage/commit/commit_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "storage/io/io_priv.h"

#define TEMP_TRIES 100

struct ash_commit {
    char final[PATH_MAX];
    char parent[PATH_MAX];
    char temp[PATH_MAX];
    char old[PATH_MAX]; /* where the replaced folder waits if the two cannot be exchanged */
};

/* dir_final without slashes at its end, its parent, and the name of old. */
static int set_paths(struct ash_commit *commit, const char *dir_final)
{
    size_t length = strlen(dir_final);
    const char *name;
    int used;

    while (length > 1 && dir_final[length - 1] == '/')
        length--;
    if (length >= sizeof(commit->final)) return -ENAMETOOLONG;
    memcpy(commit->final, dir_final, length);
    commit->final[length] = '\0';
    name = strrchr(commit->final, '/');
    name = name != NULL ? name + 1 : commit->final;
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return -EINVAL;
    if (ash_io_parent(commit->parent, sizeof(commit->parent), commit->final) < 0) return -ENAMETOOLONG;
    used = snprintf(commit->old, sizeof(commit->old), "%.*s.%s" ASH_COMMIT_OLD, (int)(name - commit->final),
                    commit->final, name);
    return used < 0 || (size_t)used >= sizeof(commit->old) ? -ENAMETOOLONG : 0;
}

/* A new folder .NAME.tmp-<process>-<serial>. */
static int make_temp(struct ash_commit *commit)
{
    static atomic_uint serial;
    size_t stem = strlen(commit->old) - strlen(ASH_COMMIT_OLD);

    ash_assert(strlen(commit->old) > strlen(ASH_COMMIT_OLD));
    for (int i = 0; i < TEMP_TRIES; i++) {
        int used = snprintf(commit->temp, sizeof(commit->temp), "%.*s" ASH_COMMIT_TEMP "%ld-%u", (int)stem, commit->old,
                            (long)getpid(), atomic_fetch_add_explicit(&serial, 1, memory_order_relaxed));
        if (used < 0 || (size_t)used >= sizeof(commit->temp)) return -ENAMETOOLONG;
        if (mkdir(commit->temp, 0777) == 0) return 0;
        if (errno != EEXIST) return -errno;
    }
    return -EEXIST;
}

int ash_commit_discard(const char *path, struct ash_err *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    char trash[PATH_MAX];
    int rc, used;

    used =
        snprintf(trash, sizeof(trash), "%.*s.%s" ASH_COMMIT_TRASH, (int)(name - path), path, name + (name[0] == '.'));
    if (used < 0 || (size_t)used >= sizeof(trash)) return ash_io_fail(err, -ENAMETOOLONG, path, "remove");
    rc = ash_dir_remove(trash, err);
    if (rc < 0) return rc;
    if (rename(path, trash) != 0) return errno == ENOENT ? 0 : ash_io_fail(err, -errno, path, "remove");
    return ash_dir_remove(trash, err);
}

int ash_commit_begin(const char *dir_final, struct ash_commit **commit_out, struct ash_err *err)
{
    struct ash_commit *commit = calloc(1, sizeof(*commit));
    int rc;

    if (commit == NULL) return ash_err_set(err, -ENOMEM, "%s: no memory to save it", dir_final);
    rc = set_paths(commit, dir_final);
    if (rc < 0) {
        ash_err_set(err, rc, "%s: a folder of this name cannot be saved", dir_final);
        goto fail;
    }
    rc = ash_dir_make(commit->parent, err);
    if (rc < 0) goto fail;
    /* An earlier save was killed between its two renames: the folder it meant to replace comes back first. */
    if (!ash_path_exists(commit->final)) rename(commit->old, commit->final);
    rc = make_temp(commit);
    if (rc < 0) {
        ash_io_fail(err, rc, commit->final, "make a folder next to");
        goto fail;
    }
    *commit_out = commit;
    return 0;

fail:
    free(commit);
    return rc;
}

const char *ash_commit_dir(const struct ash_commit *commit)
{
    return commit->temp;
}

void ash_commit_abort(struct ash_commit *commit)
{
    if (commit == NULL) return;
    ash_dir_remove(commit->temp, NULL);
    free(commit);
}

/* Not every file system exchanges two names in one step: old aside, new in. A reader that comes between finds the old
 * one aside. */
static int replace_in_two_steps(const struct ash_commit *commit)
{
    int rc;

    rc = ash_commit_discard(commit->old, NULL);
    if (rc < 0) return rc;
    if (rename(commit->final, commit->old) != 0) return -errno;
    if (rename(commit->temp, commit->final) == 0) return 0;
    rc = -errno;
    rename(commit->old, commit->final);
    return rc;
}

static int put_in_place(const struct ash_commit *commit)
{
    ash_assert(strcmp(commit->temp, commit->final) != 0);
    if (rename(commit->temp, commit->final) == 0) return 0;
    if (errno != ENOTEMPTY && errno != EEXIST) return -errno;
    return replace_in_two_steps(commit);
}

int ash_commit_finish(struct ash_commit *commit, json_t *state, struct ash_err *err)
{
    return ash_commit_finish_known(commit, NULL, 0, state, err);
}

int ash_commit_finish_known(struct ash_commit *commit, const struct ash_commit_sums *known, size_t known_count,
                            json_t *state, struct ash_err *err)
{
    int rc = ash_manifest_write(commit->temp, known, known_count, state, err);

    if (rc < 0) goto fail;
    rc = put_in_place(commit);
    if (rc < 0) {
        ash_io_fail(err, rc, commit->final, "put the save in place as");
        goto fail;
    }
    rc = ash_dir_sync(commit->parent, err);
    if (rc < 0) { /* the older folder stays until the new one is surely on disk */
        free(commit);
        return rc;
    }
    ash_commit_discard(commit->old, NULL);
    free(commit);
    return 0;

fail:
    ash_commit_abort(commit);
    return rc;
}

/* ---- in place ---------------------------------------------------------------------------------------------------- */

int ash_commit_claim(const char *dir, struct ash_err *err)
{
    char mark[PATH_MAX], manifest[PATH_MAX];
    int rc = ash_dir_make(dir, err), fd;

    if (rc < 0) return rc;
    if (ash_path_join(mark, sizeof(mark), dir, ASH_COMMIT_MARK) < 0 ||
        ash_path_join(manifest, sizeof(manifest), dir, ASH_COMMIT_MANIFEST) < 0)
        return ash_io_fail(err, -ENAMETOOLONG, dir, "write to");
    fd = open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return ash_io_fail(err, -errno, dir, "write to");
    close(fd);
    if (unlink(manifest) == 0) return ash_dir_sync(dir, err); /* the manifest is no longer true */
    return errno == ENOENT ? 0 : ash_io_fail(err, -errno, manifest, "remove");
}

int ash_commit_seal(const char *dir, const struct ash_commit_sums *known, size_t known_count, json_t *state,
                    struct ash_err *err)
{
    char mark[PATH_MAX], parent[PATH_MAX];
    int rc;

    if (ash_path_join(mark, sizeof(mark), dir, ASH_COMMIT_MARK) < 0 || ash_io_parent(parent, sizeof(parent), dir) < 0)
        return ash_io_fail(err, -ENAMETOOLONG, dir, "write to");
    rc = ash_dir_sync(parent, err);
    if (rc < 0) return rc;
    rc = ash_manifest_write(dir, known, known_count, state, err);
    if (rc < 0) return rc;
    unlink(mark); /* it counts for nothing any more */
    return 0;
}

int ash_commit_adopt(const char *dir, const char *text, size_t size_bytes, struct ash_err *err)
{
    char mark[PATH_MAX], path[PATH_MAX];
    int rc;

    if (ash_path_join(mark, sizeof(mark), dir, ASH_COMMIT_MARK) < 0 ||
        ash_path_join(path, sizeof(path), dir, ASH_COMMIT_MANIFEST) < 0)
        return ash_io_fail(err, -ENAMETOOLONG, dir, "write to");
    rc = ash_file_replace(path, text, size_bytes, err);
    if (rc == 0) unlink(mark);
    return rc;
}

bool ash_commit_is_unfinished(const char *dir)
{
    char path[PATH_MAX];

    if (ash_path_join(path, sizeof(path), dir, ASH_COMMIT_MANIFEST) < 0 || ash_path_exists(path)) return false;
    if (ash_path_join(path, sizeof(path), dir, ASH_COMMIT_MARK) < 0) return false;
    if (ash_path_exists(path)) return true;
    return ash_dir_is_empty(dir);
}

/* scratch - a folder of its own for each test, and small files in it. */
#ifndef TEST_STORAGE_SCRATCH_H
#define TEST_STORAGE_SCRATCH_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

static char scratch_dir[PATH_MAX];

/* The paths that scratch_path has given out. */
static struct scratch_paths {
    struct scratch_paths *next;
    char text[];
} * scratch_paths;

/* cmocka setup and teardown: scratch_dir is new and empty, and goes with the test. In memory where that is possible, as
 * these tests flush to disk thousands of times. */
static inline int scratch_open(void **state)
{
    const char *root = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";

    (void)state;
    snprintf(scratch_dir, sizeof(scratch_dir), "%s/ashlar-storage-XXXXXX", root);
    return mkdtemp(scratch_dir) != NULL ? 0 : -1;
}

static inline int scratch_close(void **state)
{
    (void)state;
    while (scratch_paths != NULL) {
        struct scratch_paths *path = scratch_paths;

        scratch_paths = path->next;
        free(path);
    }
    return ash_dir_remove(scratch_dir, NULL);
}

/* scratch_dir/name, until scratch_close. The same name gives the same pointer. */
static inline const char *scratch_path(const char *name)
{
    size_t size = strlen(scratch_dir) + strlen(name) + 2;
    struct scratch_paths *path = malloc(sizeof(*path) + size);

    assert_non_null(path);
    assert_int_equal(ash_path_join(path->text, size, scratch_dir, name), 0);
    for (struct scratch_paths *given = scratch_paths; given != NULL; given = given->next)
        if (strcmp(given->text, path->text) == 0) {
            free(path);
            return given->text;
        }
    path->next = scratch_paths;
    scratch_paths = path;
    return path->text;
}

static inline void scratch_write(const char *name, const void *data, size_t size_bytes)
{
    assert_int_equal(ash_file_replace(scratch_path(name), data, size_bytes, NULL), 0);
}

#endif

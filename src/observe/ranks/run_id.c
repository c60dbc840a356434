/* The hash of a folder's whole path: the existing part without links, and the rest as written. */
#include "observe/ranks/run_id.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* Cut slashes off the end, but for the root's. */
static void trim(char *path)
{
    for (size_t bytes = strlen(path); bytes > 1 && path[bytes - 1] == '/'; bytes--)
        path[bytes - 1] = '\0';
}

/* Append the words of a path that is not there yet. */
static void add_words(char *whole, size_t whole_bytes, const char *path)
{
    size_t used = strlen(whole);

    trim(whole);
    for (const char *at = path + strspn(path, "/"); *at != '\0' && used < whole_bytes; at += strspn(at, "/")) {
        size_t bytes = strcspn(at, "/");

        used = strlen(whole);
        snprintf(whole + used, whole_bytes - used, "%s%.*s", strcmp(whole, "/") == 0 ? "" : "/", (int)bytes, at);
        at += bytes;
    }
}

const char *ash_run_id(const char *dir, char buf[ASH_RUN_ID_BYTES])
{
    char there[PATH_MAX], whole[2 * PATH_MAX] = "";
    const char *missing; /* the part after `there` in dir */

    snprintf(there, sizeof(there), "%s", dir);
    trim(there);
    missing = dir + strlen(there);
    while (realpath(there, whole) == NULL) {
        char *slash = strrchr(there, '/');

        missing = slash != NULL ? dir + (slash - there) : dir;
        if (slash == NULL && strcmp(there, ".") == 0) break; /* this folder is gone */
        if (slash == NULL) slash = memcpy(there, ".", 2);
        slash[1] = '\0';
        if (slash != there) trim(there);
    }
    add_words(whole, sizeof(whole), missing);
    snprintf(buf, ASH_RUN_ID_BYTES, "%016llx", (unsigned long long)ash_hash_str(whole));
    return buf;
}

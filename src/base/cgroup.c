/* Control groups: a limit of any ancestor binds, so the whole path is walked. */
#include "base/cgroup.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define V1_NO_LIMIT 0x1p62 /* version 1 has the largest number of pages for none */

/* The path of a line of membership, "NUMBER:CONTROLLERS:/PATH", in the hierarchy of a controller of version 1, or NULL.
 * controller "": version 2, whose line has none. */
static const char *path_of(const char *line, const char *controller)
{
    const char *list = strchr(line, ':'), *path = list != NULL ? strchr(list + 1, ':') : NULL;
    size_t length = strlen(controller);

    if (path == NULL || path[1] != '/') return NULL;
    for (const char *at = list + 1; at <= path; at += strcspn(at, ",:") + 1)
        if (strcspn(at, ",:") == length && strncmp(at, controller, length) == 0) return path + 1;
    return NULL;
}

/* This process's folder below root, into path. Returns 0 or -1. */
static int own_folder(const char *root, const char *membership, const char *controller, char path[PATH_MAX])
{
    FILE *file = fopen(membership, "re");
    char line[PATH_MAX];
    int rc = -1;

    if (file == NULL) return -1;
    while (rc < 0 && fgets(line, sizeof(line), file) != NULL) {
        const char *own = path_of(line, controller);

        if (own == NULL) continue;
        line[strcspn(line, "\n")] = '\0';
        int used = snprintf(path, PATH_MAX, "%s%s", root, strcmp(own, "/") == 0 ? "" : own);
        rc = used > 0 && used < PATH_MAX ? 0 : -1;
    }
    fclose(file);
    return rc;
}

static double folder_limit(const char *folder, const char *name)
{
    char path[PATH_MAX + NAME_MAX + 2];
    double limit = INFINITY, first = 0, second = 0;
    FILE *file = NULL;
    int count;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "re");
    if (file == NULL) return INFINITY;
    count = fscanf(file, "%lf %lf", &first, &second); /* "max" is no number */
    if (count >= 1 && first > 0) limit = count == 2 && second > 0 ? first / second : first;
    fclose(file);
    return limit;
}

/* The least of a folder below root and of those above it. */
static double least_limit(const char *root, char folder[PATH_MAX], const char *name)
{
    double least = INFINITY;

    while (strlen(folder) >= strlen(root)) {
        double limit = folder_limit(folder, name);
        char *slash = strrchr(folder, '/');
        if (limit < least) least = limit;
        if (slash == NULL) break;
        *slash = '\0';
    }
    return least;
}

double ash_cgroup_limit_at(const char *root, const char *membership, const char *name)
{
    char folder[PATH_MAX], old_root[PATH_MAX];
    double least = INFINITY, old;

    if (own_folder(root, membership, "", folder) == 0) least = least_limit(root, folder, name);
    if (strcmp(name, "memory.max") != 0) return least;
    snprintf(old_root, sizeof(old_root), "%s/memory", root); /* version 1; in a container the path may be the host's */
    if (own_folder(old_root, membership, "memory", folder) < 0) return least;
    old = least_limit(old_root, folder, "memory.limit_in_bytes");
    return old < V1_NO_LIMIT ? fmin(old, least) : least;
}

double ash_cgroup_limit(const char *name)
{
    return ash_cgroup_limit_at("/sys/fs/cgroup", "/proc/self/cgroup", name);
}

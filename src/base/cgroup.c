/* Control groups: a limit of any ancestor binds, so the whole path is walked. */
#include "base/cgroup.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* This process's folder below root, into path. Returns 0 or -1. */
static int own_folder(const char *root, const char *membership, char *path, size_t path_bytes)
{
    FILE *file = fopen(membership, "re");
    char line[PATH_MAX];
    int rc = -1;

    if (file == NULL) return -1;
    while (rc < 0 && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "0::/", 4) != 0) continue; /* version 1 hierarchies have other numbers */
        line[strcspn(line, "\n")] = '\0';
        int used = snprintf(path, path_bytes, "%s%s", root, strcmp(line + 3, "/") == 0 ? "" : line + 3);
        rc = used > 0 && (size_t)used < path_bytes ? 0 : -1;
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

double ash_cgroup_limit_at(const char *root, const char *membership, const char *name)
{
    char folder[PATH_MAX];
    double least = INFINITY;

    if (own_folder(root, membership, folder, sizeof(folder)) < 0) return INFINITY;
    while (strlen(folder) >= strlen(root)) {
        double limit = folder_limit(folder, name);
        char *slash = strrchr(folder, '/');
        if (limit < least) least = limit;
        if (slash == NULL) break;
        *slash = '\0';
    }
    return least;
}

double ash_cgroup_limit(const char *name)
{
    return ash_cgroup_limit_at("/sys/fs/cgroup", "/proc/self/cgroup", name);
}

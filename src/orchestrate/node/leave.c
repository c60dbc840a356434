/* A ring's file has its writer's process id. Ids differ between namespaces and are reused, so only a process that has
 * this very file open is notified. */
#include "orchestrate/node/leave.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "record/ring_file.h"

static bool has_open(unsigned pid, const struct stat *file)
{
    char folder[64], path[PATH_MAX];
    struct dirent *entry;
    struct stat one;
    bool is_open = false;
    DIR *fds;

    snprintf(folder, sizeof(folder), "/proc/%u/fd", pid);
    fds = opendir(folder);
    if (fds == NULL) return false;
    while (!is_open && (entry = readdir(fds)) != NULL) {
        snprintf(path, sizeof(path), "%s/%.32s", folder, entry->d_name);
        is_open = entry->d_name[0] != '.' && stat(path, &one) == 0 && one.st_dev == file->st_dev &&
                  one.st_ino == file->st_ino;
    }
    closedir(fds);
    return is_open;
}

/* Returns whether its writer was notified. */
static bool tell(const char *path)
{
    struct ash_ring_view view = {0};
    struct stat file;
    bool is_told;

    if (stat(path, &file) < 0 || ash_ring_read(path, "steps", &view, NULL) < 0) return false;
    is_told = view.is_alive && view.pid > 1 && has_open(view.pid, &file) && kill((pid_t)view.pid, SIGTERM) == 0;
    ash_ring_view_fini(&view);
    return is_told;
}

size_t ash_ranks_tell_to_leave(const char *pages)
{
    DIR *folder = opendir(pages);
    struct dirent *entry;
    char path[PATH_MAX];
    size_t count = 0;

    if (folder == NULL) return 0;
    while ((entry = readdir(folder)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');

        if (dot == NULL || strcmp(dot, ".steps") != 0) continue;
        snprintf(path, sizeof(path), "%s/%s", pages, entry->d_name);
        count += tell(path);
    }
    closedir(folder);
    return count;
}

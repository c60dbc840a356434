/* mounts - the table of mounted file systems. */
#ifndef ASH_OBSERVE_COLLECT_MOUNTS_H
#define ASH_OBSERVE_COLLECT_MOUNTS_H

#include <stdbool.h>

struct ash_mount {
    char *device, *path, *type;
    bool is_read_only;
};

/* The next mount of the text of /proc/mounts, which is changed, from *cursor; those that hold no files of users are
 * left out, as node_exporter does. Returns 1 or, at the end, 0. */
int ash_mounts_next(char **cursor, struct ash_mount *mount_out);

#endif

/* jail - a process that can compute and nothing else: new namespaces (users, processes, mounts, network, ipc,
 * names), a root that is read-only, a small /tmp, no sockets, no new processes, limits on memory, files and open files.
 * */
#ifndef ASH_POST_REWARD_JAIL_H
#define ASH_POST_REWARD_JAIL_H

#include <stddef.h>
#include <sys/types.h>
#include "ashlar/err.h"

struct ash_jail_opts {
    char *const *words;  /* the program, found in PATH, and its words; NULL-terminated */
    int in, out, errors; /* its standard streams; the caller's, and closed by it */
    size_t memory_bytes; /* of address space */
    size_t file_bytes;   /* of /tmp, and of one file */
};

/* Start it. *pid_out is the process to wait for and to kill: all others end with it. Returns 0 once the program runs,
 * -ENOTSUP if a part of the jail cannot be built (err names it), or the error of starting the program. */
int ash_jail_start(const struct ash_jail_opts *opts, pid_t *pid_out, struct ash_err *err);

#endif

/* own_dir - folders that a command makes for itself. A file in such a folder names the kind of command, and nothing is
 * emptied or removed that does not name the same kind: a folder of the user's is never touched, whatever path is given.
 *
 * A folder may be held. It then counts as used until the process that holds it and all that it has started have ended,
 * however they end; a folder that is no longer held can be swept. */
#ifndef ASH_BASE_OWN_DIR_H
#define ASH_BASE_OWN_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"

#define ASH_OWN_DIR_MARK ".ashlar-made-by"

/* Make a new folder parent/ashlar-<kind>-XXXXXX (and the folders above it), readable by its owner alone; its path goes
 * to path_out [path_bytes]. It is held by *hold_out (may be NULL): a descriptor that programs started later inherit. */
int ash_own_dir_new(const char *parent, const char *kind, char *path_out, size_t path_bytes, int *hold_out,
                    struct ash_err *err);
/* Afterwards path is an empty folder of this kind: it is made, or emptied if it is of this kind; those that hold it
 * hold it still. Returns -EEXIST for a folder that holds anything else. */
int ash_own_dir_renew(const char *path, const char *kind, struct ash_err *err);
/* Is it a folder of this kind? */
bool ash_own_dir_is(const char *path, const char *kind);
/* Remove a folder of this kind with all that is in it. A missing one is success; -EEXIST for any other. */
int ash_own_dir_remove(const char *path, const char *kind, struct ash_err *err);

/* Remove all folders parent/ashlar-<kind>-* of this user that are not held. Folders that cannot be removed stay. */
void ash_own_dir_sweep(const char *parent, const char *kind);
/* End this process's part in holding a folder that it has inherited, and sweep. */
void ash_own_dir_leave(int hold, const char *parent, const char *kind);

#endif

/* The names that commits use next to a folder NAME: .NAME.tmp-<process>-<serial> while it is written, .NAME.old for the
 * folder that it replaces (where the file system cannot exchange two names), .NAME.trash for one that is being
 * removed. */
#ifndef ASH_STORAGE_COMMIT_PRIV_H
#define ASH_STORAGE_COMMIT_PRIV_H

#include "storage/commit.h"

#define ASH_COMMIT_TEMP ".tmp-"
#define ASH_COMMIT_OLD ".old"
#define ASH_COMMIT_TRASH ".trash"

/* Remove a folder, giving it a .trash name first: a removal that is cut short then leaves nothing that looks like a
 * save, in place or aside. A missing one is success. */
int ash_commit_discard(const char *path, struct ash_err *err);

/* Flush and checksum all files below dir, and write the manifest as the last of them. */
int ash_manifest_write(const char *dir, json_t *state, struct ash_err *err);

#endif

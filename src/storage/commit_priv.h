/* The names that commits use next to a folder NAME: .NAME.tmp-<process>-<serial> while it is written, .NAME.old for the
 * folder that it replaces (where the file system cannot exchange two names), .NAME.trash for one that is being
 * removed. */
#ifndef ASH_STORAGE_COMMIT_PRIV_H
#define ASH_STORAGE_COMMIT_PRIV_H

#include "storage/commit.h"

#define ASH_COMMIT_TEMP ".tmp-"
#define ASH_COMMIT_OLD ".old"
#define ASH_COMMIT_TRASH ".trash"

/* In a folder that is written in place, until its manifest is there. */
#define ASH_COMMIT_MARK ".unfinished"

/* Flush all files below dir, sum those that are not known, and write the manifest as the last of them. */
int ash_manifest_write(const char *dir, const struct ash_commit_sums *known, size_t known_count, json_t *state,
                       struct ash_err *err);

#endif

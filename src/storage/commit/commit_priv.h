/* The names that commits use next to a folder NAME: .NAME.tmp-<process>-<serial> while it is written, .NAME.old for the
 * folder that it replaces (where the file system cannot exchange two names), .NAME.trash for one that is being
 * removed. */
#ifndef ASH_STORAGE_COMMIT_COMMIT_PRIV_H
#define ASH_STORAGE_COMMIT_COMMIT_PRIV_H

#include <sys/types.h>
#include "storage/commit/commit.h"

#define ASH_COMMIT_TEMP ".tmp-"
#define ASH_COMMIT_OLD ".old"
#define ASH_COMMIT_TRASH ".trash"

/* In a folder that is written in place, until its manifest is there. */
#define ASH_COMMIT_MARK ".unfinished"

#define ASH_MANIFEST_VERSION 2
#define ASH_MANIFEST_VERSION_FILE_SUMS 1 /* one xxh3 for each file */
#define ASH_MANIFEST_HEX_BYTES 16
#define ASH_MANIFEST_HEX_ZEROS "0000000000000000"
/* A manifest's text ends in: ASH_MANIFEST_TAIL_KEY, 16 hex digits, ASH_MANIFEST_TAIL_END. The digits are of the
 * text with zeros in their place. */
#define ASH_MANIFEST_TAIL_NAME "manifest_xxh3"
#define ASH_MANIFEST_TAIL_KEY "\"" ASH_MANIFEST_TAIL_NAME "\": \""
#define ASH_MANIFEST_TAIL_END "\"\n}\n"
#define ASH_MANIFEST_TAIL_BYTES                                                                                        \
    (sizeof(ASH_MANIFEST_TAIL_KEY) - 1 + ASH_MANIFEST_HEX_BYTES + sizeof(ASH_MANIFEST_TAIL_END) - 1)

/* 16 hexadecimal digits and a NUL. */
void ash_manifest_print_hex(uint64_t hash, char hex[ASH_MANIFEST_HEX_BYTES + 1]);
/* Read up to size_bytes. Returns how many there were, or a negative errno. */
ssize_t ash_manifest_read(int fd, char *buf, size_t size_bytes);
/* Sum a file of pieces->size_bytes, piece by piece, as far as it goes. *size_out: how far that is. Returns 0 or a
 * negative errno. */
int ash_manifest_sum_content(int fd, struct ash_pieces *pieces, char *buf, uint64_t *size_out);
/* Open a file to sum it, by reading, not by mapping: a failing disk then gives an error and not a signal.
 * *buf_out, which the caller frees, has room for a piece. Returns the descriptor. */
int ash_manifest_open(const char *path, char **buf_out, struct ash_err *err);
/* Flush all files below dir, sum those that are not known, and write the manifest as the last of them. */
int ash_manifest_write(const char *dir, const struct ash_commit_sums *known, size_t known_count, json_t *state,
                       struct ash_err *err);

#endif

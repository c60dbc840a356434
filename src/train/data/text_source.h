/* text_source - a file, a pipe or standard input as a stream of plain bytes, whatever it is compressed with. */
#ifndef ASH_TRAIN_TEXT_SOURCE_H
#define ASH_TRAIN_TEXT_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

struct ash_text_source; /* one owner thread */

/* Open path ("-": standard input) and look at its first bytes. Known formats that are not text (Parquet, archives,
 * UTF-16) are -EINVAL, a compression that this build lacks -ENOTSUP; err has the remedy. */
int ash_text_source_open(const char *path, struct ash_text_source **source_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_text_source_close(struct ash_text_source *source);

/* Read up to capacity bytes to buf; *count_out is 0 only at the end. Compressed data that is damaged or cut off is
 * -EBADMSG. */
int ash_text_source_read(struct ash_text_source *source, char *buf, size_t capacity, size_t *count_out,
                         struct ash_err *err);
/* Go forward to byte offset of the plain bytes; nothing may have been read yet. Beyond the end is -ESTALE. */
int ash_text_source_skip(struct ash_text_source *source, uint64_t offset, struct ash_err *err);

/* Is the file compressed? */
bool ash_text_source_is_packed(const struct ash_text_source *source);
/* How much of the file itself was read: for progress. */
uint64_t ash_text_source_file_bytes(const struct ash_text_source *source);

#endif

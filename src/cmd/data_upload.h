/* data_upload - a data folder that is written here and goes to S3 as it grows: finished shards are put into the
 * namespace of their place and exported in the background; the manifest goes last, when all others are there. */
#ifndef ASH_CMD_DATA_UPLOAD_H
#define ASH_CMD_DATA_UPLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"

struct ash_data_upload;

/* Begin or continue an upload to url. -EEXIST if another run has finished data there, unless overwrite: then its
 * manifest is removed first. The caller owns *upload_out. */
int ash_data_upload_open(const char *url, bool overwrite, struct ash_data_upload **upload_out, struct ash_err *err);
/* Stop; another open with the same url continues. NULL is a no-op. */
void ash_data_upload_close(struct ash_data_upload *upload);
/* The folder of this machine to write to. Borrowed. */
const char *ash_data_upload_folder(const struct ash_data_upload *upload);
/* The first count shards of the folder are finished: they leave it. */
int ash_data_upload_shards(struct ash_data_upload *upload, size_t count, struct ash_err *err);
/* The folder is finished: everything goes, with a line of progress, the manifest last. What describes the data stays
 * until close. */
int ash_data_upload_finish(struct ash_data_upload *upload, struct ash_err *err);

#endif

/* remote - a command's path may be s3://bucket/prefix: it is fetched into the cache first. */
#ifndef ASH_CMD_REMOTE_H
#define ASH_CMD_REMOTE_H

#include "ashlar/err.h"
#include "base/str.h"

/* Append the local path of word: word itself if it is a path, else the folder its objects were fetched to, with a line
 * of progress on standard error. ASHLAR_S3_* and AWS_* configure the server. Returns 0 or a negative errno with a
 * sentence; -EINTR on a stop request. */
int ash_cmd_fetch(const char *word, struct ash_str *path, struct ash_err *err);

/* The same for a model's folder: its weights stay where they are, and are read by ranges when they are used. */
int ash_cmd_attach(const char *word, struct ash_str *path, struct ash_err *err);

/* Append to path the local staging folder of uploads to url; created if missing. */
int ash_cmd_stage(const char *url, struct ash_str *path, struct ash_err *err);
/* Send all files of folder below url, the one called `last` (may be NULL) after all others, with a line of progress,
 * and remove the folder. */
int ash_cmd_send_folder(const char *folder, const char *url, const char *last, struct ash_err *err);
/* Is there an object at url/name? 1, 0, or a negative errno with a sentence. */
int ash_cmd_is_there(const char *url, const char *name, struct ash_err *err);

#endif

/* remote - what a command takes as a path may be s3://bucket/prefix: it is brought into the cache first. */
#ifndef ASH_CMD_REMOTE_H
#define ASH_CMD_REMOTE_H

#include "ashlar/err.h"
#include "base/str.h"

/* Append to path where word lies on this machine: word itself where it is a path, else where its objects were fetched
 * to, with a line of progress on standard error. The server is reached as ASHLAR_S3_* and AWS_* say. Returns 0 or a
 * negative errno with a sentence; -EINTR when the program was asked to end. */
int ash_cmd_fetch(const char *word, struct ash_str *path, struct ash_err *err);

/* The same for a model's folder: its weights stay where they are, and are read by ranges when they are used. */
int ash_cmd_attach(const char *word, struct ash_str *path, struct ash_err *err);

/* Append to path the folder of this machine where what goes to url is written first; made where it is missing. */
int ash_cmd_stage(const char *url, struct ash_str *path, struct ash_err *err);
/* Send all files of folder below url, the one called `last` (may be NULL) after all others, with a line of progress,
 * and remove the folder. */
int ash_cmd_send_folder(const char *folder, const char *url, const char *last, struct ash_err *err);
/* Is there an object at url/name? 1, 0, or a negative errno with a sentence. */
int ash_cmd_is_there(const char *url, const char *name, struct ash_err *err);

#endif

/* remote - what a command takes as a path may be s3://bucket/prefix: it is brought into the cache first. */
#ifndef ASH_CMD_REMOTE_H
#define ASH_CMD_REMOTE_H

#include "ashlar/err.h"
#include "base/str.h"

/* Append to path where word lies on this machine: word itself where it is a path, else where its objects were fetched
 * to, with a line of progress on standard error. The server is reached as ASHLAR_S3_* and AWS_* say. Returns 0 or a
 * negative errno with a sentence; -EINTR when the program was asked to end. */
int ash_cmd_fetch(const char *word, struct ash_str *path, struct ash_err *err);

#endif

/* command - run another program, without a shell, and capture its output. */
#ifndef ASH_BASE_COMMAND_H
#define ASH_BASE_COMMAND_H

#include <stddef.h>
#include "ashlar/err.h"
#include "base/str.h"

#define ASH_COMMAND_OUTPUT_MAX ((size_t)64 << 20) /* of each stream; more ends the program */

struct ash_command {
    const char *const *argv; /* the program, found in PATH, and its words; NULL-terminated */
    const char *input;       /* its standard input; NULL: none */
    const char *const *env;  /* "NAME=value" beside this process's; NULL-terminated, or NULL */
    int network_fd;          /* of the network namespace that it runs in; 0: this process's */
    double limit_s;          /* it is killed after so long */
};

struct ash_command_result {
    int code;                /* exit code; 128 + signal where one ended it */
    struct ash_str out, err; /* its output, NUL-terminated */
};

/* Run it to its end. Returns 0 (also for an exit code other than 0), -ENOENT if there is no such program,
 * -ETIMEDOUT, -EFBIG or another negative errno; the sentence names the program. The caller frees *result_out with
 * ash_command_free, whatever was returned. */
int ash_command_run(const struct ash_command *command, struct ash_command_result *result_out, struct ash_err *err);
/* The same where an exit code other than 0 is -EIO, with the first line of its messages. Otherwise its output goes to
 * *out_out, which the caller frees; NULL: it is not wanted. */
int ash_command_output(const struct ash_command *command, struct ash_str *out_out, struct ash_err *err);
/* Frees what a result holds. */
void ash_command_free(struct ash_command_result *result);

/* Append a word as a POSIX shell reads it back: as it is, or in single quotes. Returns 0 or -ENOMEM. */
int ash_command_quote(struct ash_str *text, const char *word);

#endif

/* program - an external program that returns the reward of an answer, or replies to it. It gets a JSON object a line
 * and writes a line: for a reward a number, or an object with "reward". It runs in new namespaces, on a root
 * that is read-only, without network, with limits on time, memory, files and output; when it ends, everything that it
 * started ends with it. One owner thread. */
#ifndef ASH_POST_REWARD_PROGRAM_H
#define ASH_POST_REWARD_PROGRAM_H

#include <stddef.h>
#include "ashlar/err.h"
#include "base/str.h"

struct ash_program;

/* Zeroes are the defaults. */
struct ash_program_limits {
    double line_s;       /* for one answer; 0: 10 */
    size_t memory_bytes; /* of address space; 0: 1 GiB */
    size_t file_bytes;   /* of its private /tmp; 0: 16 MiB */
    size_t output_bytes; /* of one line; 0: 64 KiB */
};

/* Start it. command: the program and its words, separated by blanks. Returns 0, -ENOENT, or -ENOTSUP where the kernel
 * gives no namespaces. The caller owns *program_out. */
int ash_program_open(const char *command, const struct ash_program_limits *limits, struct ash_program **program_out,
                     struct ash_err *err);
/* Kill it with everything that it started. NULL is a no-op. */
void ash_program_close(struct ash_program *program);

/* Send a line and receive one: appended to reply, without its end. Errors as ash_program_ask. */
int ash_program_talk(struct ash_program *program, const char *line, struct ash_str *reply, struct ash_err *err);
/* Get the reward of one answer. line: a JSON object without line ends. Returns 0, or the program's failure (-ETIMEDOUT,
 * -EPIPE it ended, -EFBIG too much output, -EBADMSG no number): it is dead then, and err has its last output. */
int ash_program_ask(struct ash_program *program, const char *line, double *reward_out, struct ash_err *err);

/* Parse a line: a finite number, or {"reward": number}. Returns 0 or -EBADMSG. */
int ash_program_parse(const char *line, size_t size_bytes, double *reward_out, struct ash_err *err);

#endif

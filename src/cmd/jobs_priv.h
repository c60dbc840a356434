/* jobs_priv - what `ashlar jobs` and `ashlar submit` share. */
#ifndef ASH_CMD_JOBS_PRIV_H
#define ASH_CMD_JOBS_PRIV_H

#include <stdbool.h>
#include "cmd/cmd.h"
#include "orchestrate/job/jobs.h"

extern const struct ash_cmd ash_cmd_jobs_usage, ash_cmd_jobs_balance;

/* Wait for the end of a job, printing its output if print_output. Returns its exit code (1 if it failed and none is
 * known, 130 if the user left the wait: the job continues), or a negative errno. */
int ash_cmd_await_job(const struct ash_jobs_ops *ops, const char *id, bool print_output, struct ash_err *err);

#define ASH_CMD_SERVE_WORDS_MAX 64

/* Settings of a server that is submitted, as NAME=VALUE. Owned; free with ash_cmd_serve_words_free. */
struct ash_cmd_serve_words {
    char *items[ASH_CMD_SERVE_WORDS_MAX];
    size_t count;
};

/* The section `serve` of a job file, then words of the command line (serve.NAME=VALUE). Returns 0 or a negative errno
 * with what `ashlar serve` would refuse, or that no model is named; then words_out holds nothing. */
int ash_cmd_serve_words_read(const char *job_file, const char *const *settings, size_t setting_count,
                             struct ash_cmd_serve_words *words_out, struct ash_err *err);
/* Frees the words. */
void ash_cmd_serve_words_free(struct ash_cmd_serve_words *words);
/* Would `ashlar serve` take these words (NAME=VALUE)? Returns 0 or a negative errno with the sentence. */
int ash_cmd_serve_check(const char *const *words, size_t count, struct ash_err *err);

#endif

/* store (private) - shared by the subcommands of `ashlar store`. */
#ifndef ASH_CMD_STORE_PRIV_H
#define ASH_CMD_STORE_PRIV_H

#include <stdbool.h>
#include "cmd/cmd.h"
#include "cmd/progress_bar.h"
#include "storage/namespace/namespace.h"
#include "storage/tier/tier.h"

struct ash_store_flags {
    bool is_recursive, wants_resume, wants_json, wants_defer, wants_export, is_off, is_whole;
    double older_than_h;
    struct ash_cache_opts cache;
};

extern const struct ash_cmd ash_cmd_store_ls;
extern const struct ash_cmd ash_cmd_store_stat;
extern const struct ash_cmd ash_cmd_store_put;
extern const struct ash_cmd ash_cmd_store_get;
extern const struct ash_cmd ash_cmd_store_rm;
extern const struct ash_cmd ash_cmd_store_verify;
extern const struct ash_cmd ash_cmd_store_gc;
extern const struct ash_cmd ash_cmd_store_pin;
extern const struct ash_cmd ash_cmd_store_release;
extern const struct ash_cmd ash_cmd_store_status;

/* A subcommand: its flags, its number of arguments and its function. */
struct ash_store_form {
    const struct ash_cmd_usage *usage;
    const struct ash_opt *opts;
    size_t opt_count, word_count; /* word_count: 1 or 2, all of them required */
    const char *missing_word;
    int (*respond)(const struct ash_store_flags *flags, const struct ash_s3_opts *s3, const char *const *words,
                   struct ash_err *err);
};

/* Read flags and words, install the handler of Ctrl-C, respond. Returns the exit code. */
int ash_store_run(const struct ash_store_form *form, int argc, char **argv);

/* Bytes of a long copy or check, with a line of progress. */
struct ash_store_progress {
    struct ash_progress_bar bar;
    uint64_t done_bytes, total_bytes;
};

/* More bytes are done; shows a line when it is due. Returns 0, or -EINTR on a stop request. */
int ash_store_progress_add(struct ash_store_progress *progress, uint64_t bytes, struct ash_err *err);

/* The same as a watch of a namespace, whose ctx is the progress. */
int ash_store_progress_watch(void *ctx, const char *key, uint64_t done_bytes, uint64_t total_bytes,
                             struct ash_err *err);

/* The keys below a place. */
struct ash_store_keys {
    char **keys; /* owned */
    uint64_t *sizes;
    size_t count, capacity;
    uint64_t total_bytes;
};

/* Append a key, copied. Returns 0 or -ENOMEM. */
int ash_store_keys_add(struct ash_store_keys *keys, const char *key, uint64_t size_bytes);
/* Is key in the folder `name`, or that name itself? "": all are; "run2" is not in "run"; with a `*` at its end all that
 * begin so are. */
bool ash_store_is_below(const char *key, const char *name);
/* Every key of tier that is in a folder, as above. The caller ends *keys in every case. */
int ash_store_keys_read(struct ash_tier *tier, const char *name, struct ash_store_keys *keys, struct ash_err *err);
/* Free the members; a zeroed one is a no-op. */
void ash_store_keys_fini(struct ash_store_keys *keys);

#endif

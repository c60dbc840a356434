/* tokenize - text files to a folder of token shards: in parallel, in bounded memory, resumable. The output depends on
 * the inputs, the tokenizer and the options below, not on the number of threads nor on how often the run was
 * interrupted. */
#ifndef ASH_TRAIN_TOKENIZE_H
#define ASH_TRAIN_TOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/opts.h"

enum ash_tokenize_split { ASH_SPLIT_NONE, ASH_SPLIT_BLANK_LINE, ASH_SPLIT_LINE };
enum ash_tokenize_format { ASH_FORMAT_AUTO, ASH_FORMAT_TEXT, ASH_FORMAT_JSONL, ASH_FORMAT_PARQUET };
enum ash_tokenize_on_error { ASH_ON_ERROR_STOP, ASH_ON_ERROR_SKIP };

/* The settings of ash_tokenize_table: the flags of `ashlar data tokenize`. */
struct ash_tokenize_opts {
    const char *tokenizer, *out;
    int split, format, on_error; /* the enums above */
    const char *field, *eos;
    bool add_special, overwrite;
    int64_t shard_tokens, max_document, threads;
};

extern const struct ash_opt_table ash_tokenize_table; /* section "" over struct ash_tokenize_opts */

struct ash_tokenize_status {
    uint64_t bytes_done, bytes_total; /* of the input files, as they lie on disk */
    bool has_stream;                  /* an input is a pipe: how much there is, is not known */
    uint64_t tokens, documents;       /* in the output so far */
    uint64_t empty, skipped;          /* documents left out: without text; broken (on_error skip) */
    size_t shards, kept_shards;       /* complete on disk; of these, found there at open */
    bool complete;                    /* the manifest is written */
    int32_t eos_id;
    const char *eos;           /* its content, or NULL; borrowed from the job */
    const char *first_skipped; /* error of the first document that this run skipped, or NULL; borrowed */
};

struct ash_tokenize; /* a run; one owner thread, which its worker threads help inside step */

/* Check everything that can be checked before work begins, and continue after the shards that an earlier run of the
 * same options left in out. Borrows opts' strings and paths until close. No input, or files without a byte, is -EINVAL.
 * A path may be a folder, a pipe, or "-" for standard input; a run that reads a pipe is never continued. */
int ash_tokenize_open(const struct ash_tokenize_opts *opts, const char *const *paths, size_t count,
                      struct ash_tokenize **job_out, struct ash_err *err);
/* Stop and drop the shard that is not complete. NULL is a no-op. */
void ash_tokenize_close(struct ash_tokenize *job);
/* Do a piece of the work, some megabytes. Returns 1 while there is more, 0 when the manifest is written. Broken input
 * is -EILSEQ (not UTF-8) or -EINVAL (JSON), and err names file and line. */
int ash_tokenize_step(struct ash_tokenize *job, struct ash_err *err);
/* How far the run is. */
void ash_tokenize_get_status(const struct ash_tokenize *job, struct ash_tokenize_status *status_out);

#endif

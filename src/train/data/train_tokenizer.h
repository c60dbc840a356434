/* train_tokenizer - a byte-level BPE tokenizer learned from text files: words are counted on all threads, then merges
 * are learned from the counts. The result depends on the texts and the options, not on threads or the order of
 * documents. Memory is that of the distinct words. */
#ifndef ASH_TRAIN_TRAIN_TOKENIZER_H
#define ASH_TRAIN_TRAIN_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/opts.h"

/* The settings of ash_train_tokenizer_table: the flags of `ashlar data train-tokenizer`. */
struct ash_train_tokenizer_opts {
    const char *out, *field;
    int pattern, split, format, on_error; /* enums of tokenizer_form.h and tokenize.h */
    struct ash_opt_list special;
    int64_t vocab, min_frequency, max_document, threads;
    bool overwrite;
};

extern const struct ash_opt_table ash_train_tokenizer_table;

struct ash_train_tokenizer_status {
    uint64_t bytes_done, bytes_total; /* of the input files, as they lie on disk */
    bool has_stream;                  /* an input is a pipe: how much there is, is not known */
    uint64_t text_bytes, words;       /* read so far: bytes of texts, words in them */
    size_t distinct_words;            /* once all are counted */
    size_t tokens, tokens_max;        /* learned, with bytes and special tokens */
    uint64_t text_tokens;             /* of the whole input with these tokens; at the end */
    uint64_t skipped;                 /* documents left out (on_error skip) */
    const char *first_skipped;        /* error of the first of them, or NULL; borrowed */
};

struct ash_train_tokenizer; /* one owner thread, which its worker threads help inside step */

/* Check what can be checked before work begins. Borrows opts' strings and paths until close. Paths as in
 * ash_tokenize_open. */
int ash_train_tokenizer_open(const struct ash_train_tokenizer_opts *opts, const char *const *paths, size_t count,
                             struct ash_train_tokenizer **job_out, struct ash_err *err);
/* NULL is a no-op. Nothing is left of a job that did not end. */
void ash_train_tokenizer_close(struct ash_train_tokenizer *job);
/* Do a piece of the work: read some megabytes, or learn some tokens. Returns 1 while there is more, 0 when the files
 * are written. Errors of texts as in ash_tokenize_step. */
int ash_train_tokenizer_step(struct ash_train_tokenizer *job, struct ash_err *err);
/* How far the job is. */
void ash_train_tokenizer_get_status(const struct ash_train_tokenizer *job,
                                    struct ash_train_tokenizer_status *status_out);

#endif

/* tokenize_priv - input files as a stream of documents, for the tokenizing job. */
#ifndef ASH_TRAIN_TOKENIZE_PRIV_H
#define ASH_TRAIN_TOKENIZE_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/str.h"
#include "train/data/tokenize.h"

struct ash_input_file {
    const char *path; /* borrowed */
    uint64_t size_bytes;
    int64_t mtime_ns;
    bool jsonl;
};

/* A place between two documents. */
struct ash_input_pos {
    size_t file;
    uint64_t offset, line; /* bytes from 0, lines from 1 */
};

struct ash_input_doc {
    size_t start, size_bytes;   /* of its bytes in the batch's text */
    struct ash_input_pos begin; /* where they lie in the file */
    struct ash_input_pos next;  /* where to go on behind it */
};

/* Zero-initialise; grows once and is used again. */
struct ash_input_batch {
    struct ash_str text;
    struct ash_input_doc *docs;
    size_t count, capacity;
};
void ash_input_batch_fini(struct ash_input_batch *batch);

/* How a file is cut. Given size_bytes at text (end: there are no more), find the first document: its start and size,
 * and how many bytes it takes with what separates it from the next. An empty one (size 0) is only a separator. Returns
 * false when more bytes are needed. */
struct ash_input_cut {
    size_t start, size_bytes, used_bytes;
};
bool ash_input_cut(enum ash_tokenize_split split, const char *text, size_t size_bytes, bool end,
                   struct ash_input_cut *cut_out);

struct ash_input; /* one owner thread */

/* Look at every file (path, size, time; a folder or a device is -EINVAL). Borrows the paths. */
int ash_input_open(const char *const *paths, size_t count, enum ash_tokenize_format format,
                   enum ash_tokenize_split split, size_t document_bytes_max, struct ash_input **input_out,
                   struct ash_err *err);
void ash_input_close(struct ash_input *input);
const struct ash_input_file *ash_input_file(const struct ash_input *input, size_t index);
size_t ash_input_file_count(const struct ash_input *input);
/* Go on at a place that a document gave as next. -EINVAL when the files have no such place. */
int ash_input_seek(struct ash_input *input, const struct ash_input_pos *pos, struct ash_err *err);
/* Fill batch with documents until they hold want_bytes of text, empty ones left out. Returns 1, or 0 when none is left.
 */
int ash_input_next(struct ash_input *input, size_t want_bytes, struct ash_input_batch *batch, struct ash_err *err);

/* ---- documents to ids -------------------------------------------------------------------------------------------- */

struct ash_tokenizer;
struct ash_workers;

enum ash_encoded_state {
    ASH_ENCODED,
    ASH_ENCODED_EMPTY, /* it has no tokens */
    ASH_ENCODED_BAD,   /* it is broken and was skipped */
};

/* The ids of one document, its end token included; borrowed from the encoder until the next run. */
struct ash_encoded {
    enum ash_encoded_state state;
    const int32_t *ids;
    size_t count;
};

struct ash_encoder; /* one owner thread */

struct ash_encoder_opts {
    const struct ash_tokenizer *tokenizer;
    struct ash_workers *workers;
    const char *field;
    int32_t eos_id; /* -1: none */
    bool add_special, skip;
};

/* Borrows what opts point to until close. */
int ash_encoder_open(const struct ash_encoder_opts *opts, struct ash_encoder **encoder_out, struct ash_err *err);
void ash_encoder_close(struct ash_encoder *encoder);
/* Encode every document of batch, which came from input, on all threads. Without skip the first broken one, in order,
 * is the error; with it err keeps what was wrong with the first one, and 0 is returned. */
int ash_encoder_run(struct ash_encoder *encoder, const struct ash_input *input, const struct ash_input_batch *batch,
                    struct ash_err *err);
/* The result for document index of the last run. */
struct ash_encoded ash_encoder_doc(const struct ash_encoder *encoder, size_t index);

#endif

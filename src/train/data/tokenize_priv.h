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
    char *path;          /* owned; "-" is standard input */
    uint64_t size_bytes; /* on disk; 0 for a stream */
    int64_t mtime_ns;    /* of a stream: when it was opened */
    bool jsonl;          /* a JSON object per line; else text, or: */
    bool is_parquet;     /* a document per row; offsets count rows */
    uint64_t rows;       /* of a Parquet file */
    bool is_settled;     /* the format is known: for a stream only after its beginning was read */
    bool is_stream;      /* a pipe: it can be read once */
    bool is_packed;      /* compressed: offsets count decompressed bytes */
};

struct ash_input_opts {
    enum ash_tokenize_format format;
    enum ash_tokenize_split split;
    const char *field; /* of JSON lines: the key of the text; of Parquet: the column; borrowed */
    size_t document_bytes_max;
    bool keeps_line_ends; /* lines of text files have their ends, and empty ones are documents too */
};

/* The files of a run. Zero-initialise. */
struct ash_input_files {
    struct ash_input_file *items;
    size_t count, capacity;
};
/* Free the list. */
void ash_input_files_fini(struct ash_input_files *files);
/* Add a file, a pipe, "-" for standard input, or the files below a folder in the order of their names: its Parquet
 * files if it has some, else its text files. Regular files are opened: -EINVAL if not text. */
int ash_input_files_add(struct ash_input_files *files, const char *path, const struct ash_input_opts *opts,
                        struct ash_err *err);
/* Decide between text and JSON lines by the file's name and its first bytes. */
int ash_input_file_settle(struct ash_input_file *file, const char *head, size_t size_bytes, const char *field,
                          struct ash_err *err);

/* A place between two documents. Offsets count plain bytes: of a compressed file, decompressed ones. Of a Parquet file
 * both count rows. */
struct ash_input_pos {
    size_t file;
    uint64_t offset, line; /* bytes from 0, lines from 1 */
};

struct ash_input_doc {
    size_t start, size_bytes;   /* of its bytes in the batch's text */
    struct ash_input_pos begin; /* where they lie in the file */
    struct ash_input_pos next;  /* where to continue */
    bool is_null;               /* a row of a Parquet file without a text */
};

/* Zero-initialise; grows once and is used again. */
struct ash_input_batch {
    struct ash_str text;
    struct ash_input_doc *docs;
    size_t count, capacity;
};
/* Free the text and the list of documents. */
void ash_input_batch_fini(struct ash_input_batch *batch);

/* A document in a text. */
struct ash_input_cut {
    size_t start, size_bytes; /* size 0: no document, only what separates two */
    size_t used_bytes;        /* from the beginning of the text to the next document */
};
/* Find the first document in size_bytes at text (end: there are no more). False when more bytes are needed. */
bool ash_input_find_cut(enum ash_tokenize_split split, const char *text, size_t size_bytes, bool end,
                        struct ash_input_cut *cut_out);

struct ash_input; /* one owner thread */

/* Find every file that paths name (see ash_input_files_add); standard input may be named once. Borrows opts->field. */
int ash_input_open(const char *const *paths, size_t count, const struct ash_input_opts *opts,
                   struct ash_input **input_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_input_close(struct ash_input *input);
/* Borrowed until close; index counts from 0, below ash_input_file_count. */
const struct ash_input_file *ash_input_file_at(const struct ash_input *input, size_t index);
/* Files, with those that were found in folders. */
size_t ash_input_file_count(const struct ash_input *input);
/* How many bytes of the files lie before pos: for progress. Of a compressed file, and of a stream, the bytes read. */
uint64_t ash_input_done_bytes(const struct ash_input *input, const struct ash_input_pos *pos);
/* Continue at a place that a document gave as next. -EINVAL when the files have no such place. */
int ash_input_seek(struct ash_input *input, const struct ash_input_pos *pos, struct ash_err *err);
/* Fill batch with documents until they hold want_bytes of text, and as much memory for the list at most. Empty ones of
 * text files are left out. Returns 1, or 0 when none is left. */
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

/* Text of a document, for worker of the encoder's (no two calls of one at a time). 0, or an error. */
typedef int (*ash_encoder_text_fn)(void *ctx, int worker, const char *text, size_t size_bytes, struct ash_err *err);

struct ash_encoder_opts {
    const struct ash_tokenizer *tokenizer;
    struct ash_workers *workers;
    const char *field;
    int32_t eos_id; /* -1: none */
    bool add_special, skip;
    ash_encoder_text_fn text; /* gets the texts in place of the tokenizer: documents have no ids; NULL: none */
    void *text_ctx;
};

/* Borrows what opts point to until close. */
int ash_encoder_open(const struct ash_encoder_opts *opts, struct ash_encoder **encoder_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_encoder_close(struct ash_encoder *encoder);
/* Encode every document of batch, which came from input, on all threads. Without skip the first broken one, in order,
 * is the error; with it err is set by the first broken one, and 0 is returned. */
int ash_encoder_run(struct ash_encoder *encoder, const struct ash_input *input, const struct ash_input_batch *batch,
                    struct ash_err *err);
/* The result for document index of the last run. */
struct ash_encoded ash_encoder_doc(const struct ash_encoder *encoder, size_t index);

#endif

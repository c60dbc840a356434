/* shard - a file of token ids and the bounds of their documents. It is a safetensors file, so that any tool of the
 * field can read it: `tokens` [n] U16 (vocabularies up to 65,536) or U32, `doc_ends` [d] I64 (end of each document,
 * exclusive, strictly ascending, the last one n), and in its metadata: format, vocab_size, tokenizer_hash, hash,
 * perhaps description. */
#ifndef ASH_TRAIN_SHARD_H
#define ASH_TRAIN_SHARD_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_SHARD_FORMAT "ashlar-tokens-1"
#define ASH_SHARD_VOCAB_MAX ((size_t)INT32_MAX)

struct ash_shard_info {
    size_t tokens, documents;
    size_t vocab_size;       /* every id is below it */
    uint64_t tokenizer_hash; /* ash_tokenizer_hash of what made the ids */
    uint64_t hash;           /* of ids and bounds, whatever the storage type */
};

struct ash_shard; /* a mapped shard; immutable after open, any thread may read */

/* Map a shard and check everything but the ids: shapes, types, metadata and the bounds of documents (-EBADMSG where
 * they are wrong). Ids are checked as they are read. */
int ash_shard_open(const char *path, struct ash_shard **shard_out, struct ash_err *err);
/* Bytes of a file that is not here. read: exactly [offset, offset + size_bytes), or a negative errno; any thread. */
struct ash_shard_source {
    int (*read)(void *ctx, uint64_t offset, size_t size_bytes, void *data, struct ash_err *err);
    void *ctx; /* borrowed until the shard is closed */
    uint64_t size_bytes;
};

/* The same of such a file: its header and bounds are read here, ids on demand. name is for messages. */
int ash_shard_open_source(const struct ash_shard_source *source, const char *name, struct ash_shard **shard_out,
                          struct ash_err *err);
/* The same over bytes in memory, borrowed until close. name is for messages. */
int ash_shard_parse(const void *data, size_t size_bytes, const char *name, struct ash_shard **shard_out,
                    struct ash_err *err);
/* NULL is a no-op. */
void ash_shard_close(struct ash_shard *shard);

/* Where ids [first, first + count) lie in the file: the first byte, and in *size_out how many. */
uint64_t ash_shard_bytes_of(const struct ash_shard *shard, size_t first, size_t count, size_t *size_out);
/* The shard's description; borrowed until close. */
const struct ash_shard_info *ash_shard_get_info(const struct ash_shard *shard);
/* How generated data was made, or NULL. Borrowed. */
const char *ash_shard_description(const struct ash_shard *shard);
/* The document that token (< tokens) belongs to. */
size_t ash_shard_doc_at(const struct ash_shard *shard, size_t token);
/* The token after the last one of a document. */
size_t ash_shard_doc_end(const struct ash_shard *shard, size_t document);

/* Copy count ids from token first on; the range must lie inside. Returns 0, or -EBADMSG when an id is not below
 * vocab_size: err names the token, ids_out is undefined. */
int ash_shard_read(const struct ash_shard *shard, size_t first, size_t count, int32_t *ids_out, struct ash_err *err);
/* One pass over everything: ids below vocab_size, and the hash is the recorded one. Returns 0 or -EBADMSG. */
int ash_shard_verify(const struct ash_shard *shard, struct ash_err *err);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* One owner thread. Memory does not grow with the shard: added documents go to an unlinked file. */
struct ash_shard_writer;

/* Start a shard that will be path. description may be NULL; strings are copied. */
int ash_shard_writer_open(const char *path, size_t vocab_size, uint64_t tokenizer_hash, const char *description,
                          struct ash_shard_writer **writer_out, struct ash_err *err);
/* Drop an unfinished shard; NULL is a no-op. */
void ash_shard_writer_close(struct ash_shard_writer *writer);
/* Add one document of count (> 0) ids. -EINVAL for an id that is negative or not below vocab_size; -ENOSPC and the
 * like. After an error only close is left. */
int ash_shard_writer_add(struct ash_shard_writer *writer, const int32_t *ids, size_t count, struct ash_err *err);
/* Tokens added so far. */
size_t ash_shard_writer_tokens(const struct ash_shard_writer *writer);
/* Write path in one step (it is the whole shard or as it was before) and fill info_out. A shard without documents is
 * -EINVAL. */
int ash_shard_writer_finish(struct ash_shard_writer *writer, struct ash_shard_info *info_out, struct ash_err *err);

#endif

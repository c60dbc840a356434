/* tokenizer - text to token ids and back, from a tokenizer.json, with exactly the ids of the Hugging Face library.
 * Byte-pair encoding: byte-level (gpt2, llama3, qwen) and with byte fallback (llama2); unigram (xlm-roberta) and word
 * pieces (bert). Immutable after open: any number
 * of threads may encode and decode at once. */
#ifndef ASH_TEXT_TOKENIZER_TOKENIZER_H
#define ASH_TEXT_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/arena.h"
#include "storage/gguf/gguf.h"

struct ash_tokenizer;
struct ash_str;

/* Ids that grow; zero-initialise, free with ash_ids_fini. */
struct ash_ids {
    int32_t *data;
    size_t count, capacity;
};
/* Free the ids and leave an empty list. */
void ash_ids_fini(struct ash_ids *ids);
int ash_ids_add(struct ash_ids *ids, int32_t id); /* 0 or -ENOMEM */

/* path: a folder that holds tokenizer.json (its path itself works too), or without one SentencePiece's tokenizer.model;
 * or a GGUF file (ash_gguf_locate): then the tokenizer.json in the same folder, or else the file's own vocabulary.
 * -ENOENT if there is none. */
int ash_tokenizer_open(const char *path, struct ash_tokenizer **tokenizer_out, struct ash_err *err);
/* From the text of a tokenizer.json. */
int ash_tokenizer_parse(const char *json, size_t size_bytes, const char *name, struct ash_tokenizer **tokenizer_out,
                        struct ash_err *err);
/* Free it; no call may be using it. NULL is a no-op. */
void ash_tokenizer_close(struct ash_tokenizer *tokenizer);

/* From the metadata of a GGUF file. -ENOENT when it has no vocabulary, -ENOTSUP for kinds of tokenizers that are not
 * supported. */
int ash_tokenizer_from_gguf(struct ash_gguf *file, const char *name, struct ash_tokenizer **tokenizer_out,
                            struct ash_err *err);
/* The tokenizer as metadata of a GGUF file of a model with vocab tokens, added to entries; lives in arena and in
 * tokenizer. bos: the model's first token, or -1. What such files cannot say exactly is added to notes (may be NULL), a
 * sentence a line. */
int ash_tokenizer_to_gguf(const struct ash_tokenizer *tokenizer, size_t vocab, int32_t bos, struct ash_arena *arena,
                          struct ash_gguf_entries *entries, struct ash_str *notes, struct ash_err *err);

/* One more than the largest id. */
size_t ash_tokenizer_vocab_size(const struct ash_tokenizer *tokenizer);
/* The id of a token by its exact content ("<|endoftext|>"), or -1. */
int32_t ash_tokenizer_id(const struct ash_tokenizer *tokenizer, const char *content);
/* The content of an id as the file has it, or NULL. */
const char *ash_tokenizer_content(const struct ash_tokenizer *tokenizer, int32_t id);
/* Is id an added token that the file calls special? False for ids that do not exist. */
bool ash_tokenizer_is_special(const struct ash_tokenizer *tokenizer, int32_t id);
/* The tokens around a gap that a model was trained to fill; -1: it has none. */
struct ash_fim_marks {
    int32_t prefix, suffix, middle;
};
/* As the metadata of the file says, else by the names that families give them. */
struct ash_fim_marks ash_tokenizer_fim_marks(const struct ash_tokenizer *tokenizer);
/* Append the bytes that id adds to a text in its middle: part of a character perhaps. A special token's are its
 * content. None for ids that do not exist. 0 or -ENOMEM. */
int ash_tokenizer_add_bytes(const struct ash_tokenizer *tokenizer, int32_t id, struct ash_str *bytes);
/* A hash of everything that decides the ids: token shards remember it. */
uint64_t ash_tokenizer_hash(const struct ash_tokenizer *tokenizer);

/* Append the ids of text to ids. add_special applies the post-processor (a beginning-of-text token and the like). Bytes
 * that are not UTF-8 are -EILSEQ with their offset. */
int ash_tokenizer_encode(const struct ash_tokenizer *tokenizer, const char *text, size_t size_bytes, bool add_special,
                         struct ash_ids *ids, struct ash_err *err);

/* Append the ids of two texts as a pair, with the post-processor's ids around them: what cross-encoders read.
 * *second_out: the first of the ids, counted from those appended, that belongs to the second text for a model that
 * tells them apart; 0: they are not told apart. -ENOTSUP: the file does not say how pairs are written. */
int ash_tokenizer_encode_pair(const struct ash_tokenizer *tokenizer, const char *first, const char *second,
                              struct ash_ids *ids, size_t *second_out, struct ash_err *err);

/* A word of a text: its bytes are borrowed during the call. 0, or an error that ends the cutting. */
typedef int (*ash_tokenizer_word_fn)(void *ctx, const char *bytes, size_t size_bytes);
/* Call word for each word, in order, that a text is normalized and cut into before its parts are merged: what a
 * tokenizer is trained on. Added tokens are text here. Words of a byte-level tokenizer are raw bytes. Errors are those
 * of ash_tokenizer_encode, and word's. */
int ash_tokenizer_cut(const struct ash_tokenizer *tokenizer, const char *text, size_t size_bytes,
                      ash_tokenizer_word_fn word, void *ctx, struct ash_err *err);

/* Append the text of ids to text. Bytes that are no character become U+FFFD, as in the Hugging Face library.
 * skip_special leaves special tokens out. Unknown ids are -EINVAL. */
int ash_tokenizer_decode(const struct ash_tokenizer *tokenizer, const int32_t *ids, size_t count, bool skip_special,
                         struct ash_str *text, struct ash_err *err);

/* Decoding one id at a time: a piece is given out only when its last character is complete. The pieces joined are the
 * text that decode gives for all ids. */
struct ash_decoder;
/* A decoder that has seen nothing. Borrows tokenizer until close. One owner thread. */
int ash_decoder_open(const struct ash_tokenizer *tokenizer, bool skip_special, struct ash_decoder **decoder_out,
                     struct ash_err *err);
/* NULL is a no-op. */
void ash_decoder_close(struct ash_decoder *decoder);
/* Reset after a prompt whose text is known already: what comes next is the text that the next ids add to it. A
 * prompt may end inside a character; the id that finishes it gives the whole character. Unknown ids are -EINVAL. */
int ash_decoder_start(struct ash_decoder *decoder, const int32_t *prompt, size_t count, struct ash_err *err);
/* Append what id makes certain to text (perhaps nothing). */
int ash_decoder_push(struct ash_decoder *decoder, int32_t id, struct ash_str *text, struct ash_err *err);
/* Append the rest (an incomplete character becomes U+FFFD) and reset. */
int ash_decoder_finish(struct ash_decoder *decoder, struct ash_str *text, struct ash_err *err);

#endif

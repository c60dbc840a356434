/* gguf_priv - what GGUF files say of tokenizers: the names of their ways to cut text into words, and their types of
 * tokens. */
#ifndef ASH_TEXT_TOKENIZER_GGUF_PRIV_H
#define ASH_TEXT_TOKENIZER_GGUF_PRIV_H

#include "text/tokenizer/tokenizer_priv.h"

#define ASH_TOK_SPACE_MARK "\xe2\x96\x81" /* U+2581: stands for a space in byte-fallback vocabularies */

/* tokenizer.ggml.token_type */
enum ash_tok_gguf_type {
    ASH_TOK_GGUF_NORMAL = 1,
    ASH_TOK_GGUF_UNKNOWN,
    ASH_TOK_GGUF_CONTROL,
    ASH_TOK_GGUF_USER_DEFINED,
    ASH_TOK_GGUF_UNUSED,
    ASH_TOK_GGUF_BYTE
};

/* tokenizer.ggml.pre: how a byte-level tokenizer cuts. */
struct ash_tok_gguf_words {
    const char *name;
    const char *expression; /* of a Split before ByteLevel; NULL: ByteLevel cuts by its own */
    bool digits;            /* each digit is a word */
    bool ignore_merges;
    bool nfc; /* the tokenizers of this name normalize first; llama.cpp itself does not */
};

/* By name, or NULL. */
const struct ash_tok_gguf_words *ash_tok_gguf_words_named(const char *name);
/* The one that cuts as these pre-tokenizers do, or NULL. */
const struct ash_tok_gguf_words *ash_tok_gguf_words_of(const struct ash_tok_pres *pres, bool ignore_merges);

#endif

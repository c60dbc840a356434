/* The bytes of single tokens, which decoding and ash_tokenizer_add_bytes share. */
#ifndef ASH_TEXT_TOKENIZER_TOKEN_BYTES_PRIV_H
#define ASH_TEXT_TOKENIZER_TOKEN_BYTES_PRIV_H

#include <stddef.h>
#include "base/str.h"

/* Append the bytes that a byte-level token stands for: its characters' bytes, or where one stands for none, the token
 * as it is. 0 or -ENOMEM. */
int ash_tok_add_level_bytes(struct ash_str *out, const char *text, size_t size_bytes);
/* The byte that "<0x..>" names, or -1. The library takes "+F" for a number too. */
int ash_tok_fallback_byte(const char *text, size_t size_bytes);

#endif

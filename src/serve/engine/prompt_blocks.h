/* prompt_blocks - a request's prompt as hashes of blocks of its text, without a tokenizer. A router and its replicas
 * compute the same ones of a request: so a router, which sees texts, and a replica, whose cache has pages of tokens,
 * can speak of the same beginning. */
#ifndef ASH_SERVE_ENGINE_PROMPT_BLOCKS_H
#define ASH_SERVE_ENGINE_PROMPT_BLOCKS_H

#include <stddef.h>
#include <stdint.h>
#include "base/json.h"

#define ASH_PROMPT_BLOCK_BYTES 256 /* of a prompt's text, or 64 token ids: about a page of the cache */

struct ash_prompt_blocks {
    uint64_t *hashes; /* [count]; each is of all text up to its block's end: equal ones mean equal beginnings */
    size_t count;
    size_t text_bytes; /* of the prompt, with those behind the last whole block */
};

/* Read a request of any form; model's name and prompts of different salts share nothing. Without an object there are no
 * blocks. Returns 0 or -ENOMEM; then too *blocks_out can be finished. */
int ash_prompt_blocks_read(const json_t *json, uint64_t salt, struct ash_prompt_blocks *blocks_out);
/* Free them; zeroed ones are fine. */
void ash_prompt_blocks_fini(struct ash_prompt_blocks *blocks);
/* The token of the prompt [tokens] before which a block ends, in proportion to the text: exact for token ids, and off
 * by a page or two where a text's tokens have uneven lengths. */
size_t ash_prompt_blocks_end(const struct ash_prompt_blocks *blocks, size_t index, size_t tokens);

#endif

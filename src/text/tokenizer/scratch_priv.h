/* scratch_priv - the memory of one call, lent by the tokenizer. Part of tokenizer_priv.h. */
#ifndef ASH_TEXT_TOKENIZER_SCRATCH_PRIV_H
#define ASH_TEXT_TOKENIZER_SCRATCH_PRIV_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "text/tokenizer/tokenizer.h"

#define ASH_TOK_STEPS_MAX 32 /* normalizers, pre-tokenizers or decoders, sequences unrolled */
#define ASH_TOK_CACHE_WORD_BYTES 31
#define ASH_TOK_CACHE_IDS 7
#define ASH_TOK_CACHE_LINES ((size_t)1 << 15)

/* A word and its ids in one cache line. */
struct ash_tok_line {
    uint64_t key[4]; /* the word, zero-padded, its length in the last byte; length 0: empty */
    int32_t count;
    int32_t ids[ASH_TOK_CACHE_IDS];
};

struct ash_tok_symbol {
    int32_t id; /* -1: merged into the one before */
    uint32_t prev, next;
};

struct ash_tok_candidate {
    uint64_t key; /* rank, then position: smaller goes first */
    uint32_t result;
};

/* The best way to a position of a word (unigram.c). */
struct ash_tok_path {
    double score;
    uint32_t from; /* where its last token begins; UINT32_MAX: there is no way yet */
    int32_t id;    /* of that token; -1: a character that no token spells */
};

struct ash_tok_scratch {
    struct ash_tok_scratch *next;
    size_t limit_bytes; /* of rewritten text: files can ask for growth without end */
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *jit_stack;
    struct ash_tok_line *cache; /* [ASH_TOK_CACHE_LINES], made when first needed */
    struct ash_str norm[2];
    struct ash_str steps[ASH_TOK_STEPS_MAX];  /* text that a pre-tokenizer rewrote before it cuts */
    struct ash_str mapped[ASH_TOK_STEPS_MAX]; /* a piece whose bytes became characters */
    struct ash_str word;                      /* a byte-level word spelled in characters */
    struct ash_ids symbols_ids;
    struct ash_tok_symbol *symbols;
    size_t symbol_capacity;
    struct ash_tok_candidate *heap;
    size_t heap_count, heap_capacity;
    struct ash_tok_path *path;
    size_t path_capacity;
};

/* Set the limit of what text of this size may become. */
void ash_tok_scratch_limit(struct ash_tok_scratch *scratch, size_t size_bytes);
/* -E2BIG for a text that went beyond the limit, else 0. */
int ash_tok_scratch_check(const struct ash_tok_scratch *scratch, const struct ash_str *text, struct ash_err *err);
/* NULL when out of memory. */
struct ash_tok_scratch *ash_tok_scratch_open(void);
/* NULL is a no-op. */
void ash_tok_scratch_close(struct ash_tok_scratch *scratch);

#endif

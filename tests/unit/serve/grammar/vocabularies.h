/* Small vocabularies for tests of grammars, and questions to a grammar. Every byte is a token, so that any text can be
 * spelled; then come tokens of several bytes. The last id ends a text. */
#ifndef TEST_VOCABULARIES_H
#define TEST_VOCABULARIES_H

#include <string.h>

#include "base/assert.h"
#include "base/rng.h"
#include "serve/grammar/grammar.h"

#define VOCAB_TOKENS_MAX 1200

struct vocabulary {
    struct ash_vocab_token tokens[VOCAB_TOKENS_MAX];
    char bytes[VOCAB_TOKENS_MAX][24];
    size_t count;
    int32_t eos;
    struct ash_vocab_trie *trie;
};

static inline void vocabulary_add(struct vocabulary *vocabulary, const char *bytes, size_t size_bytes, bool is_special)
{
    memcpy(vocabulary->bytes[vocabulary->count], bytes, size_bytes);
    vocabulary->tokens[vocabulary->count] =
        (struct ash_vocab_token){vocabulary->bytes[vocabulary->count], size_bytes, is_special};
    vocabulary->count++;
}

/* All bytes, pieces of JSON, and `more` drawn tokens from a small alphabet. */
static inline void vocabulary_init(struct vocabulary *vocabulary, uint64_t seed, size_t more)
{
    static const char *const pieces[] = {"\"",     "{\"",  "\":",  "\": ", ", \"",  "\", \"", "\"}", "}}",
                                         "]}",     "[[",   "null", "true", "false", "12",     "00",  ".5",
                                         "e+",     "  ",   "\n\n", "ab",   "\\n",   "\\u",    "äö",  "\xe2\x82",
                                         "日本語", "], [", "name", "a\"",  "\\\"",  "-1"};
    static const char *const parts[] = {"a", "b", "c", "0", "1",  "9", "\"", "{",    "}",    "[",    "]", ",",
                                        ":", " ", "-", ".", "\\", "e", "é",  "\xe2", "\x82", "\xac", "x", "\n"};
    struct ash_err err = {0};
    uint64_t counter = 0;

    memset(vocabulary, 0, sizeof(*vocabulary));
    for (int byte = 0; byte < 256; byte++)
        vocabulary_add(vocabulary, &(char){(char)byte}, 1, false);
    for (size_t i = 0; i < ASH_COUNT(pieces); i++)
        vocabulary_add(vocabulary, pieces[i], strlen(pieces[i]), false);
    for (size_t i = 0; i < more; i++) {
        char text[24] = "";
        for (size_t n = 2 + ash_rng_below(seed, 1, counter++, 4); n > 0; n--)
            strcat(text, parts[ash_rng_below(seed, 1, counter++, ASH_COUNT(parts))]);
        vocabulary_add(vocabulary, text, strlen(text), false);
    }
    vocabulary_add(vocabulary, "<|tool|>", 8, true);
    vocabulary_add(vocabulary, "<|eos|>", 7, true);
    vocabulary->eos = (int32_t)vocabulary->count - 1;
    ash_assert(ash_vocab_trie_from_tokens(vocabulary->tokens, vocabulary->count, &vocabulary->eos, 1, &vocabulary->trie,
                                          &err) == 0);
}

static inline void vocabulary_fini(struct vocabulary *vocabulary)
{
    ash_vocab_trie_close(vocabulary->trie);
}

static inline bool mask_has(const uint64_t *mask, int32_t id)
{
    return (mask[(size_t)id / 64] >> (size_t)id % 64 & 1) != 0;
}

/* A token among those that the mask allows, drawn; -1 for none. */
static inline int32_t mask_draw(const uint64_t *mask, size_t count, uint64_t seed, uint64_t counter)
{
    size_t allowed = 0, chosen;

    for (size_t id = 0; id < count; id++)
        allowed += mask_has(mask, (int32_t)id);
    if (allowed == 0) return -1;
    chosen = ash_rng_below(seed, 3, counter, allowed);
    for (size_t id = 0; id < count; id++)
        if (mask_has(mask, (int32_t)id) && chosen-- == 0) return (int32_t)id;
    return -1;
}

/* Does grammar accept exactly this text, byte by byte? */
static inline bool grammar_takes(struct ash_grammar *grammar, const struct vocabulary *vocabulary, const char *text,
                                 size_t size_bytes)
{
    struct ash_matcher *matcher = NULL;
    struct ash_err err = {0};
    bool takes = true;

    ash_assert(ash_matcher_open(grammar, vocabulary->trie, &matcher, &err) == 0);
    for (size_t i = 0; i < size_bytes && takes; i++)
        takes = ash_matcher_accept(matcher, (uint8_t)text[i]) == 0;
    takes = takes && ash_matcher_is_complete(matcher) && ash_matcher_accept(matcher, vocabulary->eos) == 0;
    ash_matcher_close(matcher);
    return takes;
}

#endif

/* words - distinct strings of bytes, numbered in the order of their arrival, with how often each came. */
#ifndef ASH_TEXT_LEARN_WORDS_H
#define ASH_TEXT_LEARN_WORDS_H

#include <stddef.h>
#include <stdint.h>

/* One of them: bytes [at, at + size_bytes) of the table's text. */
struct ash_word {
    uint64_t hash, count;
    size_t at;
    uint32_t size_bytes;
};

/* Zero-initialise. One owner thread. */
struct ash_words {
    struct ash_word *items;
    size_t count, capacity;
    char *text;
    size_t text_bytes, text_capacity;
    uint32_t *slots; /* open addressing: number + 1, 0 for none */
    size_t slot_mask;
};

/* The bytes of word index, not NUL-terminated; valid until the next is added. */
const char *ash_words_bytes(const struct ash_words *words, size_t index);
/* Count a word `times` more often. Returns its number, or -ENOMEM (also beyond 2^32 - 2 words). */
int64_t ash_words_add(struct ash_words *words, const char *bytes, size_t size_bytes, uint64_t times);
/* Its number, or -1. */
int64_t ash_words_find(const struct ash_words *words, const char *bytes, size_t size_bytes);
/* Add all words of another table. 0 or -ENOMEM. */
int ash_words_merge(struct ash_words *words, const struct ash_words *other);
/* Free all of it and leave an empty table. */
void ash_words_fini(struct ash_words *words);

#endif

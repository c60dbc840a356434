/* words - the words of a job that faults happen to, and the data that it trains on. */
#ifndef ASH_TESTS_CHAOS_WORDS_H
#define ASH_TESTS_CHAOS_WORDS_H

#include <stddef.h>
#include "ashlar/err.h"

#define ASH_CHAOS_WORDS_MAX 48
#define ASH_CHAOS_WORD_BYTES 256

/* A command line that grows. Zero-initialise. */
struct ash_chaos_words {
    char text[ASH_CHAOS_WORDS_MAX][ASH_CHAOS_WORD_BYTES];
    char *list[ASH_CHAOS_WORDS_MAX + 1]; /* NULL-terminated */
    size_t count;
};

/* One more word. */
__attribute__((format(printf, 2, 3))) void ash_chaos_add(struct ash_chaos_words *words, const char *fmt, ...);
/* Words that are separated by spaces. */
void ash_chaos_add_all(struct ash_chaos_words *words, const char *text);
#define ASH_CHAOS_SCRATCH_BYTES (ASH_CHAOS_WORD_BYTES - 64) /* paths below it are words */
/* Make a new folder for a command's data and runs in the folder `wanted` (NULL: /tmp), of this kind (base/own_dir.h).
 * Returns 0 or a negative errno. */
int ash_chaos_scratch(const char *wanted, const char *kind, char path[ASH_CHAOS_SCRATCH_BYTES], struct ash_err *err);
/* Make a folder with data (`data`) and a job (`job.yaml`) for small models of 128 tokens. Returns 0 or a negative
 * errno. */
int ash_chaos_prepare(const char *scratch, struct ash_err *err);

#endif

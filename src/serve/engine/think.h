/* think - budget forcing: bounds on how many tokens an answer's thoughts have. What would end them too early is
 * replaced by a word that continues them ("Wait"); thoughts that are too long are ended. One owner thread at a time. */
#ifndef ASH_SERVE_ENGINE_THINK_H
#define ASH_SERVE_ENGINE_THINK_H

#include <stdbool.h>
#include <stddef.h>
#include "text/tokenizer/tokenizer.h"

/* What ends thoughts, and what continues them, as a tokenizer has them. Zeroed: nothing does. */
struct ash_think_words {
    int32_t end_id; /* valid if there is more */
    struct ash_ids more;
};

/* Look the words up. end NULL: "</think>"; more NULL: "Wait". Returns 0, -EINVAL, -ENOMEM, or -ENOTSUP where the
 * tokenizer has no token that ends thoughts. Free with ash_think_words_fini. */
int ash_think_words_init(struct ash_think_words *words, const char *end, const char *more,
                         const struct ash_tokenizer *tokenizer, struct ash_err *err);
/* Free them; zeroed ones too. */
void ash_think_words_fini(struct ash_think_words *words);
/* Can an answer have at least min and (0: without bound) at most max tokens of thoughts? Returns 0 or -EINVAL. */
int ash_think_check(size_t min, size_t max, struct ash_err *err);

/* The budget of one answer. */
struct ash_think {
    const struct ash_think_words *words;
    size_t min, max;
    size_t count;   /* tokens of thoughts so far */
    size_t pending; /* of words->more: ids that still have to come */
    bool is_open;   /* the answer thinks */
};

/* Of an answer that begins with its thoughts: at least min tokens of them, at most max (0: no bound). Borrows words. */
struct ash_think ash_think_start(const struct ash_think_words *words, size_t min, size_t max);
/* The sampler chose id; is_stop: it would end the answer. Returns the id that takes its place, mostly id itself. */
int32_t ash_think_choose(struct ash_think *think, int32_t id, bool is_stop);

#endif

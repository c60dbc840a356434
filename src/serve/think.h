/* think - budget forcing: bounds on how many tokens an answer's thoughts have. What ends them too early is taken
 * back and replaced by a word that continues them ("Wait"); thoughts that are too long are ended. One owner thread. */
#ifndef ASH_SERVE_THINK_H
#define ASH_SERVE_THINK_H

#include <stdbool.h>
#include <stddef.h>
#include "text/tokenizer.h"

struct ash_think_opts {
    size_t min, max;  /* tokens of thoughts; 0: no bound */
    const char *end;  /* the token that ends thoughts; NULL: "</think>" */
    const char *more; /* what takes its place before min; NULL: "Wait" */
};

/* Caller's storage; zeroed has no bounds. */
struct ash_think {
    size_t min, max;
    int32_t end_id;
    struct ash_ids more, end;     /* ids that are put into the answer */
    bool is_open;                 /* the answer thinks */
    size_t count;                 /* tokens of thoughts so far */
    const struct ash_ids *forced; /* what continues the answer, once the core has released it; NULL: nothing */
};

/* Look the words up. Returns 0, -EINVAL (min above max), -ENOTSUP where the tokenizer has no token that ends thoughts,
 * or -ENOMEM. */
int ash_think_init(struct ash_think *think, const struct ash_think_opts *opts, const struct ash_tokenizer *tokenizer,
                   struct ash_err *err);
/* Free what it holds. */
void ash_think_fini(struct ash_think *think);
/* An answer begins with its thoughts. */
void ash_think_start(struct ash_think *think);
/* The model chose id. Returns true where it is no part of the answer: thoughts would end too early. */
bool ash_think_refuses(struct ash_think *think, int32_t id);
/* The answer has ended by itself: too early? Then forced says how it continues. */
void ash_think_end(struct ash_think *think);
/* forced has been put into the answer. */
void ash_think_forced(struct ash_think *think);

#endif

/* draft - prompt lookup: what followed the last tokens where they occurred before is proposed as what follows now. A
 * drafter remembers where each run of DRAFT_GRAM tokens occurred last, and how well its proposals did: where they do
 * not pay it proposes less, and then rests. */
#ifndef ASH_SERVE_ENGINE_DRAFT_H
#define ASH_SERVE_ENGINE_DRAFT_H

#include <stddef.h>
#include <stdint.h>

/* Zero-initialise. */
struct ash_drafter {
    uint32_t *places; /* [mask + 1]: one past the last token of a run, by its hash; 0: none */
    size_t mask;
    size_t indexed;   /* tokens that are in places */
    size_t match;     /* where the last run occurred before: the place after it; 0: nowhere */
    double gain;      /* tokens that a proposal was right about, on average */
    size_t rest;      /* tokens until the next proposal */
    size_t rest_next; /* and after it, if it is wrong again */
};

/* For a text of at most max_tokens. Returns 0 or -ENOMEM. */
int ash_drafter_init(struct ash_drafter *drafter, size_t max_tokens);
/* Free it. A zeroed struct is a no-op. */
void ash_drafter_fini(struct ash_drafter *drafter);
/* Tokens [count] are the text now: earlier ones and some more. */
void ash_drafter_extend(struct ash_drafter *drafter, const int32_t *tokens, size_t count);
/* Up to most tokens that may follow the text (the same as in the last extend), into drafts. Returns how many. */
size_t ash_drafter_propose(struct ash_drafter *drafter, const int32_t *tokens, size_t count, size_t most,
                           int32_t *drafts);
/* What became of a proposal: of `drafted` (> 0) tokens the first `accepted` were right. */
void ash_drafter_learn(struct ash_drafter *drafter, size_t drafted, size_t accepted);

#endif

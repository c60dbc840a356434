/* batcher - many short prompts answered together: each has a slot of the cache, and every step runs one token of each
 * running answer and the whole prompt of each new one in a single pass. An answer is the same as if it were computed
 * alone. One owner thread. */
#ifndef ASH_SERVE_BATCHER_H
#define ASH_SERVE_BATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "model/model.h"
#include "serve/sampler.h"

struct ash_batcher_opts {
    struct ash_sampler_opts sampler;
    size_t slots;       /* answers that are written at the same time */
    size_t slot_tokens; /* a prompt and its answer together */
    size_t rows;        /* tokens of one pass, at least slots and slot_tokens */
    size_t vocab;       /* ids that may be chosen: below this; 0: all of the model's */
    const int32_t *eos; /* ids that end an answer; borrowed */
    size_t eos_count;
};

/* A prompt and room for its answer, both the caller's. */
struct ash_request {
    const int32_t *prompt;
    size_t prompt_count; /* > 0 */
    int32_t *answer;     /* room for answer_max ids */
    size_t answer_max;   /* > 0; prompt_count + answer_max must not exceed slot_tokens */
    /* filled in: */
    size_t answer_count; /* without the id that ended it */
    bool ended;          /* by one of eos; else it is answer_max long */
};

struct ash_batcher;

/* Borrows model, exec and opts->eos until close. */
int ash_batcher_open(struct ash_model *model, struct ash_exec *exec, const struct ash_batcher_opts *opts,
                     struct ash_batcher **batcher_out, struct ash_err *err);
void ash_batcher_close(struct ash_batcher *batcher);

/* Answer all requests. -EINVAL for one that does not fit, or the error of a pass: answers are then undefined. */
int ash_batcher_run(struct ash_batcher *batcher, struct ash_request *requests, size_t count, struct ash_err *err);

#endif

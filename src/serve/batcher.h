/* batcher - many prompts answered together: each has a slot of the cache, and every step runs one token of each running
 * answer and, in the rows that are left, the next part of each new prompt in a single pass. An answer is the same as if
 * it were computed alone. One owner thread. */
#ifndef ASH_SERVE_BATCHER_H
#define ASH_SERVE_BATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/ashlar.h"
#include "model/model.h"
#include "serve/sampler.h"

struct ash_batcher_opts {
    struct ash_sampler_opts sampler;
    size_t slots;       /* answers that are written at the same time */
    size_t slot_tokens; /* a prompt and its answer together */
    size_t rows;        /* tokens of one pass, at least slots; changes no bit */
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
    /* Sees each id of the answer when it is chosen (not the one of eos). Returns 1 to end the answer with it, 0 to go
     * on, or an error, which ends all. NULL: nobody looks. */
    int (*take)(void *ctx, int32_t id, struct ash_err *err);
    void *ctx;
    /* filled in: */
    size_t answer_count;    /* without the id of eos that ended it */
    int32_t eos_id;         /* the one that ended it, or -1 */
    enum ash_finish finish; /* EOS, STOP (take said so), MAX_TOKENS (it is answer_max long); NOT_YET while it runs */
};

struct ash_batcher;

/* Borrows model, exec and opts->eos until close. */
int ash_batcher_open(struct ash_model *model, struct ash_exec *exec, const struct ash_batcher_opts *opts,
                     struct ash_batcher **batcher_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_batcher_close(struct ash_batcher *batcher);

/* Begin to answer all requests, which stay the caller's and in place until the last step. -EINVAL for one that does
 * not fit. What was being answered before is dropped. */
int ash_batcher_start(struct ash_batcher *batcher, struct ash_request *requests, size_t count, struct ash_err *err);
/* One pass. Returns 1 while there is more to do, 0 when every request is finished, or the error of a pass or of a take:
 * answers that are not finished are then undefined. */
int ash_batcher_step(struct ash_batcher *batcher, struct ash_err *err);
/* Start, and step to the end. Returns 0 or an error. */
int ash_batcher_run(struct ash_batcher *batcher, struct ash_request *requests, size_t count, struct ash_err *err);

#endif

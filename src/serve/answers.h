/* answers - many prompts answered together by one engine loop. Each text is the one that its prompt alone would get. */
#ifndef ASH_SERVE_ANSWERS_H
#define ASH_SERVE_ANSWERS_H

#include <jansson.h>
#include "base/str.h"
#include "serve/engine.h"
#include "serve/engine/core.h"
#include "text/tokenizer/tokenizer.h"

struct ash_answers_prompt {
    const int32_t *ids; /* [count]; borrowed until the batch is closed. NULL: it gets no answer */
    size_t count;
};

struct ash_answers_opts {
    const struct ash_answer_opts *answer; /* sampling, stops, budget of thoughts, form */
    size_t context_tokens;                /* of prompt and answer together */
    size_t samples;                       /* answers to each prompt, by seeds that follow each other */
    size_t concurrent;                    /* answers at the same time */
};

/* An answer that is over. */
struct ash_answers_item {
    struct ash_ids ids; /* without the id that ended it */
    struct ash_str text;
    json_t *logprobs; /* of each id, if opts->answer wants them; else NULL */
    double logprob;   /* of all ids together, with several samples or logprobs */
    enum ash_finish finish;
    int32_t stop_id; /* the id that ended it, or -1 */
};

struct ash_answers;

/* Submit all prompts, of which at least one has ids. opts is borrowed until close. The caller owns *answers_out.
 * Returns 0, -EINVAL, -ENOMEM, or an error of the engine. */
int ash_answers_open(struct ash_engine *engine, const struct ash_answers_opts *opts,
                     const struct ash_answers_prompt *prompts, size_t count, struct ash_answers **answers_out,
                     struct ash_err *err);
/* Free it and its answers. NULL is a no-op. */
void ash_answers_close(struct ash_answers *all);
/* One pass for all answers that go on. Returns 0, or the first error of an answer. */
int ash_answers_step(struct ash_answers *all, struct ash_err *err);
/* The answers [samples] to a prompt, which the caller may change; NULL while one of them is being written, or if the
 * prompt has none. */
struct ash_answers_item *ash_answers_of(struct ash_answers *all, size_t prompt);
/* Free the memory of the answers to a prompt, which are not needed any more. */
void ash_answers_forget(struct ash_answers *all, size_t prompt);

#endif

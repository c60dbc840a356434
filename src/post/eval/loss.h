/* loss - the loss of a model on token shards. */
#ifndef ASH_POST_EVAL_LOSS_H
#define ASH_POST_EVAL_LOSS_H

#include <stdint.h>
#include "post/eval/progress.h"
#include "serve/engine.h"

struct ash_loss_opts {
    struct ash_engine *engine;
    const char *model;                 /* its name in errors */
    const char *data;                  /* folder of token shards */
    size_t seq_tokens;                 /* of a window; 0: the model's context, at most 1024 */
    size_t windows;                    /* drawn evenly; 0: all */
    uint64_t seed;                     /* of the order of windows */
    struct ash_eval_progress progress; /* in windows */
};

struct ash_loss_totals {
    double loss;                /* nats, over tokens */
    size_t tokens;              /* that had a target */
    size_t bytes;               /* of the text of those targets */
    size_t windows, seq_tokens; /* seq_tokens: of a window */
};

/* Measure every window once. Returns 0, -EINVAL (the data has another tokenizer, or no token with a successor),
 * -ECANCELED or another negative errno. */
int ash_loss_measure(const struct ash_loss_opts *opts, struct ash_loss_totals *totals_out, struct ash_err *err);

#endif

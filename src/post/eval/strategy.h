/* strategy - accuracy over the number of answers to each arithmetic problem, of which one counts. */
#ifndef ASH_POST_EVAL_STRATEGY_H
#define ASH_POST_EVAL_STRATEGY_H

#include "post/eval/progress.h"
#include "serve/engine.h"
#include "serve/votes.h"
#include "train/data/arithmetic.h"

/* n answers to each problem. Sums over all problems. */
struct ash_strategy_point {
    size_t n;
    double right, tokens, pass; /* pass: unbiased pass@n */
};

struct ash_strategy_eval {
    struct ash_engine *engine;
    const struct ash_arithmetic_opts *problems;
    enum ash_strategy strategy;
    size_t count, batch; /* problems; sequences at once */
    double temperature;
    size_t think_min, think_max;         /* tokens of thoughts; 0: no bound */
    const struct ash_opt_list *verifier; /* empty: the right answer (best), the model's own probabilities (weighted) */
    struct ash_eval_progress progress;   /* in problems */
};

/* Fill points [count], whose n is set and ascends. Returns 0, -ECANCELED or another negative errno. */
int ash_strategy_measure(const struct ash_strategy_eval *eval, struct ash_strategy_point *points, size_t count,
                         struct ash_err *err);

#endif

/* arithmetic - right answers of a model to generated problems. */
#ifndef ASH_POST_EVAL_ARITHMETIC_H
#define ASH_POST_EVAL_ARITHMETIC_H

#include "post/eval/progress.h"
#include "serve/engine.h"
#include "train/data/arithmetic.h"

#define ASH_ARITHMETIC_OPERATORS 3

struct ash_arithmetic_tally {
    size_t asked, right;
};

struct ash_arithmetic_wrong {
    struct ash_problem problem;
    char *text; /* of the model */
};

struct ash_arithmetic_score {
    struct ash_arithmetic_tally all, by_operator[ASH_ARITHMETIC_OPERATORS];
    struct ash_arithmetic_wrong *wrong; /* the first few */
    size_t wrong_count, wrong_max;
};

struct ash_arithmetic_eval {
    struct ash_engine *engine;
    const struct ash_arithmetic_opts *problems;
    size_t count;                      /* of problems */
    size_t batch;                      /* answered at once: changes the speed, never the result */
    size_t show;                       /* wrong answers that are retained */
    struct ash_eval_progress progress; /* in problems */
};

/* Ask the first problems. Returns 0, -ECANCELED or another negative errno; fini is due either way. */
int ash_arithmetic_measure(const struct ash_arithmetic_eval *eval, struct ash_arithmetic_score *score_out,
                           struct ash_err *err);
/* Free; a zeroed one is a no-op. */
void ash_arithmetic_score_fini(struct ash_arithmetic_score *score);
/* '+', '-', '*': of by_operator[index]. */
char ash_arithmetic_operator(size_t index);

#endif

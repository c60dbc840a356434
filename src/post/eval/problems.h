/* problems - arithmetic problems, each answered once or several times by an engine loop. An answer is a function of the
 * problem's number, the sample's number and the settings. */
#ifndef ASH_POST_EVAL_PROBLEMS_H
#define ASH_POST_EVAL_PROBLEMS_H

#include "serve/engine.h"
#include "serve/engine/core.h"
#include "serve/engine/think.h"
#include "train/data/arithmetic.h"

struct ash_problems_opts {
    struct ash_engine *engine;
    const struct ash_arithmetic_opts *problems;
    size_t samples;              /* answers to each */
    size_t batch;                /* sequences at once: changes the speed, never the result */
    double temperature;          /* 0: the most likely tokens */
    size_t think_min, think_max; /* tokens of thoughts; 0: no bound */
};

struct ash_problem_answer {
    struct ash_request request;
    struct ash_think think;
    bool is_thinking;                       /* its text has not begun yet */
    int32_t ids[ASH_ARITHMETIC_ANSWER_MAX]; /* no text has more characters, and a token has at least one */
    size_t count;
    size_t tokens;  /* with those of thoughts */
    double logprob; /* of ids, if there are several samples */
    char *text;     /* up to the end of its line */
    bool is_right;
};

struct ash_problems {
    struct ash_problems_opts opts;
    struct ash_arithmetic arithmetic;
    struct ash_core *core;
    struct ash_think_words words;
    size_t thought_tokens; /* that an answer has at most; 0: it has no thoughts */
    /* of the last ash_problems_answer: */
    size_t count;
    struct ash_problem *items;          /* [count] */
    struct ash_ids *prompts;            /* [count] */
    struct ash_problem_answer *answers; /* [count][samples] */
};

/* Open the loop. Returns 0, -EINVAL or -ENOMEM; fini is due either way. */
int ash_problems_init(struct ash_problems *problems, const struct ash_problems_opts *opts, struct ash_err *err);
/* Free; a zeroed one is a no-op. */
void ash_problems_fini(struct ash_problems *problems);
/* Answer problems [first, first + count), in place of those before. Returns 0 or a negative errno. */
int ash_problems_answer(struct ash_problems *problems, uint64_t first, size_t count, struct ash_err *err);

#endif

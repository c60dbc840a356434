/* eval - what the measures of `ashlar eval` share: loss on data (eval_data.c), right answers (eval_arithmetic.c), tasks
 * of lm-evaluation-harness (eval_tasks.c), answers by more computing (eval_strategy.c). */
#ifndef ASH_CMD_EVAL_PRIV_H
#define ASH_CMD_EVAL_PRIV_H

#include <stdbool.h>
#include <stdint.h>
#include "cmd/engine_flags.h"
#include "cmd/progress_bar.h"
#include "post/eval/progress.h"
#include "serve/engine/think.h"
#include "train/data/arithmetic.h"

struct ash_eval {
    const char *model, *data, *output;
    int64_t limit, num_fewshot;
    int strategy; /* enum ash_strategy */
    struct ash_opt_list tasks, n, verifier;
    const char *plot;
    double temperature;
    int64_t count, show, batch, seq_tokens, windows, think_min, think_max;
    int task, kv_dtype;
    struct ash_engine_flags computing;
    bool json;
    int argc; /* of the command */
    char **argv;
    struct ash_arithmetic_opts arithmetic;
    struct ash_engine *engine;
};

/* The progress bar of a measurement, which ends on Ctrl-C. */
struct ash_eval_watch {
    struct ash_progress_bar bar;
    const char *what; /* "windows" */
};
/* Begin; the progress to give to the measurement. Clear the bar afterwards. */
struct ash_eval_progress ash_eval_watch_start(struct ash_eval_watch *watch, const char *what);
/* The words of --think-min and --think-max, to be freed; nothing where there is no budget. */
int ash_eval_find_words(const struct ash_eval *eval, struct ash_think_words *words, struct ash_err *err);
/* Measure the loss on eval->data and print it. Returns 0 or an error; -ECANCELED after Ctrl-C. */
int ash_eval_data(struct ash_eval *eval, struct ash_err *err);
/* Run eval->tasks and print its scores, likewise. */
int ash_eval_tasks(struct ash_eval *eval, struct ash_err *err);
/* Right answers to problems by best of n, majority or budget, over n, likewise. */
int ash_eval_strategy(struct ash_eval *eval, struct ash_err *err);
/* Count right answers to problems and print them, likewise. */
int ash_eval_arithmetic(struct ash_eval *eval, struct ash_err *err);

#endif

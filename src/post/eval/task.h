/* task - an evaluation as lm-evaluation-harness describes it in YAML, over documents that are JSON objects: the
 * prompts, the filters of answers, and the metrics. Python (`!function`) is refused by name. */
#ifndef ASH_POST_EVAL_TASK_H
#define ASH_POST_EVAL_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/json.h"
#include "base/str.h"
#include "text/chat_template/chat_template.h"

enum ash_task_output { ASH_TASK_MULTIPLE_CHOICE, ASH_TASK_LOGLIKELIHOOD, ASH_TASK_ROLLING, ASH_TASK_GENERATE };

/* A value of a document: a column of it, a Jinja template, or (choices) a list. */
struct ash_task_field {
    const char *source;                 /* the column, or the template; NULL: not given */
    struct ash_chat_template *template; /* NULL: only a column can be meant */
    const json_t *list;                 /* choices written out; NULL: not */
    bool ends_line;                     /* the template's last line end is text */
};

/* A task as its file has it. Strings belong to json. */
struct ash_task {
    json_t *json;
    const char *name;
    enum ash_task_output output;
    struct ash_task_field text, target, choice;
    const char *description, *target_delimiter, *fewshot_delimiter;
    const char *test_split, *fewshot_split;
    size_t fewshot;
    bool takes_first_examples; /* fewshot_config.sampler: first_n */
    size_t repeats, max_tokens;
    double temperature; /* 0: greedy */
    const json_t *until, *filters, *metrics;
};

/* Read FILE.yaml with the files that it includes. Returns 0, or -EINVAL with file and key. The caller closes it. */
int ash_task_open(const char *path, struct ash_task **task_out, struct ash_err *err);
/* The same from its text; includes are not read. name is for messages. */
int ash_task_parse(const char *text, const char *name, struct ash_task **task_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_task_close(struct ash_task *task);
/* The file of a split ("test"), as dataset_kwargs.data_files has it; NULL: there is none. */
const char *ash_task_data_file(const struct ash_task *task, const char *split);

/* ---- documents --------------------------------------------------------------------------------------------------- */

/* A rendered document. Zero-initialise, free with ash_task_item_fini. */
struct ash_task_item {
    char *text;
    char *target;    /* "" if it is one of the choices */
    json_t *targets; /* a list of right answers; NULL: target is the only one */
    json_t *choices; /* strings; NULL without doc_to_choice */
    long gold;       /* index of the right choice, -1 if there is none */
};
/* Of a document. Returns 0, or an error that names the key of the task that cannot be rendered, and why. */
int ash_task_item_init(const struct ash_task *task, const json_t *doc, struct ash_task_item *item, struct ash_err *err);
/* Free it and leave it empty. */
void ash_task_item_fini(struct ash_task_item *item);
/* The prompt of docs[index]: description, examples of few (if both are the same list, without itself), its own text.
 * Drawn from seed; the first ones if the task sets that. */
int ash_task_context(const struct ash_task *task, const json_t *few, const json_t *docs, size_t index,
                     struct ash_str *context, struct ash_err *err);

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* A model's result of a document. */
struct ash_task_answer {
    const struct ash_task_item *item;
    double *loglikelihoods; /* [choices], or one; NULL for generated text */
    bool is_greedy;         /* of the one: every token was the most likely one */
    char **texts;           /* [repeats] of generated text */
};
/* Check that filters and metrics are known ones. Returns 0, or -ENOTSUP that names one that is not. */
int ash_task_check(const struct ash_task *task, struct ash_err *err);
/* The results as lm-evaluation-harness writes them: "METRIC,FILTER" and "METRIC_stderr,FILTER". A new reference in
 * *results_out. */
int ash_task_score(const struct ash_task *task, const struct ash_task_answer *answers, size_t count,
                   json_t **results_out, struct ash_err *err);

#endif

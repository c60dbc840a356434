/* ask - the documents of a task put to a model through the engine loop: log-likelihoods of continuations, or generated
 * text. Batches, threads and layouts change no bit of a score. */
#ifndef ASH_POST_EVAL_ASK_H
#define ASH_POST_EVAL_ASK_H

#include "post/eval/progress.h"
#include "post/eval/task.h"
#include "serve/engine/core.h"
#include "serve/engine/think.h"
#include "text/tokenizer/tokenizer.h"

/* Who is asked. All borrowed. */
struct ash_task_model {
    struct ash_core *core;
    const struct ash_tokenizer *tokenizer;
    int32_t prefix;     /* before a text without a context: the model's first token, or else its end of text */
    const int32_t *eos; /* [eos_count]: what ends an answer */
    size_t eos_count;
    const struct ash_think_words *words; /* of generated text with a budget for thoughts; NULL: none */
    size_t think_min, think_max;
    struct ash_eval_progress progress; /* in documents */
};

/* Answers of a model. Zero-initialise, free with ash_task_answers_fini. */
struct ash_task_answers {
    struct ash_task_item *items;
    struct ash_task_answer *answers;
    size_t count, repeats;
};
/* The questions: the first `count` of docs. few: where examples come from (docs itself, where they are the same). All
 * borrowed. */
struct ash_task_asked {
    const struct ash_task *task;
    const struct ash_task_model *model;
    const json_t *docs, *few;
    size_t count;
};
/* Ask. Returns 0, -ECANCELED, or an error that names the document. */
int ash_task_ask(const struct ash_task_asked *asked, struct ash_task_answers *answers_out, struct ash_err *err);
/* Free them; also half-built ones. */
void ash_task_answers_fini(struct ash_task_answers *answers);

#endif

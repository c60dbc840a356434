/* What the kinds of `ashlar eval` share: progress on the terminal until Ctrl-C, and the budget of thoughts. */
#include "base/interrupt.h"
#include "cmd/eval_priv.h"
#include "serve/engine/think.h"

int ash_eval_find_words(const struct ash_eval *eval, struct ash_think_words *words, struct ash_err *err)
{
    int rc = ash_think_check((size_t)eval->think_min, (size_t)eval->think_max, err);

    if (rc < 0 || (eval->think_min == 0 && eval->think_max == 0)) return rc;
    return ash_think_words_init(words, NULL, NULL, ash_engine_tokenizer(eval->engine), err);
}

static bool look(void *ctx, size_t done, size_t total)
{
    struct ash_eval_watch *watch = ctx;

    ash_progress_bar_count(&watch->bar, done, total, watch->what);
    return !ash_interrupt_requested();
}

struct ash_eval_progress ash_eval_watch_start(struct ash_eval_watch *watch, const char *what)
{
    watch->what = what;
    ash_progress_bar_init(&watch->bar);
    return (struct ash_eval_progress){look, watch};
}

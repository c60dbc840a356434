/* progress - how far a measurement is, and whether it goes on. */
#ifndef ASH_POST_EVAL_PROGRESS_H
#define ASH_POST_EVAL_PROGRESS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

struct ash_eval_progress {
    /* done of total; returns false to stop. NULL: nothing is reported. */
    bool (*report)(void *ctx, size_t done, size_t total);
    void *ctx;
};

/* Report. Returns 0, or -ECANCELED to stop. */
static inline int ash_eval_progress_report(const struct ash_eval_progress *progress, size_t done, size_t total)
{
    return progress->report == NULL || progress->report(progress->ctx, done, total) ? 0 : -ECANCELED;
}

#endif

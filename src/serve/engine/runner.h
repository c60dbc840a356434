/* runner - a thread that owns a core. Any thread submits and cancels; callbacks of requests run on the runner's. */
#ifndef ASH_SERVE_ENGINE_RUNNER_H
#define ASH_SERVE_ENGINE_RUNNER_H

#include "serve/engine/core.h"

struct ash_runner;

/* Start a thread that steps core while there is work. Takes over the core on success: close closes it. Returns 0,
 * -ENOMEM or -EAGAIN. */
int ash_runner_open(struct ash_core *core, struct ash_runner **runner_out, struct ash_err *err);
/* Requests that are not done end as cancelled; then stop the thread and close the core. NULL is a no-op. */
void ash_runner_close(struct ash_runner *runner);

/* As ash_core_submit, from any thread; waits for the current step only if checks need the core. Checks are the
 * core's: the request is refused here, before any callback, or accepted. */
int ash_runner_submit(struct ash_runner *runner, struct ash_request *request, struct ash_err *err);
/* As ash_core_cancel, from any thread; does not wait. done() is called on the runner's thread, unless it was before.
 * The request must stay in place until done() has returned. */
void ash_runner_cancel(struct ash_runner *runner, struct ash_request *request);
/* Accept no request any more (submit gives -ESHUTDOWN) and wait until all are done, or timeout_s have passed. Returns 0
 * or -ETIMEDOUT. */
int ash_runner_drain(struct ash_runner *runner, double timeout_s);
/* Accept no request any more and end all that are not done as cancelled; does not wait. */
void ash_runner_cancel_all(struct ash_runner *runner);
/* A call on the core's thread. Returns 0 or a negative errno. */
typedef int ash_runner_call_fn(void *ctx, struct ash_core *core, struct ash_err *err);
/* Make a call between two steps, also while it is paused; waits for that, timeout_s until it begins at most. From any
 * other thread. Returns the result of the call, -ETIMEDOUT or -ESHUTDOWN. */
int ash_runner_call(struct ash_runner *runner, ash_runner_call_fn *call, void *ctx, double timeout_s,
                    struct ash_err *err);
/* ash_core_reset_prefix as such a call. */
int ash_runner_reset_prefix(struct ash_runner *runner, double timeout_s, size_t *pages_out);
enum ash_pause {
    ASH_PAUSE_NONE, /* go on */
    ASH_PAUSE_NOW,  /* between two steps: running answers stand still */
    ASH_PAUSE_WAIT, /* when those that run are done; what comes later waits */
};
/* Pause, or (ASH_PAUSE_NONE) resume; waits until it is so, timeout_s at most. From any thread. Returns 0, -ETIMEDOUT
 * (then it is not paused) or -ESHUTDOWN. */
int ash_runner_pause(struct ash_runner *runner, enum ash_pause how, double timeout_s);
/* Was it paused, and not resumed? Any thread. */
bool ash_runner_is_paused(struct ash_runner *runner);
/* The stats after the last step, with requests that the thread has not seen yet among the waiting. */
struct ash_core_stats ash_runner_stats(struct ash_runner *runner);
/* Seconds since the last step ended, if there is work; else 0. */
double ash_runner_stalled_seconds(struct ash_runner *runner);
/* Prompt and answer together: what a request may have at most. */
size_t ash_runner_max_tokens(const struct ash_runner *runner);

#endif

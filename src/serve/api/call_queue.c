/* The limit on requests that wait for the engine. */
#include "serve/api/api_priv.h"
#include "serve/api/call.h"

bool ash_call_may_wait(struct ash_api_call *call)
{
    const struct ash_api *api = call->api;
    struct ash_core_stats stats;

    if (api->opts.queue_max == 0) return true;
    if (call->choice_count > api->opts.queue_max) {
        ash_api_err_set(&call->err, 400, "invalid_value", call->prompts.count > 1 ? "prompt" : "n",
                        "the request asks for %zu answers at once, and %zu is the most here (--max-queued-requests)",
                        call->choice_count, api->opts.queue_max);
        return false;
    }
    api->engine.get_stats(api->engine.ctx, &stats);
    if (stats.waiting + call->choice_count <= api->opts.queue_max) return true;
    ash_api_err_set(&call->err, 429, "queue_full", NULL,
                    "%zu requests wait already, and %zu are the most: try again after Retry-After", stats.waiting,
                    api->opts.queue_max);
    return false;
}

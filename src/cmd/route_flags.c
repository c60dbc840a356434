/* What `route` and `serve --replicas` share: flags of the router, its HTTP server, and the end of both. */
#include "cmd/route_flags.h"

#include <malloc.h>
#include <math.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "serve/api/api.h"

#define FIELD(name) offsetof(struct ash_route_flags, name)
#define CUT_SECONDS 2 /* for answers that were cut to reach their clients */

static const char *const policies[] = {"prefix", "least-loaded", "round-robin", NULL};

static const struct ash_opt opts[] = {
    {"policy", ASH_OPT_CHOICE, FIELD(policy), "prefix",
     "which replica gets a request; prefix: the one with the least to do, less its known part of the prompt", 0, 0,
     policies},
    {"tries", ASH_OPT_INT, FIELD(tries), "4", "replicas that a request is sent to at most, if they fail", 1, 32, NULL},
    {"prefix_blocks", ASH_OPT_INT, FIELD(prefix_blocks), "65536",
     "blocks of prompts (256 bytes of text, 64 tokens) that are remembered for each replica", 1, 1 << 28, NULL},
    {"apart_blocks", ASH_OPT_INT, FIELD(apart_blocks), "8",
     "a prompt goes to a server with --role prefill first if this many of its blocks (256 bytes of text, 64 tokens) "
     "are not in the cache of a server with --role decode",
     1, 1 << 28, NULL},
    {"probe_seconds", ASH_OPT_DOUBLE, FIELD(probe_seconds), "0.5", "between two looks at a replica\'s health", 0.01,
     3600, NULL},
    {"silence_seconds", ASH_OPT_DOUBLE, FIELD(silence_seconds), "2",
     "a replica that does not answer a look for so long is lost: its requests move on", 0.05, 3600, NULL},
    {"wait_seconds", ASH_OPT_DOUBLE, FIELD(wait_seconds), "10",
     "a request whose replica was lost waits so long for another one", 0, 3600, NULL},
};

const struct ash_opt_table ash_route_flags_table = {"", "routing", opts, ASH_COUNT(opts)};

struct ash_router_opts ash_route_flags_opts(const struct ash_route_flags *flags)
{
    struct ash_router_opts router = ash_router_defaults();

    router.policy = (enum ash_route_policy)flags->policy;
    router.tries = (size_t)flags->tries;
    router.index_blocks = (size_t)flags->prefix_blocks;
    router.apart_blocks = (size_t)flags->apart_blocks;
    router.probe_seconds = flags->probe_seconds;
    router.silence_seconds = flags->silence_seconds;
    router.wait_seconds = flags->wait_seconds;
    return router;
}

int ash_route_serve(const struct ash_http_flags *flags, struct ash_router *router, struct ash_keys *keys,
                    struct ash_http **http_out, struct ash_err *err)
{
    struct ash_http_opts http = ash_http_flags_opts(flags);
    int rc;

    http.keys = keys;
    http.routes = ash_router_routes(router, &http.route_count);
    http.refuse = ash_api_refuse;
    http.ctx = router;
    rc = ash_http_open(&http, http_out, err);
    if (rc == 0) ash_http_flags_report(flags, *http_out, keys);
    return rc;
}

void ash_route_block_signals(sigset_t *signals_out)
{
    sigemptyset(signals_out);
    sigaddset(signals_out, SIGINT);
    sigaddset(signals_out, SIGTERM);
    sigaddset(signals_out, SIGHUP);
    pthread_sigmask(SIG_BLOCK, signals_out, NULL);
    signal(SIGPIPE, SIG_IGN);
    mallopt(M_ARENA_MAX, 1); /* requests are made on one thread and freed on another: one heap stays flat */
}

void ash_route_finish(const struct ash_http_flags *flags, struct ash_http *http, struct ash_router *router,
                      const sigset_t *signals)
{
    const struct timespec none = {0};
    uint64_t end_ns = ash_clock_ns() + (uint64_t)(flags->shutdown_timeout * 1e9);
    bool is_idle = false;

    ash_log(ASH_LOG_INFO, "shutting down: open requests: %zu; they have %g s at most",
            ash_http_get_stats(http).exchanges, flags->shutdown_timeout);
    while (!is_idle && ash_clock_ns() < end_ns) {
        int number = sigtimedwait(signals, NULL, &none);

        if (number == SIGINT || number == SIGTERM) break;
        is_idle = ash_http_drain(http, 0.1) == 0;
    }
    if (is_idle) return;
    ash_router_cancel(router);
    (void)ash_http_drain(http, CUT_SECONDS);
}

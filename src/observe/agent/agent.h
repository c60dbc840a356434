/* agent - watches one machine: reads its sources, follows its kernel log, judges it, and serves all that over HTTP.
 * GET /metrics: Prometheus text. GET /v1/verdict: status and findings as JSON. GET /v1/events: the same, as it changes
 * (server-sent events). GET /v1/board: node and ranks, for the page at GET /. GET /healthz. POST /v1/clear:
 * the node is good again. */
#ifndef ASH_OBSERVE_AGENT_AGENT_H
#define ASH_OBSERVE_AGENT_AGENT_H

#include <stdbool.h>
#include "ashlar/err.h"
#include "observe/collect/source.h"
#include "observe/health/missing.h"
#include "observe/health/node_state.h"

struct ash_agent;

struct ash_agent_opts {
    struct ash_host_files source;
    const char *host;         /* address to listen on */
    int port;                 /* 0: any */
    const char *const *names; /* Host names that it answers to, next to those of this machine (http.h) */
    size_t name_count;
    const char *const *tokens;
    size_t token_count;
    const char *admin_token;        /* opens POST /v1/clear; NULL: it is closed */
    const char *kernel_log;         /* NULL: /dev/kmsg below the root; "": none */
    const char *state_file;         /* NULL: nothing is kept */
    const char *node;               /* its name */
    double judge_seconds;           /* between two looks at its own metrics */
    struct ash_parts_wanted wanted; /* expected hardware */
    /* The status changed, or holds after a start: on the judging thread. reason: the finding that decided. Returns
     * whether that is done; if not (a budget is spent, a scheduler away), it is called again after four looks. */
    bool (*act)(void *ctx, const struct ash_node_state *state, const struct ash_node_finding *reason);
    void *ctx;
};

/* Start. opts is copied, its pointers are borrowed until close. On 0 the caller owns *agent_out. */
int ash_agent_open(const struct ash_agent_opts *opts, struct ash_agent **agent_out, struct ash_err *err);
/* Stop all threads and keep the state. NULL is a no-op. */
void ash_agent_close(struct ash_agent *agent);
/* The port it listens on. */
int ash_agent_port(const struct ash_agent *agent);
/* Append what GET /metrics answers. Any thread. Returns 0 or -ENOMEM. */
int ash_agent_scrape(struct ash_agent *agent, struct ash_str *out);

#endif

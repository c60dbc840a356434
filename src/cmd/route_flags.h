/* route_flags - how requests are shared between replicas: the flags of `route` and of `serve --replicas`, and the parts
 * that both have. */
#ifndef ASH_CMD_ROUTE_FLAGS_H
#define ASH_CMD_ROUTE_FLAGS_H

#include <signal.h>
#include "cmd/http_flags.h"
#include "serve/route/router.h"

struct ash_route_flags {
    int policy;
    int64_t tries, prefix_blocks, apart_blocks;
    double probe_seconds, silence_seconds, wait_seconds;
};

/* Bind it next to the command's own table. */
extern const struct ash_opt_table ash_route_flags_table;

/* The router's options. */
struct ash_router_opts ash_route_flags_opts(const struct ash_route_flags *flags);
/* Open the HTTP server in front of the router. */
int ash_route_serve(const struct ash_http_flags *flags, struct ash_router *router, struct ash_keys *keys,
                    struct ash_http **http_out, struct ash_err *err);
/* Block SIGINT, SIGTERM and SIGHUP, which the main thread waits for. */
void ash_route_block_signals(sigset_t *signals_out);
/* Refuse new requests and wait for those that are being answered, up to --shutdown-timeout or a second signal; then
 * they end with an error. */
void ash_route_finish(const struct ash_http_flags *flags, struct ash_http *http, struct ash_router *router,
                      const sigset_t *signals);

#endif

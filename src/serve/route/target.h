/* target - where replicas are: addresses from a list, a file and DNS, as socket addresses. */
#ifndef ASH_SERVE_ROUTE_TARGET_H
#define ASH_SERVE_ROUTE_TARGET_H

#include <stddef.h>
#include <sys/socket.h>
#include "ashlar/err.h"
#include "serve/client/load.h"

#define ASH_ROUTE_TARGETS_MAX 1024
#define ASH_ROUTE_NAME_BYTES 384

struct ash_route_target {
    char name[ASH_ROUTE_NAME_BYTES];     /* http://HOST:PORT/PATH: what users call it */
    char host[ASH_LOAD_HOST_BYTES + 16]; /* HOST:PORT, for requests */
    struct ash_load_url url;
    struct sockaddr_storage addr;
    socklen_t addr_bytes;
    size_t model; /* which of several models it serves (models.h) */
};

struct ash_route_targets {
    struct ash_route_target *items;
    size_t count, capacity;
};

/* Add what one address means: http://HOST[:PORT][/PATH] is one replica, dns://HOST:PORT is one for each address that
 * the name has now (none is no error). One that is there already is not added again. Waits for the name server. Returns
 * 0, -EINVAL with the expected form, -ENOENT (a name of http:// that is not known), -EAGAIN (the name server does not
 * answer), -E2BIG or -ENOMEM. */
int ash_route_targets_add(struct ash_route_targets *targets, const char *text, struct ash_err *err);
/* Add the addresses in a text, one on a line; # begins a comment. name is for messages. */
int ash_route_targets_add_lines(struct ash_route_targets *targets, const char *text, const char *name,
                                struct ash_err *err);
/* Free them; zeroed ones are fine. */
void ash_route_targets_fini(struct ash_route_targets *targets);

#endif

/* watch - objects of a collection as they change: listed once, then told by the server. A watch that breaks is taken up
 * where it was; one that is too old for that (410) begins with a new list. */
#ifndef ASH_ORCHESTRATE_KUBERNETES_WATCH_H
#define ASH_ORCHESTRATE_KUBERNETES_WATCH_H

#include <stdbool.h>
#include "orchestrate/kubernetes/client.h"

struct ash_kube_watch; /* one thread at a time, the client's */

/* Told of every object of a list, and of every change. is_gone: object (NULL where a list is empty) is no more. */
typedef void (*ash_kube_seen_fn)(void *ctx, const json_t *object, bool is_gone);

struct ash_kube_watch_opts {
    const char *path;  /* of the collection; copied */
    const char *query; /* selectors without '?', copied; NULL: all of it */
    ash_kube_seen_fn seen;
    void *ctx;
};

/* client is borrowed until close. Nothing is sent yet. On 0 the caller owns *watch_out. */
int ash_kube_watch_open(struct ash_kube_client *client, const struct ash_kube_watch_opts *opts,
                        struct ash_kube_watch **watch_out, struct ash_err *err);
/* Wait at most limit_ms for news, and tell them. Returns how many objects were told, or a negative errno as
 * ash_kube_client_call has it: then the budget of trying again is spent, or the server refuses. */
int ash_kube_watch_poll(struct ash_kube_watch *watch, int limit_ms, struct ash_err *err);
/* NULL is nothing. */
void ash_kube_watch_close(struct ash_kube_watch *watch);

#endif

/* watch - objects of a collection as they change: listed once, then streamed by the server. A broken watch resumes at
 * its resourceVersion; one that is too old for that (410) begins with a new list. */
#ifndef ASH_ORCHESTRATE_KUBERNETES_WATCH_H
#define ASH_ORCHESTRATE_KUBERNETES_WATCH_H

#include <stdbool.h>
#include "orchestrate/kubernetes/client.h"

struct ash_kube_watch; /* one thread at a time, the client's */

/* Called for every object of a list, and for every change. is_gone: object (NULL if a list is empty) was deleted. */
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
/* Wait at most limit_ms for events, and deliver them. Returns the number of objects, or a negative errno as
 * ash_kube_client_call: the retry budget is spent, or the server refuses. */
int ash_kube_watch_poll(struct ash_kube_watch *watch, int limit_ms, struct ash_err *err);
/* NULL is nothing. */
void ash_kube_watch_close(struct ash_kube_watch *watch);

#endif

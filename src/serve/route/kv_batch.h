/* kv_batch - a batch of a replica's cache events, as the router reads it: which blocks of prompts it holds from now on,
 * and which no more. */
#ifndef ASH_SERVE_ROUTE_KV_BATCH_H
#define ASH_SERVE_ROUTE_KV_BATCH_H

#include "serve/route/held.h"

/* Apply one server-sent event, whose data is a batch in JSON, to a set. Events of other kinds are passed over. Returns
 * 0, -EBADMSG (it is no batch) or -ENOMEM; then the set is to be forgotten. */
int ash_route_kv_batch_apply(struct ash_route_held *held, const char *bytes, size_t size_bytes);

#endif

/* The stream of a replica's cache events: GET /kv_events, which begins with all that its cache has. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "serve/route/kv_batch.h"
#include "serve/route/route_priv.h"

#define PART_BYTES_MAX ((size_t)16 << 20) /* of one event */
#define AGAIN_NS 1000000000               /* after a stream that ended */

/* The stream is over: from now on the prompts that were sent count, and it is tried again soon. */
static void end_stream(struct ash_replica *replica)
{
    ash_str_clear(&replica->events_part);
    ash_route_held_clear(&replica->held);
    replica->events_due_ns = ash_clock_ns() + AGAIN_NS;
    ash_replica_set_known(replica, false);
}

/* Apply all whole events. Returns their bytes, or a negative errno. */
static ssize_t apply_events(struct ash_replica *replica, const char *bytes, size_t size_bytes)
{
    size_t used = 0;

    for (;;) {
        size_t event = ash_route_event_bytes(bytes + used, size_bytes - used);
        int rc = event > 0 ? ash_route_kv_batch_apply(&replica->held, bytes + used, event) : 0;

        if (rc < 0) return rc;
        if (event == 0) return (ssize_t)used;
        used += event;
    }
}

static int take_body(struct ash_route_conn *conn, const char *bytes, size_t size_bytes)
{
    struct ash_replica *replica = conn->replica;
    struct ash_str *part = &replica->events_part;
    ssize_t used;
    int rc;

    if (conn->response.status != 200 || !conn->response.is_stream) return 0;
    if (part->size_bytes + size_bytes > PART_BYTES_MAX) return -EFBIG;
    rc = ash_str_add(part, bytes, size_bytes);
    if (rc < 0) return rc;
    used = apply_events(replica, part->data, part->size_bytes);
    if (used < 0) return (int)used;
    if (used == 0) return 0;
    memmove(part->data, part->data + used, part->size_bytes - (size_t)used);
    ash_str_cut(part, part->size_bytes - (size_t)used);
    ash_replica_set_known(replica, true);
    return 0;
}

static void complete(struct ash_route_conn *conn)
{
    struct ash_replica *replica = conn->replica;
    unsigned status = conn->response.status;

    replica->events = NULL;
    ash_route_conn_release(conn);
    end_stream(replica);
    if (status == 200 || status == 503) return; /* it shuts down, or loads */
    replica->refuses_events = true;
    if (status == 401 || status == 403)
        ash_log(ASH_LOG_INFO,
                "replica %s: its cache events need its admin key (--replica-admin-key): the router goes by "
                "the prompts that it has sent",
                replica->target.name);
}

static void fail(struct ash_route_conn *conn, int rc, bool is_stale)
{
    struct ash_replica *replica = conn->replica;

    replica->events = NULL;
    ash_route_conn_close(conn);
    end_stream(replica);
    if (is_stale) replica->events_due_ns = 0;
    if (rc != -EBADMSG && rc != -EFBIG) return;
    replica->refuses_events = true;
    ash_log(ASH_LOG_WARN,
            "replica %s: its cache events cannot be read: the router goes by the prompts that it has sent",
            replica->target.name);
}

void ash_replica_follow(struct ash_replica *replica, uint64_t now_ns)
{
    static const struct ash_route_conn_ops ops = {.take_body = take_body, .complete = complete, .fail = fail};
    const struct ash_router_opts *opts = &replica->router->opts;
    const char *key = opts->replica_admin_key != NULL ? opts->replica_admin_key : opts->replica_key;
    int rc = 0;

    if (opts->policy != ASH_ROUTE_PREFIX || opts->models != NULL || replica->state != ASH_REPLICA_UP ||
        replica->events != NULL || replica->refuses_events || now_ns < replica->events_due_ns)
        return;
    replica->events_due_ns = now_ns + AGAIN_NS;
    replica->events = ash_route_conn_get(replica, &ops, &rc);
    if (replica->events == NULL) return; /* it is tried again, and looks say if the replica is lost */
    if (ash_route_conn_write_get(replica->events, "/kv_events", key) < 0)
        ash_route_conn_close(replica->events);
    else
        ash_route_conn_start(replica->events);
}

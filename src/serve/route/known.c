/* What the router knows of a replica: while its cache events come, the blocks of prompts that it holds or is computing;
 * else the prompts that it was sent. */
#include "base/assert.h"
#include "serve/route/route_priv.h"

size_t ash_replica_match(const struct ash_replica *replica, const struct ash_prompt_blocks *blocks)
{
    size_t known = 0;

    if (!replica->has_events) return ash_route_index_match(replica->index, blocks->hashes, blocks->count);
    while (known < blocks->count && (ash_route_held_has(&replica->held, blocks->hashes[known]) ||
                                     ash_route_held_has(&replica->computing, blocks->hashes[known])))
        known++;
    return known;
}

size_t ash_replica_known_count(const struct ash_replica *replica)
{
    return replica->has_events ? replica->held.count : ash_route_index_count(replica->index);
}

void ash_replica_add_prompt(struct ash_replica *replica, struct ash_route_call *call)
{
    const struct ash_prompt_blocks *blocks = &call->prompt.blocks;

    ash_assert(call->computing_blocks == 0);
    ash_route_index_add(replica->index, blocks->hashes, blocks->count);
    while (call->computing_blocks < blocks->count &&
           ash_route_held_add(&replica->computing, blocks->hashes[call->computing_blocks]) == 0)
        call->computing_blocks++;
}

void ash_replica_remove_prompt(struct ash_replica *replica, struct ash_route_call *call)
{
    while (call->computing_blocks > 0)
        ash_route_held_remove(&replica->computing, call->prompt.blocks.hashes[--call->computing_blocks]);
}

void ash_replica_set_known(struct ash_replica *replica, bool has_events)
{
    replica->has_events = has_events;
    ash_metric_set(replica->events_gauge, has_events);
    ash_metric_set(replica->known_gauge, (double)ash_replica_known_count(replica));
}

void ash_replica_forget(struct ash_replica *replica)
{
    if (replica->events != NULL) ash_route_conn_close(replica->events);
    ash_assert(replica->events == NULL);
    ash_str_clear(&replica->events_part);
    ash_route_held_clear(&replica->held);
    ash_route_index_clear(replica->index);
    replica->refuses_events = false;
    replica->events_due_ns = 0;
    ash_replica_set_known(replica, false);
}

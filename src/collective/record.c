/* What every call of a group leaves: a record for the flight recorder, and its time and bytes by name of the group and
 * op. */
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/math.h"
#include "collective/group_priv.h"

static struct ash_metric seconds_metric = {.name = "ashlar_collective_seconds_total",
                                           .help = "Time in collective calls and messages, by axis of the mesh and op.",
                                           .type = ASH_METRIC_COUNTER};
static struct ash_metric bytes_metric = {.name = "ashlar_collective_bytes_total",
                                         .help = "Bytes that this rank gave to collective calls and messages.",
                                         .type = ASH_METRIC_COUNTER};

void ash_group_set_name(struct ash_group *group, const char *name)
{
    memset(group->name, 0, sizeof(group->name));
    memcpy(group->name, name, ash_min(strlen(name), sizeof(group->name)));
    group->id = ash_hash_bytes(group->members, group->size * sizeof(*group->members), group->root->epoch) ^
                ash_hash_bytes(group->name, sizeof(group->name), 0);
}

uint64_t ash_group_record(struct ash_group *group, struct ash_flight_call *call)
{
    call->group = group->id;
    if (call->name[0] == '\0')
        memcpy(call->name, group->name, sizeof(call->name));
    else /* a channel's: there may be several between two ranks */
        call->group ^= ash_hash_bytes(call->name, sizeof(call->name), 1);
    if (!call->is_message) call->sequence = atomic_fetch_add_explicit(&group->calls, 1, memory_order_relaxed) + 1;
    call->rank = (uint32_t)group->rank;
    call->size = (uint32_t)group->size;
    call->start_ns = ash_clock_ns();
    return ash_flight_begin(call);
}

/* The instrument of an op, made at its first call. */
static struct ash_metric *metric_of(struct ash_group *group, _Atomic(struct ash_metric *) *kept,
                                    struct ash_metric *family, unsigned op)
{
    struct ash_metric *metric = atomic_load_explicit(kept, memory_order_acquire);
    char name[ASH_FLIGHT_NAME_BYTES + 1] = {0}, labels[64];

    if (metric != NULL) return metric;
    memcpy(name, group->name, ASH_FLIGHT_NAME_BYTES);
    snprintf(labels, sizeof(labels), "axis=\"%s\",op=\"%s\"", name, ash_flight_op_name(op));
    metric = ash_metric_with(family, labels);
    atomic_store_explicit(kept, metric, memory_order_release);
    return metric;
}

void ash_group_recorded(struct ash_group *group, uint64_t number, const struct ash_flight_call *call, int rc)
{
    uint64_t end_ns = ash_clock_ns();

    ash_flight_end(number, end_ns, rc);
    ash_metric_add(metric_of(group, &group->seconds[call->op], &seconds_metric, call->op),
                   (double)(end_ns - call->start_ns) * 1e-9);
    ash_metric_add(metric_of(group, &group->bytes[call->op], &bytes_metric, call->op), (double)call->bytes);
}

/* Virtual time: random numbers of the seed, and a heap of events, one per message, timer and fault. */
#include "chaos/simulate/simulate_priv.h"

#include <stdlib.h>

#include "base/math.h"
#include "base/rng.h"

uint64_t ash_sim_below(struct ash_sim *sim, uint64_t bound)
{
    return ash_rng_below(sim->opts.seed, 0, sim->draws++, bound);
}

uint64_t ash_sim_between(struct ash_sim *sim, double from_s, double to_s)
{
    return (uint64_t)((from_s + (to_s - from_s) * ash_rng_uniform(sim->opts.seed, 0, sim->draws++)) * 1e9);
}

static bool is_before(const struct ash_sim_event *a, const struct ash_sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void ash_sim_push(struct ash_sim *sim, const struct ash_sim_event *event)
{
    size_t at = sim->heap_count;

    if (at == sim->heap_room) {
        size_t room = ash_max(2 * sim->heap_room, 1024);
        struct ash_sim_event *more = realloc(sim->heap, room * sizeof(*more));

        if (more == NULL) {
            sim->is_out_of_memory = true;
            return;
        }
        sim->heap = more;
        sim->heap_room = room;
    }
    sim->heap_count++;
    while (at > 0 && is_before(event, &sim->heap[(at - 1) / 4])) {
        sim->heap[at] = sim->heap[(at - 1) / 4];
        at = (at - 1) / 4;
    }
    sim->heap[at] = *event;
}

struct ash_sim_event ash_sim_pop(struct ash_sim *sim)
{
    struct ash_sim_event top = sim->heap[0], last = sim->heap[--sim->heap_count];
    size_t at = 0;

    for (;;) {
        size_t first = 4 * at + 1, best = first;

        if (first >= sim->heap_count) break;
        for (size_t i = first + 1; i < first + 4 && i < sim->heap_count; i++)
            if (is_before(&sim->heap[i], &sim->heap[best])) best = i;
        if (!is_before(&sim->heap[best], &last)) break;
        sim->heap[at] = sim->heap[best];
        at = best;
    }
    sim->heap[at] = last;
    return top;
}

struct ash_sim_event ash_sim_make_event(struct ash_sim *sim, uint64_t at_ns, enum ash_sim_event_kind kind,
                                        uint32_t slot)
{
    return (struct ash_sim_event){.at_ns = at_ns,
                                  .order = sim->order++,
                                  .kind = kind,
                                  .slot = slot,
                                  .incarnation = sim->processes[slot].incarnation};
}

void ash_sim_post(struct ash_sim *sim, uint64_t at_ns, enum ash_sim_event_kind kind, uint32_t slot, uint64_t other)
{
    struct ash_sim_event event = ash_sim_make_event(sim, at_ns, kind, slot);

    event.other = other;
    ash_sim_push(sim, &event);
}

/* The virtual network: who reaches whom, messages that are late, lost or doubled, and the register. */
#include "chaos/simulate/simulate_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define MS 1000000ull
#define TAKE_NS 2000 /* what a process needs for one message */
#define UNREACHABLE_NS (60 * MS)

/* ---- who reaches whom -------------------------------------------------------------------------------------------- */

uint64_t ash_sim_id(const struct ash_sim_process *process)
{
    return ((uint64_t)process->incarnation << ASH_SIM_ID_SHIFT | process->slot) + 1;
}

struct ash_sim_process *ash_sim_find(struct ash_sim *sim, uint64_t id)
{
    size_t slot = (id - 1) & ((1u << ASH_SIM_ID_SHIFT) - 1);
    struct ash_sim_process *process = slot < sim->opts.ranks ? &sim->processes[slot] : NULL;

    return process != NULL && ash_sim_id(process) == id ? process : NULL;
}

static bool is_far(const struct ash_sim_cut *cut, uint32_t host)
{
    return host == cut->far_host || ash_rng_below(cut->salt, host, 0, 100) < cut->share;
}

bool ash_sim_connects(const struct ash_sim *sim, uint32_t from, uint32_t to)
{
    if (from == to) return true;
    for (size_t i = 0; i < ASH_SIM_CUTS; i++) {
        const struct ash_sim_cut *cut = &sim->cuts[i];
        bool from_far, to_far;

        if (!cut->is_set) continue;
        from_far = is_far(cut, from);
        to_far = is_far(cut, to);
        if (from_far != to_far && (!cut->is_one_way || from_far)) return false;
    }
    return true;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static struct ash_member_msg *copy_message(struct ash_sim *sim, const struct ash_member_msg *msg)
{
    struct ash_member_msg *copy = sim->spare_count > 0 ? sim->spare[--sim->spare_count] : malloc(sizeof(*copy));

    if (copy == NULL) {
        sim->is_out_of_memory = true;
        return NULL;
    }
    *copy = *msg;
    copy->why = NULL; /* sentences are for people */
    ash_view_get(copy->view);
    return copy;
}

void ash_sim_drop_message(struct ash_sim *sim, struct ash_member_msg *msg)
{
    ash_view_put(msg->view);
    if (sim->spare_count < ASH_SIM_SPARES)
        sim->spare[sim->spare_count++] = msg;
    else
        free(msg);
}

uint64_t ash_sim_draw_delay(struct ash_sim *sim)
{
    uint64_t delay_ns = 20000 + ash_sim_below(sim, 80000);

    if (sim->spike > 0 && ash_rng_uniform(sim->opts.seed, 1, sim->draws++) < sim->spike)
        delay_ns += ash_sim_between(sim, 0.001, 0.3);
    return delay_ns;
}

/* A contact for a joiner: a member of the last view that ran. */
static struct ash_sim_process *draw_contact(struct ash_sim *sim)
{
    const struct ash_sim_view *known = sim->last != NULL ? sim->last : sim->views;
    struct ash_sim_process *process;

    if (known == NULL) return NULL;
    if (sim->views != NULL && ash_sim_below(sim, 2) == 0) known = sim->views;
    process = ash_sim_find(sim, known->view->members[ash_sim_below(sim, known->view->size)].id);
    return process;
}

static void post_message(struct ash_sim *sim, struct ash_sim_process *to, const struct ash_member_msg *msg)
{
    struct ash_sim_event event;
    uint64_t at_ns = sim->now_ns + ash_sim_draw_delay(sim);

    if (at_ns < to->free_ns) at_ns = to->free_ns;
    to->free_ns = at_ns + TAKE_NS;
    event = ash_sim_make_event(sim, at_ns, ASH_SIM_MESSAGE, to->slot);
    event.msg = copy_message(sim, msg);
    if (event.msg != NULL) ash_sim_push(sim, &event);
}

/* The receiver of a message is gone. */
static bool is_gone(const struct ash_sim_process *process)
{
    return process == NULL || process->life == ASH_SIM_DEAD || process->life == ASH_SIM_ABSENT ||
           process->life == ASH_SIM_OUT;
}

/* To a process on a host: the host does not answer, or says that the process is gone, or the message is on its way. */
static void deliver(struct ash_sim_process *from, uint32_t host, uint64_t to_id, const struct ash_member_msg *msg)
{
    struct ash_sim *sim = from->sim;
    struct ash_sim_process *to = ash_sim_find(sim, to_id);

    if (sim->host_is_dead[host] || !ash_sim_connects(sim, from->host, host)) {
        ash_sim_post(sim, sim->now_ns + UNREACHABLE_NS, ASH_SIM_UNREACHABLE, from->slot, to_id);
        return;
    }
    if (is_gone(to)) {
        if (ash_sim_connects(sim, host, from->host))
            ash_sim_post(sim, sim->now_ns + ash_sim_draw_delay(sim), ASH_SIM_DIED, from->slot, to_id);
        return;
    }
    if (sim->loss > 0 && ash_rng_uniform(sim->opts.seed, 2, sim->draws++) < sim->loss) return;
    post_message(sim, to, msg);
    if (sim->loss > 0 && ash_sim_below(sim, 50) == 0) post_message(sim, to, msg); /* twice */
}

void ash_sim_send(void *ctx, uint64_t to_id, const struct ash_member_msg *msg)
{
    struct ash_sim_process *from = ctx;
    struct ash_sim *sim = from->sim;

    sim->result->messages++;
    if (sim->opts.plant == ASH_FAULT_SIM_PLANT_DEAF && msg->kind == ASH_MEMBER_START) return;
    if (to_id == ASH_MEMBER_ANY) { /* one that cannot be asked is not missed: the next time another one is */
        const struct ash_sim_process *contact = draw_contact(sim);

        if (contact == NULL || is_gone(contact)) return;
        if (sim->host_is_dead[contact->host] || !ash_sim_connects(sim, from->host, contact->host)) return;
        to_id = ash_sim_id(contact);
    }
    deliver(from, sim->processes[(to_id - 1) & ((1u << ASH_SIM_ID_SHIFT) - 1)].host, to_id, msg);
}

/* ---- the register ------------------------------------------------------------------------------------------------ */

/* It is on the first host, or on whichever network that belongs to. */
int ash_sim_decide(void *ctx, uint32_t epoch, uint64_t proposal, uint64_t *winner_out)
{
    struct ash_sim_process *process = ctx;
    struct ash_sim *sim = process->sim;

    if (sim->opts.plant == ASH_FAULT_SIM_PLANT_RIGHT) return 1;
    if (!ash_sim_connects(sim, process->host, 0) || !ash_sim_connects(sim, 0, process->host)) return -EHOSTUNREACH;
    if (epoch >= sim->entry_room) {
        size_t room = 2 * ((size_t)epoch + 16);
        uint64_t *more = realloc(sim->entries, room * sizeof(*more));

        if (more == NULL) return -ENOMEM;
        memset(more + sim->entry_room, 0, (room - sim->entry_room) * sizeof(*more));
        sim->entries = more;
        sim->entry_room = room;
    }
    if (sim->entries[epoch] == 0) sim->entries[epoch] = proposal;
    *winner_out = sim->entries[epoch];
    return sim->entries[epoch] == proposal;
}

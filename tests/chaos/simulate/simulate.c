/* Simulated processes, what happens to them one event after the other, and a run from begin to end. */
#include "chaos/simulate/simulate_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"

#define MS 1000000ull
#define HEARTBEAT_NS (100 * MS)
#define SETTLE_LIMIT_S 60.0

/* ---- processes --------------------------------------------------------------------------------------------------- */

static void on_over(struct ash_sim *sim, struct ash_sim_process *process, const struct ash_member_event *event)
{
    uint64_t late_ns = ash_sim_below(sim, 20) == 0 ? ash_sim_between(sim, 0.05, 0.4) : ash_sim_between(sim, 0, 0.005);

    ash_sim_leave(sim, process);
    process->over_ns = sim->now_ns;
    if (sim->opts.owner != NULL)
        sim->opts.owner->over(sim->opts.owner->ctx, process->slot);
    else
        ash_sim_post(sim, sim->now_ns + late_ns, ASH_SIM_READY, process->slot, 0);
    if (event->loss != ASH_MEMBER_RESTRUCTURED && (sim->opts.faults & ASH_FAULT_SIM_FOLLOW) != 0 &&
        sim->faults_end_ns == 0 && event->rank == 1 && ash_sim_below(sim, 4) == 0) {
        struct ash_sim_process *first = ash_sim_find(sim, event->view->members[0].id);

        if (first != NULL) ash_sim_post(sim, sim->now_ns + ash_sim_between(sim, 0, 0.03), ASH_SIM_KILL, first->slot, 0);
    }
}

/* Its supervisor starts it again, as a joiner. */
static void on_ended(struct ash_sim *sim, struct ash_sim_process *process)
{
    const struct ash_fault_sim_owner *owner = sim->opts.owner;

    ash_sim_waited(sim, process);
    ash_sim_leave(sim, process);
    process->life = ASH_SIM_OUT;
    if (owner != NULL && !owner->removed(owner->ctx, process->slot)) return;
    sim->pending++;
    ash_sim_post(sim, sim->now_ns + ash_sim_between(sim, 0.1, 0.5), ASH_SIM_RESTART, process->slot, 0);
}

static void on_event(void *ctx, const struct ash_member_event *event)
{
    struct ash_sim_process *process = ctx;
    struct ash_sim *sim = process->sim;

    switch (event->kind) {
    case ASH_MEMBER_EVENT_OVER:
        on_over(sim, process, event);
        break;
    case ASH_MEMBER_EVENT_STARTED:
        ash_sim_waited(sim, process);
        if (process->over_ns > 0 && (double)(sim->now_ns - process->over_ns) * 1e-9 > sim->result->form_s)
            sim->result->form_s = (double)(sim->now_ns - process->over_ns) * 1e-9;
        process->over_ns = 0;
        process->is_leaving = false;
        ash_sim_enter(sim, process, event->view);
        if (sim->opts.owner != NULL)
            sim->opts.owner->started(sim->opts.owner->ctx, process->slot, event->view, event->rank);
        break;
    case ASH_MEMBER_EVENT_ENDED:
        on_ended(sim, process);
        break;
    case ASH_MEMBER_EVENT_NEWS:
        break; /* asked for at every step's edge */
    }
}

void ash_sim_schedule(struct ash_sim *sim, struct ash_sim_process *process)
{
    uint64_t next_ns = ash_member_next_ns(process->member);

    if (next_ns < sim->now_ns) next_ns = sim->now_ns; /* overdue */
    if (next_ns >= process->tick_at_ns || process->life != ASH_SIM_ALIVE) return;
    process->tick_at_ns = next_ns;
    ash_sim_post(sim, next_ns, ASH_SIM_TICK, process->slot, 0);
}

static void begin_process(struct ash_sim *sim, struct ash_sim_process *process)
{
    struct ash_member_opts opts = sim->machine;

    opts.id = ash_sim_id(process);
    opts.ctx = process;
    ash_member_close(process->member);
    process->member = ash_member_open(&opts, sim->now_ns);
    if (process->member == NULL) sim->is_out_of_memory = true;
    process->life = ASH_SIM_ALIVE;
    process->tick_at_ns = ASH_SIM_NEVER;
    process->waits_since_ns = ASH_SIM_NEVER;
    process->held_step = process->kept_step = -1;
    process->over_ns = process->asleep_ns = process->free_ns = 0;
    process->is_leaving = false;
    if (sim->opts.owner != NULL) sim->opts.owner->begin(sim->opts.owner->ctx, sim, process->slot);
}

void ash_sim_restart(struct ash_sim *sim, struct ash_sim_process *process)
{
    if (sim->host_is_dead[process->host]) return;
    process->incarnation++;
    begin_process(sim, process);
    if (sim->is_out_of_memory) return;
    ash_member_join(process->member, NULL, sim->now_ns);
    ash_sim_schedule(sim, process);
}

void ash_sim_kill(struct ash_sim *sim, struct ash_sim_process *process)
{
    static const int around[] = {-1, 1, 2};
    const struct ash_view *view;
    size_t rank;

    if (process->life != ASH_SIM_ALIVE && process->life != ASH_SIM_ASLEEP) return;
    view = ash_member_view(process->member);
    rank = view != NULL ? ash_view_find(view, ash_sim_id(process)) : SIZE_MAX;
    ash_sim_leave(sim, process);
    process->life = ASH_SIM_DEAD;
    if (sim->opts.owner != NULL) sim->opts.owner->died(sim->opts.owner->ctx, process->slot);
    for (size_t i = 0; rank != SIZE_MAX && i < 3; i++) { /* tree neighbours have a connection to it */
        size_t other = around[i] < 0 ? (rank - 1) / 2 : 2 * rank + (size_t)around[i];
        struct ash_sim_process *neighbour;

        if ((around[i] < 0 && rank == 0) || other >= view->size) continue;
        neighbour = ash_sim_find(sim, view->members[other].id);
        if (neighbour != NULL && !sim->host_is_dead[process->host] &&
            ash_sim_connects(sim, process->host, neighbour->host))
            ash_sim_post(sim, sim->now_ns + ash_sim_draw_delay(sim), ASH_SIM_DIED, neighbour->slot,
                         ash_sim_id(process));
    }
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

void ash_sim_be_ready(struct ash_sim *sim, struct ash_sim_process *process)
{
    struct ash_member_terms terms = {.leaves = process->is_leaving};

    if (process->waits_since_ns == ASH_SIM_NEVER) process->waits_since_ns = sim->now_ns;
    process->asleep_ns = 0;
    if (process->over_ns == 0) process->over_ns = sim->now_ns;
    ash_sim_leave(sim, process);
    ash_member_reform(process->member, &terms, sim->now_ns);
}

/* All ranks of a view that runs come to a step's edge; where joiners or leavers wait, they re-form. */
void ash_sim_meet_at_edge(struct ash_sim *sim, struct ash_sim_view *known)
{
    struct ash_sim_process *first = ash_sim_find(sim, known->view->members[0].id);
    uint64_t proposal = known->view->proposal;
    size_t joiners = 0, leavers = 0;

    if (first != NULL) ash_member_news(first->member, &joiners, &leavers);
    if (joiners + leavers == 0) return;
    for (size_t r = 0; r < known->view->size; r++) {
        struct ash_sim_process *process = ash_sim_find(sim, known->view->members[r].id);

        if (process != NULL)
            ash_sim_post(sim, sim->now_ns + ash_sim_between(sim, 0, 0.005), ASH_SIM_READY, process->slot, proposal);
    }
}

/* Something for the machine of an awake process. */
static void feed(struct ash_sim *sim, struct ash_sim_process *process, const struct ash_sim_event *event)
{
    struct ash_member *member = process->member;

    switch (event->kind) {
    case ASH_SIM_MESSAGE:
        ash_member_receive(member, event->msg, sim->now_ns);
        break;
    case ASH_SIM_TICK:
        if (process->tick_at_ns == event->at_ns) process->tick_at_ns = ASH_SIM_NEVER;
        ash_member_tick(member, sim->now_ns);
        break;
    case ASH_SIM_DIED:
        ash_member_peer_died(member, event->other, sim->now_ns);
        break;
    case ASH_SIM_UNREACHABLE:
        ash_member_peer_unreachable(member, event->other, sim->now_ns);
        break;
    case ASH_SIM_READY:
        if (event->other == 0 || (process->view != NULL && process->view->view->proposal == event->other))
            ash_sim_be_ready(sim, process);
        break;
    case ASH_SIM_OWNER:
        sim->opts.owner->wake(sim->opts.owner->ctx, process->slot, event->other);
        break;
    default:
        break;
    }
    if (process->life == ASH_SIM_ALIVE) ash_sim_schedule(sim, process);
}

/* Of a process that sleeps: it finds everything when it wakes. */
static void defer(struct ash_sim *sim, const struct ash_sim_process *process, const struct ash_sim_event *event)
{
    struct ash_sim_event later = *event;

    later.at_ns = process->wake_ns + 1;
    later.order = sim->order++;
    ash_sim_push(sim, &later);
}

static void happen(struct ash_sim *sim, struct ash_sim_event *event)
{
    struct ash_sim_process *process = &sim->processes[event->slot];

    switch (event->kind) {
    case ASH_SIM_STEP:
        ash_sim_step(sim, event->other);
        return;
    case ASH_SIM_RESTART:
        sim->pending--;
        if (process->life == ASH_SIM_DEAD || process->life == ASH_SIM_OUT) ash_sim_restart(sim, process);
        return;
    case ASH_SIM_FAULT:
    case ASH_SIM_KILL:
    case ASH_SIM_WAKE:
    case ASH_SIM_HEAL:
    case ASH_SIM_QUIET:
        ash_sim_faults_happen(sim, event);
        return;
    default:
        break;
    }
    if (event->incarnation == process->incarnation && process->life == ASH_SIM_ASLEEP) {
        if (event->kind == ASH_SIM_TICK) process->tick_at_ns = process->wake_ns + 1;
        defer(sim, process, event);
        return;
    }
    if (event->incarnation == process->incarnation && process->life == ASH_SIM_ALIVE) feed(sim, process, event);
    if (event->msg != NULL) ash_sim_drop_message(sim, event->msg);
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

/* The first view, in which all have met. */
static int begin_all(struct ash_sim *sim)
{
    struct ash_view *view = ash_view_new(sim->opts.ranks, 0);

    if (view == NULL) return -ENOMEM;
    for (size_t r = 0; r < sim->opts.ranks; r++) {
        struct ash_sim_process *process = &sim->processes[r];

        *process =
            (struct ash_sim_process){.sim = sim, .slot = (uint32_t)r, .host = (uint32_t)(r / sim->opts.per_host)};
        view->members[r] = (struct ash_view_member){.id = ash_sim_id(process), .rank_before = ASH_VIEW_NEW};
    }
    view->proposal = 1;
    view->epoch = 1;
    ash_assert(ash_view_seal(view) == 0);
    for (size_t r = 0; r < sim->opts.ranks && !sim->is_out_of_memory; r++) {
        uint64_t phase_ns = ash_sim_below(sim, HEARTBEAT_NS); /* in step, all would find a silence at once */

        begin_process(sim, &sim->processes[r]);
        if (!sim->is_out_of_memory) ash_member_begin(sim->processes[r].member, view, phase_ns);
        if (!sim->is_out_of_memory) ash_sim_schedule(sim, &sim->processes[r]);
    }
    ash_view_put(view);
    return sim->is_out_of_memory ? -ENOMEM : 0;
}

static int open_sim(struct ash_sim *sim, const struct ash_fault_sim_opts *opts, struct ash_fault_sim_result *result)
{
    uint64_t silent_ns = (uint64_t)(opts->silent_s * 1e9);

    *sim = (struct ash_sim){.opts = *opts, .result = result, .finished_step = -1};
    sim->opts.per_host = ash_max(opts->per_host, 1);
    sim->hosts = ash_div_up(opts->ranks, sim->opts.per_host);
    sim->processes = calloc(opts->ranks, sizeof(*sim->processes));
    sim->host_is_dead = calloc(sim->hosts, sizeof(*sim->host_is_dead));
    sim->spare = calloc(ASH_SIM_SPARES, sizeof(*sim->spare));
    if (sim->processes == NULL || sim->host_is_dead == NULL || sim->spare == NULL) return -ENOMEM;
    sim->has_register = opts->right == ASH_FAULT_SIM_RIGHT_DRAWN ? ash_sim_below(sim, 2) == 0
                                                                 : opts->right == ASH_FAULT_SIM_RIGHT_REGISTER;
    if (opts->plant == ASH_FAULT_SIM_PLANT_RIGHT) sim->has_register = true;
    if (opts->plant == ASH_FAULT_SIM_PLANT_FOREVER) silent_ns = UINT64_MAX / 16;
    sim->ops = (struct ash_member_ops){
        .send = ash_sim_send, .event = on_event, .decide = sim->has_register ? ash_sim_decide : NULL};
    sim->machine = (struct ash_member_opts){.ops = &sim->ops,
                                            .heartbeat_ns = HEARTBEAT_NS,
                                            .silent_ns = silent_ns,
                                            .retry_ns = 20 * MS,
                                            .yield_ns = silent_ns < UINT64_MAX / 16 ? silent_ns : 3000 * MS,
                                            .ready_ns = 5000 * MS};
    return begin_all(sim);
}

static void close_sim(struct ash_sim *sim)
{
    for (size_t i = 0; i < sim->heap_count; i++)
        if (sim->heap[i].msg != NULL) ash_sim_drop_message(sim, sim->heap[i].msg);
    for (size_t r = 0; sim->processes != NULL && r < sim->opts.ranks; r++)
        ash_member_close(sim->processes[r].member);
    ash_sim_views_free(sim);
    while (sim->spare_count > 0)
        free(sim->spare[--sim->spare_count]);
    free(sim->spare);
    free(sim->heap);
    free(sim->processes);
    free(sim->host_is_dead);
    free(sim->entries);
}

/* Once faults have ended, until all run one view. */
static bool is_done(struct ash_sim *sim)
{
    const struct ash_fault_sim_owner *owner = sim->opts.owner;

    if (sim->is_over || sim->is_out_of_memory || sim->heap_count == 0) return true;
    if (owner != NULL && owner->is_done(owner->ctx)) return true;
    if (sim->pending > 0) {
        sim->faults_end_ns = 0;
        return false;
    }
    if (sim->faults_end_ns == 0) sim->faults_end_ns = sim->now_ns;
    return (owner == NULL && ash_sim_is_settled(sim)) ||
           (double)(sim->now_ns - sim->faults_end_ns) * 1e-9 > SETTLE_LIMIT_S;
}

int ash_fault_sim_run(const struct ash_fault_sim_opts *opts, struct ash_fault_sim_result *result_out)
{
    struct ash_sim sim;
    uint64_t look_at_ns = 0;
    int rc;

    ash_assert(opts->ranks > 0 && opts->ranks < (1u << ASH_SIM_ID_SHIFT) && opts->silent_s > 0);
    *result_out = (struct ash_fault_sim_result){.is_good = true};
    rc = open_sim(&sim, opts, result_out);
    if (rc == 0) {
        ash_sim_faults_plan(&sim);
        while (sim.now_ns < look_at_ns || !is_done(&sim)) {
            struct ash_sim_event event;

            if (sim.now_ns >= look_at_ns) look_at_ns = sim.now_ns + 5 * MS;
            if (sim.heap_count == 0 || sim.is_over || sim.is_out_of_memory) break;
            event = ash_sim_pop(&sim);
            ash_assert(event.at_ns >= sim.now_ns);
            sim.now_ns = event.at_ns;
            result_out->events++;
            happen(&sim, &event);
        }
        ash_sim_conclude(&sim);
        if (sim.is_out_of_memory) rc = -ENOMEM;
    }
    close_sim(&sim);
    return rc;
}

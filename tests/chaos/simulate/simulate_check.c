/* What must be true of a job, whatever happens to it. */
#include "chaos/simulate/simulate_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define STEP_NS 20000000ull
#define SLACK_S 2.0 /* of bounded waits: retries and messages */

void ash_sim_violate(struct ash_sim *sim, const char *format, ...)
{
    va_list args;
    size_t used;

    if (!sim->result->is_good) return;
    sim->result->is_good = false;
    sim->is_over = true;
    va_start(args, format);
    vsnprintf(sim->result->violation, sizeof(sim->result->violation), format, args);
    va_end(args);
    for (used = 0; sim->result->violation[used] != '\0';)
        used++;
    snprintf(sim->result->violation + used, sizeof(sim->result->violation) - used, ", at %.3f s",
             (double)sim->now_ns * 1e-9);
}

/* ---- views ------------------------------------------------------------------------------------------------------- */

static struct ash_sim_view *find_view(struct ash_sim *sim, struct ash_view *view)
{
    struct ash_sim_view *known = sim->views;

    while (known != NULL && known->view->proposal != view->proposal)
        known = known->next;
    if (known != NULL) return known;
    known = calloc(1, sizeof(*known));
    if (known == NULL) {
        sim->is_out_of_memory = true;
        return NULL;
    }
    known->view = ash_view_get(view);
    known->next = sim->views;
    known->step = -1;
    sim->views = known;
    sim->result->epochs++;
    return known;
}

void ash_sim_views_free(struct ash_sim *sim)
{
    while (sim->views != NULL) {
        struct ash_sim_view *next = sim->views->next;

        ash_view_put(sim->views->view);
        free(sim->views);
        sim->views = next;
    }
}

/* The newest step that a member of a view holds. */
static int64_t newest_held(struct ash_sim *sim, const struct ash_view *view)
{
    int64_t newest = -1;

    for (size_t r = 0; r < view->size; r++) {
        const struct ash_sim_process *process = ash_sim_find(sim, view->members[r].id);

        if (process != NULL && process->held_step > newest) newest = process->held_step;
    }
    return newest;
}

/* Is there a holder of a step that is awake and can be reached by a view? One that sleeps or is cut off has failed,
 * too. */
static bool somebody_holds(struct ash_sim *sim, const struct ash_view *view, int64_t step)
{
    const struct ash_sim_process *first = ash_sim_find(sim, view->members[0].id);

    for (size_t r = 0; first != NULL && r < sim->opts.ranks; r++) {
        const struct ash_sim_process *process = &sim->processes[r];

        if (process->life == ASH_SIM_ALIVE && process->kept_step >= step &&
            ash_sim_connects(sim, first->host, process->host) && ash_sim_connects(sim, process->host, first->host))
            return true;
    }
    return false;
}

/* All members of a view run it for the first time: they share what they hold. */
static void run_first(struct ash_sim *sim, struct ash_sim_view *known)
{
    known->has_run = true;
    known->step = newest_held(sim, known->view);
    if (known->step < sim->finished_step) {
        if (somebody_holds(sim, known->view, sim->finished_step))
            ash_sim_violate(sim, "not lost: epoch %u goes on from step %lld, but step %lld was finished",
                            known->view->epoch, (long long)known->step, (long long)sim->finished_step);
        sim->result->fallbacks++;
        sim->finished_step = known->step;
    }
    known->has_step_due = true;
    ash_sim_post(sim, sim->now_ns + STEP_NS, ASH_SIM_STEP, 0, known->view->proposal);
}

void ash_sim_enter(struct ash_sim *sim, struct ash_sim_process *process, struct ash_view *view)
{
    struct ash_sim_view *known = find_view(sim, view);

    if (known == NULL) return;
    process->view = known;
    known->running++;
    if (known->running == view->size && !known->has_run && sim->opts.owner == NULL) run_first(sim, known);
}

void ash_sim_leave(struct ash_sim *sim, struct ash_sim_process *process)
{
    struct ash_sim_view *known = process->view;

    if (known == NULL) return;
    if (process->life == ASH_SIM_ALIVE) known->running--;
    process->view = NULL;
    if (known->has_run) process->held_step = process->kept_step = known->step;
    if (sim->opts.plant == ASH_FAULT_SIM_PLANT_FORGET && process->held_step > 0) process->held_step--;
}

void ash_sim_count(struct ash_sim *sim, struct ash_sim_process *process, bool is_awake)
{
    struct ash_sim_view *known = process->view;

    if (known == NULL) return;
    known->running += is_awake;
    known->running -= !is_awake;
    if (is_awake && known->has_run && !known->has_step_due) { /* all of it was asleep */
        known->has_step_due = true;
        ash_sim_post(sim, sim->now_ns + STEP_NS, ASH_SIM_STEP, 0, known->view->proposal);
    }
    if (known->running == known->view->size && !known->has_run && sim->opts.owner == NULL) run_first(sim, known);
}

/* Do all hosts of a view reach each other? */
static bool is_connected(struct ash_sim *sim, const struct ash_view *view)
{
    bool is_cut = false;
    uint32_t first;
    const struct ash_sim_process *process;

    for (size_t i = 0; i < ASH_SIM_CUTS; i++)
        is_cut = is_cut || sim->cuts[i].is_set;
    if (!is_cut) return true;
    process = ash_sim_find(sim, view->members[0].id);
    if (process == NULL) return false;
    first = process->host;
    for (size_t r = 1; r < view->size; r++) {
        process = ash_sim_find(sim, view->members[r].id);
        if (process == NULL || !ash_sim_connects(sim, first, process->host) ||
            !ash_sim_connects(sim, process->host, first))
            return false;
    }
    return true;
}

void ash_sim_step(struct ash_sim *sim, uint64_t proposal)
{
    struct ash_sim_view *known = sim->views;
    const struct ash_sim_view *last = sim->last;

    while (known != NULL && known->view->proposal != proposal)
        known = known->next;
    if (known == NULL) return;
    if (known->running == known->view->size && is_connected(sim, known->view)) {
        if (last != NULL && last != known && last->view->epoch >= known->view->epoch)
            ash_sim_violate(sim, "one side: epoch %u finishes a step after epoch %u did", known->view->epoch,
                            last->view->epoch);
        sim->last = known;
        sim->finished_step = ++known->step;
        sim->result->steps++;
        ash_sim_meet_at_edge(sim, known);
    }
    for (const struct ash_sim_view *other = sim->views; other != NULL; other = other->next)
        if (other != known && other->running == other->view->size && known->running == known->view->size)
            ash_sim_violate(sim, "one side: epochs %u and %u run at the same time", known->view->epoch,
                            other->view->epoch);
    known->has_step_due = known->running > 0;
    if (known->has_step_due) ash_sim_post(sim, sim->now_ns + STEP_NS, ASH_SIM_STEP, 0, proposal);
}

/* ---- waits ------------------------------------------------------------------------------------------------------- */

void ash_sim_waited(struct ash_sim *sim, struct ash_sim_process *process)
{
    const struct ash_member_opts *machine = &sim->machine;
    double silent_s = sim->opts.silent_s,
           limit_s = (double)(machine->ready_ns + 2 * machine->yield_ns) * 1e-9 + 6 * silent_s + SLACK_S, waited_s;

    if (process->waits_since_ns == ASH_SIM_NEVER) return;
    waited_s = (double)(sim->now_ns - process->waits_since_ns) * 1e-9 - (double)process->asleep_ns * 1e-9;
    if (waited_s > limit_s)
        ash_sim_violate(sim, "bounded: process %u waited %.1f s for a view; its limits add up to %.1f s", process->slot,
                        waited_s, limit_s);
    process->waits_since_ns = ASH_SIM_NEVER;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

bool ash_sim_is_settled(const struct ash_sim *sim)
{
    const struct ash_sim_view *known = NULL;
    size_t living = 0;

    for (size_t r = 0; r < sim->opts.ranks; r++) {
        const struct ash_sim_process *process = &sim->processes[r];

        if (process->life != ASH_SIM_ALIVE && process->life != ASH_SIM_ASLEEP) continue;
        living++;
        if (process->view == NULL || (known != NULL && process->view != known)) return false;
        known = process->view;
    }
    return known != NULL && known->running == living && known->view->size == living && sim->last == known;
}

/* Is no process in a view any more, so that joiners are left without a coordinator? */
static bool has_job_ended(const struct ash_sim *sim)
{
    for (size_t r = 0; r < sim->opts.ranks; r++) {
        const struct ash_sim_process *process = &sim->processes[r];

        if ((process->life == ASH_SIM_ALIVE || process->life == ASH_SIM_ASLEEP) &&
            ash_member_view(process->member) != NULL)
            return false;
    }
    return true;
}

void ash_sim_conclude(struct ash_sim *sim)
{
    struct ash_fault_sim_result *result = sim->result;

    result->virtual_s = (double)sim->now_ns * 1e-9;
    if (!result->is_good || sim->is_out_of_memory) return;
    for (size_t r = 0; r < sim->opts.ranks && result->is_good; r++)
        if (sim->processes[r].life == ASH_SIM_ALIVE) ash_sim_waited(sim, &sim->processes[r]);
    if (!result->is_good || (sim->opts.owner != NULL && sim->opts.owner->is_done(sim->opts.owner->ctx))) return;
    if (ash_sim_is_settled(sim)) {
        result->settle_s = (double)(sim->now_ns - sim->faults_end_ns) * 1e-9;
        result->final_size = sim->last->view->size;
    } else if (has_job_ended(sim)) {
        result->has_ended = true;
    } else {
        size_t running = 0, forming = 0, joining = 0;

        for (size_t r = 0; r < sim->opts.ranks; r++) {
            const struct ash_sim_process *process = &sim->processes[r];

            if (process->life != ASH_SIM_ALIVE) continue;
            running += process->view != NULL;
            joining += ash_member_view(process->member) == NULL;
            forming += ash_member_view(process->member) != NULL && process->view == NULL;
        }
        ash_sim_violate(
            sim, "settled: %.0f s after the last fault %zu processes run a view, %zu form one, %zu ask for a place",
            (double)(sim->now_ns - sim->faults_end_ns) * 1e-9, running, forming, joining);
    }
}

/* What goes wrong, drawn from the seed. */
#include "chaos/simulate/simulate_priv.h"

#include <stdlib.h>

#include "base/bits.h"

#define FAULTS_MAX 6
#define FIRST_S 0.3
#define WINDOW_S 3.0

void ash_sim_faults_plan(struct ash_sim *sim)
{
    size_t count = sim->opts.fault_count > 0 ? sim->opts.fault_count : 1 + ash_sim_below(sim, FAULTS_MAX);

    if (sim->opts.faults == 0) return;
    for (size_t i = 0; i < count; i++) {
        unsigned kind;

        do
            kind = 1u << ash_sim_below(sim, 6);
        while ((sim->opts.faults & kind) == 0);
        sim->pending++;
        ash_sim_post(sim, ash_sim_between(sim, FIRST_S, FIRST_S + WINDOW_S), ASH_SIM_FAULT, 0, kind);
    }
}

static struct ash_sim_process *draw_process(struct ash_sim *sim)
{
    return &sim->processes[ash_sim_below(sim, sim->opts.ranks)];
}

/* Kill one, and have it come back some time later. */
static void kill_one(struct ash_sim *sim, struct ash_sim_process *process)
{
    if (process->life != ASH_SIM_ALIVE && process->life != ASH_SIM_ASLEEP) return;
    ash_sim_kill(sim, process);
    sim->pending++;
    ash_sim_post(sim, sim->now_ns + ash_sim_between(sim, 0.05, 2), ASH_SIM_RESTART, process->slot, 0);
}

static void kill_some(struct ash_sim *sim)
{
    for (uint64_t i = 1 + ash_sim_below(sim, 3); i > 0; i--)
        kill_one(sim, draw_process(sim));
}

/* A host goes, with all that is on it; it stays away. One is left. */
static void kill_host(struct ash_sim *sim)
{
    uint32_t host = draw_process(sim)->host;
    size_t left = 0;

    for (size_t h = 0; h < sim->hosts; h++)
        left += !sim->host_is_dead[h];
    if (left < 3 || sim->host_is_dead[host]) return;
    sim->host_is_dead[host] = true;
    for (size_t r = 0; r < sim->opts.ranks; r++)
        if (sim->processes[r].host == host) ash_sim_kill(sim, &sim->processes[r]);
}

static void put_to_sleep(struct ash_sim *sim, struct ash_sim_process *process)
{
    uint64_t for_ns =
        ash_sim_below(sim, 2) == 0 ? ash_sim_between(sim, 0.1, 1) : ash_sim_between(sim, 1, 3 * sim->opts.silent_s);

    if (process->life != ASH_SIM_ALIVE) return;
    ash_sim_count(sim, process, false);
    process->life = ASH_SIM_ASLEEP;
    process->wake_ns = sim->now_ns + for_ns;
    process->asleep_ns += for_ns;
    sim->pending++;
    ash_sim_post(sim, process->wake_ns, ASH_SIM_WAKE, process->slot, 0);
}

static void wake_up(struct ash_sim *sim, struct ash_sim_process *process, uint32_t incarnation)
{
    sim->pending--;
    if (process->incarnation != incarnation || process->life != ASH_SIM_ASLEEP) return;
    process->life = ASH_SIM_ALIVE;
    ash_sim_count(sim, process, true);
}

static void cut_network(struct ash_sim *sim)
{
    size_t i = 0;

    while (i < ASH_SIM_CUTS && sim->cuts[i].is_set)
        i++;
    if (i == ASH_SIM_CUTS || sim->hosts < 2) return;
    sim->cuts[i] = (struct ash_sim_cut){.is_set = true,
                                        .is_one_way = ash_sim_below(sim, 3) == 0,
                                        .salt = ash_sim_below(sim, UINT64_MAX),
                                        .far_host = draw_process(sim)->host,
                                        .share = ash_sim_below(sim, 2) == 0 ? 50 : 0};
    sim->pending++;
    ash_sim_post(sim, sim->now_ns + ash_sim_between(sim, 0.05, 3 * sim->opts.silent_s), ASH_SIM_HEAL, 0, i);
}

static void make_noise(struct ash_sim *sim)
{
    sim->loss = (double)ash_sim_below(sim, 20) / 100;
    sim->spike = (double)ash_sim_below(sim, 20) / 100;
    sim->pending++;
    ash_sim_post(sim, sim->now_ns + ash_sim_between(sim, 0.1, 3), ASH_SIM_QUIET, 0, 0);
}

static void have_leave(struct ash_sim *sim)
{
    struct ash_sim_process *process = draw_process(sim);

    if (process->life != ASH_SIM_ALIVE || !ash_member_is_running(process->member)) return;
    process->is_leaving = true;
    ash_member_want_leave(process->member, sim->now_ns);
}

void ash_sim_faults_happen(struct ash_sim *sim, const struct ash_sim_event *event)
{
    struct ash_sim_process *process = &sim->processes[event->slot];

    if (event->kind == ASH_SIM_KILL && sim->faults_end_ns == 0) kill_one(sim, process);
    if (event->kind == ASH_SIM_WAKE) wake_up(sim, process, event->incarnation);
    if (event->kind == ASH_SIM_HEAL || event->kind == ASH_SIM_QUIET) sim->pending--;
    if (event->kind == ASH_SIM_HEAL) sim->cuts[event->other].is_set = false;
    if (event->kind == ASH_SIM_QUIET) sim->loss = sim->spike = 0;
    if (event->kind != ASH_SIM_FAULT) return;
    sim->pending--;
    sim->result->faults++;
    if (event->other == ASH_FAULT_SIM_CRASH) kill_some(sim);
    if (event->other == ASH_FAULT_SIM_HOST) kill_host(sim);
    if (event->other == ASH_FAULT_SIM_PAUSE) put_to_sleep(sim, draw_process(sim));
    if (event->other == ASH_FAULT_SIM_CUT) cut_network(sim);
    if (event->other == ASH_FAULT_SIM_NOISE) make_noise(sim);
    if (event->other == ASH_FAULT_SIM_LEAVE) have_leave(sim);
}

/* What owners of simulated processes may ask for and do. */
#include "chaos/simulate/simulate_priv.h"

#include <errno.h>

#include "base/assert.h"

uint64_t ash_fault_sim_now(const struct ash_sim *sim)
{
    return sim->now_ns;
}

uint64_t ash_fault_sim_below(struct ash_sim *sim, uint64_t bound)
{
    return ash_sim_below(sim, bound);
}

void ash_fault_sim_wake(struct ash_sim *sim, uint32_t process, uint64_t after_ns, uint64_t token)
{
    ash_sim_post(sim, sim->now_ns + after_ns, ASH_SIM_OWNER, process, token);
}

void ash_fault_sim_reform(struct ash_sim *sim, uint32_t process, bool leaves)
{
    sim->processes[process].is_leaving = leaves;
    ash_sim_be_ready(sim, &sim->processes[process]);
}

void ash_fault_sim_want_leave(struct ash_sim *sim, uint32_t process)
{
    ash_member_want_leave(sim->processes[process].member, sim->now_ns);
}

void ash_fault_sim_abort(struct ash_sim *sim, uint32_t process)
{
    ash_member_abort(sim->processes[process].member, ash_sim_id(&sim->processes[process]), -ECONNRESET, NULL,
                     sim->now_ns);
}

void ash_fault_sim_news(struct ash_sim *sim, uint32_t process, size_t *joiners_out, size_t *leavers_out)
{
    ash_member_news(sim->processes[process].member, joiners_out, leavers_out);
}

void ash_fault_sim_end(struct ash_sim *sim, uint32_t process, bool is_failure)
{
    struct ash_sim_process *ending = &sim->processes[process];

    if (is_failure) {
        ash_sim_kill(sim, ending);
        return;
    }
    ash_member_say_bye(ending->member);
    ash_sim_leave(sim, ending);
    ending->life = ASH_SIM_OUT;
}

bool ash_fault_sim_is_awake(const struct ash_sim *sim, uint32_t process)
{
    return sim->processes[process].life == ASH_SIM_ALIVE;
}

bool ash_fault_sim_reaches(const struct ash_sim *sim, uint32_t a, uint32_t b)
{
    uint32_t from = sim->processes[a].host, to = sim->processes[b].host;

    return ash_sim_connects(sim, from, to) && ash_sim_connects(sim, to, from);
}

uint32_t ash_fault_sim_find(struct ash_sim *sim, uint64_t id)
{
    const struct ash_sim_process *process = ash_sim_find(sim, id);

    return process != NULL ? process->slot : UINT32_MAX;
}

void ash_fault_sim_violate(struct ash_sim *sim, const char *sentence)
{
    ash_sim_violate(sim, "%s", sentence);
}

/* apart: who waited for whom. */
#include <math.h>

#include "base/clock.h"
#include "post/rl/rl_priv.h"

struct ash_apart_shares ash_apart_get_shares(const struct ash_policy_run *rl)
{
    struct ash_apart_shares shares = {0};
    struct ash_desk_figures figures;
    struct ash_wire_times times;
    double all, own;

    if (rl->apart == NULL || rl->apart->desk == NULL) return shares;
    all = (double)(ash_clock_ns() - rl->apart->start_ns) * 1e-9;
    own = rl->seconds[ASH_RL_SAMPLING] + rl->seconds[ASH_RL_REWARDING] + rl->seconds[ASH_RL_HANDOVER];
    all = fmax(fmax(all, own), 1e-9);
    shares.answers = rl->seconds[ASH_RL_SAMPLING] / all;
    shares.rewards = rl->seconds[ASH_RL_REWARDING] / all;
    shares.publishing = rl->seconds[ASH_RL_HANDOVER] / all;
    shares.steps = 1.0 - own / all;
    figures = ash_desk_get_figures(rl->apart->desk);
    times = figures.times;
    shares.samplers = figures.samplers;
    if (rl->apart->next_step > rl->apart->first_step)
        shares.step_s = all / (double)(rl->apart->next_step - rl->apart->first_step);
    all = times.sampling + times.waiting + times.transfer;
    if (all <= 0) return shares;
    shares.drawing = times.sampling / all;
    shares.waiting = times.waiting / all;
    shares.taking = times.transfer / all;
    return shares;
}

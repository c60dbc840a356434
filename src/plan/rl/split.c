/* split: work is divided evenly on each side; the longer side decides the step, or their sum where they take turns. */
#include "plan/rl/split.h"

#include "base/assert.h"

static struct ash_rl_division divide(const struct ash_rl_measured *measured, int trainers, int samplers)
{
    struct ash_rl_division division = {.trainers = trainers, .samplers = samplers};

    division.train_s = measured->compute_s * measured->trainers / trainers + measured->fixed_s;
    division.sample_s = measured->draw_s * measured->samplers / samplers + measured->take_s;
    division.step_s = measured->turns                        ? division.train_s + division.sample_s
                      : division.train_s > division.sample_s ? division.train_s
                                                             : division.sample_s;
    if (division.step_s <= 0) return division;
    division.trainer_waits = 1.0 - division.train_s / division.step_s;
    division.samplers_wait = 1.0 - division.sample_s / division.step_s;
    return division;
}

size_t ash_rl_divide(const struct ash_rl_measured *measured, int procs,
                     struct ash_rl_division divisions_out[ASH_RL_DIVISIONS_MAX], size_t *best_out)
{
    int unit = measured->unit, ways = procs > unit ? (procs - 1) / unit : 0;
    size_t count = 0, best = 0;

    ash_assert(unit > 0 && measured->trainers > 0 && measured->samplers > 0);
    for (int i = 0; i < ways; i++) {
        size_t at = ways <= ASH_RL_DIVISIONS_MAX ? (size_t)i : (size_t)i * ASH_RL_DIVISIONS_MAX / (size_t)ways;
        struct ash_rl_division division = divide(measured, (i + 1) * unit, procs - (i + 1) * unit);

        if (at < count && division.step_s >= divisions_out[at].step_s) continue;
        divisions_out[at] = division;
        count = at + 1;
        if (division.step_s < divisions_out[best].step_s) best = at;
    }
    *best_out = best;
    return count;
}

/* The two-level machine solved: a renewal argument per level. With failures at rate 1/M, a stretch of t seconds that
 * must pass without one takes (M + R')(e^(t/M) - 1) on average, R' = M(e^(R/M) - 1) being a recovery of R seconds that
 * may itself be interrupted (Daly 2006). A snapshot that counts only after a lag adds it to the redone time. */
#include "plan/goodput/goodput_priv.h"

#include <math.h>

#include "base/assert.h"

/* A recovery of r seconds, interrupted by failures that make it begin again. */
static double stretched(double r, double mtbf_s)
{
    return mtbf_s * expm1(r / mtbf_s);
}

/* Seconds from one counting snapshot to the next: `period` where nothing fails, `period + lag` after each failure,
 * because the work since the snapshot, its lag included, is gone. */
static double cycle_s(double period, double lag, double recovery, double mtbf_s)
{
    double survive = exp(-period / mtbf_s), again = (mtbf_s + recovery) * expm1((period + lag) / mtbf_s);

    return mtbf_s * (1 - survive) + (1 - survive) * (recovery + again);
}

static double recovery_s(const struct ash_goodput_level *level)
{
    return level->detect_s + level->restart_s + level->load_s;
}

double ash_goodput_fast_rate(const struct ash_goodput_way *way)
{
    const struct ash_goodput_level *fast = &way->fast;
    double mtbf_s, period;

    if (!way->has_fast || way->cover <= 0) return 1;
    ash_assert(way->cover <= 1 && fast->work_s > 0);
    mtbf_s = way->mtbf_s / way->cover;
    period = fast->work_s + fast->stall_s + fast->slowdown * fast->lag_s;
    return fast->work_s / cycle_s(period, fast->lag_s, stretched(recovery_s(fast), mtbf_s), mtbf_s);
}

/* log E[e^(-kill T)] of the time T that the fast level takes for one of its periods, failures and recoveries included:
 * the chance, in logarithm, that a clock of rate kill does not ring meanwhile. */
static double fast_log(const struct ash_goodput_way *way, double kill)
{
    const struct ash_goodput_level *fast = &way->fast;
    double rate = way->cover / way->mtbf_s, all = rate + kill, failing = rate / all;
    double period = fast->work_s + fast->stall_s + fast->slowdown * fast->lag_s;
    double recovered = exp(-all * recovery_s(fast)), whole = exp(-all * period);
    double lost = failing * -expm1(-all * period), again = exp(-all * (period + fast->lag_s)), back;

    ash_assert(all > 0 && failing <= 1);
    back = recovered / (1 - failing * (1 - recovered));
    again = again / (1 - failing * (1 - again) * back);
    return log(whole + lost * back * again);
}

/* A failure of the slow level may cut short a recovery of the fast one, so the time of a slow period enters through its
 * whole distribution, not its mean. */
double ash_goodput_slow_rate(const struct ash_goodput_way *way)
{
    const struct ash_goodput_level *slow = &way->slow;
    double kill = (way->has_fast ? 1 - way->cover : 1) / way->mtbf_s,
           pause = slow->stall_s + slow->slowdown * slow->lag_s;
    double recovery = stretched(recovery_s(slow), way->mtbf_s), survive;

    if (kill <= 0) return slow->work_s / (slow->work_s / ash_goodput_fast_rate(way) + pause);
    survive = way->has_fast ? slow->work_s / way->fast.work_s * fast_log(way, kill) : -kill * slow->work_s;
    survive -= kill * pause;
    return slow->work_s /
           (-expm1(survive) * (1 / kill + recovery + (1 / kill + recovery) * expm1(kill * slow->lag_s - survive)));
}

/* Share of time in which more nodes are away than there are spares: Erlang's loss formula, which does not ask how
 * repair times are distributed. */
static double waiting_share(const struct ash_goodput_way *way)
{
    double load = way->replace_share * way->repair_s / way->mtbf_s, blocked = 1;

    if (way->spares < 0 || load <= 0) return 0;
    for (int64_t k = 1; k <= way->spares + 1; k++)
        blocked = load * blocked / ((double)k + load * blocked);
    return blocked;
}

/* Add a share of time to the parts of a recovery, which breaks off at the next failure: early parts get more. */
static void add_recovery(const struct ash_goodput_level *level, double share, double mtbf_s,
                         struct ash_goodput_shares *shares)
{
    double detect = -expm1(-level->detect_s / mtbf_s), all = -expm1(-recovery_s(level) / mtbf_s);
    double restart = -expm1(-(level->detect_s + level->restart_s) / mtbf_s);

    if (all <= 0) return;
    shares->detect += share * detect / all;
    shares->restart += share * (restart - detect) / all;
    shares->load += share * (all - restart) / all;
}

/* Any failure makes a recovery of the slow level begin again; one of the fast level is left for whatever comes next. */
static void add_recoveries(const struct ash_goodput_way *way, struct ash_goodput_shares *shares)
{
    double ratio = (way->has_fast ? 1 - way->cover : 1) * expm1(recovery_s(&way->slow) / way->mtbf_s);
    double slow = isfinite(ratio) ? ratio / (1 + ratio) : 1;

    add_recovery(&way->slow, slow, way->mtbf_s, shares);
    if (way->has_fast)
        add_recovery(&way->fast, (1 - slow) * way->cover * -expm1(-recovery_s(&way->fast) / way->mtbf_s), way->mtbf_s,
                     shares);
}

static double small_losses(const struct ash_goodput_level *level, double mtbf_s)
{
    double loss = (level->stall_s + level->slowdown * level->lag_s) / level->work_s;

    return loss + (level->work_s / 2 + level->lag_s + recovery_s(level)) / mtbf_s;
}

/* Stalls per useful second. A stall that failures make the job repeat counts as redone. */
static double stall_share(const struct ash_goodput_way *way)
{
    double share = (way->slow.stall_s + way->slow.slowdown * way->slow.lag_s) / way->slow.work_s;

    if (way->has_fast) share += (way->fast.stall_s + way->fast.slowdown * way->fast.lag_s) / way->fast.work_s;
    return share;
}

void ash_goodput_solve(const struct ash_goodput_way *way, struct ash_goodput_result *result_out)
{
    double rate = ash_goodput_slow_rate(way), waiting = waiting_share(way);
    double stall = way->slow.stall_s + way->slow.slowdown * way->slow.lag_s, mtbf_s = way->mtbf_s, ratio;
    struct ash_goodput_shares *shares = &result_out->shares;

    *result_out = (struct ash_goodput_result){0};
    if (!isfinite(rate) || rate < 0) rate = 0;
    add_recoveries(way, shares);
    shares->stall = rate * stall_share(way);
    shares->redone = fmax(0, 1 - rate - shares->stall - shares->detect - shares->restart - shares->load);
    shares->overhead = rate * way->overhead;
    shares->useful = rate - shares->overhead;
    ash_goodput_scale(shares, 1 - waiting);
    shares->waiting = waiting;
    result_out->first_order = way->has_fast ? 1 - small_losses(&way->fast, mtbf_s / way->cover) -
                                                  small_losses(&way->slow, mtbf_s / (1 - way->cover))
                                            : 1 - small_losses(&way->slow, mtbf_s);
    result_out->first_order = fmax(0, result_out->first_order * (1 - way->overhead) * (1 - waiting));
    ash_assert(result_out->first_order >= 0 && result_out->first_order <= 1);
    if (stall <= 0) return;
    if (way->has_fast) mtbf_s /= 1 - way->cover;
    ratio = stall / (2 * mtbf_s);
    result_out->young_s = sqrt(2 * stall * mtbf_s);
    result_out->daly_s = ratio < 1 ? result_out->young_s * (1 + sqrt(ratio) / 3 + ratio / 9) - stall : mtbf_s;
}

void ash_goodput_scale(struct ash_goodput_shares *shares, double factor)
{
    shares->useful *= factor;
    shares->overhead *= factor;
    shares->stall *= factor;
    shares->detect *= factor;
    shares->restart *= factor;
    shares->load *= factor;
    shares->redone *= factor;
    shares->waiting *= factor;
}

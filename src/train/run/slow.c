/* slow: a rank's work against the mean of its peers'. Steps of a few milliseconds are at the mercy of the scheduler, so
 * a rank must also cost the others a time that matters. */
#include "train/run/slow.h"

#include "base/assert.h"

#define TIMES_LEAST 1.5  /* slower than that, as a multiple of the usual */
#define EXCESS_LEAST 0.1 /* seconds a step */
#define USUAL_STEPS 8
#define AGAIN_STEPS 100

/* This rank's baseline: 1, or the mean of its first steps. */
static double usual_of(struct ash_slow_watch *watch, double times, bool is_uneven)
{
    if (!is_uneven) return 1.0;
    if (watch->steps <= USUAL_STEPS) watch->usual += (times - watch->usual) / (double)watch->steps;
    return watch->usual;
}

double ash_slow_even(double own_s, size_t own, size_t grains, size_t ranks)
{
    ash_assert(ranks > 0);
    return own > 0 ? own_s * (double)grains / (double)(own * ranks) : own_s;
}

bool ash_slow_watch_add(struct ash_slow_watch *watch, double own_s, double sum_s, size_t ranks, bool is_uneven)
{
    double peers_s, usual;

    ash_assert(ranks > 0 && own_s >= 0);
    if (ranks < 2) return false;
    peers_s = (sum_s - own_s) / (double)(ranks - 1);
    if (peers_s <= 0) return false;
    watch->steps++;
    usual = usual_of(watch, own_s / peers_s, is_uneven);
    if (own_s < TIMES_LEAST * usual * peers_s || own_s - usual * peers_s < EXCESS_LEAST) {
        watch->slow_steps = 0;
        return false;
    }
    watch->slow_steps++;
    watch->times = own_s / (usual * peers_s);
    watch->mean += (watch->times - watch->mean) / (double)watch->slow_steps;
    return watch->slow_steps % AGAIN_STEPS == ASH_SLOW_STEPS;
}

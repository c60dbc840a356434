/* goodput_priv - what the formula lends to the search of intervals and to the simulation. */
#ifndef ASH_PLAN_GOODPUT_PRIV_H
#define ASH_PLAN_GOODPUT_PRIV_H

#include "plan/goodput/goodput.h"

/* Useful share of the time between failures that only the slow level answers; 1 without a fast level. */
double ash_goodput_fast_rate(const struct ash_goodput_way *way);
/* Useful share of all time; overhead and waiting are not in it. */
double ash_goodput_slow_rate(const struct ash_goodput_way *way);
/* Multiply every share. */
void ash_goodput_scale(struct ash_goodput_shares *shares, double factor);

#endif

/* number - the larger of two doubles: unlike fmax it is inlined everywhere, and searches take it millions of times. */
#ifndef ASH_PLAN_NUMBER_H
#define ASH_PLAN_NUMBER_H

static inline double ash_larger(double a, double b)
{
    return a > b ? a : b;
}

#endif

/* math - small integer arithmetic: limits, and rounding to multiples. */
#ifndef ASH_BASE_MATH_H
#define ASH_BASE_MATH_H

#include <stddef.h>

/* The smaller of two. */
static inline size_t ash_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The larger of two. */
static inline size_t ash_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* How many whole parts of `unit` (not 0) it takes to hold n. */
static inline size_t ash_div_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit;
}

/* The smallest multiple of `unit` (not 0) that is at least n. */
static inline size_t ash_round_up(size_t n, size_t unit)
{
    return ash_div_up(n, unit) * unit;
}

#endif

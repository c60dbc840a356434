/* squares - the sum of squares of any number of floats, exact to a fixed grid, so that it has no order: the sum is the
 * same for any split over ranks. Each square is cut off to a whole number of units of 2^(2 exponent - 62), where
 * 2^exponent is above the largest; integers add up without rounding. Shared by all backends. */
#ifndef ASH_COMPUTE_SQUARES_H
#define ASH_COMPUTE_SQUARES_H

#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include "base/bits.h"
#include "compute/ops.h"

#define ASH_SQUARES_BITS 62
#define ASH_SQUARES_MIN 4096 /* floats that are worth a thread */

struct ash_squares_op {
    const float *x;
    double scale; /* 2^-exponent */
    _Atomic uint32_t max;
    _Atomic uint64_t high, low;
};

/* The bits of |x| order like |x|, and a NaN's are above all others. */
static inline void ash_squares_max_range(void *ctx, size_t begin, size_t end, int worker)
{
    struct ash_squares_op *op = ctx;
    uint32_t max = 0, seen;

    (void)worker;
    for (size_t i = begin; i < end; i++) {
        uint32_t bits;
        memcpy(&bits, &op->x[i], sizeof(bits));
        bits &= 0x7fffffff;
        max = bits > max ? bits : max;
    }
    seen = atomic_load_explicit(&op->max, memory_order_relaxed);
    while (max > seen &&
           !atomic_compare_exchange_weak_explicit(&op->max, &seen, max, memory_order_relaxed, memory_order_relaxed))
        ;
}

/* x / 2^exponent is below 1 and its square exact in a double; so is the square in units, before its fraction is
 * dropped. */
static inline void ash_squares_sum_range(void *ctx, size_t begin, size_t end, int worker)
{
    struct ash_squares_op *op = ctx;
    uint64_t high = 0, low = 0;

    (void)worker;
    for (size_t i = begin; i < end; i++) {
        double y = (double)op->x[i] * op->scale;
        uint64_t units = (uint64_t)(int64_t)(y * y * 0x1p62);
        high += units >> 32;
        low += units & 0xffffffff;
    }
    atomic_fetch_add_explicit(&op->high, high, memory_order_relaxed);
    atomic_fetch_add_explicit(&op->low, low, memory_order_relaxed);
}

static inline void ash_squares_max(struct ash_exec *exec, const struct ash_squares_args *args)
{
    struct ash_squares_op op = {.max = args->sum->max};

    for (size_t r = 0; r < args->range_count; r++) {
        op.x = args->x + args->ranges[r].first;
        ash_workers_run(exec->workers, args->ranges[r].count, ASH_SQUARES_MIN, ash_squares_max_range, &op);
    }
    args->sum->max = atomic_load(&op.max);
}

static inline void ash_squares_add(struct ash_exec *exec, const struct ash_squares_args *args)
{
    struct ash_squares *sum = args->sum;
    struct ash_squares_op op = {.scale = ldexp(1.0, -ash_f32_exponent(sum->max))};
    uint64_t low;

    if (!ash_f32_is_finite(sum->max)) return;
    for (size_t r = 0; r < args->range_count; r++) {
        op.x = args->x + args->ranges[r].first;
        ash_workers_run(exec->workers, args->ranges[r].count, ASH_SQUARES_MIN, ash_squares_sum_range, &op);
    }
    low = sum->low + atomic_load(&op.low);
    sum->high += atomic_load(&op.high) + (low >> 32);
    sum->low = low & 0xffffffff;
}

#endif

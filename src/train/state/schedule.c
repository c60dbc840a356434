/* schedule: learning rates from plain arithmetic and IEEE square roots only, the same on every machine. */
#include "train/state/schedule.h"

#include <math.h>

#define PI 3.14159265358979323846

/* (1 + cos(pi x)) / 2 for x in [0, 1]: the square of cos(pi x / 2), whose Taylor series has converged to double by
 * x^22. */
static double half_cosine(double x)
{
    double angle = x * (PI / 2.0), term = 1.0, sum = 1.0;

    for (int k = 1; k <= 12; k++) {
        term = -term * angle * angle / (double)((2 * k - 1) * (2 * k));
        sum += term;
    }
    return sum * sum;
}

/* Where step lies between begin (0) and end (1). */
static double progress(uint64_t step, uint64_t begin, uint64_t end)
{
    if (step >= end) return 1.0;
    if (step <= begin) return 0.0;
    return (double)(step - begin) / (double)(end - begin);
}

/* Position between final_share (0) and the peak (1), after the warm-up. */
static double height(const struct ash_lr_schedule *schedule, uint64_t step)
{
    uint64_t decay_begin = schedule->steps > schedule->decay_steps ? schedule->steps - schedule->decay_steps : 0;

    switch (schedule->kind) {
    case ASH_LR_COSINE:
        return half_cosine(progress(step, schedule->warmup_steps, schedule->steps));
    case ASH_LR_WSD:
        return 1.0 - sqrt(progress(step, decay_begin, schedule->steps));
    case ASH_LR_CONSTANT:
        break;
    }
    return 1.0;
}

double ash_lr_schedule_at(const struct ash_lr_schedule *schedule, uint64_t step)
{
    if (step < schedule->warmup_steps) return schedule->peak_lr * (double)(step + 1) / (double)schedule->warmup_steps;
    return schedule->peak_lr * (schedule->final_share + (1.0 - schedule->final_share) * height(schedule, step));
}

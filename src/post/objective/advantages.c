/* advantages: one function for each way. */
#include "post/objective/advantages.h"

#include <math.h>

#include "base/assert.h"

#define TINY 1e-8 /* veRL adds it to counts and variances */

static double group_mean(const double *rewards, const int64_t *group, size_t count, int64_t which, size_t *size_out)
{
    double sum = 0.0;
    size_t size = 0;

    for (size_t i = 0; i < count; i++) {
        if (group[i] != which) continue;
        sum += rewards[i];
        size++;
    }
    ash_assert(size > 0); /* the answer itself is in its group */
    *size_out = size;
    return sum / (double)size;
}

static double group_deviation(const double *rewards, const int64_t *group, size_t count, int64_t which, double mean,
                              size_t size)
{
    double sum = 0.0;

    ash_assert(size > 1); /* n - 1 divides */
    for (size_t i = 0; i < count; i++)
        if (group[i] == which) sum += (rewards[i] - mean) * (rewards[i] - mean);
    return sqrt(sum / (double)(size - 1));
}

void ash_advantages_group(const double *rewards, const int64_t *group, size_t count, double eps, bool alone_is_whole,
                          double *advantages)
{
    for (size_t i = 0; i < count; i++) {
        size_t size = 0;
        double mean = group_mean(rewards, group, count, group[i], &size), deviation = 1.0;

        if (size == 1)
            mean = alone_is_whole ? 0.0 : rewards[i];
        else if (eps > 0)
            deviation = group_deviation(rewards, group, count, group[i], mean, size) + eps;
        if (size == 1 && eps > 0) deviation = (double)(1.0f + (float)eps); /* as veRL rounds it */
        advantages[i] = (rewards[i] - mean) / deviation;
    }
}

void ash_advantages_rloo(const double *rewards, const int64_t *group, size_t count, double *advantages)
{
    for (size_t i = 0; i < count; i++) {
        size_t size = 0;
        double mean = group_mean(rewards, group, count, group[i], &size), n = (double)size;

        advantages[i] = size > 1 ? rewards[i] * n / (n - 1) - mean * n / (n - 1) : rewards[i];
    }
}

void ash_advantages_best(const double *rewards, const int64_t *group, size_t count, double *advantages)
{
    for (size_t i = 0; i < count; i++) {
        size_t best = count;
        bool beats_one = false;

        for (size_t j = 0; j < count; j++) {
            if (group[j] != group[i]) continue;
            if (best == count || rewards[j] > rewards[best]) best = j;
            beats_one |= rewards[j] < rewards[i];
        }
        advantages[i] = best == i && beats_one ? 1.0 : 0.0;
    }
}

void ash_advantages_whiten(const double *values, const double *mask, size_t count, double *whitened)
{
    double sum = 0.0, squares = 0.0, n = 0.0, mean, variance;

    for (size_t i = 0; i < count; i++) {
        sum += values[i] * mask[i];
        n += mask[i];
    }
    mean = sum / (n + TINY);
    for (size_t i = 0; i < count; i++)
        squares += (values[i] - mean) * (values[i] - mean) * mask[i];
    variance = n > 1 ? squares / (n + TINY) * (n / (n - 1)) : 0.0;
    for (size_t i = 0; i < count; i++)
        whitened[i] = (values[i] - mean) / sqrt(variance + TINY) * mask[i];
}

void ash_advantages_gae(const struct ash_advantages_table *table, double gamma, double lambda, double *returns,
                        double *advantages)
{
    const double *values = table->values, *mask = table->mask;

    for (size_t a = 0; a < table->answers; a++) {
        double next = 0.0, last = 0.0;

        for (size_t t = table->width; t-- > 0;) {
            size_t i = a * table->width + t;
            double now = table->rewards[i] + gamma * next - values[i] + gamma * lambda * last;

            next = values[i] * mask[i] + (1 - mask[i]) * next;
            last = now * mask[i] + (1 - mask[i]) * last;
            returns[i] = last + values[i];
            advantages[i] = last;
        }
    }
    ash_advantages_whiten(advantages, mask, table->answers * table->width, advantages);
}

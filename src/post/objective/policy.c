/* policy: ratios, clips, divergence. */
#include "post/objective/policy.h"

#include <math.h>

#define LOG_RATIO_MAX 20.0 /* as veRL limits it: beyond, exp overflows float32 sums */

static double limit(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

double ash_policy_kl(enum ash_kl_estimator estimator, double difference, double *slope_out)
{
    double back = limit(-difference, -LOG_RATIO_MAX, LOG_RATIO_MAX);

    switch (estimator) {
    case ASH_KL_K1:
        *slope_out = 1.0;
        return difference;
    case ASH_KL_K2:
        *slope_out = difference;
        return 0.5 * difference * difference;
    case ASH_KL_ABS:
        *slope_out = difference > 0 ? 1.0 : difference < 0 ? -1.0 : 0.0;
        return fabs(difference);
    case ASH_KL_K3_PLUS:
        *slope_out = difference;
        return exp(back) - back - 1.0;
    case ASH_KL_K3:
        break;
    }
    *slope_out = 1.0 - exp(back);
    return exp(back) - back - 1.0;
}

/* The loss of a ratio and its derivative by the ratio's logarithm. */
static double ratio_loss(const struct ash_policy_opts *opts, double ratio, double advantage, double *slope_out,
                         int *clipped_out)
{
    double bounded = limit(ratio, 1 - opts->clip_low, 1 + opts->clip_high);
    bool is_cut = opts->most > 0 && ratio > opts->most;
    double plain = -advantage * (is_cut ? opts->most : ratio), clipped = -advantage * bounded;
    double loss = plain > clipped ? plain : clipped, slope = plain >= clipped && !is_cut ? -advantage * ratio : 0.0;

    *clipped_out = ratio < 1 - opts->clip_low && advantage < 0 ? -1 : ratio > 1 + opts->clip_high && advantage > 0;
    if (opts->dual > 0 && advantage < 0 && loss > -advantage * opts->dual) {
        loss = -advantage * opts->dual;
        slope = 0.0;
    }
    *slope_out = slope;
    return loss;
}

/* CISPO: a ratio without a gradient weighs the log-probability. */
static double cispo_loss(const struct ash_policy_opts *opts, double ratio, double logp, double advantage,
                         double *slope_out, int *clipped_out)
{
    double weight = ratio < opts->clip_high ? ratio : opts->clip_high;

    *clipped_out = ratio > opts->clip_high && advantage > 0;
    *slope_out = -weight * advantage;
    return -weight * advantage * logp;
}

struct ash_policy_value ash_policy_loss(const struct ash_policy_opts *opts, const struct ash_policy_answer *answer,
                                        double *slopes)
{
    struct ash_policy_value value = {0};
    double mean = 0.0, shared = 0.0;

    for (size_t t = 0; opts->is_sequence && t < answer->count; t++)
        mean += (answer->logps[t] - answer->old[t]) / (double)answer->count;
    for (size_t t = 0; t < answer->count; t++) {
        double log_ratio = opts->is_sequence ? mean : answer->logps[t] - answer->old[t], slope = 0.0, kl_slope = 0.0;
        double ratio = exp(limit(log_ratio, -LOG_RATIO_MAX, LOG_RATIO_MAX)), loss;
        int clipped = 0;

        if (opts->is_cispo)
            loss = cispo_loss(opts, ratio, answer->logps[t], answer->advantages[t], &slope, &clipped);
        else
            loss = ratio_loss(opts, ratio, answer->advantages[t], &slope, &clipped);
        value.clipped_low += clipped < 0;
        value.clipped_high += clipped > 0;
        if (opts->kl_coef > 0) {
            double kl = ash_policy_kl(opts->kl_estimator, answer->logps[t] - answer->reference[t], &kl_slope);

            value.kl += kl;
            loss += opts->kl_coef * kl;
        }
        value.loss += answer->weight * loss;
        shared += slope;
        slopes[t] = answer->weight * ((opts->is_sequence ? 0.0 : slope) + opts->kl_coef * kl_slope);
    }
    for (size_t t = 0; opts->is_sequence && t < answer->count; t++)
        slopes[t] += answer->weight * shared / (double)answer->count;
    return value;
}

double ash_policy_value_loss(double predicted, double before, double returned, double range, double *slope_out)
{
    double bounded = limit(predicted, before - range, before + range);
    double plain = (predicted - returned) * (predicted - returned),
           clipped = (bounded - returned) * (bounded - returned);
    bool is_inside = predicted == bounded;

    *slope_out = plain >= clipped || is_inside ? predicted - returned : 0.0;
    return 0.5 * (plain > clipped ? plain : clipped);
}

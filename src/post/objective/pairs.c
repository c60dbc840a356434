/* pairs: the losses, one case each. */
#include "post/objective/pairs.h"

#include <math.h>

static double sigmoid(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

static double log_sigmoid(double x)
{
    return x >= 0 ? -log1p(exp(-x)) : x - log1p(exp(x));
}

/* -log sigmoid(x) of x = a chosen's part - a rejected's part, with derivatives of those parts. */
static struct ash_pair_value sigmoid_loss(double x, double by_chosen, double by_rejected, double smoothing)
{
    double slope = -(1 - smoothing) * sigmoid(-x) + smoothing * sigmoid(x);

    return (struct ash_pair_value){.loss = -(1 - smoothing) * log_sigmoid(x) - smoothing * log_sigmoid(-x),
                                   .chosen = slope * by_chosen,
                                   .rejected = -slope * by_rejected};
}

static struct ash_pair_value robust_loss(double x, double beta, double smoothing)
{
    double scale = 1 / (1 - 2 * smoothing), slope = scale * (-(1 - smoothing) * sigmoid(-x) - smoothing * sigmoid(x));

    return (struct ash_pair_value){.loss = scale * (-(1 - smoothing) * log_sigmoid(x) + smoothing * log_sigmoid(-x)),
                                   .chosen = slope * beta,
                                   .rejected = -slope * beta};
}

static struct ash_pair_value hinge_loss(double x, double beta)
{
    double slope = x < 1 ? -beta : 0;

    return (struct ash_pair_value){.loss = x < 1 ? 1 - x : 0, .chosen = slope, .rejected = -slope};
}

/* The squared distance of the mean log-ratios' difference from 1 / (2 beta). */
static struct ash_pair_value ipo_loss(double chosen, double rejected, double beta, double chosen_count,
                                      double rejected_count)
{
    double far = chosen / chosen_count - rejected / rejected_count - 1 / (2 * beta);

    return (struct ash_pair_value){
        .loss = far * far, .chosen = 2 * far / chosen_count, .rejected = -2 * far / rejected_count};
}

static struct ash_pair_value apo_zero_loss(double chosen, double rejected, double beta)
{
    double c = sigmoid(beta * chosen), r = sigmoid(beta * rejected);

    return (struct ash_pair_value){.loss = 1 - c + r, .chosen = -beta * c * (1 - c), .rejected = beta * r * (1 - r)};
}

static struct ash_pair_value nca_loss(double chosen, double rejected, double beta)
{
    double c = beta * chosen, r = beta * rejected;

    return (struct ash_pair_value){.loss = -log_sigmoid(c) - 0.5 * log_sigmoid(-c) - 0.5 * log_sigmoid(-r),
                                   .chosen = beta * (-sigmoid(-c) + 0.5 * sigmoid(c)),
                                   .rejected = beta * 0.5 * sigmoid(r)};
}

/* Cross-entropy of the chosen answer, and the ratio of the odds of both, of mean log-probabilities. */
static struct ash_pair_value orpo_loss(const struct ash_pair_side *chosen, const struct ash_pair_side *rejected,
                                       double beta)
{
    double c = fmin(chosen->logp / chosen->count, -1e-12), r = fmin(rejected->logp / rejected->count, -1e-12);
    double odds = (c - r) - (log(-expm1(c)) - log(-expm1(r))), slope = -beta * sigmoid(-odds);
    double by_chosen = 1 / -expm1(c), by_rejected = 1 / -expm1(r); /* d log odds / d log-probability */

    return (struct ash_pair_value){.loss = -c - beta * log_sigmoid(odds),
                                   .chosen = (-1 + slope * by_chosen) / chosen->count,
                                   .rejected = -slope * by_rejected / rejected->count};
}

bool ash_pair_loss_has_reference(int loss)
{
    return loss != ASH_DPO_ORPO && loss != ASH_DPO_SIMPO;
}

struct ash_pair_value ash_pair_loss(const struct ash_job_dpo *opts, const struct ash_pair_side *chosen,
                                    const struct ash_pair_side *rejected)
{
    double beta = opts->beta, c = chosen->logp - chosen->reference, r = rejected->logp - rejected->reference;
    double x = beta * (c - r), smoothing = opts->label_smoothing;
    double per_c = beta / chosen->count, per_r = beta / rejected->count;
    struct ash_pair_value value = {0};

    switch ((enum ash_dpo_loss)opts->loss) {
    case ASH_DPO_SIGMOID:
        value = sigmoid_loss(x, beta, beta, smoothing);
        break;
    case ASH_DPO_ROBUST:
        value = robust_loss(x, beta, smoothing);
        break;
    case ASH_DPO_HINGE:
        value = hinge_loss(x, beta);
        break;
    case ASH_DPO_IPO:
        value = ipo_loss(c, r, beta, chosen->count, rejected->count);
        break;
    case ASH_DPO_ORPO:
        value = orpo_loss(chosen, rejected, beta);
        break;
    case ASH_DPO_SIMPO:
        value = sigmoid_loss(per_c * chosen->logp - per_r * rejected->logp - opts->gamma, per_c, per_r, smoothing);
        break;
    case ASH_DPO_SIGMOID_NORM:
        value = sigmoid_loss(per_c * c - per_r * r, per_c, per_r, smoothing);
        break;
    case ASH_DPO_APO_ZERO:
        value = apo_zero_loss(c, r, beta);
        break;
    case ASH_DPO_NCA:
        value = nca_loss(c, r, beta);
        break;
    case ASH_DPO_KTO:
        return ash_pair_kto_loss(opts, chosen, rejected, 0.0);
    }
    value.margin = x;
    return value;
}

struct ash_pair_value ash_pair_kto_loss(const struct ash_job_dpo *opts, const struct ash_pair_side *chosen,
                                        const struct ash_pair_side *rejected, double baseline)
{
    double c = chosen->logp - chosen->reference, r = rejected->logp - rejected->reference;
    double good = sigmoid(opts->beta * (c - baseline)), bad = sigmoid(opts->beta * (baseline - r));
    double of_good = 0.5 * opts->desirable_weight, of_bad = 0.5 * opts->undesirable_weight;

    return (struct ash_pair_value){.loss = of_good * (1 - good) + of_bad * (1 - bad),
                                   .chosen = -of_good * opts->beta * good * (1 - good),
                                   .rejected = of_bad * opts->beta * bad * (1 - bad),
                                   .margin = opts->beta * (c - r)};
}

struct ash_pair_value ash_pair_reward_loss(double chosen, double rejected, double margin, double center)
{
    struct ash_pair_value value = sigmoid_loss(chosen - rejected - margin, 1, 1, 0);
    double sum = chosen + rejected;

    value.loss += center * sum * sum;
    value.chosen += 2 * center * sum;
    value.rejected += 2 * center * sum;
    value.margin = chosen - rejected;
    return value;
}

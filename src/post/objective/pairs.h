/* pairs - losses of pairs of answers as pure functions of their log-probabilities, with TRL's meanings. */
#ifndef ASH_POST_OBJECTIVE_PAIRS_H
#define ASH_POST_OBJECTIVE_PAIRS_H

#include "train/job/job_post.h"

/* Sums over the targets of an answer, and how many those are. */
struct ash_pair_side {
    double logp, reference; /* reference: 0 if there is none */
    double count;
};

struct ash_pair_value {
    double loss;
    double chosen, rejected; /* derivatives by the sums of log-probabilities */
    double margin;           /* beta * (chosen's - rejected's log-ratio) */
};

/* The loss of one pair and its derivatives. Finite for finite arguments with count > 0. */
struct ash_pair_value ash_pair_loss(const struct ash_job_dpo *opts, const struct ash_pair_side *chosen,
                                    const struct ash_pair_side *rejected);
/* KTO's loss of one pair, whose answers count for themselves, and its derivatives: a desirable answer should gain more
 * over the reference than baseline, an undesirable one less. The mean over both, with their weights. */
struct ash_pair_value ash_pair_kto_loss(const struct ash_job_dpo *opts, const struct ash_pair_side *chosen,
                                        const struct ash_pair_side *rejected, double baseline);
/* Does a loss compare with a reference? */
bool ash_pair_loss_has_reference(int loss);

/* The loss of the rewards of a pair, -log sigmoid(chosen - rejected - margin) + center * (chosen + rejected)^2, and its
 * derivatives. */
struct ash_pair_value ash_pair_reward_loss(double chosen, double rejected, double margin, double center);

#endif

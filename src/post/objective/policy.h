/* policy - the loss of a sampled answer as a pure function of its tokens' log-probabilities, with TRL's and veRL's
 * meanings: clipped ratios of tokens or of the whole answer, an estimate of the divergence from a reference. */
#ifndef ASH_POST_OBJECTIVE_POLICY_H
#define ASH_POST_OBJECTIVE_POLICY_H

#include <stdbool.h>
#include <stddef.h>

enum ash_kl_estimator { ASH_KL_K1, ASH_KL_K2, ASH_KL_K3, ASH_KL_ABS, ASH_KL_K3_PLUS };

struct ash_policy_opts {
    double clip_low, clip_high; /* ratios outside of [1 - low, 1 + high] get no gradient where they would gain */
    double most;                /* ratios are cut at this above (TRL's delta); 0: not */
    double dual;                /* bad answers lose at most this multiple of their advantage (clip_ratio_c); 0: no */
    bool is_sequence;           /* one ratio for the answer: the mean of its tokens' (GSPO) */
    bool is_cispo;              /* the ratio, cut at clip_high above, weighs log-probabilities */
    double kl_coef;
    enum ash_kl_estimator kl_estimator;
};

/* One answer. All arrays have count tokens. */
struct ash_policy_answer {
    size_t count;
    const double *logps, *old; /* now, and when it was sampled */
    const double *reference;   /* NULL: kl_coef is 0 */
    const double *advantages;
    double weight; /* of each token's loss: the step's denominators */
};

struct ash_policy_value {
    double loss;                      /* weighted */
    double kl;                        /* sum over tokens */
    size_t clipped_low, clipped_high; /* tokens whose ratio was out of bounds on the side that counts */
};

/* The loss of an answer; slopes [count] gets its derivatives by logps. */
struct ash_policy_value ash_policy_loss(const struct ash_policy_opts *opts, const struct ash_policy_answer *answer,
                                        double *slopes);
/* An estimate of the divergence at a token whose log-probability minus the reference's is difference; *slope_out gets
 * its derivative. */
double ash_policy_kl(enum ash_kl_estimator estimator, double difference, double *slope_out);
/* PPO's value loss of one token: half the larger squared error of the present prediction, and of that clipped to within
 * `range` of the prediction at sampling. *slope_out gets its derivative. */
double ash_policy_value_loss(double predicted, double before, double returned, double range, double *slope_out);

#endif

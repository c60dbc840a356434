/* law - Chinchilla's law of the loss, loss = E + A / params^alpha + B / tokens^beta, fitted to training runs: Huber
 * losses of the logarithms, the best of many starts. Pure functions of runs and options; any thread may call. */
#ifndef ASH_POST_SCALING_LAW_H
#define ASH_POST_SCALING_LAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_SCALING_RUNS_LEAST 5

/* One run. All are positive. */
struct ash_scaling_run {
    double params, tokens, loss;
};

/* ln loss = logsumexp(a - alpha ln params, b - beta ln tokens, e). */
struct ash_scaling_law {
    double a, b, e, alpha, beta;
};

struct ash_scaling_opts {
    bool is_tied;  /* alpha = beta: for few or small runs */
    double huber;  /* residuals of ln loss beyond it count linearly; 0: 1e-3 */
    uint64_t seed; /* of the bootstrap */
};

struct ash_scaling_fitted {
    struct ash_scaling_law law;
    double objective; /* sum of the Huber losses */
};

/* The law that fits runs [count] best. Returns 0, -EINVAL (too few runs, a number that is not positive; named in err)
 * or -ENOMEM. */
int ash_scaling_fit(const struct ash_scaling_run *runs, size_t count, const struct ash_scaling_opts *opts,
                    struct ash_scaling_fitted *fit_out, struct ash_err *err);
/* Laws of `count` samples of the runs that fit is of, drawn with replacement from opts->seed, into laws [count]; each
 * starts where fit ends. Returns 0 or -ENOMEM. */
int ash_scaling_bootstrap(const struct ash_scaling_run *runs, size_t run_count, const struct ash_scaling_opts *opts,
                          const struct ash_scaling_fitted *fit, struct ash_scaling_law *laws, size_t count);
/* The loss that a law expects. */
double ash_scaling_loss(const struct ash_scaling_law *law, double params, double tokens);
/* Parameters and tokens that give the lowest loss for flops = 6 * params * tokens. */
void ash_scaling_optimum(const struct ash_scaling_law *law, double flops, double *params_out, double *tokens_out);
/* The fewest operations with which a run reaches a loss: ash_scaling_optimum of them gives it. INFINITY where the law
 * does not fall so low. */
double ash_scaling_flops(const struct ash_scaling_law *law, double loss);
/* Tokens with which a model with this number of parameters reaches a loss; INFINITY if it cannot. */
double ash_scaling_tokens(const struct ash_scaling_law *law, double params, double loss);

/* An interval of values. */
struct ash_scaling_interval {
    double low, high;
};
/* The middle `share` of values [count], which are sorted. count > 0. */
struct ash_scaling_interval ash_scaling_middle(double *values, size_t count, double share);

#endif

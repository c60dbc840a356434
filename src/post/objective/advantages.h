/* advantages - advantages of answers from rewards, with veRL's and TRL's meanings. Pure functions in float64: sums run
 * over answers in their order. A table has `answers` rows of `width` tokens, row by row; mask is 1 for tokens of an
 * answer. */
#ifndef ASH_POST_OBJECTIVE_ADVANTAGES_H
#define ASH_POST_OBJECTIVE_ADVANTAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of the rewards of groups of answers: minus the group's mean, and with eps > 0 divided by its deviation (n - 1) + eps.
 * group [count] names each answer's group. A group of one: veRL takes mean 0 and deviation 1 (alone_is_whole), TRL
 * mean the reward itself, so nothing is learned. */
void ash_advantages_group(const double *rewards, const int64_t *group, size_t count, double eps, bool alone_is_whole,
                          double *advantages);
/* Minus the mean of the others of the group; a group of one keeps its reward. */
void ash_advantages_rloo(const double *rewards, const int64_t *group, size_t count, double *advantages);
/* 1 for the first of the largest rewards of a group, 0 for the others: the best of n is learned as an example is. A
 * group whose rewards are all equal has no best one. */
void ash_advantages_best(const double *rewards, const int64_t *group, size_t count, double *advantages);
/* Values of the tokens of answers; each [answers, width]. */
struct ash_advantages_table {
    const double *rewards;
    const double *values; /* of a critic; NULL where no function reads it */
    const double *mask;
    size_t answers, width;
};
/* (values - mean) / deviation over the mask (n - 1, + 1e-8 under the root); 0 outside of it. */
void ash_advantages_whiten(const double *values, const double *mask, size_t count, double *whitened);
/* Generalised advantage estimation; advantages are whitened, returns are not. */
void ash_advantages_gae(const struct ash_advantages_table *table, double gamma, double lambda, double *returns,
                        double *advantages);

#endif

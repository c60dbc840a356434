/* split - which processes of a run train and which sample, from the seconds that both sides have taken so far. */
#ifndef ASH_PLAN_RL_SPLIT_H
#define ASH_PLAN_RL_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

#define ASH_RL_DIVISIONS_MAX 64

/* A run with samplers in processes of their own: seconds of a step. */
struct ash_rl_measured {
    int trainers, samplers;
    int unit;         /* ranks of the trainer come in multiples of this: one more copy of the model */
    bool turns;       /* rollout.lag=0: both sides take turns */
    double compute_s; /* training; less with more ranks */
    double fixed_s;   /* rewards and the publishing of weights; the same with any number */
    double draw_s;    /* of each sampler; less with more samplers */
    double take_s;    /* of each sampler, for new weights; the same with any number */
    double step_s;    /* from one step to the next */
};

/* One way to divide the processes. */
struct ash_rl_division {
    int trainers, samplers;
    double train_s, sample_s, step_s;    /* of a step, as expected */
    double trainer_waits, samplers_wait; /* shares of the step */
};

/* All divisions of `procs` processes; of more than ASH_RL_DIVISIONS_MAX the best of each of so many ranges. Returns
 * their number; *best_out is the one with the shortest step. 0: there are too few processes. */
size_t ash_rl_divide(const struct ash_rl_measured *measured, int procs,
                     struct ash_rl_division divisions_out[ASH_RL_DIVISIONS_MAX], size_t *best_out);

#endif

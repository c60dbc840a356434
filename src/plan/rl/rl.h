/* rl - training and sampling of reinforcement learning on one cluster: do they take turns on all machines, or does each
 * have its own, and in which proportion? What hand-over, waiting and moving a machine cost. */
#ifndef ASH_PLAN_RL_RL_H
#define ASH_PLAN_RL_RL_H

#include "plan/train/search.h"
#include "plan/serve/serve.h"

struct ash_rl_job {
    struct ash_serve_job serve; /* model, cluster, lengths, answers per prompt, precision of the sampler */
    struct ash_search search;   /* of the trainer's layout */
    double prompts;             /* of one step; every answer to them is trained on once */
};

/* One way to divide the machines. */
struct ash_rl_split {
    int train_machines, sample_machines; /* all of them twice where they take turns */
    bool turns;
    struct ash_plan plan;         /* the trainer */
    struct ash_serve_point point; /* one sampler */
    double replicas;              /* of it */
    double train_s, sample_s;     /* of one step, each on its machines */
    double handover_s;            /* new weights from the trainer's layout to the samplers' */
    double swap_s;                /* state to host memory and back where both do not fit together; in turns only */
    double step_s;                /* the sum in turns; else the longer of both and the hand-over */
    double usd_step;              /* 0: no price */
};

struct ash_rl {
    struct ash_rl_split splits[16]; /* in turns first, then by machines of the trainer */
    size_t count;
    size_t best;
    double reuse_share; /* of the sampler's time that reading each prompt once for all its answers saves */
    double leave_s;     /* taking a sampler's machine away: seconds of answers that are begun again, at most */
    double move_s;      /* a machine joins or leaves the trainer: seconds in which its share of the state moves */
};

/* Compare. -ENOSPC where neither way works, with why in err. */
int ash_rl_plan(const struct ash_consts *consts, const struct ash_rl_job *job, struct ash_rl *rl_out,
                struct ash_err *err);

#endif

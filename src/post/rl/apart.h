/* apart - rollouts of samplers in other processes (rollout.mode=apart). A rollout is begun when its weights are
 * published, and completed when a step needs it: its answers are a function of these weights, so of the run's record,
 * and of nothing else. */
#ifndef ASH_POST_RL_APART_H
#define ASH_POST_RL_APART_H

#include "post/rl/desk.h"
#include "post/rl/publish.h"

struct ash_policy_run;
struct ash_rollout;
struct ash_trainer;

/* An order that samplers work on. */
struct ash_apart_order {
    uint64_t number, version, id; /* of the rollout */
    size_t round, turn;
};

/* What is drawn at once: a turn of the groups that are open in a round of dynamic sampling. */
struct ash_apart_turn {
    size_t round, number;
    const bool *is_open; /* [prompts] */
};

#define ASH_APART_ORDERS_MAX 1001 /* rollouts on their way: rollout.lag and one more */

struct ash_apart {
    struct ash_publisher publisher; /* the first two ranks: if one is lost, the other has the weights */
    struct ash_desk *desk;          /* the first rank */
    struct ash_apart_order *orders; /* [ASH_APART_ORDERS_MAX] */
    size_t order_count;
    uint64_t last_order, next_step;
    bool has_failed;   /* no sampler is left */
    uint64_t start_ns; /* of the first step here */
};

/* Who waited for whom: shares of the time, of the rank that trains and has the desk, and of all samplers together. The
 * shares of each side add up to 1. */
struct ash_apart_shares {
    double steps, answers, rewards, publishing; /* answers: waited for them */
    double drawing, waiting, taking;            /* taking: weights; 0, all three: no sampler has drawn yet */
};

/* Returns 0 or -ENOMEM; NULL in *apart_out if rollouts are sampled together. */
int ash_apart_open(const struct ash_policy_run *rl, struct ash_apart **apart_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_apart_close(struct ash_apart *apart);
/* The slot of a version: those that answers are still drawn with have each one of their own. */
size_t ash_apart_slot(const struct ash_policy_run *rl, uint64_t version);
/* Have samplers find the desk on the first rank, which may be another process than before. All ranks call it. */
int ash_apart_settle_desk(struct ash_policy_run *rl, struct ash_err *err);
/* Publish the weights of now as a version. All ranks call it. */
int ash_apart_publish(struct ash_policy_run *rl, struct ash_trainer *trainer, uint64_t version, struct ash_err *err);
/* First rank: hand out a turn of a rollout with its version's weights, unless that is done. *order_out: 0 if there is
 * nothing to draw. Returns 0, -ENODATA (the weights are not here) or another error. */
int ash_apart_begin(struct ash_policy_run *rl, const struct ash_rollout *rollout, const struct ash_apart_turn *turn,
                    uint64_t *order_out, struct ash_err *err);
/* First rank: have a turn drawn, and append the answers. Other ranks learn whether that was done. All ranks call it.
 * -ENOTRECOVERABLE on all: the weights are lost. */
int ash_apart_sample(struct ash_policy_run *rl, struct ash_rollout *rollout, const struct ash_apart_turn *turn,
                     struct ash_err *err);
/* What sampler and trainer must have in common, as text, which is appended to facts. Returns 0 or -ENOMEM. */
int ash_apart_facts(const struct ash_policy_run *rl, const char *arithmetic, size_t weights, struct ash_str *facts);

/* apart_shares.c: on the first rank, since this process has begun to train; zeros on others. */
struct ash_apart_shares ash_apart_get_shares(const struct ash_policy_run *rl);

/* ---- apart_steps.c ----------------------------------------------------------------------------------------------- */

/* Before a step: have its rollout, and later ones on their way. All ranks call it. Returns as struct ash_trainer_parts'
 * prepare. */
int ash_apart_prepare(struct ash_policy_run *rl, struct ash_trainer *trainer, uint64_t step, struct ash_err *err);
/* Have a rollout on all ranks: drawn now, found here or in its record. All ranks call it. */
int ash_apart_have(struct ash_policy_run *rl, uint64_t number, struct ash_err *err);

#endif

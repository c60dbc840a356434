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

/* What is drawn at once: a turn of the groups that are open in a round of dynamic sampling, or what one version of the
 * weights draws (rollout.chunk). */
struct ash_apart_turn {
    size_t round, number;
    const bool *is_open; /* [prompts]; NULL: all */
    uint64_t version;    /* steps that the weights had done */
    size_t reach;        /* tokens of an answer, at most, after it */
    uint64_t follows;    /* the order whose answers are continued; 0: those that are here */
    size_t more;         /* with follows: tokens at most */
};

struct ash_apart {
    struct ash_publisher publisher; /* the first two ranks: if one is lost, the other has the weights */
    struct ash_desk *desk;          /* the first rank */
    struct ash_apart_order *orders; /* [order_count] */
    size_t order_count, order_room;
    uint64_t last_order, next_step;
    bool has_failed;   /* no sampler is left */
    uint64_t start_ns; /* of the first step here */
    uint64_t first_step;
};

/* Who waited for whom: shares of the time, of the rank that trains and has the desk, and of all samplers together. The
 * shares of each side add up to 1. */
struct ash_apart_shares {
    double steps, answers, rewards, publishing; /* answers: waited for them */
    double drawing, waiting, taking;            /* taking: weights; 0, all three: no sampler has drawn yet */
    double step_s;                              /* seconds from one step to the next; 0: not known */
    size_t samplers;                            /* now */
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

/* Broadcast the first rank's result. All ranks call it. Returns 0, or its error on all; -ENOTRECOVERABLE: the
 * weights are lost. */
int ash_apart_agree(struct ash_policy_run *rl, int own, struct ash_err *err);
/* First rank: wait for an order, and append its answers. */
int ash_apart_take(struct ash_policy_run *rl, struct ash_rollout *rollout, uint64_t order, struct ash_err *err);

/* ---- apart_chunks.c: with rollout.chunk -------------------------------------------------------------------------- */

/* First rank: can versions below `end` of a rollout be drawn here? Its tokens so far are read if need be. */
bool ash_apart_can_draw(struct ash_policy_run *rl, uint64_t number, uint64_t end);
/* First rank: hand out what versions below `end` draw of a rollout, one after the other. */
int ash_apart_begin_chunks(struct ash_policy_run *rl, uint64_t number, uint64_t end, struct ash_err *err);
/* Have what versions below `end` draw of a rollout on all ranks. All ranks call it. */
int ash_apart_draw_chunks(struct ash_policy_run *rl, uint64_t number, uint64_t end, struct ash_err *err);
/* The same, unless all ranks have it; and record it. All ranks call it. */
int ash_apart_have_part(struct ash_policy_run *rl, uint64_t number, uint64_t end, struct ash_err *err);

/* ---- apart_steps.c ----------------------------------------------------------------------------------------------- */

/* Before a step: have its rollout, and later ones on their way. All ranks call it. Returns as struct ash_trainer_parts'
 * prepare. */
int ash_apart_prepare(struct ash_policy_run *rl, struct ash_trainer *trainer, uint64_t step, struct ash_err *err);
/* Have a rollout on all ranks: drawn now, found here or in its record. All ranks call it. */
int ash_apart_have(struct ash_policy_run *rl, uint64_t number, struct ash_err *err);

#endif

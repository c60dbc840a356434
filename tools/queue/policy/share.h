/* share - fair shares: Slurm's fair-share factor (classic and fair tree) from usage and shares in a tree of accounts
 * and users, and KAI's division of a cluster among queues. Pure arithmetic. */
#ifndef ASH_QUEUE_POLICY_SHARE_H
#define ASH_QUEUE_POLICY_SHARE_H

#include <stdbool.h>
#include <stddef.h>

/* An account or a user. Parents come before their children in every array. */
struct ash_share_node {
    int parent;    /* -1: the root */
    double shares; /* among its siblings */
    double usage;  /* of users: resource-seconds, decayed; of accounts it is the sum below, set by the calls */
    bool is_user;
    /* set by the calls */
    double norm_shares; /* of the whole (classic), of the siblings (fair tree) */
    double norm_usage;  /* of the whole */
    double effective_usage;
    double level_fs; /* fair tree: norm_shares / effective_usage; INFINITY where nothing was used */
    double factor;   /* of users: 0 to 1, more is due more */
};

/* Slurm's PriorityFlags=NO_FAIR_TREE: factor = 2^-(effective usage / norm shares / damping). */
void ash_share_multifactor(struct ash_share_node *nodes, int count, double damping);
/* Slurm's default: siblings ranked by shares over usage, level by level; factor = rank / users. Returns 0 or
 * -ENOMEM. */
int ash_share_fair_tree(struct ash_share_node *nodes, int count);
/* What remains of usage after seconds, with that half-life (0: all of it). */
double ash_share_decay(double seconds, double half_life_s);

/* A queue that wants part of a cluster. */
struct ash_share_claim {
    double deserved, asked, weight; /* its quota; its demand; its weight in the surplus */
    double limit;                   /* at most; INFINITY: none */
    double given;                   /* set by the call */
};

/* Every queue gets min(deserved, asked); the rest is divided by weight until all demand is met. */
void ash_share_divide(struct ash_share_claim *claims, int count, double total);

#endif

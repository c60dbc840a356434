/* external_priv - servers that sample, and the pass that weighs their tokens. */
#ifndef ASH_POST_RL_EXTERNAL_PRIV_H
#define ASH_POST_RL_EXTERNAL_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include "model/pass/pass.h"
#include "post/rl/external.h"

struct ash_external {
    const struct ash_policy_run *rl;
    char *model; /* that requests name; NULL: not known yet */
    bool is_met; /* servers mean the same by ids */
    pthread_mutex_t lock;
    atomic_bool has_failed; /* an answer of this rollout cannot be had */
    atomic_size_t tries;    /* requests that were sent again */
    struct ash_model *weighed;
    struct ash_pass *pass; /* of weighed; NULL: not open in this epoch */
};

#endif

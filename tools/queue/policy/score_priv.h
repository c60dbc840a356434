/* Shared by the files of scores. */
#ifndef ASH_QUEUE_POLICY_SCORE_PRIV_H
#define ASH_QUEUE_POLICY_SCORE_PRIV_H

#include "queue/policy/policy_priv.h"

/* Requests for the same GPUs: their frequency, by processors. */
struct ash_policy_score_group {
    int gpus, milli;
    uint64_t models;
    int first, count; /* into cpu and share */
    double total;     /* share of all requests */
};

/* Scores of one kind of request on all hosts, valid where the host's version is that of then. */
struct ash_policy_score_memory {
    int64_t cpu_milli;
    int gpus, milli;
    double *score;
    uint32_t *version; /* plus 1; 0: never */
    int8_t *gpu;
};

struct ash_policy_score {
    uint64_t draws;
    struct ash_policy_score_group *groups;
    int group_count;
    int64_t *cpu;  /* ascending inside a group */
    double *share; /* of requests of the group for at most that */
    double *fragments;
    uint32_t *version; /* of hosts, plus 1, that fragments holds for */
    struct ash_policy_score_memory *memories;
    int memory_count;
};

/* The policy's, made if there is none; NULL: out of memory. */
struct ash_policy_score *ash_policy_score_get(struct ash_policy *policy);
/* Does it take a part of one GPU? */
bool ash_policy_is_share(const struct ash_policy_job *job);
/* The cache of requests like this one; NULL: not cached. */
struct ash_policy_score_memory *ash_policy_score_memory_of(struct ash_policy *policy, const struct ash_policy_job *job);
/* How much a job would lessen fragments on a host, at best, and on which GPU (-1: whole ones). It is remembered as long
 * as the host does not change; memory may be NULL. */
double ash_policy_descent(struct ash_policy *policy, struct ash_policy_score_memory *memory, int host,
                          const struct ash_policy_job *job, int *gpu_out);

#endif

/* Shared by the simulation's files. */
#ifndef ASH_QUEUE_REPLAY_PRIV_H
#define ASH_QUEUE_REPLAY_PRIV_H

#include "queue/replay/replay.h"

/* A job of the trace on its way. */
struct ash_replay_run {
    float wait_s;        /* in all, until now */
    float since_s;       /* it waits or runs since: seconds after its submission */
    float left_s;        /* of work */
    float slow;          /* how much its place slows it */
    int32_t number;      /* in the policy; -1: it is over, or was refused */
    uint32_t generation; /* of its end event */
    bool is_running, has_started, must_restart;
};

/* A job's request to the policy. */
struct ash_policy_job ash_replay_request(const struct ash_replay_opts *opts, size_t index);
/* Waits by size, class and queue, from the runs. Returns 0 or -ENOMEM. */
int ash_replay_count(const struct ash_replay_opts *opts, const struct ash_replay_run *runs,
                     struct ash_replay_report *report);

/* By hosts wanted: the lowest height of a domain that holds that many in the empty cluster. The caller frees it. NULL:
 * out of memory. */
int *ash_replay_lowest(const struct ash_topology *topology);
/* How much longer a job's steps take by the height of its domain: communication takes longer across each layer. */
void ash_replay_slowness(const struct ash_replay_opts *opts, double slow_out[ASH_REPLAY_HEIGHTS]);

#endif

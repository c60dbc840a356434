/* rank_health - findings from the records of a job's ranks: ranks slower than their peers, differing collective calls,
 * missing ranks. Ranks come from rings in a folder and from agents; those of one job and run are judged together. */
#ifndef ASH_OBSERVE_HEALTH_RANK_HEALTH_H
#define ASH_OBSERVE_HEALTH_RANK_HEALTH_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/json.h"
#include "observe/health/diagnose.h"

/* One step of one rank, in seconds. */
struct ash_rank_point {
    uint64_t step;
    double own_s, data_s; /* own: computing and data; data: the data part of it */
    double comm_s;        /* waits for others and for the network */
    double grains;        /* that it computed; 0 or NaN: not known */
};

struct ash_rank_record {
    char job[64], run[128], run_id[32], node[128]; /* node may be empty */
    size_t rank;
    struct ash_rank_point *points; /* owned */
    size_t count;
    double end_s; /* of its last step, since 1970; 0: not known */
};

/* Zero-initialise. One owner thread. */
struct ash_rank_list {
    struct ash_rank_record *records;
    size_t count;
};

/* Add a rank and its steps, which are copied. Returns 0 or -ENOMEM. */
int ash_rank_list_add(struct ash_rank_list *list, const struct ash_rank_record *record);
/* Add the ranks that left rings in dir. node names their machine; may be empty. Returns 0 or a negative errno. */
int ash_rank_list_add_dir(struct ash_rank_list *list, const char *dir, const char *node, struct ash_err *err);
/* Add the ranks of an agent's board (an array, as ash_rank_steps_json writes it). Returns 0 or -ENOMEM. */
int ash_rank_list_add_board(struct ash_rank_list *list, const json_t *ranks, const char *node);
/* Keep those of a job and a run (observe/ranks/run_id.h); NULL: any. */
void ash_rank_list_keep(struct ash_rank_list *list, const char *job, const char *run_id);
/* Keep those that can be what wrote the run's log, which ends with this step at end_s (since 1970): an earlier try may
 * have left its records too. */
void ash_rank_list_keep_last(struct ash_rank_list *list, uint64_t step, double end_s);
/* Report stragglers, job by job. The list gets sorted. Returns 0 or -ENOMEM. */
int ash_rank_list_judge(struct ash_rank_list *list, struct ash_diagnose *diagnose);
/* Free it. A zeroed list is fine. */
void ash_rank_list_fini(struct ash_rank_list *list);

/* Compare the calls that a job's ranks recorded in dir and report what differs or waits. job: NULL for the one that
 * recorded last. run_id: NULL for any. A folder without recorders is nothing to judge. Returns 0 or -ENOMEM. */
int ash_calls_judge(const char *dir, const char *job, const char *run_id, struct ash_diagnose *diagnose);

#endif

/* rank_steps - the last steps of ranks, from the rings that they leave (record/step_ring.h). */
#ifndef ASH_OBSERVE_RANKS_RANK_STEPS_H
#define ASH_OBSERVE_RANKS_RANK_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/json.h"
#include "record/ring_file.h"
#include "record/step_ring.h"

/* One rank's steps, in their order. */
struct ash_rank_steps {
    char job[64], run[128], run_id[32];
    size_t rank;
    uint32_t pid;
    bool is_alive;
    struct ash_ring_view view;
};

/* All of a folder, sorted by job and rank. */
struct ash_rank_set {
    struct ash_rank_steps *ranks;
    size_t count;
};

/* Read every ring of steps in dir. Damaged files are left out. Returns 0 or a negative errno; on 0 the caller owns the
 * set. */
int ash_rank_set_load(struct ash_rank_set *set, const char *dir, struct ash_err *err);
/* A zeroed set is fine. */
void ash_rank_set_fini(struct ash_rank_set *set);
/* Record `index` of a rank. */
const struct ash_step_record *ash_rank_step(const struct ash_rank_steps *rank, size_t index);
/* Append to ranks (an array) the page's data: the last `most` steps of each rank. */
void ash_rank_steps_json(const char *dir, size_t most, json_t *ranks);

#endif

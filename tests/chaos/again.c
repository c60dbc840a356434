/* again: bits that change in transit, losses during state streaming, all ranks one after the other, one step
 * again and again. */
#include "chaos/again.h"

#include <errno.h>
#include <signal.h>

#include "train/run/control.h"

#define FLIP_SENT 3 /* see enum ash_trainer_flip */

int ash_chaos_flip_sent(struct ash_chaos_cell *cell)
{
    const struct ash_run_request request = {.flip = 1 + FLIP_SENT};
    int rc = ash_run_request_write(cell->dir, &request, NULL) < 0 ? -EIO : ash_chaos_wait_taken(cell);

    if (rc < 0) return rc;
    ash_chaos_strike(cell, 1, 1, SIGKILL);
    rc = ash_chaos_wait_ranks(cell, cell->ranks, 1);
    return rc < 0 ? rc : ash_chaos_wait_text(cell, "it was sent again", 1);
}

/* A rank leaves, a new one joins; while that receives the state, process `rank` dies, and one fewer continue. */
static int lose_in_growth(struct ash_chaos_cell *cell, size_t rank)
{
    const struct ash_run_request request = {.ranks = (int64_t)cell->ranks};
    int rc = ash_chaos_resize(cell, cell->ranks - 1);

    if (rc == 0) rc = ash_chaos_arm(cell, (int64_t)rank);
    if (rc == 0) rc = ash_chaos_wait_taken(cell);
    if (rc == 0 && ash_run_request_write(cell->dir, &request, NULL) < 0) rc = -EIO;
    if (rc == 0) rc = ash_chaos_wait_text(cell, "was killed", 1);
    return rc < 0 ? rc : ash_chaos_wait_ranks(cell, cell->ranks - 1, 2);
}

int ash_chaos_lose_newcomer(struct ash_chaos_cell *cell)
{
    return lose_in_growth(cell, cell->ranks - 1);
}

int ash_chaos_lose_source(struct ash_chaos_cell *cell)
{
    return lose_in_growth(cell, 1);
}

int ash_chaos_lose_coordinator(struct ash_chaos_cell *cell)
{
    return lose_in_growth(cell, 0);
}

int ash_chaos_replace_all(struct ash_chaos_cell *cell)
{
    pid_t first[ASH_CHAOS_RANKS_MAX];
    size_t count = ash_chaos_job_ranks(&cell->job, first);
    int rc = count > 0 ? 0 : -ESRCH;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        kill(first[i], SIGKILL);
        rc = ash_chaos_wait_ranks(cell, cell->ranks, i + 1);
    }
    return rc;
}

int ash_chaos_doom_step(struct ash_chaos_cell *cell)
{
    const struct ash_run_request request = {.doom = true};
    int rc = ash_run_request_write(cell->dir, &request, NULL) < 0
                 ? -EIO
                 : ash_chaos_wait_text(cell, "the job cannot get beyond it and ends", 1);

    if (rc == 0) rc = ash_chaos_job_wait(&cell->job, ASH_CHAOS_CELL_LIMIT_S);
    if (rc == 0 && cell->job.code != 128 + SIGKILL) rc = -ESRCH;
    return rc < 0 ? rc : ash_chaos_resume(cell);
}

/* faults: faults made by real signals, through the run's folder and the nodes' networks. No fixed waits: a fault
 * is over when the job reports it. */
#include "chaos/again.h"
#include "chaos/links.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "train/run/control.h"

#define LOOK_S 0.005
#define TEXT_BYTES_MAX ((size_t)64 << 20)

/* ---- waits ------------------------------------------------------------------------------------------------------- */

/* How often a text is in the job's output. */
static size_t count_text(const struct ash_chaos_cell *cell, const char *text)
{
    char *said = NULL;
    size_t size = 0, count = 0;

    if (ash_file_read(cell->out, TEXT_BYTES_MAX, &said, &size, NULL) < 0) return 0;
    for (const char *at = strstr(said, text); at != NULL; at = strstr(at + 1, text))
        count++;
    free(said);
    return count;
}

int ash_chaos_wait_steps(struct ash_chaos_cell *cell, uint64_t steps)
{
    while (ash_run_newest_step(cell->dir, NULL, NULL) < steps) {
        if (ash_chaos_job_ended(&cell->job)) return -ESRCH;
        if (ash_clock_ns() > cell->deadline_ns) return -ETIMEDOUT;
        ash_chaos_pause(LOOK_S);
    }
    return 0;
}

int ash_chaos_wait_text(struct ash_chaos_cell *cell, const char *text, size_t times)
{
    while (count_text(cell, text) < times) {
        if (ash_chaos_job_ended(&cell->job)) return -ESRCH;
        if (ash_clock_ns() > cell->deadline_ns) return -ETIMEDOUT;
        ash_chaos_pause(LOOK_S);
    }
    return 0;
}

int ash_chaos_wait_ranks(struct ash_chaos_cell *cell, size_t ranks, size_t times)
{
    char text[64];

    snprintf(text, sizeof(text), "; %zu rank%s from step", ranks, ranks == 1 ? " continues" : "s continue");
    return ash_chaos_wait_text(cell, text, times);
}

int ash_chaos_wait_taken(struct ash_chaos_cell *cell)
{
    while (ash_run_has_request(cell->dir)) {
        if (ash_chaos_job_ended(&cell->job)) return -ESRCH;
        if (ash_clock_ns() > cell->deadline_ns) return -ETIMEDOUT;
        ash_chaos_pause(LOOK_S);
    }
    return ash_chaos_wait_steps(cell, ash_run_newest_step(cell->dir, NULL, NULL) + 1);
}

int ash_chaos_wait_left(struct ash_chaos_cell *cell, const pid_t *pids, size_t count, size_t left)
{
    for (size_t alive = count; alive > left;) {
        alive = 0;
        for (size_t i = 0; i < count; i++)
            alive += kill(pids[i], 0) == 0;
        if (ash_clock_ns() > cell->deadline_ns) return -ETIMEDOUT;
        if (alive > left) ash_chaos_pause(LOOK_S);
    }
    return 0;
}

void ash_chaos_strike(const struct ash_chaos_cell *cell, size_t first, size_t count, int number)
{
    pid_t pids[ASH_CHAOS_RANKS_MAX];
    size_t ranks = ash_chaos_job_ranks(&cell->job, pids);

    for (size_t i = first; i < first + count && i < ranks; i++)
        kill(pids[i], number);
}

/* ---- signals ----------------------------------------------------------------------------------------------------- */

#define GO_ON "continue from step"

static int kill_one(struct ash_chaos_cell *cell)
{
    ash_chaos_strike(cell, 1, 1, SIGKILL);
    return ash_chaos_wait_text(cell, GO_ON, 1);
}

static int kill_first(struct ash_chaos_cell *cell)
{
    ash_chaos_strike(cell, 0, 1, SIGKILL);
    return ash_chaos_wait_text(cell, GO_ON, 1);
}

static int kill_node(struct ash_chaos_cell *cell)
{
    size_t ranks = cell->ranks / cell->nodes;

    ash_chaos_strike(cell, ranks, ranks, SIGKILL);
    return ash_chaos_wait_text(cell, GO_ON, 1);
}

static int kill_first_node(struct ash_chaos_cell *cell)
{
    ash_chaos_strike(cell, 0, cell->ranks / cell->nodes, SIGKILL);
    return ash_chaos_wait_text(cell, GO_ON, 1);
}

/* The next one while the group is being formed again. */
static int kill_three(struct ash_chaos_cell *cell)
{
    int rc;

    ash_chaos_strike(cell, 3, 1, SIGKILL);
    rc = ash_chaos_wait_text(cell, "was killed", 1);
    ash_chaos_strike(cell, 1, 1, SIGKILL);
    if (rc == 0) rc = ash_chaos_wait_text(cell, "was killed", 2);
    ash_chaos_strike(cell, 0, 1, SIGKILL);
    return rc < 0 ? rc : ash_chaos_wait_ranks(cell, cell->ranks - 3, 1);
}

static int kill_and_return(struct ash_chaos_cell *cell)
{
    ash_chaos_strike(cell, 1, 1, SIGKILL);
    return ash_chaos_wait_ranks(cell, cell->ranks, 1);
}

static int sleep_one(struct ash_chaos_cell *cell)
{
    int rc;

    ash_chaos_strike(cell, 1, 1, SIGSTOP);
    rc = ash_chaos_wait_text(cell, GO_ON, 1);
    ash_chaos_strike(cell, 1, 1, SIGCONT);
    return rc < 0 ? rc : ash_chaos_wait_text(cell, "rank 1 ended with", 1); /* it is fenced */
}

static int leave_one(struct ash_chaos_cell *cell)
{
    ash_chaos_strike(cell, 1, 1, SIGTERM);
    return ash_chaos_wait_ranks(cell, cell->ranks - 1, 1);
}

int ash_chaos_resize(struct ash_chaos_cell *cell, size_t ranks)
{
    const struct ash_run_request request = {.ranks = (int64_t)ranks};

    if (ash_run_request_write(cell->dir, &request, NULL) < 0) return -EIO;
    return ash_chaos_wait_ranks(cell, ranks, 1);
}

static int shrink_and_grow(struct ash_chaos_cell *cell)
{
    int rc = 0;

    for (size_t ranks = cell->ranks - 1; rc == 0 && ranks > 0; ranks--)
        rc = ash_chaos_resize(cell, ranks);
    return rc < 0 ? rc : ash_chaos_resize(cell, cell->ranks);
}

/* ---- flipped bits ------------------------------------------------------------------------------------------------ */

/* One changes in the memory of rank 1. Its own checksums detect it; the others send it the good part. */
static int flip(struct ash_chaos_cell *cell, int64_t which)
{
    const struct ash_run_request request = {.flip = 1 + ASH_RUN_FLIPS * 1 + which};

    if (ash_run_request_write(cell->dir, &request, NULL) < 0) return -EIO;
    return ash_chaos_wait_text(cell, "its memory has changed by itself", 1) < 0 ? -ETIMEDOUT
                                                                                : ash_chaos_wait_text(cell, GO_ON, 1);
}

static int flip_state(struct ash_chaos_cell *cell)
{
    return flip(cell, 0);
}

static int flip_copy(struct ash_chaos_cell *cell)
{
    return flip(cell, 1);
}

static int flip_bf16(struct ash_chaos_cell *cell)
{
    return flip(cell, 2);
}

/* ---- in the middle of something ---------------------------------------------------------------------------------- */

int ash_chaos_arm(struct ash_chaos_cell *cell, int64_t rank)
{
    const struct ash_run_request request = {.die = 1 + ASH_FAULT_POINTS * rank + (int64_t)cell->fault->point};

    return ash_run_request_write(cell->dir, &request, NULL) < 0 ? -EIO : 0;
}

static int die_inside(struct ash_chaos_cell *cell)
{
    int rc = ash_chaos_arm(cell, 1);

    return rc < 0 ? rc : ash_chaos_wait_text(cell, GO_ON, 1);
}

/* A rank is killed, and while the others get over it another one dies: the first, which coordinates, or one that gives
 * its part of the state. The request is known when the steps after it are logged. */
static int die_in_recovery(struct ash_chaos_cell *cell)
{
    int rc = ash_chaos_arm(cell, cell->fault->point == ASH_FAULT_REFORM ? 0 : 2);

    if (rc == 0) rc = ash_chaos_wait_taken(cell);
    if (rc == 0) ash_chaos_strike(cell, 1, 1, SIGKILL);
    return rc < 0 ? rc : ash_chaos_wait_ranks(cell, cell->ranks - 2, 1);
}

/* A rank is killed and restarted; so is that joining rank, before or while it receives its shard. */
static int kill_newcomer(struct ash_chaos_cell *cell)
{
    pid_t old[ASH_CHAOS_RANKS_MAX], pids[ASH_CHAOS_RANKS_MAX] = {0};
    size_t count = ash_chaos_job_ranks(&cell->job, old), now = 0;

    if (count == 0) return -ESRCH;
    ash_chaos_strike(cell, 1, 1, SIGKILL);
    while (now < count || pids[count - 1] == old[count - 1]) { /* the newest is the last */
        if (ash_chaos_job_ended(&cell->job)) return -ESRCH;
        if (ash_clock_ns() > cell->deadline_ns) return -ETIMEDOUT;
        ash_chaos_pause(LOOK_S);
        now = ash_chaos_job_ranks(&cell->job, pids);
    }
    kill(pids[count - 1], SIGKILL);
    return ash_chaos_wait_ranks(cell, cell->ranks, 1);
}

/* ---- wrong results ----------------------------------------------------------------------------------------------- */

#define WRONG "its results"

/* Rank 2: of ranks that add to one gradient buffer (cp), the first. */
static int compute_wrongly(struct ash_chaos_cell *cell)
{
    const struct ash_run_request request = {.err = 3};

    if (ash_run_request_write(cell->dir, &request, NULL) < 0) return -EIO;
    return ash_chaos_wait_text(cell, WRONG, 1) < 0 ? -ETIMEDOUT : ash_chaos_wait_text(cell, GO_ON, 1);
}

/* It is tried again some times; then that rank ends. */
static int stay_wrong(struct ash_chaos_cell *cell)
{
    const struct ash_run_request request = {.err = -3};

    if (ash_run_request_write(cell->dir, &request, NULL) < 0) return -EIO;
    return ash_chaos_wait_ranks(cell, cell->ranks - 1, 1);
}

/* ---- slow ranks -------------------------------------------------------------------------------------------------- */

static int slow_down(struct ash_chaos_cell *cell)
{
    const struct ash_run_request request = {.slow = 2};

    if (ash_run_request_write(cell->dir, &request, NULL) < 0) return -EIO;
    return ash_chaos_wait_text(cell, "rank 1 (host", 1) < 0 ? -ETIMEDOUT
                                                            : ash_chaos_wait_text(cell, "as slow as its peers", 1);
}

static int replace_slow(struct ash_chaos_cell *cell)
{
    int rc = slow_down(cell);

    return rc < 0 ? rc : ash_chaos_wait_ranks(cell, cell->ranks + cell->nodes - 1, 1);
}

/* ---- more than copies are for ------------------------------------------------------------------------------------ */

/* A rank and the other nodes, so that an owner and its holder are gone in any layout. */
static int kill_all_but_first(struct ash_chaos_cell *cell)
{
    ash_chaos_strike(cell, 1, cell->ranks - 1, SIGKILL);
    return ash_chaos_wait_text(cell, GO_ON, 1);
}

static int kill_two(struct ash_chaos_cell *cell)
{
    ash_chaos_strike(cell, 1, 2, SIGKILL);
    return ash_chaos_wait_text(cell, GO_ON, 1);
}

/* ---- the launcher ------------------------------------------------------------------------------------------------ */

void ash_chaos_add_launch(struct ash_chaos_words *words, const struct ash_chaos_cell *cell)
{
    ash_chaos_add(words, ASHLAR_PROGRAM);
    ash_chaos_add(words, "launch");
    ash_chaos_add(words, "--procs=%zu", cell->ranks);
    ash_chaos_add(words, "--nodes=%zu", cell->nodes);
    if (cell->has_net) ash_chaos_add_all(words, "--netns");
    if (cell->fault->has_spares) ash_chaos_add(words, "--spares=%zu", cell->nodes);
}

int ash_chaos_resume(struct ash_chaos_cell *cell)
{
    struct ash_chaos_words words = {0};

    ash_chaos_add_launch(&words, cell);
    ash_chaos_add_all(&words, "train --resume --out");
    ash_chaos_add(&words, "%s", cell->dir);
    return ash_chaos_job_start(&cell->job, words.list, cell->out, NULL);
}

/* Without a launcher ranks save and end; then the run is resumed. */
static int kill_launcher(struct ash_chaos_cell *cell, bool kills_ranks)
{
    pid_t pids[ASH_CHAOS_RANKS_MAX];
    size_t ranks = ash_chaos_job_ranks(&cell->job, pids);
    int rc;

    kill(cell->job.launcher, SIGKILL);
    for (size_t i = 0; kills_ranks && i < ranks; i++)
        kill(pids[i], SIGKILL);
    rc = ash_chaos_job_wait(&cell->job, ASH_CHAOS_CELL_LIMIT_S);
    if (rc == 0) rc = ash_chaos_wait_left(cell, pids, ranks, 0);
    return rc < 0 ? rc : ash_chaos_resume(cell);
}

static int kill_launcher_only(struct ash_chaos_cell *cell)
{
    return kill_launcher(cell, false);
}

static int kill_launcher_and_ranks(struct ash_chaos_cell *cell)
{
    return kill_launcher(cell, true);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

const struct ash_chaos_fault ash_chaos_faults[] = {
    {.name = "kill a rank; smaller layout", .happen = kill_one},
    {.name = "kill a rank; a spare takes over", .has_spares = true, .happen = kill_one},
    {.name = "kill a rank; it comes back", .launch = "--restarts=3", .happen = kill_and_return},
    {.name = "kill a rank in the forward pass", .happen = die_inside, .point = ASH_FAULT_FORWARD},
    {.name = "kill a rank in the backward pass", .happen = die_inside, .point = ASH_FAULT_BACKWARD},
    {.name = "kill a rank in the reduction", .happen = die_inside, .point = ASH_FAULT_REDUCE},
    {.name = "kill a rank before the update", .happen = die_inside, .point = ASH_FAULT_BEFORE_UPDATE},
    {.name = "kill a rank in the update", .happen = die_inside, .point = ASH_FAULT_IN_UPDATE},
    {.name = "kill a rank after the update", .happen = die_inside, .point = ASH_FAULT_AFTER_UPDATE},
    {.name = "kill a rank in a validation", .validates = true, .happen = die_inside, .point = ASH_FAULT_VALIDATION},
    {.name = "kill a rank in a save", .words = "train.save_every=5", .happen = die_inside, .point = ASH_FAULT_SAVE},
    {.name = "kill a rank, then the coordinator as the group re-forms (recover.copies=2)",
     .words = "recover.copies=2",
     .happen = die_in_recovery,
     .point = ASH_FAULT_REFORM},
    {.name = "kill a rank, then a source as the state moves (recover.copies=2)",
     .words = "recover.copies=2",
     .happen = die_in_recovery,
     .point = ASH_FAULT_TRANSFER},
    {.name = "kill a rank, then the newcomer", .launch = "--restarts=5", .happen = kill_newcomer},
    {.name = "grow by one, kill the newcomer as it is fed", .happen = ash_chaos_lose_newcomer, .point = ASH_FAULT_FEED},
    {.name = "grow by one, kill a source as the newcomer is fed",
     .happen = ash_chaos_lose_source,
     .point = ASH_FAULT_FEED},
    {.name = "grow by one, kill the coordinator as the newcomer is fed",
     .happen = ash_chaos_lose_coordinator,
     .point = ASH_FAULT_FEED},
    {.name = "kill the first rank", .happen = kill_first},
    {.name = "kill a node", .happen = kill_node},
    {.name = "kill the first node", .happen = kill_first_node},
    {.name = "kill three, one after the other (recover.copies=3)", .words = "recover.copies=3", .happen = kill_three},
    {.name = "kill two at once (recover.copies=2)", .words = "recover.copies=2", .happen = kill_two},
    {.name = "kill all but one at once: owners and holders (recover.copies=1)",
     .words = "train.save_every=5",
     .happen = kill_all_but_first},
    {.name = "SIGSTOP, then SIGCONT", .words = "group.silent_timeout=3", .happen = sleep_one},
    {.name = "SIGTERM to a rank (planned leave)", .happen = leave_one},
    {.name = "shrink one by one to 1, grow back", .happen = shrink_and_grow},
    {.name = "replace all ranks, one by one", .launch = "--restarts=3", .happen = ash_chaos_replace_all},
    {.name = "flip a bit of the state (recover.check_every=1)", .words = "recover.check_every=1", .happen = flip_state},
    {.name = "flip a bit of a copy (recover.check_every=1)",
     .words = "recover.check_every=1",
     .happen = flip_copy,
     .needs_copies = true},
    {.name = "flip a bit of the bf16 weights (recover.check_every=1)",
     .words = "recover.check_every=1",
     .happen = flip_bf16,
     .is_bf16 = true},
    {.name = "flip a bit of what a newcomer is sent",
     .launch = "--restarts=3",
     .happen = ash_chaos_flip_sent,
     .needs_copies = true}, /* a joining rank among node replicas finds the state in their memory: nothing is sent */
    {.name = "cut a node off, then heal",
     .launch = "--netns",
     .words = "group.silent_timeout=3",
     .happen = ash_chaos_cut_link,
     .needs_net = true},
    {.name = "cut one direction of a link, then heal",
     .launch = "--netns",
     .words = "group.silent_timeout=3",
     .happen = ash_chaos_cut_one_way,
     .needs_net = true},
    {.name = "throttle a link", .launch = "--netns", .happen = ash_chaos_throttle, .needs_net = true},
    {.name = "throttle a link; spares take over",
     .launch = "--netns --nodes=3 --spares=2 --replace-slow",
     .happen = ash_chaos_replace_throttled,
     .needs_net = true},
    {.name = "compute wrongly once (recover.audit_every=1)",
     .words = "recover.audit_every=1",
     .happen = compute_wrongly},
    {.name = "compute wrongly again and again (recover.audit_every=1)",
     .words = "recover.audit_every=1",
     .happen = stay_wrong,
     .needs_neighbours = true},
    {.name = "slow a rank", .happen = slow_down},
    {.name = "slow a rank; a spare takes over", .has_spares = true, .launch = "--replace-slow", .happen = replace_slow},
    {.name = "a step kills a rank each time (--restarts 1): the job ends, resume",
     .launch = "--restarts=1",
     .happen = ash_chaos_doom_step},
    {.name = "kill the launcher, resume", .happen = kill_launcher_only},
    {.name = "kill the launcher and all ranks, resume",
     .words = "train.save_every=5",
     .happen = kill_launcher_and_ranks},
};
const size_t ash_chaos_fault_count = ASH_COUNT(ash_chaos_faults);

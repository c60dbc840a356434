/* epoch - the life of a job's root group over losses, joiners and planned leaves. A root group lives for one epoch;
 * whenever ranks are lost, join or leave, all that stay form the group of the next epoch (ash_epoch_reform) and keep
 * their memory. At most one side of a job that falls apart continues (member/member.h says which); the other gets an
 * error and ends or joins again.
 *
 *   group = ash_group_open(...)                      // as a rank, or as a joiner (env.joins): waits until admitted
 *   for each step:
 *       rank 0: ash_epoch_get_news(group, ..)       // joiners and leavers that wait; spread it with a collective
 *       if (some) ash_epoch_reform(group, ...)       // planned, at a step's edge: all ranks call it
 *       run the step; an error of a collective       // -ECONNRESET, -ETIMEDOUT, ...: the epoch is over
 *           ash_epoch_reform(group, ...)             // unplanned: all survivors call it, from wherever they are
 *
 * Every process of an epoch is a member with a rank: spares are the ranks beyond the mesh, which the trainer leaves
 * idle. They have the group's channels already, so one can be fed while steps run, and can take over without a new
 * process. A joiner is admitted as such a spare in the next epoch, is fed, and enters the mesh at a later step's edge.
 *
 * Ranks of the new epoch: survivors keep their ranks where those are below the new size. Places that are empty are
 * taken by survivors whose ranks are not, lowest first (spares are those), then by joiners. So the mesh moves
 * little. */
#ifndef ASH_COLLECTIVE_EPOCH_H
#define ASH_COLLECTIVE_EPOCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "collective/group.h"

/* What waits for the next epoch, as this rank knows it. Joiners and leavers are reported to rank 0. */
struct ash_epoch_news {
    size_t joiners; /* processes that have proved the job's key and wait */
    size_t leavers; /* ranks that want to leave */
    bool is_over;   /* a rank is lost, or another rank re-forms already: every call on the group fails */
};

/* How a rank comes to the next epoch. All zero is a survivor that waits for no joiner. */
struct ash_epoch_opts {
    bool leaves;      /* this rank does not come along: it ends in good order */
    double wait_s;    /* once all survivors have come: for joiners, until there are want_size ranks */
    size_t want_size; /* 0: waiting joiners are admitted */
    size_t min_size;  /* with fewer ranks after wait_s there is no use to continue */
};

/* Form the group of the next epoch with all that are left of old's and with joiners. Survivors need not agree on why.
 * Every wait is bounded: by silent_timeout for ranks that neither come nor are known to be dead, and by wait_s. Ranks
 * that die meanwhile, also the coordinating one, are left out. old is closed in any case; groups split from it are
 * closed before. Returns 0 (*group_out is the caller's; NULL where opts->leaves, unless only joiners would be left: one
 * stays to feed them), -EHOSTUNREACH (this side of a cut
 * network has no right to continue), -ESTALE (the job continued without this rank, which was silent too long: end, or
 * join again), -ENODATA (fewer than min_size ranks are left after wait_s), -EINTR or another negative errno. */
int ash_epoch_reform(struct ash_group *old, const struct ash_epoch_opts *opts, struct ash_group **group_out,
                     struct ash_err *err);
/* What waits, without waiting. Any thread. */
void ash_epoch_get_news(struct ash_group *group, struct ash_epoch_news *news_out);
/* 0, or the error that all calls of the group return from now on, since a rank is lost. Waits for nothing: for long
 * computations between two calls. */
int ash_epoch_check(const struct ash_group *group, struct ash_err *err);
/* This rank wants to leave at a step's edge: rank 0 will see one more leaver. Returns at once. Any thread. */
void ash_epoch_want_leave(struct ash_group *group);
/* The rank that `rank` of the root group had in the epoch before, or SIZE_MAX: it is new. In epoch 0 all are new. */
size_t ash_epoch_rank_before(const struct ash_group *group, size_t rank);

#endif

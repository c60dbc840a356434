/* desk - the trainer's side of rollout.mode=apart, on its first rank: answers to draw are handed out to samplers, and
 * drawn ones come back. Samplers find it by a file in the run's folder. One that is lost, or silent for too long, loses
 * its groups to others: a draw is a function of its task, so it does not matter who makes it, or whether two do. */
#ifndef ASH_POST_RL_DESK_H
#define ASH_POST_RL_DESK_H

#include "ashlar/transfer.h"
#include "post/rl/wire.h"

struct ash_desk;

struct ash_desk_opts {
    const char *dir;       /* the run's folder */
    const char *host;      /* where the ranks of the job meet */
    const char *facts;     /* text that a sampler's must equal: "name value", a line each */
    struct ash_port *port; /* its memory is described; the desk's thread polls it. NULL: none */
    const void *weights;   /* [weights_bytes]: descriptions of the memory with weights, for samplers */
    size_t weights_bytes;
    double silence_s, patience_s;
};

/* Seconds of all samplers together, and how many there are. */
struct ash_desk_figures {
    struct ash_wire_times times;
    size_t samplers;
    uint64_t redrawn; /* groups that were handed out again */
};

/* Listen, write the file and start the thread. Copies opts, borrows port. The caller owns *desk_out. */
int ash_desk_open(const struct ash_desk_opts *opts, struct ash_desk **desk_out, struct ash_err *err);
/* Samplers are told that this process trains no more. NULL is a no-op. */
void ash_desk_close(struct ash_desk *desk);
/* The port is the caller's between these: the desk's thread waits. NULL is a no-op. */
void ash_desk_hold(struct ash_desk *desk);
/* See ash_desk_hold. */
void ash_desk_release(struct ash_desk *desk);
/* Hand out tasks (as ash_wire_add_task wrote them, each with this order; a group's are neighbours), to be drawn with
 * these weights. order is larger than all before. Returns 0, -EBADMSG or -ENOMEM. */
int ash_desk_submit(struct ash_desk *desk, uint64_t order, const struct ash_wire_work *work,
                    const struct ash_str *tasks, struct ash_err *err);
/* What continues the answers of an order. */
struct ash_desk_continued {
    uint64_t order;
    uint32_t more; /* tokens at most, of each that has no end */
};
/* Hand out with these weights what continues another order's answers, group by group as they come. Answers that have
 * ended get no task. The other order is here, and is waited for first. Returns 0 or -ENOMEM. */
int ash_desk_follow(struct ash_desk *desk, uint64_t order, const struct ash_wire_work *work,
                    const struct ash_desk_continued *continued, struct ash_err *err);
/* Wait until all answers of an order are there, and have `take` called with each, in the order of tasks; then the order
 * is forgotten. Returns 0, take's error, -EINVAL (no such order), -ENOMEM or -ETIMEDOUT (no sampler for patience_s). */
int ash_desk_wait(struct ash_desk *desk, uint64_t order, int (*take)(void *ctx, const struct ash_wire_answer *answer),
                  void *ctx, struct ash_err *err);
/* Forget all orders. */
void ash_desk_forget(struct ash_desk *desk);
/* Its figures so far. */
struct ash_desk_figures ash_desk_get_figures(struct ash_desk *desk);

/* Where the desk of a run is. */
struct ash_desk_place {
    char host[64];
    int64_t port, key; /* key: of this desk and no other */
};
/* As the file in the run's folder says. Returns 0, -ENOENT or -EBADMSG. */
int ash_desk_find(const char *dir, struct ash_desk_place *place_out);

#endif

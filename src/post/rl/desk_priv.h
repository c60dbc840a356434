/* desk_priv - orders and samplers of a desk. All of it is under its lock. */
#ifndef ASH_POST_RL_DESK_PRIV_H
#define ASH_POST_RL_DESK_PRIV_H

#include <pthread.h>
#include "post/rl/desk.h"

enum ash_desk_state {
    ASH_DESK_WAITING,
    ASH_DESK_OUT,
    ASH_DESK_DONE,
    ASH_DESK_BLOCKED /* by the order that this one continues */
};

/* Answers to one prompt: one sampler draws all of them. */
struct ash_desk_group {
    uint32_t number; /* in the rollout */
    enum ash_desk_state state;
    uint64_t holder;     /* OUT: the sampler */
    bool was_out;        /* handed out before */
    size_t first, bytes; /* of its tasks, in the order's */
    size_t count;        /* of tasks */
    size_t came;         /* answers of the message that is being read */
    struct ash_str answers;
};

struct ash_desk_order {
    uint64_t id;
    struct ash_wire_work work;
    struct ash_desk_continued continued; /* order 0: none */
    struct ash_str tasks;
    struct ash_desk_group *groups;
    size_t count, room, done;
    struct ash_desk_order *next; /* a later one */
};

struct ash_desk_sampler {
    uint64_t id;
    int fd;            /* -1: lost */
    bool is_known;     /* it has said hello, and was not refused */
    bool is_busy;      /* it has work */
    bool is_silent;    /* its work is others' now */
    bool is_leaving;   /* ends once out is sent */
    uint64_t heard_ns; /* its last bytes, or when it got work */
    struct ash_str in, out;
    size_t out_at;
};

struct ash_desk {
    struct ash_desk_opts opts;
    char *dir, *facts;
    void *weights;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* an order is done, or samplers came or went */
    pthread_t thread;
    bool has_thread, ends, has_lock;
    int listen_fd, wake_fds[2];
    uint64_t last_id, seen_ns; /* seen: when a sampler was here */
    struct ash_desk_order *orders;
    struct ash_desk_sampler *samplers;
    size_t sampler_count, sampler_room;
    struct ash_desk_figures figures;
};

/* desk_hand.c: give work to samplers that have none. */
void ash_desk_hand_out(struct ash_desk *desk);
/* desk_follow.c: tasks for those groups of orders that continue others, whose answers are there. Returns 0 or -ENOMEM:
 * some wait still. */
int ash_desk_unblock(struct ash_desk *desk);
/* desk_hand.c: what a sampler has is others' now. */
void ash_desk_take_back(struct ash_desk *desk, const struct ash_desk_sampler *sampler);
/* desk_hand.c: answers of a sampler, after its times. Returns 0, -EBADMSG or -ENOMEM. */
int ash_desk_take_answers(struct ash_desk *desk, struct ash_desk_sampler *sampler, struct ash_wire_reader *reader);
/* desk_hand.c: NULL is a no-op. */
void ash_desk_free_order(struct ash_desk_order *order);
/* desk_serve.c: the thread. */
void *ash_desk_serve(void *arg);

#endif

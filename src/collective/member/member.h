/* member - membership as a state machine: messages, closed connections and the time go in; messages and events come
 * out. No socket, clock or thread is in it, so the same code runs over TCP (member/membership.h) and in a simulated
 * network (tests/chaos/simulate).
 *
 * Watch. Members of an epoch send heartbeats to their neighbours in a binary tree of ranks. A rank that finds a
 * neighbour closed or silent tells the others along the tree; the epoch is then over for all.
 *
 * Forming. Every rank follows the lowest one that it does not believe lost. That one coordinates:
 *   1. gather: followers say hello, again and again; a hello is a promise to accept no other coordinator's proposal.
 * The gather
 *      ends when every rank of the epoch has come, is dead, or has been silent for silent_ns.
 *   2. propose: the new view goes to all its members, survivors and joiners. They accept.
 *   3. start: when all have accepted, the coordinator decides (below) and they start.
 * A process that dies on the way is left out, and the coordinator proposes again; when the coordinator dies the next
 * one gathers again. A view can run only when all its members have started it.
 *
 * One side. With a register (decide of struct ash_member_ops: entry N can be written once) the view that is written as
 * entry N is epoch N and there is no other. A side with fewer than half of the ranks waits `yield_ns` before it tries,
 * unless all others are dead. Without a register only the majority of the last epoch may decide, of two equal halves
 * that with the lowest rank. A view counts as the last epoch once it is confirmed: all its members have started it. One
 * that is not needs the majority of itself and of the last confirmed one. Dead ranks count as missing: they may have
 * agreed to something before they died.
 *
 * Fencing. A process that meets a newer epoch without itself in it ends (ASH_MEMBER_STALE): it was silent for too long.
 *
 * One owner thread. Nothing is retried by the caller: lost messages are sent again by the machine's own timers. */
#ifndef ASH_COLLECTIVE_MEMBER_MEMBER_H
#define ASH_COLLECTIVE_MEMBER_MEMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "collective/member/view.h"

#define ASH_MEMBER_ANY 0      /* as a receiver: some member of the job, another one each time */
#define ASH_MEMBER_DEAD_MAX 8 /* ids of dead processes in a message; more come with later ones */

enum ash_member_kind {
    ASH_MEMBER_JOIN,      /* a process without a rank asks for one; passed on to the lowest rank */
    ASH_MEMBER_HEARTBEAT, /* to tree neighbours */
    ASH_MEMBER_LOST,      /* a rank of this epoch is lost: the epoch is over */
    ASH_MEMBER_HELLO,     /* to the coordinator: here I am */
    ASH_MEMBER_ACK,       /* of a hello: I coordinate, or `subject` does */
    ASH_MEMBER_PROPOSE,   /* a view */
    ASH_MEMBER_ACCEPT,    /* of that view */
    ASH_MEMBER_START,     /* of that view, which all have accepted */
    ASH_MEMBER_STARTED,   /* answer to it */
    ASH_MEMBER_LEAVE,     /* to rank 0: I want to leave; to a follower that leaves: you may */
    ASH_MEMBER_BYE,       /* to tree neighbours: this process ends in good order, and is no loss */
    ASH_MEMBER_END,       /* the coordinator gives up, with a reason: so do its followers */
    ASH_MEMBER_STALE,     /* the job is at `epoch` without you */
    ASH_MEMBER_KINDS
};

/* How a rank was lost. */
enum ash_member_loss {
    ASH_MEMBER_DIED,         /* its connection was closed by its kernel: certain */
    ASH_MEMBER_SILENT,       /* it may live */
    ASH_MEMBER_ABORTED,      /* a rank gave up, for which it has a reason */
    ASH_MEMBER_RESTRUCTURED, /* no rank is lost: the next epoch is being formed */
};

/* One message. Plain data but for view and why, which are borrowed during a call. */
struct ash_member_msg {
    enum ash_member_kind kind;
    uint64_t from;
    uint32_t epoch;          /* of the sender's view; 0 if it has none */
    uint64_t proposal;       /* of the view that the sender runs; propose, accept, start, started: that this is about */
    uint32_t accepted_epoch; /* hello: of the view accepted since, or 0 */
    uint64_t subject;        /* lost: who; ack: who coordinates; join: who asks */
    enum ash_member_loss loss;
    int32_t code;       /* lost: error of all calls; end: why */
    bool is_ready;      /* hello: its owner waits for the view; ack: a hello has come */
    bool is_confirmed;  /* hello, heartbeat: all have started the sender's view */
    bool leaves;        /* hello: its owner will not come along */
    bool network_fails; /* hello, ack: a host was silent, so hosts that do not answer are not waited for */
    uint64_t suspect;   /* hello, ack: one that was found silent, or 0 */
    uint32_t dead_count;
    uint64_t dead[ASH_MEMBER_DEAD_MAX]; /* hello: processes that are known to be dead */
    struct ash_view *view; /* propose; start, to one that may not know it; hello: the last confirmed one, if another */
    const void *card;      /* join, hello: [card_bytes] */
    const char *why;       /* lost, end: a sentence, or NULL */
};

/* What the machine tells its owner. */
enum ash_member_event_kind {
    ASH_MEMBER_EVENT_OVER,    /* the epoch is over because of `subject` */
    ASH_MEMBER_EVENT_STARTED, /* a view runs: this process is rank `rank` of it */
    ASH_MEMBER_EVENT_ENDED,   /* this process is in no epoch any more: code and why */
    ASH_MEMBER_EVENT_NEWS,    /* joiners or leavers have changed, or this process coordinates */
};

struct ash_member_event {
    enum ash_member_event_kind kind;
    struct ash_view *view; /* the current one, borrowed */
    size_t rank;
    uint64_t subject; /* over: the process that was lost */
    enum ash_member_loss loss;
    double silent_s; /* over: how long it was silent */
    int code;        /* over, ended: negative errno */
    const char *why; /* a sentence, or NULL; borrowed */
};

/* What the machine needs from its surroundings. */
struct ash_member_ops {
    /* Send; may lose it. to may be ASH_MEMBER_ANY for a join. */
    void (*send)(void *ctx, uint64_t to, const struct ash_member_msg *msg);
    /* Handle an event. Must not call the machine. */
    void (*event)(void *ctx, const struct ash_member_event *event);
    /* Write entry `epoch` of the register: 1 it is this proposal (now, or since an earlier try), 0 another (its
     * proposal in *winner_out), negative: it cannot be reached. NULL: there is no register. */
    int (*decide)(void *ctx, uint32_t epoch, uint64_t proposal, uint64_t *winner_out);
};

struct ash_member_opts {
    uint64_t id; /* not 0 */
    const struct ash_member_ops *ops;
    void *ctx;
    size_t card_bytes;
    uint64_t heartbeat_ns, silent_ns;
    uint64_t retry_ns; /* between repeated messages of a meeting */
    uint64_t yield_ns; /* of the smaller side, and how long a side without a right waits for others */
    /* without a register: where all that are missing are known to be dead, the others go on. Not safe where dead ones
     * had gone on with newcomers, beyond a cut */
    bool trusts_deaths;
    uint64_t ready_ns; /* for owners that live but do not come to the meeting */
};

struct ash_member;

/* How this process comes to the next epoch. */
struct ash_member_terms {
    const void *card; /* [card_bytes] copied */
    bool leaves;
    uint64_t wait_ns; /* as a coordinator, once all have come: for joiners, until there are */
    size_t want_size; /* this many ranks; */
    size_t min_size;  /* with fewer the job ends */
};

/* A machine without an epoch. NULL: out of memory. */
struct ash_member *ash_member_open(const struct ash_member_opts *opts, uint64_t now_ns);
/* Free it; sends no message. NULL is a no-op. */
void ash_member_close(struct ash_member *member);

/* Run a view that was agreed on elsewhere (the first one, at the launcher's rendezvous). Takes a reference. */
void ash_member_begin(struct ash_member *member, struct ash_view *view, uint64_t now_ns);
/* Ask for a place in a job, with this card, until a view starts. */
int ash_member_join(struct ash_member *member, const void *card, uint64_t now_ns);
/* The owner is ready for the next epoch: whatever it runs is over. -EINVAL: it has never been in one. */
int ash_member_reform(struct ash_member *member, const struct ash_member_terms *terms, uint64_t now_ns);
/* The owner gives up this epoch for all: because of `subject` (maybe itself). */
void ash_member_abort(struct ash_member *member, uint64_t subject, int code, const char *why, uint64_t now_ns);
/* This process ends in good order, as all do: tell the neighbours. */
void ash_member_say_bye(struct ash_member *member);
/* Rank 0 shall know that this process wants to leave. */
void ash_member_want_leave(struct ash_member *member, uint64_t now_ns);

/* A message has come. What makes no sense is ignored. */
void ash_member_receive(struct ash_member *member, const struct ash_member_msg *msg, uint64_t now_ns);
/* The kernel of a peer has closed or refused a connection: the process is dead. */
void ash_member_peer_died(struct ash_member *member, uint64_t id, uint64_t now_ns);
/* The host of a peer answers nothing. Only shortens waits: the process may live. */
void ash_member_peer_unreachable(struct ash_member *member, uint64_t id, uint64_t now_ns);
/* Time passes. Call it at ash_member_next_ns or soon after, and after a pause. */
void ash_member_tick(struct ash_member *member, uint64_t now_ns);
/* When the next timer is due. */
uint64_t ash_member_next_ns(const struct ash_member *member);

/* The view that runs or ran last, borrowed; NULL: none yet. */
struct ash_view *ash_member_view(const struct ash_member *member);
/* Is this process part of a running epoch? */
bool ash_member_is_running(const struct ash_member *member);
/* Does it gather the next epoch? */
bool ash_member_is_coordinator(const struct ash_member *member);
/* Processes that wait to join, and that want to leave, as far as this one knows. */
void ash_member_news(const struct ash_member *member, size_t *joiners_out, size_t *leavers_out);

#endif

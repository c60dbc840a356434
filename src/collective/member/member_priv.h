/* member_priv - the inside of the membership machine:
 *   member.c          life, calls of the owner, peers, timers
 *   member_receive.c  messages: of which epoch they are, and who answers
 *   member_watch.c    a running epoch
 *   member_join.c     processes that ask for a place
 *   member_follow.c   a meeting, as one of many
 *   member_form.c     a meeting, as its coordinator: who has come,
 *   member_propose.c  proposals and acceptances,
 *   member_start.c    the decision and the start */
#ifndef ASH_COLLECTIVE_MEMBER_MEMBER_PRIV_H
#define ASH_COLLECTIVE_MEMBER_MEMBER_PRIV_H

#include "ashlar/err.h"
#include "collective/member/member.h"

#define ASH_MEMBER_NEIGHBOURS 3 /* the parent, two children */
#define ASH_MEMBER_NEVER UINT64_MAX

enum ash_member_state {
    ASH_MEMBER_IDLE,    /* neither in an epoch nor asking for one */
    ASH_MEMBER_JOINING, /* asks */
    ASH_MEMBER_RUNNING,
    ASH_MEMBER_OVER,    /* the epoch is over; the next one is formed, once the owner is ready */
    ASH_MEMBER_LEAVING, /* it coordinated the next epoch without itself, and sees that it starts */
    ASH_MEMBER_ENDED,
};

/* A tree neighbour of the running epoch. */
struct ash_member_neighbour {
    uint64_t id; /* 0: none */
    uint64_t heard_ns;
};

/* Some processes. */
struct ash_member_ids {
    uint64_t *ids;
    size_t count, room;
};

/* A process that asks for a place. */
struct ash_member_joiner {
    uint64_t id, heard_ns;
    char *card; /* [card_bytes] or NULL */
};

/* A rank of the last epoch, as its coordinator knows it. */
struct ash_member_seat {
    uint64_t heard_ns;
    char *card; /* [card_bytes] of its hello, or NULL */
    bool has_come, is_ready, leaves, is_dead, is_given_up;
    bool has_agreed; /* leaves, and votes for the proposal */
};

/* A meeting that this process coordinates. */
struct ash_member_meeting {
    size_t size;                    /* of the last epoch */
    struct ash_member_seat *seats;  /* [size]; NULL once the new view is decided */
    size_t unresolved;              /* seats that are still waited for */
    uint64_t since_ns, complete_ns; /* complete: no seat is unresolved; 0: not yet */
    uint64_t retry_at_ns;
    uint32_t epoch_max;        /* of all views that any follower has accepted */
    struct ash_view *proposed; /* NULL: gathering, */
    uint64_t proposed_ns;      /* and since when */
    bool *answered;            /* [proposed->size] has accepted it; once decided: has started it */
    size_t answered_count;
    uint64_t *answer_heard_ns; /* [proposed->size] */
};

struct ash_member {
    struct ash_member_opts opts;
    enum ash_member_state state;
    struct ash_view *view;            /* that runs or ran last */
    size_t rank;                      /* there */
    struct ash_view *base;            /* the last confirmed one; NULL: a newcomer that knows none */
    struct ash_view *accepted;        /* since; NULL: none */
    struct ash_view *accepted_before; /* and before that, from another coordinator */
    uint64_t accepted_from;           /* who proposed `accepted` */
    uint64_t now_ns, last_tick_ns;
    /* a running epoch */
    struct ash_member_neighbour neighbours[ASH_MEMBER_NEIGHBOURS];
    uint64_t heartbeat_at_ns;
    struct ash_member_ids gone;    /* that have said goodbye */
    struct ash_member_ids leavers; /* that this one was told of */
    bool wants_leave;
    struct ash_member_joiner *joiners;
    size_t joiner_count, joiner_room;
    uint64_t join_at_ns;
    /* one that is over */
    struct ash_member_ids dead;
    struct ash_member_ids suspects; /* that a member found silent, */
    struct ash_member_ids deaf;     /* and this process itself */
    bool network_fails;             /* a host was silent: hosts that do not answer are not waited for */
    uint64_t over_since_ns;         /* when this process knew, */
    uint64_t tell_at_ns;            /* and when its owner is to be told; ASH_MEMBER_NEVER: it has been */
    bool is_ready;                  /* the owner has come, then and with: */
    uint64_t ready_since_ns;
    bool has_agreed; /* it leaves and has given its vote: it follows no other coordinator any more */
    struct ash_member_terms terms;
    char *card;
    size_t candidate;      /* rank of the coordinator */
    uint64_t candidate_ns; /* when it was last heard, or chosen */
    uint64_t hello_at_ns;
    struct ash_member_meeting *meeting;
    uint64_t attempts; /* proposals so far */
    /* a view that this process has started as its coordinator, until all have */
    struct ash_member_meeting *starting;
};

/* ---- member.c ---------------------------------------------------------------------------------------------------- */
/* A message with the sender's view in it. */
struct ash_member_msg ash_member_message(const struct ash_member *member, enum ash_member_kind kind);
/* Send it; a message to oneself is dropped. */
void ash_member_send(struct ash_member *member, uint64_t to, const struct ash_member_msg *msg);
/* Add an id once. Out of memory: it is not added, and messages that depend on it are repeated. */
void ash_member_ids_add(struct ash_member_ids *ids, uint64_t id);
/* Is it in there? */
bool ash_member_ids_has(const struct ash_member_ids *ids, uint64_t id);
/* Forget an id. */
void ash_member_ids_remove(struct ash_member_ids *ids, uint64_t id);
/* This process itself has found one silent: it is followed no more. */
void ash_member_suspect(struct ash_member *member, uint64_t id);
/* This process is in no epoch any more. */
void ash_member_end(struct ash_member *member, int code, const char *why);
/* How long between repeated messages of a meeting: longer with many ranks, so that the coordinator keeps up. */
uint64_t ash_member_retry_ns(const struct ash_member *member);
/* Run a view: from acceptance, or because another member says that it runs. */
void ash_member_start(struct ash_member *member, struct ash_view *view);
/* Free what a meeting holds. NULL is a no-op. */
void ash_member_meeting_close(struct ash_member *member, struct ash_member_meeting *meeting);

/* ---- member_watch.c ---------------------------------------------------------------------------------------------- */
/* Begin to watch the neighbours in the view. */
void ash_member_watch_begin(struct ash_member *member);
/* Heartbeats and silences that are due. */
void ash_member_watch_tick(struct ash_member *member);
/* A heartbeat of the same view has come. */
void ash_member_watch_heartbeat(struct ash_member *member, const struct ash_member_msg *msg);
/* Tell the neighbours that this process lives. */
void ash_member_send_heartbeats(struct ash_member *member);
/* All members have started the view. */
void ash_member_confirm(struct ash_member *member);
/* The epoch is over because of what msg (a LOST) says; pass it on along the tree. The first time counts. */
void ash_member_lose(struct ash_member *member, const struct ash_member_msg *msg, double silent_s);

/* ---- member_follow.c --------------------------------------------------------------------------------------------- */
/* The epoch is over; the owner is told at tell_at_ns. */
void ash_member_over(struct ash_member *member, uint64_t tell_at_ns);
/* Who was found silent, for a message of a meeting. */
void ash_member_tell_suspicion(const struct ash_member *member, struct ash_member_msg *msg);
/* Choose the coordinator again: the lowest rank that is neither dead nor suspected. */
void ash_member_choose(struct ash_member *member);
/* Due work of a process whose epoch is over, or that asks for a place. */
void ash_member_follow_tick(struct ash_member *member);
/* The coordinator's messages: ACK, PROPOSE, START, END. */
void ash_member_follow_receive(struct ash_member *member, const struct ash_member_msg *msg);

/* ---- member_form.c ----------------------------------------------------------------------------------------------- */
/* This process coordinates: begin to gather. */
void ash_member_form_begin(struct ash_member *member);
/* The owner of this process is ready: if it coordinates, it may have waited for that. */
void ash_member_form_ready(struct ash_member *member);
/* Due work of a coordinator: meeting and starting. */
void ash_member_form_tick(struct ash_member *member);
/* A HELLO, ACCEPT or STARTED has come. */
void ash_member_form_receive(struct ash_member *member, const struct ash_member_msg *msg);
/* A process is dead (or its host does not answer): do not wait for it. */
void ash_member_form_lose(struct ash_member *member, uint64_t id, bool is_dead);

/* ---- member_form.c, member_propose.c, member_start.c ------------------------------------------------------------- */
/* Is this rank of the last epoch part of the next view? */
bool ash_member_comes_along(const struct ash_member_seat *seat);
/* Something about the seats has changed. Once all are resolved: propose, wait for joiners or for the others,
 * or give up. */
void ash_member_advance(struct ash_member *member);
/* A proposal is void: gather again. */
void ash_member_withdraw(struct ash_member_meeting *meeting);
/* Propose again to those who have not accepted; without those who have been silent since. */
void ash_member_call_unanswered(struct ash_member *member);
/* An ACCEPT has come. */
void ash_member_on_accept(struct ash_member *member, const struct ash_member_msg *msg);
/* Have all who leave, and whose votes are needed, agreed to the proposal? */
bool ash_member_have_leavers_agreed(const struct ash_member *member);
/* All that leave may go. */
void ash_member_release_leavers(struct ash_member *member);
/* Decide and start the proposed view, if all have accepted it. */
void ash_member_check_answers(struct ash_member *member);
/* A STARTED has come. */
void ash_member_on_started(struct ash_member *member, const struct ash_member_msg *msg);
/* Tell those again who have not started the view that was decided. */
void ash_member_start_unanswered(struct ash_member *member);
/* The view with this proposal, if this process has accepted it, borrowed; NULL: it has not. */
struct ash_view *ash_member_find_accepted(const struct ash_member *member, uint64_t proposal);

/* ---- member_join.c ----------------------------------------------------------------------------------------------- */
/* A JOIN has come: remember it, or pass it on to the lowest rank. */
void ash_member_join_receive(struct ash_member *member, const struct ash_member_msg *msg);
/* Forget joiners that have not asked again, and one that has got a place or is dead (0: none). */
void ash_member_join_expire(struct ash_member *member, uint64_t gone_id);

#endif

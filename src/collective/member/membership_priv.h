/* membership_priv - the inside of an agent: membership.c (calls, thread, events), membership_serve.c (its wait),
 * membership_link.c (connections to others), membership_inlet.c (connections from others), membership_dir.c (key,
 * contacts, register). */
#ifndef ASH_COLLECTIVE_MEMBER_MEMBERSHIP_PRIV_H
#define ASH_COLLECTIVE_MEMBER_MEMBERSHIP_PRIV_H

#include <poll.h>
#include <pthread.h>
#include "base/str.h"
#include "collective/member/membership.h"

#define ASH_MEMBERSHIP_NONCE_BYTES 16
#define ASH_MEMBERSHIP_MAGIC 0x4d485341u /* "ASHM" */

/* Precedes a message; its proof follows. */
struct ash_membership_frame {
    uint32_t magic, body_bytes;
};

enum ash_membership_link_state {
    ASH_MEMBERSHIP_LINK_CONNECTING,
    ASH_MEMBERSHIP_LINK_GREETING,
    ASH_MEMBERSHIP_LINK_OPEN
};

/* A connection to a process, for what this one has to say. */
struct ash_membership_link {
    uint64_t id; /* 0: a contact of unknown id */
    int fd;
    enum ash_membership_link_state state;
    uint64_t since_ns, idle_ns, sequence;
    uint64_t closed_ns;  /* the other end is gone; 0: not */
    uint64_t stalled_ns; /* since when the other host has not taken sent bytes; 0: it has */
    bool has_retried, is_reported;
    bool is_refused;    /* no process listens there any more */
    unsigned end_count; /* connections before this one that ended soon, by the other end */
    struct ash_membership_address address;
    uint8_t nonce[ASH_MEMBERSHIP_NONCE_BYTES];
    size_t nonce_bytes;
    struct ash_str out; /* frames that have not gone out; those before the nonce came have no proof yet */
    size_t sent_bytes;
    struct ash_str waiting; /* lengths and bodies, until the nonce is there */
};

/* A connection from a process. */
struct ash_membership_inlet {
    int fd;
    uint64_t sequence, since_ns;
    uint8_t nonce[ASH_MEMBERSHIP_NONCE_BYTES];
    bool is_trusted; /* a frame of it was good */
    struct ash_str in;
};

/* Where a process was last known to be. */
struct ash_membership_entry {
    uint64_t id;
    struct ash_membership_address address;
};

struct ash_membership {
    struct ash_membership_opts opts;
    char host[256];
    char *job_dir;
    uint8_t key[ASH_MAC_KEY_BYTES];
    struct ash_member *member;
    struct ash_member_ops ops;
    pthread_t thread;
    int wake_fd, door_fd; /* door: the job's address, where this process is its first rank */
    bool wants_door;      /* it is, also where another still has that address */
    pthread_mutex_t lock; /* of everything here */
    pthread_cond_t changed;
    bool has_thread, stop, has_stopped;
    bool is_started, is_ended, is_over; /* since the last call */
    int end_code;
    char end_why[ASH_ERR_TEXT_BYTES];
    struct ash_membership_link *links;
    size_t link_count, link_room;
    struct ash_membership_inlet *inlets;
    size_t inlet_count, inlet_room;
    struct ash_membership_entry *book;
    size_t book_count, book_room;
    struct pollfd *polls;
    size_t poll_room;
    size_t contact; /* the next one to ask */
};

/* ---- membership.c ------------------------------------------------------------------------------------------------ */
/* Where this process is the first, or the first of those that are left: listen at the job's address, which the one
 * before may still have while it ends. Returns when to try again. */
uint64_t ash_membership_try_door(struct ash_membership *agent, uint64_t now_ns);

/* ---- membership_link.c ------------------------------------------------------------------------------------------- */
/* Begin to connect, without waiting. Returns a descriptor that does not block, or a negative errno. */
int ash_membership_connect(const struct ash_membership_address *address);
/* Queue a message for a process (ASH_MEMBER_ANY: for a contact). Drops it if there is no route. */
void ash_membership_post(struct ash_membership *agent, uint64_t to, const struct ash_member_msg *msg);
/* Remember where a process is: card begins with its address. */
void ash_membership_learn(struct ash_membership *agent, uint64_t id, const void *card);
/* Remember where the members of a view are. */
void ash_membership_learn_view(struct ash_membership *agent, const struct ash_view *view);
/* Something has happened on a link: it is connected, has a nonce, is gone. */
void ash_membership_serve_link(struct ash_membership *agent, struct ash_membership_link *link);
/* Hosts that do not answer, unannounced ends, unused connections. Returns when to look
 * again. */
uint64_t ash_membership_review_links(struct ash_membership *agent, uint64_t now_ns);
/* Is anything left to send? */
bool ash_membership_has_output(const struct ash_membership *agent);
/* Close link i; the last one takes its place. */
void ash_membership_drop_link(struct ash_membership *agent, size_t i);

/* ---- membership_inlet.c ------------------------------------------------------------------------------------------ */
/* Take all that wait at a port. */
void ash_membership_accept(struct ash_membership *agent, int listen_fd);
/* Read the frames that arrived. Returns false if the connection is over. */
bool ash_membership_serve_inlet(struct ash_membership *agent, struct ash_membership_inlet *inlet);
/* Close inlet i; the last one takes its place. */
void ash_membership_drop_inlet(struct ash_membership *agent, size_t i);

/* ---- membership_serve.c ------------------------------------------------------------------------------------------ */
/* Wait for and handle what the network has, until until_ns. Called with the lock held, which it drops to wait. */
void ash_membership_serve(struct ash_membership *agent, uint64_t until_ns);
/* Close all connections. */
void ash_membership_hang_up(struct ash_membership *agent);

/* ---- membership_dir.c -------------------------------------------------------------------------------------------- */
/* The key of the job, from its folder or else from its number. */
int ash_membership_read_key(struct ash_membership *agent, struct ash_err *err);
/* The next contact to ask: from the folder, or the job's address. */
void ash_membership_next_contact(struct ash_membership *agent, struct ash_membership_address *address_out);
/* Write who can be asked. */
void ash_membership_write_contacts(const struct ash_membership *agent, const struct ash_view *view);
/* As decide of struct ash_member_ops. */
int ash_membership_decide(void *ctx, uint32_t epoch, uint64_t proposal, uint64_t *winner_out);

#endif

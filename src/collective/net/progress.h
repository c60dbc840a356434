/* progress - the progress engine: the one endpoint of a process, which all its groups share, and its polling. An
 * endpoint that is not polled answers no peer. A thread that waits polls, so a call that waits has the shortest path to
 * its data and costs no other core; while no thread waits (the owner computes, or writes to a channel and continues), a
 * thread of the engine polls, asleep until the network has something. A thread alone would add its wake-up to every
 * wait; waits alone would leave the last posted message in this process until its next call. */
#ifndef ASH_COLLECTIVE_NET_PROGRESS_H
#define ASH_COLLECTIVE_NET_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include "fabric/fabric.h"

struct ash_mailbox;

/* Fields are for progress.c and mailbox.c. */
struct ash_progress {
    struct ash_fabric *fabric;
    pthread_mutex_t lock; /* of the endpoint and of what follows */
    pthread_cond_t news;  /* a thread has polled, or stops sleeping on the descriptor */
    bool asleep;          /* a thread sleeps on the descriptor */
    bool stop;
    int wake_fd;                   /* ends a sleep on the descriptor */
    struct ash_mailbox *mailboxes; /* all that are open, through next */
    uint32_t handle;               /* of the newest */
    _Atomic uint32_t waiters;
    bool has_thread;
    pthread_t thread;
};

/* Open the endpoint and start its thread. opts as the user set them (may be NULL); node: this process's. address:
 * one of this host's own, under which the others reach it. Returns 0, -ENOMEM or the fabric's error; on 0 the caller
 * owns *progress_out. */
int ash_progress_open(const struct ash_fabric_opts *opts, const char *node, const char *address,
                      struct ash_progress **progress_out, struct ash_err *err);
/* Mailboxes must be closed. NULL is a no-op. */
void ash_progress_close(struct ash_progress *progress);
/* The address of the endpoint. Any thread. */
void ash_progress_get_addr(struct ash_progress *progress, struct ash_fabric_addr *addr_out);
/* Make a rank known under its number in the root group; again: under a new address. Returns as ash_fabric_add_peer. */
int ash_progress_connect(struct ash_progress *progress, uint32_t rank, const struct ash_fabric_addr *addr,
                         struct ash_err *err);
/* Forget a rank; an unknown one is a no-op. */
void ash_progress_disconnect(struct ash_progress *progress, uint32_t rank);

/* Poll until the counter is at least value (true) or until until_ns on ash_clock_ns (false). Any thread. */
bool ash_progress_wait(struct ash_progress *progress, const _Atomic uint64_t *counter, uint64_t value,
                       uint64_t until_ns);
/* Poll once. Any thread. */
void ash_progress_poll(struct ash_progress *progress);

#endif

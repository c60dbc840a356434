/* membership - the membership machine (member/member.h) over TCP, in its own thread: the agent of a process. Every
 * process listens at one port and connects to those it has something to say to. A frame proves that its sender has the
 * job's key, and is good for one connection and one place in it: a forged, repeated or too long frame closes the
 * connection. The register is a folder that all processes share, where entry N is a file that can be made once.
 *
 * One owner thread; calls that say so may come from any. */
#ifndef ASH_COLLECTIVE_MEMBER_MEMBERSHIP_H
#define ASH_COLLECTIVE_MEMBER_MEMBERSHIP_H

#include <stdbool.h>
#include "ashlar/err.h"
#include "base/mac.h"
#include "base/socket.h"
#include "collective/member/member.h"

#define ASH_MEMBERSHIP_NAME_BYTES 64
#define ASH_MEMBERSHIP_CONTACTS_MAX 64 /* in a job's folder */

/* How others reach and name a process: the first bytes of its card. Plain data. */
struct ash_membership_address {
    char address[ASH_SOCKET_ADDR_BYTES];
    char host[ASH_MEMBERSHIP_NAME_BYTES];
    int32_t pid, port;
};

struct ash_membership_opts {
    uint64_t job, id;
    size_t card_bytes;   /* at least sizeof(struct ash_membership_address) */
    int listen_fd;       /* what the card's port leads to; stays the caller's */
    const char *job_dir; /* key, contacts and register of the job; NULL: there are none */
    const char *host;    /* the job's address, for joiners; copied */
    int port;
    double silent_s, ready_s;
    /* Called from the agent's thread when an epoch is over: rank of it, -ECONNRESET or the code of who gave up. */
    void (*on_over)(void *ctx, size_t rank, int code, const char *why);
    void *ctx;
};

struct ash_membership;

/* Make a folder for a job that does not exist yet, with a new key. Returns 0 or a negative errno. */
int ash_membership_make_job_dir(const char *path, struct ash_err *err);
/* A number by which processes know that they see the same folder of the same start of a job: equal where its key is. 0:
 * the key cannot be read, or job_dir is NULL. */
uint64_t ash_membership_folder_mark(const char *job_dir);
/* Who was in the last epoch, as the folder says: address and port of at most that many. Returns how many; 0: no epoch
 * was formed yet. */
size_t ash_membership_read_contacts(const char *job_dir,
                                    struct ash_membership_address contacts_out[ASH_MEMBERSHIP_CONTACTS_MAX]);
/* Does one of those contacts answer? Returns true with the first that does; false when all have refused, or after
 * timeout_s. Any thread. */
bool ash_membership_is_answered(const char *job_dir, double timeout_s);

/* Start it, without an epoch. Returns 0, -ENOMEM or a negative errno; on 0 the caller owns *agent_out. */
int ash_membership_open(const struct ash_membership_opts *opts, struct ash_membership **agent_out, struct ash_err *err);
/* Say goodbye to the neighbours where an epoch runs, and end the thread. NULL is a no-op. */
void ash_membership_close(struct ash_membership *agent);
/* Who is told of the end of epochs from now on; NULL: none. Returns true if the present one is over already. */
bool ash_membership_set_owner(struct ash_membership *agent, void *ctx);

/* Run the first view, which is the agent's from now on. */
void ash_membership_begin(struct ash_membership *agent, struct ash_view *view);
/* Ask for a place until there is a view: *view_out is the caller's to put. timeout_s 0: no limit but a stop request.
 * Returns 0, -ETIMEDOUT, -EINTR or a negative errno. */
int ash_membership_join(struct ash_membership *agent, const void *card, double timeout_s, struct ash_view **view_out,
                        struct ash_err *err);
/* Form the next view; returns as ash_epoch_reform does. *view_out is the caller's to put; NULL if it left. */
int ash_membership_reform(struct ash_membership *agent, const struct ash_member_terms *terms,
                          struct ash_view **view_out, struct ash_err *err);
/* Give back a view that join or reform returned. */
void ash_membership_put_view(struct ash_membership *agent, struct ash_view *view);
/* Tell all ranks that this one gives up: because of which rank (maybe itself), with what error, and why. The first
 * time counts. Returns when that is sent, or after a moment. Any thread but the agent's. */
void ash_membership_abort(struct ash_membership *agent, size_t rank, int code, const char *why);
/* Joiners and leavers that wait. Any thread. */
void ash_membership_news(struct ash_membership *agent, size_t *joiners_out, size_t *leavers_out, bool *is_over_out);
/* This process wants to leave. Any thread. */
void ash_membership_want_leave(struct ash_membership *agent);

#endif

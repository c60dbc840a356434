/* group_priv - the inside of a group: who is in it, and the means that its ranks share. */
#ifndef ASH_COLLECTIVE_GROUP_PRIV_H
#define ASH_COLLECTIVE_GROUP_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include "record/metrics.h"
#include "base/node_map.h"
#include "collective/core/coll_ops.h"
#include "collective/core/staging.h"
#include "record/flight.h"
#include "collective/group.h"
#include "collective/host/device_calls.h"
#include "collective/host/local.h"
#include "collective/net/net.h"
#include "collective/epoch.h"
#include "collective/member/membership.h"

#define ASH_GROUP_NAME_BYTES 64

/* What a rank tells the others when a root group is opened. Plain data: processes of one job run one build. */
struct ash_member_info {
    struct ash_membership_address watch; /* first: the agent reads it */
    uint64_t id;                         /* of the process */
    uint64_t folder;                     /* ash_membership_folder_mark of the job's folder, as it sees it */
    int32_t net_port;                    /* where the first rank's second rendezvous is, of jobs on several nodes */
    char node[ASH_GROUP_NAME_BYTES];
    uint64_t machine;               /* ranks of equal node and machine share memory: ash_segment_machine */
    struct ash_segment_key control; /* of the root group */
    struct ash_cost cost;           /* that of the first rank counts */
};

/* What all groups of a process that come from one rendezvous share. */
struct ash_group_root {
    struct ash_group_opts opts;
    uint64_t job;
    uint32_t epoch;                       /* how often it has been formed again */
    char host[ASH_LAUNCH_ENV_HOST_BYTES]; /* the job's address */
    char node[ASH_GROUP_NAME_BYTES];      /* of this process, as its launcher says; empty: the host's name */
    int port;
    char own_address
        [ASH_SOCKET_ADDR_BYTES]; /* of this process, in numbers, as others have reached it; empty: not known */
    size_t rank, size;
    struct ash_cost cost;
    uint64_t id;                        /* of this process */
    struct ash_member_info *infos;      /* [size] */
    uint32_t *ranks_before;             /* [size] the same */
    int listen_fd, net_fd;              /* of the agent; of the second rendezvous */
    struct ash_membership *membership;  /* NULL: a group of one that cannot be joined */
    struct ash_progress *progress;      /* NULL where all ranks are on one node */
    struct ash_net_mailboxes mailboxes; /* of the group of all ranks, until it takes them, */
    struct ash_net_address *addresses;  /* [size], of all ranks */
    struct ash_staging staging;         /* of values in a device's memory */
    atomic_bool has_said;               /* that they are staged for want of windows */
    pthread_mutex_t lock;               /* of what follows */
    struct ash_group *groups;           /* all that are open, through next */
    bool lost;
    atomic_bool gives_up; /* lost, for waits that hold no lock */
    size_t failed_rank;
    int code;
    char why[ASH_ERR_TEXT_BYTES];
};

struct ash_group {
    struct ash_group_root *root;
    bool owns_root;
    size_t rank, size;
    uint32_t *members; /* [size] ranks in the root */
    struct ash_node_map nodes;
    const struct ash_coll_ops *ops;  /* of the calls, on */
    void *comm;                      /* local, or net if there are several nodes */
    struct ash_local *local;         /* the ranks of this node */
    struct ash_net *net;             /* NULL where all ranks are on one node */
    struct ash_device_calls *device; /* of values in a device's memory; NULL before the first call of that kind */
    bool has_no_windows;             /* there cannot be any: values go through host memory */
    struct ash_channel **sends, **receives; /* [size] of ash_group_send and ash_group_recv, once there has been one */
    struct ash_call_queues *queues;         /* of calls that are started; NULL before the first */
    char name[ASH_FLIGHT_NAME_BYTES];       /* for the flight recorder, zero-padded */
    uint64_t id;                            /* equal for its ranks, and no others of the job */
    _Atomic uint64_t calls;                 /* recorded so far */
    uint64_t *sent, *received;              /* [size] messages recorded so far, by the other end */
    _Atomic(struct ash_metric *) seconds[ASH_FLIGHT_OPS], bytes[ASH_FLIGHT_OPS]; /* NULL before the first call */
    struct ash_group *next;
};

/* group_root.c */
/* Are two ranks of the root on one node? */
bool ash_group_same_node(const struct ash_group_root *root, size_t a, size_t b);
/* The rendezvous of env's job; local is this process's communicator, whose key the others get. On 0 the caller owns
 * *root_out. */
int ash_group_root_open(const struct ash_launch_env *env, const struct ash_group_opts *opts, struct ash_local *local,
                        struct ash_group_root **root_out, struct ash_err *err);
/* The root of the next epoch; takes over the sockets, agent and progress of `old`, whatever the outcome. known: ranks
 * that progress knows. *root_out is NULL where this process leaves. */
int ash_group_root_reform(struct ash_group_root *old, const struct ash_epoch_opts *opts, const struct ash_local *local,
                          struct ash_group_root **root_out, struct ash_err *err);
/* End the agent and free everything. NULL is a no-op. */
void ash_group_root_close(struct ash_group_root *root);
/* Have the group's calls end when a rank is lost; at once if one has been. */
void ash_group_root_add(struct ash_group_root *root, struct ash_group *group);
/* The group is about to be closed. */
void ash_group_root_remove(struct ash_group_root *root, struct ash_group *group);
/* All groups of the root are over, in this process. The first time counts. */
void ash_group_root_lose(struct ash_group_root *root, size_t rank, int code, const char *why);

/* The ranks of a group that is to be opened. */
struct ash_group_members {
    size_t rank, size;            /* this process is rank `rank` of size */
    uint32_t *ranks;              /* [size] ranks in the root */
    struct ash_segment_key *keys; /* [size] of their control blocks */
};

/* group.c: allocate room for size members, of which this process is the first. -ENOMEM: fini is not needed. */
int ash_group_members_init(struct ash_group_members *members, size_t size, struct ash_err *err);
/* Free them. */
void ash_group_members_fini(struct ash_group_members *members);
/* The communicator of this process with the ranks of its node, not connected yet. On 0 the caller owns *local_out. */
int ash_group_open_local(const struct ash_group_opts *opts, struct ash_local **local_out, struct ash_err *err);
/* The group of some ranks of the root, connected inside the node. Takes over local on success; on 0 the caller owns
 * *group_out. */
int ash_group_open_members(struct ash_group_root *root, const struct ash_group_members *members,
                           struct ash_local *local, struct ash_group **group_out, struct ash_err *err);
/* Reach the members on other nodes through these mailboxes (taken over); addresses[r] is rank r's. */
int ash_group_connect_net(struct ash_group *group, const struct ash_net_mailboxes *mailboxes,
                          const struct ash_net_address *addresses, struct ash_err *err);
/* All groups of the root are over, here and (through the watch) everywhere. */
void ash_group_propagate(struct ash_group *group, size_t failed_rank, int code, const char *why);
/* The group is over because of rank `failed_rank` of the root; all ranks of the root get the error. Returns the
 * group's first error, with its sentence in err. */
int ash_group_fail(struct ash_group *group, int code, size_t failed_rank, const char *why, struct ash_err *err);

/* record.c: a call of the group begins; op, dtype, peer and bytes of it are set, the rest is set here. Returns its
 * number in the flight recorder. */
uint64_t ash_group_record(struct ash_group *group, struct ash_flight_call *call);
/* It has ended: its time and bytes are counted by the group's name and op. */
void ash_group_recorded(struct ash_group *group, uint64_t number, const struct ash_flight_call *call, int rc);
/* group_device.c: */
/* A call whose values are in the device's memory on this rank (is_device) or not: the ranks agree on how to make it.
 * Returns 0: from window to window, by group->device; 1: by the host; or the group's error. */
int ash_group_choose_device(struct ash_group *group, const struct ash_coll_call *call, bool is_device,
                            struct ash_err *err);
/* A call from window to window has returned rc. Returns it, or 1: there are no windows, and the host makes the call. */
int ash_group_device_done(struct ash_group *group, int rc, const struct ash_err *err);
/* Close the group's windows, before their device is closed. */
void ash_group_device_fini(struct ash_group *group);
/* messages.c: close the channels that ash_group_send and ash_group_recv use. */
void ash_group_messages_fini(struct ash_group *group);

/* ---- group_folder.c ---------------------------------------------------------------------------------------------- */
/* A folder that not all ranks see is none: after the first meeting, root->opts.job_dir may be NULL. All have the same
 * infos, and come to the same. */
void ash_group_check_folder(struct ash_group_root *root);
/* The address of this process as those that run see it: towards the job's own, or towards them if that one is no longer
 * known, or is this host's own. */
void ash_group_find_address(const struct ash_group_root *root, char address[ASH_SOCKET_ADDR_BYTES]);

#endif

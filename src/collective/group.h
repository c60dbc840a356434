/* group - the ranks of a job, or some of them, and their collectives. The group of all ranks is opened at a rendezvous
 * (member/launch_env.h, member/rendezvous.h); parts of it, such as the axes of a mesh, are split off. All ranks of a
 * group make the same calls on it in the same order.
 *
 * Sums have one order (collective/core/sum.h): the same bits for every algorithm, number of nodes and placement.
 * Every wait is bounded: a dead process is noticed at once, one that hangs or is cut off within silent_timeout,
 * one that lives but does not come to a call within call_timeout, or within stop_grace after a stop request. The error
 * names rank, host, call and how long; the group and all groups split from the same root are then over, and every call
 * on them returns that error.
 *
 * One owner thread per group; started calls (collective/call.h) run on a thread of the group's own, in order. */
#ifndef ASH_COLLECTIVE_GROUP_H
#define ASH_COLLECTIVE_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/opts.h"
#include "collective/core/cost.h"
#include "collective/core/sum.h"
#include "collective/member/launch_env.h"
#include "fabric/fabric.h"

/* Section `group` of the settings. */
struct ash_group_opts {
    double join_timeout, silent_timeout, call_timeout; /* seconds */
    double stop_grace;                                 /* seconds: collective/core/wait_limits.h */
    bool staged;      /* values in a device's memory go through the host's, also where ranks could read each other's */
    const char *node; /* failure domain of this process; NULL: the launcher's or the host's name */
    int algorithm; /* enum ash_net_algorithm (collective/net/net.h): of groups over several nodes, equal on all ranks */
    const char *cost; /* file of a cost model (collective/core/cost.h); the first rank's counts; NULL: a built-in one */
    const char *job_dir; /* folder that all ranks share: the job's key, who is there, which epoch runs; NULL: none */
    const struct ash_fabric_opts *fabric; /* section `fabric`, borrowed while the group lives; NULL: its defaults */
};
extern const struct ash_opt_table ash_group_table;

/* NULL is the group of a process that is alone: rank 0 of 1 on one node, whose barriers, reductions, gathers and
 * broadcasts return at once. */
struct ash_group;
struct ash_device_memory; /* infra/device_memory.h */

/* In the error of a group that is over because others form the next epoch, though no rank was lost. */
#define ASH_GROUP_FORMED_AGAIN "the group is formed again"

/* One rank, for messages and placement. */
struct ash_group_member {
    size_t rank; /* in the root group */
    const char *host;
    const char *node;
    size_t node_index; /* nodes are numbered in the order of their first rank */
    int pid;
};

/* Join the other ranks of env's job. An env of size 1 gives a group of one, without any socket. Returns 0, -EINVAL,
 * -ENOMEM, -ENOENT (the first node's name cannot be resolved), -ETIMEDOUT (ranks that did not come are named),
 * -EINTR (a stop request) or an error of the network; on 0 the caller owns *group_out. */
int ash_group_open(const struct ash_launch_env *env, const struct ash_group_opts *opts, struct ash_group **group_out,
                   struct ash_err *err);
/* Orderly end. Groups split from this one must be closed before. NULL is a no-op. */
void ash_group_close(struct ash_group *group);
/* All ranks call it: those with equal color become a group, ordered by (key, rank). A negative color joins none
 * (*group_out NULL). Returns 0, -ENOMEM or the group's error; the caller owns *group_out. */
int ash_group_split(struct ash_group *group, int64_t color, int64_t key, struct ash_group **group_out,
                    struct ash_err *err);
/* How often its root group has been re-formed. */
uint32_t ash_group_epoch(const struct ash_group *group);
/* Every rank of the root group gets `why` as the error of all its calls. Any thread. */
void ash_group_abort(struct ash_group *group, const char *why);

/* 0, or the error that has ended the group, known from a call or noticed since. Any thread. */
int ash_group_check(struct ash_group *group, struct ash_err *err);

/* A name of at most 8 bytes for the flight recorder: "tp". Without one it is "group", that of all ranks "world". */
void ash_group_set_name(struct ash_group *group, const char *name);
/* This rank's number in the group, from 0. */
size_t ash_group_rank(const struct ash_group *group);
/* How many ranks the group has. */
size_t ash_group_size(const struct ash_group *group);
/* How many nodes they are on. */
size_t ash_group_nodes(const struct ash_group *group);
/* Ranks of the root group on this host: who shares its cores. */
size_t ash_group_here(const struct ash_group *group);
/* How many of those come before this process. */
size_t ash_group_local_rank(const struct ash_group *group);
/* Rank `rank` of the group. The strings live as long as the root group. */
struct ash_group_member ash_group_get_member(const struct ash_group *group, size_t rank);
/* From now on the values of calls and channels, in the group and in all groups split from the same root, may be in this
 * memory, too. Ranks of one node then exchange them from window to window (collective/host/device_calls.h) where the
 * device can; else, and in channels, they go through host memory (collective/core/staging.h). Ranks of a node share
 * none. NULL: no more, and windows and blocks of host memory are freed, before the memory's device is closed. All ranks
 * call it with memory of one kind, between calls. Borrowed. */
void ash_group_set_memory(struct ash_group *group, const struct ash_device_memory *memory);
/* Copy within this process, from and to any of the host's memory and that one. Returns 0 or -EIO. Any thread. */
int ash_group_copy(const struct ash_group *group, void *dst, const void *src, size_t size_bytes, struct ash_err *err);
/* Has it memory that the host cannot touch? */
bool ash_group_is_staged(const struct ash_group *group);
/* Are its ranks on one node, where windows of host memory can be had? */
bool ash_group_is_on_one_node(const struct ash_group *group);
/* Can its ranks read each other's values where they lie: on one node, in memory of the host? */
bool ash_group_shares_memory(const struct ash_group *group);
/* Choose algorithms by another cost model from now on. All ranks call it with the same one. */
void ash_group_set_cost(struct ash_group *group, const struct ash_cost *cost);

/* ---- collectives -------------------------------------------------------------------------------------------------
 * All ranks call them, with equal counts (elements), sizes (bytes), types and operations. out may be in where their
 * sizes are equal. Each returns 0, or the group's error from then on: -ETIMEDOUT (a rank that does not come), -EINTR
 * (the same after a stop request), -ECONNRESET (a lost rank), -EPROTO (ranks make different calls). */

/* Wait until all ranks have called it. */
int ash_group_barrier(struct ash_group *group, struct ash_err *err);
/* out[count] = the reduction of every rank's in[count]. */
int ash_group_all_reduce(struct ash_group *group, const void *in, void *out, size_t count, enum ash_coll_dtype dtype,
                         enum ash_coll_op op, struct ash_err *err);
/* out[count] = part `rank` of the reduction of every rank's in[size * count]. */
int ash_group_reduce_scatter(struct ash_group *group, const void *in, void *out, size_t count,
                             enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err);
/* All-reduce where a rank contributes several parts of a larger tree, or none: parts[i] is its i-th by shares, which
 * are equal on all ranks. out may be parts[0]. */
int ash_group_all_reduce_parts(struct ash_group *group, const void *const *parts, const struct ash_shares *shares,
                               void *out, size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                               struct ash_err *err);
/* Reduce-scatter of such parts, each of size * count elements. */
int ash_group_reduce_scatter_parts(struct ash_group *group, const void *const *parts, const struct ash_shares *shares,
                                   void *out, size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                                   struct ash_err *err);
/* out[size * size_bytes] = every rank's in[size_bytes], by rank. in may be this rank's part of out. */
int ash_group_all_gather(struct ash_group *group, const void *in, void *out, size_t size_bytes, struct ash_err *err);
/* data[size_bytes] of every rank becomes that of rank `root`. */
int ash_group_broadcast(struct ash_group *group, void *data, size_t size_bytes, size_t root, struct ash_err *err);
/* in holds send_bytes[r] for each rank r, one after the other; out gets recv_bytes[r] from each. -EPROTO where the two
 * ranks of a pair disagree. */
int ash_group_all_to_all(struct ash_group *group, const void *in, const size_t *send_bytes, void *out,
                         const size_t *recv_bytes, struct ash_err *err);

/* ---- windows -----------------------------------------------------------------------------------------------------
 * Shared windows (collective/host/window.h): memory of all ranks of a node in which sums are made where the data lie,
 * several times as fast as from elsewhere; where the ranks are on several nodes, as fast as from elsewhere. */
struct ash_window;
/* All ranks call it with the same size. The caller owns *window_out: ash_window_close. */
int ash_group_window_open(struct ash_group *group, size_t size_bytes, struct ash_window **window_out,
                          struct ash_err *err);
/* A window of what the ranks of a node show each other: see ash_window_show. */
int ash_group_window_show(struct ash_group *group, const struct ash_window *shown, size_t rank,
                          struct ash_window **window_out, struct ash_err *err);
/* Wait until another rank of the node has signalled at least `value` on a counter (ash_window_signal). */
int ash_group_window_wait(struct ash_group *group, struct ash_window *window, size_t rank, size_t counter,
                          uint64_t value, struct ash_err *err);
/* All ranks pass their windows and equal shares; the sum is then in windows[0] of each. */
int ash_group_window_all_reduce(struct ash_group *group, struct ash_window *const *windows,
                                const struct ash_shares *shares, size_t count, enum ash_coll_dtype dtype,
                                enum ash_coll_op op, struct ash_err *err);
/* The same where each rank wants some runs of elements only, in its own windows[0], and no two the same. */
int ash_group_window_reduce(struct ash_group *group, struct ash_window *const *windows, const struct ash_shares *shares,
                            size_t count, const struct ash_range *runs, size_t run_count, enum ash_coll_dtype dtype,
                            enum ash_coll_op op, struct ash_err *err);

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Send a message to another rank of the group, which receives exactly size_bytes; messages of a pair arrive in order.
 * Small ones do not wait for the receiver; large ones wait until it has taken most of them, so two ranks that both send
 * first and receive afterwards wait for each other (collective/channel.h has slots for that). Data are copied. */
int ash_group_send(struct ash_group *group, size_t to, const void *data, size_t size_bytes, struct ash_err *err);
/* Receive the next message of a rank. -EPROTO if it does not have size_bytes. */
int ash_group_recv(struct ash_group *group, size_t from, void *data, size_t size_bytes, struct ash_err *err);

#endif

/* mesh - how the ranks of a job share its work: six axes whose sizes multiply to the number of ranks.
 *
 *     axis   its ranks have                     sharded between them
 *     tp     the same tokens                    heads, feed-forward columns, vocabulary
 *     cp     the same sequences                 the tokens of a sequence
 *     ep     other sequences                    experts
 *     fsdp   other sequences                    the state (as much as mesh.zero sets)
 *     dp     other sequences                    nothing: replicas
 *     pp     the same sequences                 layers (pipeline stages)
 *
 * Neighbouring ranks differ in tp first, then cp, ep, fsdp, dp, pp. No layout changes a bit. One owner thread. */
#ifndef ASH_TRAIN_MESH_H
#define ASH_TRAIN_MESH_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"
#include "collective/channel.h"
#include "collective/group.h"
#include "model/axis.h"
#include "model/slice.h"
#include "parallel/axis_link.h"
#include "train/job/job.h"
#include "record/meter.h"

enum ash_mesh_axis { ASH_MESH_TP, ASH_MESH_CP, ASH_MESH_EP, ASH_MESH_FSDP, ASH_MESH_DP, ASH_MESH_PP, ASH_MESH_AXES };

/* Caller's storage; zeroed is a mesh of one. */
struct ash_mesh {
    struct ash_group *world; /* borrowed; NULL: alone */
    size_t size[ASH_MESH_AXES], at[ASH_MESH_AXES];
    int zero;                                /* what fsdp shards: 0 nothing (its size is 1), else as mesh.zero */
    struct ash_group *groups[ASH_MESH_AXES]; /* ranks that differ along one axis only; NULL if its size is 1 */
    struct ash_group *data;    /* ranks with the same slice (experts apart) for other sequences; NULL: none */
    struct ash_group *experts; /* ranks with the same experts; NULL: none */
    struct ash_group *blocks;  /* zero 2 and 3: ranks with the same shard (experts apart) for other grains (dp, ep) */
    struct ash_group *node_replicas; /* replicas (dp, cp) on this node, if no state is sharded; NULL: none */
    struct ash_axis_link links[ASH_MESH_EP + 1];
    struct ash_group *tp_cp; /* those along tp and cp, where both have several ranks and all are on one node */
    struct ash_axis_link tp_cp_link;
    /* where the ranks of ep are on several nodes: the node of each [ep], and those of this one (model/axis.h) */
    uint32_t *ep_nodes;
    struct ash_group *ep_node_group;
    struct ash_axis_link ep_link;
    struct ash_axis ep_axis;
    bool is_device;         /* are values in memory that the host cannot touch? Then ranks share none */
    bool shares_state;      /* may ranks of a node have one copy of state or weights? The same for all */
    bool has_tp_peers;      /* has any rank of the mesh peers of tp on its node (ash_mesh_tp_peers)? */
    bool shares_gradients;  /* see ash_mesh_shares_gradients */
    struct ash_meter meter; /* of the present step */
};

/* A job of this mesh starts with a multiple of this many ranks, with mesh.dp set with just this many. */
size_t ash_mesh_unit(const struct ash_job_mesh *job);
/* Fill in mesh.dp if it is "choose". Returns 0, or -EINVAL with the sizes that fit that many ranks. */
int ash_mesh_resolve(struct ash_job_mesh *job, size_t ranks, struct ash_err *err);
/* Split world (borrowed until close; NULL: alone) into the groups of the axes. All its ranks call it with the same
 * resolved sizes. Returns 0, -ENOMEM or the group's error. */
int ash_mesh_open(struct ash_mesh *mesh, const struct ash_job_mesh *job, struct ash_group *world, struct ash_err *err);
/* Close the groups. Zeroed or half-open is fine. */
void ash_mesh_close(struct ash_mesh *mesh);

/* Its sizes above 1 for people, as they are set: "tp=2 dp=4". Returns buf. */
const char *ash_mesh_describe(const struct ash_mesh *mesh, char *buf, size_t buf_bytes);

/* Does every rank hold the whole state? */
bool ash_mesh_is_whole(const struct ash_mesh *mesh);
/* Is this the rank that reports the losses of its sequences (last stage, first of tp and cp)? */
bool ash_mesh_is_reporting_rank(const struct ash_mesh *mesh);
/* This rank's number among those that share the sequences of a step (dp, fsdp, ep). */
size_t ash_mesh_data_rank(const struct ash_mesh *mesh);
/* How many those are. */
size_t ash_mesh_data_size(const struct ash_mesh *mesh);
/* This rank's number among those that hold the same part of the state (dp and cp). */
size_t ash_mesh_replica(const struct ash_mesh *mesh);
/* How many those are. */
size_t ash_mesh_replicas(const struct ash_mesh *mesh);
/* May the first micro-batch of a grain overwrite its gradient buffer instead of adding to zeros? Where this rank's
 * passes alone, or those of cp to a shared buffer, write to it. */
bool ash_mesh_can_overwrite_grads(const struct ash_mesh *mesh);
/* Do the ranks of cp add to one gradient buffer in shared memory? Where all of tp and cp are on one node, and gradients
 * are not sharded (zero 2 and 3). */
bool ash_mesh_shares_gradients(const struct ash_mesh *mesh);
/* Does this rank reduce gradients with other ranks? Of those that share a buffer, the first does it for all. */
bool ash_mesh_is_leader(const struct ash_mesh *mesh);
/* Barrier (metered) of the ranks of cp that share a gradient buffer; nothing where they do not. */
int ash_mesh_cp_barrier(struct ash_mesh *mesh, struct ash_err *err);
/* The ranks that this rank's slice is sharded over (fsdp), where all of them are on this node and share memory; else
 * NULL. */
struct ash_group *ash_mesh_node_shard_group(const struct ash_mesh *mesh);
/* The ranks of tp, where all of them are on this node; else NULL. */
struct ash_group *ash_mesh_tp_peers(const struct ash_mesh *mesh);
/* The world's rank on another stage, all else equal. */
size_t ash_mesh_stage_rank(const struct ash_mesh *mesh, size_t stage);

/* What chunk `chunk` (of chunks) of this rank's stage holds of a model: layers go to the stages round robin, chunk by
 * chunk. */
struct ash_slice ash_mesh_slice(const struct ash_mesh *mesh, const struct ash_model_config *config, size_t chunk,
                                size_t chunks);
/* Can the model be laid out like this? Returns 0 or -EINVAL naming the settings. */
int ash_mesh_check(const struct ash_mesh *mesh, const struct ash_model_config *config, const struct ash_job *job,
                   struct ash_err *err);
/* The ranks along tp and cp as one axis, where they can share memory (see struct ash_pass_opts); else of size 1. */
struct ash_axis ash_mesh_tp_cp_axis(struct ash_mesh *mesh);
/* An axis (tp, cp or ep) for a pass, whose messages have up to message_floats. */
struct ash_axis ash_mesh_pass_axis(struct ash_mesh *mesh, enum ash_mesh_axis axis, size_t message_floats);

#endif

/* mesh - how the ranks of a job share its work: six axes whose sizes multiply to the number of ranks.
 *   dp    replicas of the model, other sequences           ep    experts dealt out; other sequences
 *   fsdp  replicas whose state is dealt out (zero)         pp    layers dealt out (pipeline stages)
 *   cp    tokens of a sequence dealt out                   tp    heads, feed-forward columns, vocabulary dealt out
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
#include "train/job/job.h"
#include "train/state/meter.h"

enum ash_mesh_axis { ASH_MESH_TP, ASH_MESH_CP, ASH_MESH_EP, ASH_MESH_FSDP, ASH_MESH_DP, ASH_MESH_PP, ASH_MESH_AXES };

/* The ranks of an axis as a pass sees them; channels are opened when they are first used. */
struct ash_mesh_link {
    struct ash_group *group;
    struct ash_meter *meter;
    size_t slot_bytes;
    struct ash_channel **to, **from; /* [size] */
};

/* Caller's storage; zeroed is a mesh of one. */
struct ash_mesh {
    struct ash_group *world; /* borrowed; NULL: alone */
    size_t size[ASH_MESH_AXES], at[ASH_MESH_AXES];
    int zero;                                /* what fsdp deals out: 0 nothing (its size is 1), else as mesh.zero */
    struct ash_group *groups[ASH_MESH_AXES]; /* who differs along one axis only; NULL where its size is 1 */
    struct ash_group *data;    /* who holds the same slice (experts apart) for other sequences; NULL: nobody */
    struct ash_group *experts; /* who holds the same experts; NULL: nobody */
    struct ash_group *blocks;  /* zero 2 and 3: who holds the same shard (experts apart) for other grains (dp, ep) */
    struct ash_group
        *node_replicas; /* replicas (below) on this node, where nothing of the state is dealt out; NULL: nobody */
    struct ash_mesh_link links[ASH_MESH_EP + 1];
    struct ash_group *tp_cp; /* those along tp and cp, where both have several ranks and all are on one node */
    struct ash_mesh_link tp_cp_link;
    /* where the ranks of ep are on several nodes: of each, and those of this one (model/axis.h) */
    uint32_t *ep_nodes;
    struct ash_group *ep_node_group;
    struct ash_mesh_link ep_link;
    struct ash_axis ep_axis;
    bool shares_gradients;  /* ranks of cp make one sum of gradients: see ash_mesh_shares_gradients */
    struct ash_meter meter; /* of the step at hand */
};

/* Sizes that fit: fills in dp where it says "choose". Returns 0 or -EINVAL saying what would be possible. */
int ash_mesh_resolve(struct ash_job_mesh *job, size_t ranks, struct ash_err *err);
/* All ranks of world (NULL: alone) call it with the same resolved sizes. */
int ash_mesh_open(struct ash_mesh *mesh, const struct ash_job_mesh *job, struct ash_group *world, struct ash_err *err);
void ash_mesh_close(struct ash_mesh *mesh);

/* Its sizes above 1 for people, as they are set: "tp=2 dp=4". Returns buf. */
const char *ash_mesh_describe(const struct ash_mesh *mesh, char *buf, size_t buf_bytes);

/* Does every rank hold the whole state? */
bool ash_mesh_is_whole(const struct ash_mesh *mesh);
/* Of those that compute the same sequences, does this rank speak for them (last stage, first of tp and cp)? */
bool ash_mesh_is_reporting_rank(const struct ash_mesh *mesh);
/* This rank's place among those that share the sequences of a step. */
size_t ash_mesh_data_rank(const struct ash_mesh *mesh);
size_t ash_mesh_data_size(const struct ash_mesh *mesh);
/* This rank's place among those that hold the same part of the state (dp and cp). */
size_t ash_mesh_replica(const struct ash_mesh *mesh);
size_t ash_mesh_replicas(const struct ash_mesh *mesh);
/* Do this rank's passes alone add to its gradients, or those of cp to one sum, so that each grain's first batch can
 * start them? */
bool ash_mesh_can_overwrite_grads(const struct ash_mesh *mesh);
/* Are all that share sequences (cp, and tp beside it) on one node each, so that those of cp make one sum of gradients
 * in memory that all see? Not where gradients are dealt out (zero 2 and 3). Then the first of cp is the one who joins
 * it with others'. */
bool ash_mesh_shares_gradients(const struct ash_mesh *mesh);
bool ash_mesh_is_leader(const struct ash_mesh *mesh);
/* Where they do, all of cp meet, on the clock. */
int ash_mesh_cp_barrier(struct ash_mesh *mesh, struct ash_err *err);
/* Those that this rank's slice is dealt out to (fsdp), where all of them are on this node; NULL: nobody, or they are
 * not. */
struct ash_group *ash_mesh_node_shard_group(const struct ash_mesh *mesh);
/* Those of tp, where all of them are on this node; NULL: nobody, or they are not. */
struct ash_group *ash_mesh_tp_peers(const struct ash_mesh *mesh);
/* The world's rank on another stage, all else equal. */
size_t ash_mesh_stage_rank(const struct ash_mesh *mesh, size_t stage);

/* What chunk `chunk` (of chunks) of this rank's stage holds of a model: stages take turns, chunk by chunk. */
struct ash_slice ash_mesh_slice(const struct ash_mesh *mesh, const struct ash_model_config *config, size_t chunk,
                                size_t chunks);
/* Can the model be laid out like this? */
int ash_mesh_check(const struct ash_mesh *mesh, const struct ash_model_config *config, const struct ash_job *job,
                   struct ash_err *err);
/* Those along tp and cp together, where they can share memory (see struct ash_pass_opts); else of size 1. */
struct ash_axis ash_mesh_tp_cp_axis(struct ash_mesh *mesh);
/* An axis (tp, cp or ep) for a pass, whose messages have up to message_floats. */
struct ash_axis ash_mesh_pass_axis(struct ash_mesh *mesh, enum ash_mesh_axis axis, size_t message_floats);

#endif

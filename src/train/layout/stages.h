/* stages - the part of the model that this rank trains, as one or more chunks of consecutive layers, and how a step's
 * sequences go through it: forward and backward in the order of the pipeline, gradients into the tree of grains,
 * updates. Without a pipeline there is one chunk, all layers. One owner thread. */
#ifndef ASH_TRAIN_STAGES_H
#define ASH_TRAIN_STAGES_H

#include "train/data/feed.h"
#include "train/layout/fsdp.h"
#include "train/layout/grains.h"
#include "train/layout/leaf_sums.h"
#include "train/job/job.h"
#include "train/layout/mesh.h"
#include "train/state/optimizer.h"
#include "train/layout/stage_order.h"
#include "train/state/state.h"

/* A micro-batch between its forward and its backward. */
struct ash_stage_slot {
    struct ash_pass *pass;
    struct ash_feed feed;
};

/* Callback when more sums of a step may be complete (ash_stages_sum), while the backward passes of the last micro-batch
 * run. Zeroed: none. */
struct ash_stages_listener {
    int (*on_layer)(void *ctx, struct ash_err *err); /* a layer is done */
    void *ctx;
};

/* One chunk. */
struct ash_stage {
    struct ash_state state;
    struct ash_optimizer optimizer;
    struct ash_stage_slot *slots; /* [slot_count]: micro-batches in flight */
    size_t slot_count;
    struct ash_fsdp fsdp;
    const void **tp_weights;  /* [tp]: the weights of the ranks of tp, in memory that this process sees; NULL: none */
    struct ash_grains grains; /* sums of gradients, where they are not sharded */
    struct ash_range *wanted; /* [wanted_count]: ranges of the sum that this rank updates and no other does */
    size_t wanted_count;
    bool overlap_reduce;             /* sums of a layer follow its backward pass (stages_hooks.c) */
    bool is_leader;                  /* this rank starts them: see ash_mesh_is_leader */
    bool is_last_micro_batch;        /* the one in the backward pass, of the rank's last grain */
    bool *reduce_started;            /* [units of the model] */
    struct ash_grains experts;       /* sums of experts that serve several ranks: a strand for each */
    float *grad_buffer;              /* of the grain in the backward pass: [ash_model_grad_size] */
    float **expert_grad_buffers;     /* [ep]: of experts, for the grains of the ranks that are served */
    float *grads;                    /* of the whole step, reduced: the shard's (layout: optimizer.flat) */
    struct ash_leaf_sums *leaf_sums; /* of the step, while it is computed; NULL: not recorded */
    struct ash_stages_listener listener;
};

/* P2p channels to the neighbours in the pipeline; NULL if there is none. */
struct ash_stage_channels {
    struct ash_channel *forward_to, *forward_from, *backward_to, *backward_from;
    struct ash_channel *tie_to, *tie_from; /* between the embedding and a tied output matrix on another stage */
};

/* Grains of a step whose sums are known before it begins (stages_kept.c). */
struct ash_stages_kept {
    bool is_set;
    uint64_t step;           /* steps before it */
    struct ash_range *parts; /* [ranks that share the sequences] grains of each in that step */
    struct ash_range *spans; /* [span_count] subtrees of the grains, of all ranks, in order */
    size_t span_count;
    struct ash_range own;    /* of those, the ones among this rank's grains */
    struct ash_buffer *sums; /* [chunks, own.count] */
    const float **values;    /* the same */
    double *losses;          /* [grains], of those that are kept */
    size_t *todo;            /* [todo_count] this rank's other grains */
    size_t todo_count;
};

/* Caller's storage. */
struct ash_stages {
    const struct ash_job *job;
    struct ash_exec *exec;
    struct ash_mesh *mesh;
    struct ash_stage *chunks; /* [chunk_count] */
    size_t chunk_count;
    struct ash_stage_order order;
    struct ash_stage_channels channels;
    struct ash_buffer tie; /* where a tied output matrix's gradient arrives */
    struct ash_feed feed;  /* for counting targets */
    size_t micro_batch;    /* sequences */
    size_t grain_micros;   /* micro-batches of a grain */
    struct ash_range own;  /* this rank's grains */
    bool owes_spread;      /* weights have been updated, and only their owners have them: ash_stages_spread is due */
    uint64_t summed_step;  /* of which gradients are being summed, from 1: they may outlive the epoch; 0: none */
    struct ash_stages_kept kept;
    size_t step_grains; /* that this rank computes in the step that is being made */
    const size_t *todo; /* the grains of the step that is being made, by round; NULL: own, in order */
};

/* Where weights come from: a folder, or a config and a seed. */
struct ash_stages_source {
    const char *dir; /* NULL: new weights */
    const struct ash_model_config *config;
    bool is_blank; /* zeros: the values come from elsewhere, and then ash_stages_renew */
};

/* Can a rank at this place of the mesh work through its micro-batches in stages (mesh.interleave)? mesh: its sizes and
 * the place are enough. Returns 0 or -EINVAL. */
int ash_stages_check(const struct ash_job *job, const struct ash_mesh *mesh, struct ash_err *err);
/* Open this rank's chunks of the model that source names. Borrows job, exec and mesh until close. All ranks
 * of the mesh call it. Returns 0, -EINVAL where the model cannot be laid out like this, -ENOMEM, or a file's
 * or the group's error. */
int ash_stages_open(struct ash_stages *stages, const struct ash_job *job, struct ash_exec *exec, struct ash_mesh *mesh,
                    const struct ash_stages_source *source, struct ash_err *err);
/* Free; half-open is fine. */
void ash_stages_close(struct ash_stages *stages);

/* Input of a training step. */
struct ash_stages_task {
    const struct ash_train_source *source;
    const struct ash_objective *objective; /* NULL: the sum of all losses, times scale */
    const struct ash_teacher *teacher;     /* rows learn its distributions, without objective; NULL: their targets */
    float scale;
    size_t shift;               /* compute the grains of the rank this many dp places on; 0: this rank's own */
    struct ash_leaf_sums *sums; /* gets checksums of each grain's gradients; NULL: not recorded */
    struct ash_stages_listener listener;
};
/* The grain that a data-parallel place (dp, fsdp) computes in a round with this rank's of ep; SIZE_MAX: none. */
size_t ash_stages_grain(const struct ash_stages *stages, size_t column, size_t ep, size_t round);
/* Compute the gradients over all sequences of a step and reduce them over all ranks. losses [grains] gets the sums of
 * all grains (the objective's, if there is one), on every rank. Returns 0, -EBADMSG for damaged data, or the
 * objective's or the group's error. */
int ash_stages_train(struct ash_stages *stages, const struct ash_stages_task *task, uint64_t step, double *losses,
                     struct ash_err *err);

/* ---- grains that an interrupted step had finished ---------------------------------------------------------------- */

/* Is a grain's sum on the ranks of one data-parallel place alone? Then it outlives the loss of any other. */
bool ash_stages_can_keep(const struct ash_stages *stages);
/* Detached or not: the subtrees of step summed_step that are complete in a chunk. Calls each for every one. */
typedef int (*ash_stages_finished_fn)(void *ctx, struct ash_range span, const float *sums, const double *losses);
/* losses [grains] are those of the step; borrowed. Returns 0 or each's first error. */
int ash_stages_list_finished(const struct ash_stages *stages, size_t chunk, const double *losses,
                             ash_stages_finished_fn each, void *ctx);
/* Room for subtrees of the step after `step` steps that are known: kept, copied, with parts for all data-parallel
 * ranks. Where this rank cannot take them, nothing is done, and *can_out is false. Returns 0 or -ENOMEM. */
int ash_stages_open_kept(struct ash_stages *stages, const struct ash_grains_kept *kept, uint64_t step, bool *can_out,
                         struct ash_err *err);
/* Where the sums of subtree kept.own.first + index belong: [size of the chunk's model]. */
float *ash_stages_kept_sums(const struct ash_stages *stages, size_t chunk, size_t index);
/* They are there, and so are losses [grains]: that step takes them. All ranks of the mesh call it. Returns 0, -ENOMEM
 * or the group's error. */
int ash_stages_set_kept(struct ash_stages *stages, const double *losses, struct ash_err *err);
/* Forget them; nothing is fine. */
void ash_stages_drop_kept(struct ash_stages *stages);

/* ---- the rest of a step ------------------------------------------------------------------------------------------ */

/* While a step runs: elements `range` of a chunk's reduced gradients, where those that this rank updates are complete;
 * else NULL. */
const float *ash_stages_sum(const struct ash_stages *stages, size_t chunk, struct ash_range range);
/* The norm of those gradients. All ranks call it. Returns 0 or the group's error. */
int ash_stages_norm(struct ash_stages *stages, double *norm_out, struct ash_err *err);
/* Clip and update this process's part of the state, with the gradients that it has: nothing is sent or waited for. The
 * previous values are overwritten, unless node replicas keep them. */
void ash_stages_update(struct ash_stages *stages, double norm, double lr);
/* The step is done here; updated: not skipped. Node replicas and node shard groups wait for each other first: on error
 * the step has not been counted. Returns 0 or the group's error. */
int ash_stages_commit(struct ash_stages *stages, bool updated, struct ash_err *err);
/* Count a step without waiting for other ranks. */
void ash_stages_count_step(struct ash_stages *stages, bool updated);
/* After an update: bring every copy of the weights up to date. All ranks call it. Returns 0 or the group's error. */
int ash_stages_spread(struct ash_stages *stages, struct ash_err *err);
/* ash_stages_spread, if it is due. Passes begin with it. */
int ash_stages_catch_up(struct ash_stages *stages, struct ash_err *err);
/* The values of all states have been written from elsewhere: compute the values derived from them; ash_stages_spread is
 * due then. All ranks call it. Returns 0 or the group's error. */
int ash_stages_renew(struct ash_stages *stages, struct ash_err *err);

/* The groups of the mesh are about to be closed: waits for requests in flight and closes all but state and gradients,
 * which ash_stages_close frees. */
void ash_stages_detach(struct ash_stages *stages);
/* Take over the values of `old`, which is detached, if each of its chunks is the same part of the model, in private
 * memory: nothing is copied, and old must not be used afterwards. ash_stages_renew follows. Returns false if they
 * differ: then nothing is done. */
bool ash_stages_take(struct ash_stages *stages, struct ash_stages *old);
/* Detached: ash_stages_update of all that is in this process's reach, also of what lost node replicas had to do. The
 * norm must be known: then all sums are complete. */
void ash_stages_update_alone(struct ash_stages *stages, double norm, double lr);

/* losses [count] of sequences 0 ... count - 1 of a source, without gradients, on every rank. */
int ash_stages_eval(struct ash_stages *stages, const struct ash_train_source *source, size_t count, double *losses,
                    struct ash_err *err);
/* The same of every row: rows [count, data.seq] of losses (of a reward model: scores), 0 where there is no target. */
int ash_stages_eval_rows(struct ash_stages *stages, const struct ash_train_source *source, size_t count, float *rows,
                         struct ash_err *err);

/* The state hash of the whole job. All ranks call it. Returns 0 or the group's error. */
int ash_stages_hash(const struct ash_stages *stages, uint64_t *hash_out, struct ash_err *err);

#endif

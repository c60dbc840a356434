/* stages - the part of the model that this rank trains, as one or more chunks of consecutive layers, and a step's
 * sequences on their way through it: forward and backward in the order of the pipeline, gradients into the tree of
 * grains, updates. Without a pipeline there is one chunk, all layers. One owner thread. */
#ifndef ASH_TRAIN_STAGES_H
#define ASH_TRAIN_STAGES_H

#include "train/data/dataset.h"
#include "train/data/feed.h"
#include "train/layout/fsdp.h"
#include "train/layout/grains.h"
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

struct ash_stage {
    struct ash_state state;
    struct ash_optimizer optimizer;
    struct ash_stage_slot *slots;
    size_t slot_count;
    struct ash_fsdp fsdp;
    const void **tp_weights;  /* [tp]: the memory that the weights of the ranks of tp are in, as this process sees it;
                                 NULL: it does not */
    struct ash_grains grains; /* where gradients are whole */
    struct ash_range *wanted; /* of their sum, runs of elements that this rank updates, where no other asks for them */
    size_t wanted_count;
    bool overlap_reduce;         /* their sum goes between nodes, beside the way back (stages_hooks.c) */
    bool is_leader;              /* that is for this rank to do: it is the first of those who make one sum */
    bool is_last_micro_batch;    /* the batch on its way back is the last of the rank's last grain */
    bool *reduce_started;        /* [units of the model]: whose sums have set out */
    struct ash_grains experts;   /* then, of experts that serve several ranks: a lane for each; others' are in grains */
    float *grad_buffer;          /* gradients of the grain whose backward is under way */
    float **expert_grad_buffers; /* [ep]: those of experts, of the grains of the ranks that are served */
    float *grads;                /* of the whole step, once joined: the shard's (optimizer.flat says where they lie) */
};

/* To and from the neighbours in the pipeline; NULL where there is none. */
struct ash_stage_channels {
    struct ash_channel *forward_to, *forward_from, *backward_to, *backward_from;
    struct ash_channel *tie_to, *tie_from; /* between the embedding and a tied output matrix on another stage */
};

/* Caller's storage. */
struct ash_stages {
    const struct ash_job *job;
    struct ash_exec *exec;
    struct ash_mesh *mesh;
    struct ash_stage *chunks;
    size_t chunk_count;
    struct ash_stage_order order;
    struct ash_stage_channels channels;
    struct ash_buffer tie; /* where a tied output matrix's sum arrives */
    struct ash_feed feed;  /* for reading alone */
    size_t micro_batch;    /* sequences */
    size_t grain_micros;   /* micro-batches of a grain */
    struct ash_range own;  /* this rank's grains */
};

/* Where weights come from: a folder, or a config and a seed. */
struct ash_stages_source {
    const char *dir; /* NULL: new weights */
    const struct ash_model_config *config;
};

/* Borrows job, exec and mesh until close. All ranks of the mesh call it. */
int ash_stages_open(struct ash_stages *stages, const struct ash_job *job, struct ash_exec *exec, struct ash_mesh *mesh,
                    const struct ash_stages_source *source, struct ash_err *err);
void ash_stages_close(struct ash_stages *stages);

/* Gradients of scale * loss of all sequences of a step, joined over all ranks. losses[grain] of all grains. */
int ash_stages_train(struct ash_stages *stages, const struct ash_dataset *dataset, uint64_t step, float scale,
                     double *losses, struct ash_err *err);
/* Norm of what ash_stages_train left. */
int ash_stages_norm(struct ash_stages *stages, double *norm_out, struct ash_err *err);
/* Clip, update, and bring every copy up to date. */
int ash_stages_update(struct ash_stages *stages, double norm, double lr, struct ash_err *err);
/* A step that leaves the weights alone counts too. */
void ash_stages_count_step(struct ash_stages *stages);

/* Losses of sequences 0 ... count - 1 of a dataset, without gradients. */
int ash_stages_eval(struct ash_stages *stages, const struct ash_dataset *dataset, size_t count, double *losses,
                    struct ash_err *err);

/* state_hash of the whole job. */
int ash_stages_hash(const struct ash_stages *stages, uint64_t *hash_out, struct ash_err *err);

#endif

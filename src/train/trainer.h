/* trainer - one training step after another. A step is a pure function of (state, step number, global batch): threads,
 * micro-batches, recomputation and the number of ranks never change a bit. Files, screens and signals are the business
 * of run.h. One owner thread. */
#ifndef ASH_TRAIN_TRAINER_H
#define ASH_TRAIN_TRAINER_H

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "collective/group.h"
#include "train/job/job.h"
#include "train/memory.h"
#include "record/meter.h"
#include "train/layout/stages.h"

struct ash_trainer;

/* Figures of a validation on pairs besides the loss. */
struct ash_pair_figures {
    double accuracy;         /* share of pairs whose chosen answer has the higher reward; NaN: not measured on pairs */
    double chosen, rejected; /* mean rewards */
};

#define ASH_NO_PAIRS ((struct ash_pair_figures){NAN, NAN, NAN})

/* Parts of a trainer that replace windows of data.train. All borrowed until close. */
struct ash_trainer_parts {
    const struct ash_train_source *train; /* NULL: windows of data.train all the same */
    bool wants_scores;                    /* train a reward model: a score in the place of the output matrix */
    const struct ash_lora *lora;          /* adapters that are trained instead of the model; NULL: the model */
    const struct ash_train_source *valid; /* NULL: no validation */
    /* The loss of the first sequences of valid, from rows [sequences, data.seq] of losses (of a reward model: scores),
     * on every rank. NULL: the mean over targets. Returns 0 or a negative errno that ends the run. */
    int (*weigh_valid)(void *ctx, const float *rows, size_t sequences, double *loss_out,
                       struct ash_pair_figures *figures_out, struct ash_err *err);
    const char *cpu_reason;                /* why no GPU may be taken unasked; NULL: one may */
    const struct ash_objective *objective; /* NULL: the mean of all losses */
    const struct ash_teacher *teacher;     /* whose distributions are learned (model/pass/pass.h); NULL: targets */
    /* Called before each step (from 0), on every rank: produce the source's data. NULL: nothing to do. Returns 0, a
     * negative errno that ends the run, or on all ranks -ENOTRECOVERABLE: the run rolls back to its newest checkpoint
     * of an earlier step. */
    int (*prepare)(void *ctx, struct ash_trainer *trainer, uint64_t step, struct ash_err *err);
    /* Called after each step that was counted, on every rank, unless one is lost before. Optional. */
    int (*finish)(void *ctx, struct ash_trainer *trainer, uint64_t step, struct ash_err *err);
    /* Called before the model is closed, in each epoch of the ranks: close all that depends on it. Optional. */
    void (*end)(void *ctx);
    /* `step` steps are done. Data prepared for later steps: hash: of the data and *hash, into that (unchanged if there
     * is none), on every rank of group (NULL: this rank alone, after a failure of others), which waits for data on
     * their way; save: their form in a checkpoint (first rank; NULL: none); and, on every rank, before the first step
     * after a checkpoint, load them. hash returns 0, the group's error, or one that ends the run. NULL: none are
     * prepared. */
    int (*hash)(void *ctx, struct ash_group *group, uint64_t step, uint64_t *hash, struct ash_err *err);
    json_t *(*save)(void *ctx, uint64_t step);
    int (*load)(void *ctx, const json_t *kept, struct ash_err *err);
    /* More data for the run's page (train/run/report.h), for the caller to free. First rank. NULL: none. */
    json_t *(*report)(void *ctx);
    void *ctx;
};

/* What one step did. */
struct ash_step {
    uint64_t step; /* number of steps done with this one: 1 is the first */
    double loss;   /* mean over targets; its float32 bits are the loss_bits of the log */
    double norm;   /* of the gradient, before clipping */
    double lr;
    uint64_t tokens, targets;
    size_t grains;                  /* that this rank computed */
    struct ash_meter meter;         /* where its time went on this rank */
    enum ash_guard_verdict verdict; /* anything but ASH_GUARD_OK: the weights are as they were */
    char reason[160];               /* the verdict in words */
    /* copies of a new mesh were filled meanwhile: times that some of it arrived damaged and was sent again, the last
     * time from and to these ranks */
    uint64_t repeated;
    size_t damaged_from, damaged_to;
};

/* Facts of a run, for display. */
struct ash_trainer_facts {
    const char *family, *backend, *tokenizer_dir; /* tokenizer_dir NULL: none found */
    const struct ash_exec *exec;
    const char *why_cpu; /* why a GPU that is here is not used; empty: none is here, or it is used, or not wanted */
    int threads;
    const struct ash_mesh *mesh;
    bool whole; /* every rank holds all of the state */
    size_t weights, layers, hidden, heads, vocab;
    size_t train_tokens, train_windows, valid_tokens, valid_sequences; /* valid_sequences 0: no validation */
    struct ash_train_memory memory;                                    /* the run's peak */
    double token_flops; /* operations of a token of data.seq, forward and backward (model/flops.h) */
    uint64_t data_hash;
    /* reference whose bits the run has ("ref" for all float32 runs), "/N" where its order of sums changed */
    const char *arithmetic;
};

/* Build everything that a resolved job needs. parts: NULL, or the replacement of data.train. weights_dir: the folder of
 * the checkpoint whose model it is; its values are read next (train/save/restore.h). NULL: those of job->model. group:
 * the ranks that share each step, all of which open the same job; NULL: this process is alone. Borrows job and group
 * until close. If ranks have different jobs, data, weights or arithmetic, or the mesh does not fit the model, all of
 * them get -EBADE and a sentence that names the cause. */
int ash_trainer_open(const struct ash_job *job, const char *weights_dir, struct ash_group *group,
                     const struct ash_trainer_parts *parts, struct ash_trainer **trainer_out, struct ash_err *err);
/* The same for a process that joins a running job: everything that needs no other rank, so that the others wait for
 * little once it has joined. here: processes of the job on this machine, which share its cores. Then
 * ash_trainer_resume, with the group that it has joined. */
int ash_trainer_open_joining(const struct ash_job *job, size_t here, const struct ash_trainer_parts *parts,
                             struct ash_trainer **trainer_out, struct ash_err *err);
/* Free; NULL is a no-op. All ranks close before the group. */
void ash_trainer_close(struct ash_trainer *trainer);

/* ---- when ranks are lost or join --------------------------------------------------------------------------------- */

/* Figures of a change of epochs, on this rank. */
struct ash_recovery {
    uint64_t step;                   /* steps done: the next one follows */
    uint64_t moved_bytes;            /* between processes, of all ranks */
    uint64_t repeated;               /* times that some of them arrived damaged and were sent again, */
    size_t damaged_from, damaged_to; /* the last time from and to these ranks */
    bool has_newcomers;              /* a rank had no state */
    bool has_finished;               /* the last step has been finished on the way, with these results */
    struct ash_step finished;
    uint64_t kept_grains; /* of the next step, which was begun before: those that need not be computed again, */
    double kept_share;    /* and how much less time it takes for that */
    double settle_s, open_s, transfer_s;
    double held_s; /* ash_trainer_grow: how long this rank has waited for it in the step before */
};

/* The ranks of the group are not complete any more: leave it, which the caller then closes or re-forms. The state stays
 * in memory. Also after an error of ash_trainer_resume. */
void ash_trainer_suspend(struct ash_trainer *trainer);
/* From the next ash_trainer_resume on this rank is in no mesh, but sends its shard to others: it is about to leave. */
void ash_trainer_stay_out(struct ash_trainer *trainer, bool stays_out);
/* Continue with the ranks of another group, or of the same one, of which all call it: the interrupted step is finished,
 * or will be redone. The mesh is the wanted one or the largest that fits; ranks beyond it are spares. Returns 0, the
 * group's error (suspend, and resume with the remaining ranks), -ENODATA on all ranks (a part of the state is nowhere:
 * suspend and restart), -EBADE (see open) or -EINVAL (no mesh fits). has_finished and finished of recovery_out are set
 * after an error, too. */
int ash_trainer_resume(struct ash_trainer *trainer, struct ash_group *group, struct ash_recovery *recovery_out,
                       struct ash_err *err);
/* If all other ranks stay, joining ranks do not get their shards at once: the mesh stays, and a larger one is opened
 * next to it, whose state they receive during the next step. Is that under way? The same on all ranks. */
bool ash_trainer_is_growing(const struct ash_trainer *trainer);
/* A spare's part in that step, which the others have begun. Returns 0 or the group's error. */
int ash_trainer_feed_spare(struct ash_trainer *trainer, struct ash_err *err);
/* The larger mesh takes over. All ranks of the group call it, at the edge of that step. Returns 0 or the group's error
 * (as ash_trainer_resume). */
int ash_trainer_grow(struct ash_trainer *trainer, struct ash_recovery *recovery_out, struct ash_err *err);
/* Go on with the job's weights, at step 0; is_blank: zeros, and a checkpoint is read next. The state in memory is
 * dropped. group NULL: this process is alone. */
int ash_trainer_restart(struct ash_trainer *trainer, struct ash_group *group, bool is_blank, struct ash_err *err);
/* The whole model's list of tensors. Borrowed until close. */
const struct ash_model *ash_trainer_outline(const struct ash_trainer *trainer);
/* Is this rank beyond the mesh? Then it makes no steps. */
bool ash_trainer_is_spare(const struct ash_trainer *trainer);
/* On a spare: the mesh has made `step`, so data of an earlier one are obsolete. */
void ash_trainer_hear_step(struct ash_trainer *trainer, uint64_t step);

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* One step. All ranks call it. Returns 0, -EBADMSG for damaged data (the state is as it was before), the group's error,
 * or -EILSEQ on a rank with memory corruption, or whose results differ from those of others: notify them by
 * ash_group_abort. After that ash_trainer_resume takes the corrupted parts from other ranks. */
int ash_trainer_step(struct ash_trainer *trainer, struct ash_step *step_out, struct ash_err *err);
/* If the mesh stays as it is after a step: begin to send its new weights to all ranks. Otherwise they would not be
 * used. Readers of the weights wait for it by themselves. All ranks of the mesh call it. Returns 0 or the group's
 * error. */
int ash_trainer_spread(struct ash_trainer *trainer, struct ash_err *err);
/* Have `before` called in each step, on the calling thread, when the gradients are complete and before any rank changes
 * weights or moments: readers of these must be done when it returns. NULL: none. */
void ash_trainer_on_update(struct ash_trainer *trainer, void (*before)(void *ctx), void *ctx);
/* Mean loss over the validation sequences, the same ones each time; figures_out (may be NULL): of pairs. Only if facts
 * has validation data. All ranks call it. Returns as ash_trainer_step. */
int ash_trainer_validate(struct ash_trainer *trainer, double *loss_out, struct ash_pair_figures *figures_out,
                         struct ash_err *err);

/* Do all copies of the state have the same bits? All ranks of the mesh call it. Returns 0, the group's error, -EILSEQ
 * (as ash_trainer_step), or on all ranks -EUCLEAN naming a rank, its copy's and the tensor. */
int ash_trainer_check_copies(struct ash_trainer *trainer, struct ash_err *err);
/* Injected fault: change a bit of this rank's memory, or of the next block of state that it sends, to test detection
 * and repair. */
enum ash_trainer_flip {
    ASH_TRAINER_FLIP_STATE,
    ASH_TRAINER_FLIP_COPY,
    ASH_TRAINER_FLIP_BF16,
    ASH_TRAINER_FLIP_SENT,
    ASH_TRAINER_FLIPS
};
/* Returns false where this rank holds nothing of the kind. */
bool ash_trainer_flip_bit(struct ash_trainer *trainer, enum ash_trainer_flip which);
/* Have this rank's next gradients be wrong by a bit (stays: all that follow), for tests of audits. */
void ash_trainer_compute_wrongly(struct ash_trainer *trainer, bool stays);
/* The ranks of the mesh; NULL: this process is alone, or a spare. */
struct ash_group *ash_trainer_group(struct ash_trainer *trainer);
/* The trainer's device; borrowed. */
struct ash_exec *ash_trainer_exec(struct ash_trainer *trainer);
/* The state after the last step: its counters, and this rank's first chunk of weights and moments. */
struct ash_state *ash_trainer_state(struct ash_trainer *trainer);
/* All that this rank holds; a checkpoint is saved from it and loaded into it. */
struct ash_stages *ash_trainer_stages(struct ash_trainer *trainer);
/* The run's facts. Strings are borrowed until close. */
struct ash_trainer_facts ash_trainer_get_facts(const struct ash_trainer *trainer);

#endif

/* trainer_priv - between the files of the trainer. */
#ifndef ASH_TRAIN_TRAINER_PRIV_H
#define ASH_TRAIN_TRAINER_PRIV_H

#include <limits.h>
#include "base/str.h"
#include "compute/backends/backends.h"
#include "train/data/dataset.h"
#include "train/job/agree.h"
#include "train/layout/stages.h"
#include "train/recover/copies.h"
#include "train/recover/exchange.h"
#include "train/recover/seals.h"
#include "train/trainer.h"

/* Phase of a step in this process. Results are salvaged when ranks are lost, so it matters. */
enum ash_step_phase {
    ASH_PHASE_NONE,    /* between two steps: the state is that of the last one */
    ASH_PHASE_RUNNING, /* gradients are not complete: the state is that of the last step */
    ASH_PHASE_SUMMED,  /* this process's sums are complete, and so are those that its copies need */
    ASH_PHASE_UPDATED  /* the norm is known and this process has made its update, which is not counted yet */
};

/* The step that is being made. */
struct ash_pending_step {
    enum ash_step_phase phase;
    bool is_updated;      /* not skipped */
    struct ash_step step; /* its figures so far */
    /* of the last step that got that far; the step before it, plus 1: 0 is none */
    double norm;
    uint64_t norm_step;
};

/* What an epoch left in memory. */
struct ash_kept_state {
    struct ash_stages stages; /* detached */
    struct ash_copies copies;
    struct ash_job_mesh mesh; /* its sizes, */
    size_t place;             /* and this rank's place in it */
    bool is_taken;            /* the values of stages are in those of a later epoch */
    bool reports;             /* it was a rank that has losses, */
    double *losses;           /* [grains]: these, of a step that was being made; NULL: none */
};

/* How often the gradients of a grain are computed in an audit. The number is how far away, in data-parallel places. */
enum ash_audit_try { ASH_AUDIT_OWN, ASH_AUDIT_REPEATED, ASH_AUDIT_THIRD, ASH_AUDIT_TRIES };

/* Mesh, stages and copies of an epoch. */
struct ash_trainer_epoch {
    struct ash_job job;      /* in that mesh */
    struct ash_group *group; /* the ranks of the mesh: root, or a part of it, which is the trainer's */
    size_t place;            /* of this rank among those that may be in the mesh; SIZE_MAX: it stays out */
    struct ash_mesh mesh;
    struct ash_stages stages; /* no chunks: this rank is a spare */
    struct ash_copies copies;
    bool has_values;     /* the stages' values are there */
    bool are_copies_new; /* the copies' are not, or not all */
    struct ash_train_memory memory;
};

struct ash_trainer {
    /* with the process */
    struct ash_job asked;      /* the job, with the mesh that it wants */
    const struct ash_job *job; /* that one */
    struct ash_lr_schedule schedule;
    struct ash_guard_opts guard;
    struct ash_backend_choice choice;
    bool is_joining; /* opened by ash_trainer_open_joining */
    struct ash_exec exec;
    struct ash_dataset *train_data, *valid_data; /* NULL where parts give the sources */
    struct ash_train_source train, valid;        /* valid.ops NULL: none */
    struct ash_trainer_parts parts;
    size_t valid_sequences;
    struct ash_str from, named; /* model.from and data.tokenizer on this machine; of remote ones, their cached copies */
    char tokenizer_dir[PATH_MAX]; /* empty: none */
    size_t tokenizer_vocab;
    struct ash_model_config config;        /* source NULL: not known yet */
    struct ash_model *outline;             /* of the whole model */
    double *losses;                        /* of the grains of a step */
    char arithmetic[ASH_ARITHMETIC_BYTES]; /* must be equal on resume to continue with the same bits */
    size_t weights;                        /* of the whole model */
    struct ash_pending_step pending;
    void (*before_update)(void *ctx); /* see ash_trainer_on_update; NULL: none */
    void *before_update_ctx;
    bool stays_out;              /* see ash_trainer_stay_out */
    struct ash_kept_state *kept; /* [kept_count] of epochs that are over, until the next one has it all */
    size_t kept_count;
    struct ash_damages damages; /* corrupted ranges of `kept`: not to be sent to others */
    struct ash_leaf_sums audit[ASH_AUDIT_TRIES];
    uint64_t wrong_notes; /* of the next computation (leaf_sums.h); UINT64_MAX: of all that follow */

    /* with an epoch */
    struct ash_group *root;              /* all ranks; borrowed; NULL: this process is alone, or between epochs */
    struct ash_trainer_epoch epochs[2];  /* the present one, and room for the larger one of joining ranks */
    struct ash_trainer_epoch *now;       /* of those */
    struct ash_refill *refill;           /* that fills its copies; NULL: none is under way */
    struct ash_exchange_counts refilled; /* what that has done since the last step */
    struct ash_growth *growth;           /* a larger mesh that is about to follow; NULL: none */
    struct ash_seals seals;
};

/* ---- trainer_epoch.c --------------------------------------------------------------------------------------------- */

/* Open mesh, stages and copies of epoch->job for the ranks of trainer->root (NULL: alone). Ranks beyond the mesh are
 * spares. On error epoch is for ash_trainer_close_epoch. */
int ash_trainer_open_epoch(struct ash_trainer *trainer, struct ash_trainer_epoch *epoch,
                           const struct ash_stages_source *source, struct ash_err *err);
/* Close what that opened; half-open is fine. keeps: the values stay, as trainer->kept. */
void ash_trainer_close_epoch(struct ash_trainer *trainer, struct ash_trainer_epoch *epoch, bool keeps);
/* Open the present epoch for the ranks of root. On error trainer is for ash_trainer_end_epoch. */
int ash_trainer_begin_epoch(struct ash_trainer *trainer, struct ash_group *root, const struct ash_stages_source *source,
                            struct ash_err *err);
/* Close what begin_epoch opened, and a mesh that was to follow; half-open is fine. keeps: as close_epoch. */
void ash_trainer_end_epoch(struct ash_trainer *trainer, bool keeps);
/* Free what earlier epochs left. */
void ash_trainer_drop_kept(struct ash_trainer *trainer);
/* Have all ranks the same job, data, weights and arithmetic? All ranks of group call it. dir: of the weights, or NULL;
 * name: of the weights. */
int ash_trainer_check_agreement(const struct ash_trainer *trainer, struct ash_group *group, const char *name,
                                const char *dir, struct ash_err *err);

/* ---- trainer_refill.c -------------------------------------------------------------------------------------------- */

/* Are there copies without values? The same on all ranks of the mesh. */
bool ash_trainer_needs_refill(const struct ash_trainer *trainer);
/* Begin to fill them, if there are some, while the next step runs: the state must not change before it ends. All
 * ranks of the mesh call it. Returns 0, -ENOMEM, -EAGAIN or the group's error. */
int ash_trainer_begin_refill(struct ash_trainer *trainer, struct ash_err *err);
/* Wait until they are there, if they are being filled. Returns as ash_exchange_run. */
int ash_trainer_end_refill(struct ash_trainer *trainer, struct ash_err *err);
/* Both, if the copies are needed at once. */
int ash_trainer_fill_copies(struct ash_trainer *trainer, struct ash_err *err);

/* ---- trainer_grow.c ---------------------------------------------------------------------------------------------- */

/* Open a mesh of these sizes, larger than the running one, which replaces it when joining ranks have received the
 * state. All ranks of the root call it. On error it is for ash_trainer_drop_growth. */
int ash_trainer_open_growth(struct ash_trainer *trainer, const struct ash_job_mesh *sizes, struct ash_err *err);
/* Drop it, if there is one. */
void ash_trainer_drop_growth(struct ash_trainer *trainer);
/* A step begins: start streaming the state to the larger mesh, if there is one. The state must not change until
 * ash_trainer_send_growth. Returns 0, -ENOMEM or -EAGAIN. */
int ash_trainer_begin_growth(struct ash_trainer *trainer, struct ash_err *err);
/* More gradients of the step may be complete (is_over: all are): they follow. */
void ash_trainer_offer_growth(struct ash_trainer *trainer, bool is_over);
/* All gradients of the step are complete: wait until they are there. All ranks of the root call it. Returns as
 * ash_exchange_run. */
int ash_trainer_send_growth(struct ash_trainer *trainer, struct ash_err *err);
/* The step is done: make its update in the larger mesh, too. All ranks of the root call it. Returns 0 or the group's
 * error. */
int ash_trainer_update_growth(struct ash_trainer *trainer, struct ash_err *err);

/* ---- trainer_recover.c ------------------------------------------------------------------------------------------- */

/* The present epoch has its values: go on with it. All ranks of the root call it. Returns 0 or the group's error. */
int ash_trainer_take_up(struct ash_trainer *trainer, struct ash_err *err);

/* ---- trainer_kept.c ---------------------------------------------------------------------------------------------- */

/* Are there sums of finished grains of the step after this process's state? */
bool ash_trainer_has_grains(const struct ash_trainer *trainer);
/* The present epoch has the values of `step` steps: have the next one take what ranks have left of it. All ranks of the
 * root call it. Returns 0, -ENOMEM, or an error of ash_exchange_run. */
int ash_trainer_keep_grains(struct ash_trainer *trainer, uint64_t step, struct ash_recovery *recovery,
                            struct ash_err *err);

/* ---- trainer_seals.c --------------------------------------------------------------------------------------------- */

/* Is the state checked in a step (recover.check_every)? Not on one rank: there is no other copy. */
bool ash_trainer_is_checked(const struct ash_trainer *trainer, uint64_t step);
/* Before step `step` begins, and when the one before it is done: checksum the state if that step checks it
 * (recover.check_every) and it has no checksums yet. Returns 0 or -ENOMEM. */
int ash_trainer_seal(struct ash_trainer *trainer, uint64_t step, struct ash_err *err);
/* Does the state match its checksums? Returns 0, or -EILSEQ naming the corrupted part, which is then in
 * trainer->damages. */
int ash_trainer_check_seals(struct ash_trainer *trainer, struct ash_err *err);
/* Take away from a list of this process's own parts (is_copy: of its copies of others'), from the patch `from` on, the
 * corrupted ranges. all [ranks of group]: all ranks' damages. */
void ash_trainer_drop_damaged(const struct ash_trainer *trainer, const struct ash_group *group,
                              const struct ash_damages *all, struct ash_patches *have, size_t from, bool is_copy);

/* ---- trainer_audit.c --------------------------------------------------------------------------------------------- */

/* Is a step audited (recover.audit_every)? Not on one rank: there is no other result. */
bool ash_trainer_audits(const struct ash_trainer *trainer, uint64_t step);
/* Room for the checksums of a try, zeroed; the trainer's. Returns 0 or -ENOMEM. */
int ash_trainer_begin_sums(struct ash_trainer *trainer, enum ash_audit_try which, struct ash_leaf_sums **sums_out,
                           struct ash_err *err);
/* Free them all. */
void ash_trainer_free_sums(struct ash_trainer *trainer);
/* Before the passes of a step that is audited: compute the neighbours' grains. Returns as ash_stages_train. */
int ash_trainer_begin_audit(struct ash_trainer *trainer, uint64_t step, struct ash_err *err);
/* After them, before the update: compare. All ranks call it. Returns 0, the group's error, or -EILSEQ on a rank whose
 * results are wrong, or may be. */
int ash_trainer_end_audit(struct ash_trainer *trainer, struct ash_err *err);

/* ---- trainer.c --------------------------------------------------------------------------------------------------- */

/* The norm is known: guard and update, of which nothing is sent. kept: of an epoch that is over; NULL: the present. */
void ash_trainer_finish_update(struct ash_trainer *trainer, struct ash_kept_state *kept);

#endif

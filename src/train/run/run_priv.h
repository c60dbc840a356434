/* run_priv - the parts of a run, shared by its start (run_start.c), its loop (run.c), its saves (run_save.c) and what
 * it says (run_text.c). */
#ifndef ASH_TRAIN_RUN_PRIV_H
#define ASH_TRAIN_RUN_PRIV_H

#include <limits.h>
#include "base/ring_file.h"
#include "train/run/ledger.h"
#include "train/run/live.h"
#include "train/run/run.h"
#include "train/run/runlog.h"
#include "train/run/links.h"
#include "train/run/slow.h"
#include "train/save/copier.h"
#include "train/save/helper.h"
#include "train/save/places.h"
#include "train/save/saver.h"
#include "train/trainer.h"

struct ash_run {
    const struct ash_job *job;
    const struct ash_run_opts *opts;
    char checkpoints[PATH_MAX], model[PATH_MAX], report[PATH_MAX], log_path[PATH_MAX], lock_path[PATH_MAX],
        stop_path[PATH_MAX], ledger_path[PATH_MAX];
    bool is_leader;         /* the first rank: prints, and writes all files but the large ones of checkpoints */
    bool made_dir;          /* this process made opts->dir */
    bool has_log;           /* the run has begun: its folder stays */
    int lock_fd;            /* -1: not locked */
    struct ash_fence fence; /* of this epoch */
    char *job_yaml;
    struct ash_group *group; /* all ranks, spares too; *opts->group; NULL: alone */
    struct ash_trainer *trainer;
    struct ash_trainer_facts facts;
    struct ash_runlog *log;
    bool is_uncopied;          /* the last checkpoint did not reach all places */
    struct ash_places places;  /* of checkpoints; run->checkpoints is the folder that ranks write to */
    struct ash_copier *copier; /* first rank, where there are several */
    struct ash_helper *helper; /* some other ranks, where there are buckets */
    struct ash_saver *saver;   /* of this epoch; NULL: this rank is a spare */
    bool said_waiting, is_saving_last;
    int32_t wanted_place; /* first rank: of the next saves; the present one, or another after a failure */
    bool save_waits;      /* a save was given up, or has failed: the next edge begins one */
    struct ash_live live;
    uint64_t start_ns, start_step;   /* of this part of the run */
    double earlier_s;                /* time spent in earlier parts */
    double valid_loss;               /* the last one measured; NaN: none */
    struct ash_pair_figures pairs;   /* of the same validation */
    uint64_t saved_step;             /* newest good checkpoint; UINT64_MAX: none */
    double checkpoint_bytes;         /* that one's, on the disk; 0: not known */
    uint64_t state_hash;             /* of the last step that was hashed */
    uint64_t weights_hash;           /* of it, without what was made for later steps */
    uint64_t report_ns;              /* when the report was last written */
    double spent_s[ASH_METER_KINDS]; /* of this part of the run, by kind */
    uint64_t spent_steps;
    struct ash_step last; /* the last step that this rank has made */
    double last_s;        /* and how long it took */
    bool is_last_open;    /* what follows from it is not done yet */
    struct ash_ledger ledger;
    uint64_t lost_steps;              /* that an earlier part had logged, and no checkpoint has */
    struct ash_ring_file *rank_steps; /* this rank's last steps (rank_steps.h); NULL: not recorded */
    struct ash_profile *trace;        /* of train.trace, while it is on */
    uint64_t trace_last;              /* its last step */
    uint64_t last_end_ns;             /* when the last step of this process ended; 0: none has */
    bool is_joining;                  /* it has a group, and no part in it yet */
    bool has_joined;                  /* it was not there when the run began */
    bool is_leaving;                  /* told to go, at this edge */
    bool ends_here;                   /* all were told to stop while ranks were lost: no other step begins */
    uint64_t doomed_step;             /* a step in which whoever is last dies, as somebody has asked; 0: none */
    char change_why[128];             /* why ranks change at this edge; empty: they do not */
    bool hands_over;                  /* ranks of the mesh leave at this edge */
    bool grows;                       /* at this edge a larger mesh takes over, for which newcomers have been fed */
    double held_s;                    /* what steps have waited for newcomers before it */
    int64_t newcomer_dies;            /* while it is fed, as somebody has asked: see struct ash_run_request; 0: none */
    bool has_left;                    /* the others continue without it */
    int64_t wanted_ranks, resizes;    /* of the last resize (0: none), and how many there were */
    int64_t flip;                     /* a bit to change after this edge (control.h); 0: none */
    struct ash_slow_watch slow;       /* of this rank, in this epoch */
    struct ash_wait_watch waits;      /* the same */
    bool has_peak;                    /* the next one was looked for */
    double peak_flops;                /* of one rank's device, per second; 0: not known */
    bool waits_long;                  /* for some steps now */
    uint64_t probe_step;              /* links are not timed again before this step */
    double own_s;                     /* this rank's work in its last step: waits taken out */
    bool is_slow;                     /* it is to be named at the next edge */
    bool is_behind;                   /* its node's link is slow, and at this edge spares take over from it */
    bool pauses;                      /* in each step, as somebody has asked */
    size_t flips_found;               /* times that its memory has changed by itself, or its results were wrong */
    int64_t kept_ranks;               /* ranks from this one on leave at this edge */
    uint64_t asked_ns;                /* first rank: when it last looked for a request */
    uint64_t told_ns; /* first rank: when it first saw that some, but not all, were told to stop; 0: not */
    bool log_failing, report_failing, disk_full, save_stalled; /* reported once, not every step */
};

/* ---- run_start.c ------------------------------------------------------------------------------------------------- */

/* Make and lock the folder, find what to resume, build the trainer, open the log. On error run is for
 * ash_run_release all the same. */
int ash_run_start(struct ash_run *run, struct ash_err *err);
/* The same for a process that joins a run: all that can be done before it has a place, then opts->join. */
int ash_run_start_joining(struct ash_run *run, struct ash_err *err);
/* Unlock the folder; where the run never began, leave nothing of it behind. */
void ash_run_release(struct ash_run *run);

/* ---- run_room.c -------------------------------------------------------------------------------------------------- */

/* Bytes of a checkpoint on the disk: as the last one was, or an estimate. */
double ash_run_checkpoint_bytes(const struct ash_run *run);
/* What the files of a folder take on the disk; 0 where it cannot be read. */
double ash_run_folder_bytes(const char *dir);
/* Bytes of the finished model. */
double ash_run_model_bytes(const struct ash_run *run);
/* Where the disk has less than needed, the newest checkpoint alone is kept. train.keep=0 keeps all. */
void ash_run_make_room(struct ash_run *run, double needed);
/* Wait for room for the last checkpoint. Ends early when somebody asks the run to stop in the meantime. */
void ash_run_wait_for_room(struct ash_run *run);

/* ---- run_save.c -------------------------------------------------------------------------------------------------- */

/* Is there room for what the run will save? Warns where there is not, and returns -ENOSPC where not even one checkpoint
 * fits. First rank only. */
int ash_run_check_disk(struct ash_run *run, struct ash_err *err);
/* Ready to save in the epoch that begins: where, and with how much memory. All ranks of the mesh call it. */
int ash_run_open_saver(struct ash_run *run, struct ash_err *err);
/* Wait for all saves that are under way. All ranks call it. */
int ash_run_settle_saves(struct ash_run *run, struct ash_err *err);
/* The epoch is over: a save that all ranks had written is committed, one that was being written begins anew in the next
 * epoch. */
void ash_run_close_saver(struct ash_run *run);
/* A save in the middle of a run begins, while steps continue. A failure is a warning, and the next save tries again.
 * All ranks of the mesh call it. Returns 0 or the group's error. */
int ash_run_begin_save(struct ash_run *run, struct ash_err *err);
/* At the edge of each step, all ranks: how far is the save that is under way? Returns 0 or the group's error. */
int ash_run_watch_saves(struct ash_run *run, struct ash_err *err);
/* Is a save due because one was given up, or goes elsewhere now? The same on all ranks. */
bool ash_run_save_is_overdue(const struct ash_run *run);
/* The state must be on disk now, unless it is already; saves under way are waited for. All ranks call it. On a full
 * disk, wait for room (train.save_wait). */
int ash_run_save_last(struct ash_run *run, struct ash_err *err);
/* Other ranks are lost: saves under way end as well as they can. Where this rank holds everything, it saves what is not
 * saved yet; of a sharded state the last checkpoint remains. First rank only. */
int ash_run_save_alone(struct ash_run *run, struct ash_err *err);
/* Write the finished model. All ranks call it. */
int ash_run_export(struct ash_run *run, struct ash_err *err);
/* Remove old checkpoints, and what a killed part of the run left of one. A failure is a warning. */
void ash_run_remove_old(struct ash_run *run);

/* ---- run_recover.c ----------------------------------------------------------------------------------------------- */

/* Is it the error of ranks that are lost, so that the others can continue? */
bool ash_run_is_loss(const struct ash_run *run, int code);
/* Is it the error of copies that differ, or of parts that want to go back (train/trainer.h)? Then the newest checkpoint
 * is trusted, not the state in memory. */
bool ash_run_is_damage(const struct ash_run *run, int code);
/* This rank's memory has changed by itself, or its results are wrong, as err says: say who it is, tell the others, and
 * have them re-form with it. Returns the code of a loss; -EIO where that has happened too often, so that this rank
 * ends. */
int ash_run_tell_damage(struct ash_run *run, struct ash_err *err);
/* After such an error: form a group of what is left, bring everyone to one step and open the next mesh. A new first
 * rank takes over the folder. Returns 0, or an error that ends the run. */
int ash_run_recover(struct ash_run *run, const struct ash_err *cause, struct ash_err *err);
/* A part of the state was sent again so often (0: never), the last time from and to these ranks: warn of it. */
void ash_run_warn_damaged(struct ash_run *run, uint64_t repeated, size_t from, size_t to);
/* A process that opts->join has given a place: take part from the step that the others are at. Returns as
 * ash_run_recover. */
int ash_run_begin_joined(struct ash_run *run, struct ash_err *err);
/* At a step's edge, all ranks and spares: processes join, run->is_leaving ones leave (run->has_left), or a larger mesh
 * takes over (run->grows). Nothing is redone. Returns 0 or an error that ash_run_recover may know a way out of. */
int ash_run_change(struct ash_run *run, struct ash_err *err);
/* The first rank's ledger goes to the folder: DIR/ledger.json. run.c. */
void ash_run_write_ledger(struct ash_run *run);

/* ---- run_faults.c ------------------------------------------------------------------------------------------------ */

/* Where the GPU has failed: at what, and which checkpoint is left, as the cause of the run's end. */
void ash_run_tell_device(const struct ash_run *run, struct ash_err *cause);

/* What somebody has asked for, to see it found (ashlar chaos): as in struct ash_run_request. */
struct ash_run_faults {
    int64_t slow, die, passes, err;
    bool doom;
};
/* At a step's edge, all ranks of the mesh: what of it is meant for this one. */
void ash_run_take_faults(struct ash_run *run, const struct ash_run_faults *faults);
/* A rank beyond the mesh: is it asked to die? die: as in struct ash_run_request. */
void ash_run_take_death(const struct ash_run *run, int64_t die);
/* After it, all of them: those that were asked to change a bit. Returns 0 or the group's error. */
int ash_run_flip_bit(struct ash_run *run, struct ash_err *err);
/* A step is about to begin: it may be one to die in. */
void ash_run_meet_doom(const struct ash_run *run);

/* ---- run_copies.c ------------------------------------------------------------------------------------------------ */

/* An epoch has begun: checkpoints are copied for it from now on, first the newest one if a place may lack it. */
int ash_run_open_copies(struct ash_run *run, const struct ash_group *group, struct ash_err *err);
/* Wait for copies of the last checkpoint. What fails is a warning. */
void ash_run_finish_copies(struct ash_run *run);

/* ---- run_status.c ------------------------------------------------------------------------------------------------ */

/* First rank: write DIR/run.json. state: as in struct ash_run_status. A failure is a warning. */
void ash_run_write_status(struct ash_run *run, const char *state);
/* First rank, before it resumes: which run the folder holds. Checkpoints of others do not count. */
void ash_run_read_run(struct ash_run *run);
/* A new first rank: what its predecessor was asked for. */
void ash_run_read_status(struct ash_run *run);

/* ---- run_edge.c -------------------------------------------------------------------------------------------------- */

/* What all ranks of the mesh know at the edge of a step. */
struct ash_run_edge {
    bool stop;     /* the run ends here, saved */
    bool changes;  /* processes join or leave: ash_run_change; */
    bool grows;    /* or newcomers that have been fed take their places: the same */
    bool replaces; /* a slow rank is among those */
};

/* Was this process told to stop? */
bool ash_run_is_told(const struct ash_run *run);
/* Who was told to stop, who waits for a place? All ranks of the mesh call it. Returns 0 or the group's error. */
int ash_run_meet_edge(struct ash_run *run, struct ash_run_edge *edge_out, struct ash_err *err);

/* What the first rank tells spares. */
enum ash_spare_word { ASH_SPARE_STEP, ASH_SPARE_FEED, ASH_SPARE_CHANGE, ASH_SPARE_GROW, ASH_SPARE_OVER };
/* First rank: tell the spares that a step is done, that in the next one newcomers are fed, that at this edge ranks
 * change or a larger mesh takes over, or that the run is over. Returns 0 or the group's error. */
int ash_run_tell_spares(struct ash_run *run, enum ash_spare_word word, struct ash_err *err);
/* This rank is a spare: be fed if it has to, and wait until the run is over (returns 1), ranks change (0; then
 * ash_run_change) or are lost (the group's error). */
int ash_run_wait_as_spare(struct ash_run *run, struct ash_err *err);

/* This rank ends because it was told to, and not all have agreed to: the others find it when they miss this one, and
 * end, too. */
void ash_run_mark_stopped(const struct ash_run *run);
/* After a re-form: has one of the lost ranks left such a mark? All ranks call it. Returns 0, the group's error, or
 * -ECANCELED on all ranks. */
int ash_run_check_stopped(const struct ash_run *run, struct ash_err *err);

/* ---- run_start.c, again ------------------------------------------------------------------------------------------ */

/* A first rank that has become one: lock the folder, whoever had it, and open the log. */
int ash_run_take_over(struct ash_run *run, struct ash_err *err);
/* Open the log anew at the present step: lines of later ones go. */
int ash_run_open_log(struct ash_run *run, struct ash_err *err);
/* All ranks: the newest checkpoint, or the beginning, in the mesh of run->group. */
int ash_run_reload(struct ash_run *run, struct ash_err *err);

/* ---- run_text.c -------------------------------------------------------------------------------------------------- */

/* Hash the state. All ranks call it. */
int ash_run_hash(struct ash_run *run, struct ash_err *err);
/* Seconds that the run took so far, over all its parts. */
double ash_run_elapsed_s(const struct ash_run *run);
/* What will be trained, and what looks wrong about it. */
void ash_run_print_start(struct ash_run *run);
/* What happened, and what to type next. stopped: before the last step, on request. */
void ash_run_print_end(struct ash_run *run, bool stopped);
/* After an error in the loop: which step is on disk, and how to resume from it. */
void ash_run_print_lost(struct ash_run *run);
/* A warning between live lines. */
void ash_run_warn(struct ash_run *run, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Write DIR/report.html. status: "running", "finished", "stopped". A failure is a warning, once. */
void ash_run_report(struct ash_run *run, const char *status);

/* Count the operations of a step (ashlar_train_flops_total): run_flops.c. */
void ash_run_count_flops(struct ash_run *run, const struct ash_step *step);

#endif

/* run_priv - the parts of a run: its folder, saves, progress and pace; and between its files, the actions of the step
 * boundary's machine (train/elastic). README.md draws a step's life. */
#ifndef ASH_TRAIN_RUN_PRIV_H
#define ASH_TRAIN_RUN_PRIV_H

#include <limits.h>
#include "record/event_file.h"
#include "record/ring_file.h"
#include "train/elastic/elastic.h"
#include "train/run/control.h"
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

/* Injected faults (ashlar chaos): requested at a step boundary, executed later. */
struct ash_run_faults {
    bool pauses;           /* this rank, in each step */
    uint64_t doomed_step;  /* a step in which the last rank dies; 0: none */
    int64_t newcomer_dies; /* of a joining rank, while it receives the state: see struct ash_run_request; 0: none */
    int64_t flip;          /* a bit to change after this boundary (control.h); 0: none */
};

/* What ranks of the mesh add up at a step boundary. int64_t only. */
struct ash_run_sum {
    struct ash_elastic_votes votes;
    struct ash_run_fault_sum {
        int64_t flip, slow, die, passes, err, doom;
    } faults;                      /* first rank: requested, as in struct ash_run_request */
    int64_t waits;                 /* ranks that wait much longer for others than at first, for some steps */
    int64_t own_us;                /* work of the last step, of all ranks */
    int64_t slow_rank, slow_times; /* if one rank votes slow: which, and how slow in hundredths */
};

/* From one mesh to the next. */
struct ash_run_turnover {
    bool is_under_way, is_loss; /* is_loss: not as planned */
    uint64_t start_ns;
    struct ash_err cause;         /* code 0: all have agreed on it at a step boundary */
    struct ash_err missing;       /* a part of the state that is on no rank; code 0: none */
    struct ash_recovery recovery; /* so far */
};

/* The folder and its files. */
struct ash_run_files {
    char checkpoints[PATH_MAX]; /* the folder that ranks write to now */
    char model[PATH_MAX], report[PATH_MAX], log_path[PATH_MAX], lock_path[PATH_MAX], stop_path[PATH_MAX],
        ledger_path[PATH_MAX];
    bool made_dir;          /* this process made opts->dir */
    bool has_log;           /* the run has begun: its folder stays */
    int lock_fd;            /* -1: not locked */
    struct ash_fence fence; /* of this epoch */
    char *job_yaml;
    struct ash_runlog *log;
    struct ash_event_file *events; /* NULL: none are wanted, or this is not the first rank */
    uint64_t asked_ns;             /* first rank: when it last looked for a request */
    uint64_t report_ns;            /* when the report was last written */
    bool log_failing, events_failing, report_failing, disk_full; /* reported once, not every step */
};

/* Checkpoints: those that are there, and those that are under way. */
struct ash_run_saves {
    struct ash_places places;
    struct ash_copier *copier; /* first rank, if there are several places */
    struct ash_helper *helper; /* some other ranks, if there are buckets */
    struct ash_saver *saver;   /* of this epoch; NULL: this rank is a spare */
    int32_t wanted_place;      /* first rank: of the next saves; the present one, or another after a failure */
    bool is_overdue;           /* a save was given up, or has failed: the next step boundary begins one */
    bool is_saving_last, said_waiting;
    bool has_stalled;        /* a step has waited for a save, and that was reported */
    bool is_uncopied;        /* the last checkpoint did not reach all places */
    uint64_t saved_step;     /* newest good checkpoint; UINT64_MAX: none */
    double checkpoint_bytes; /* that one's, on the disk; 0: not known */
    uint64_t state_hash;     /* of the last step that was hashed */
    uint64_t weights_hash;   /* of it, without precomputed data of later steps */
};

/* Steps so far, and the time that they took. */
struct ash_run_progress {
    struct ash_step last;            /* the last step that this rank has made */
    double last_s;                   /* and how long it took */
    uint64_t last_end_ns;            /* when the last step of this process ended; 0: none has */
    double valid_loss;               /* the last one measured; NaN: none */
    struct ash_pair_figures pairs;   /* of the same validation */
    uint64_t start_ns, start_step;   /* of this part of the run */
    double earlier_s;                /* time spent in earlier parts */
    uint64_t lost_steps;             /* that an earlier part had logged, and no checkpoint has */
    double spent_s[ASH_METER_KINDS]; /* of this part of the run, by kind */
    uint64_t spent_steps;
    struct ash_ledger ledger;
    struct ash_live live;
    char change_why[128];             /* why ranks change at this boundary; empty: they do not */
    double held_s;                    /* how long steps have waited for ranks that join */
    struct ash_ring_file *rank_steps; /* this rank's last steps (rank_steps.h); NULL: not recorded */
    struct ash_profile *trace;        /* of train.trace, while it is on */
    uint64_t trace_last;              /* its last step */
    double peak_flops;                /* of one rank's device, per second; 0: not known */
    bool has_peak;                    /* it was looked for */
};

/* Is this rank slow, or a link? In this epoch. */
struct ash_run_pace {
    struct ash_slow_watch slow;
    struct ash_wait_watch waits;
    double own_s;        /* this rank's work in its last step: waits taken out */
    bool is_slow;        /* it is to be named at the next boundary */
    bool waits_long;     /* for some steps now */
    uint64_t probe_step; /* links are not timed again before this step */
};

struct ash_run {
    const struct ash_job *job;
    const struct ash_run_opts *opts;
    struct ash_group *group; /* all ranks, spares too; *opts->group; NULL: alone */
    bool is_leader;          /* the first rank: prints, and writes all files but the large ones of checkpoints */
    struct ash_trainer *trainer;
    struct ash_trainer_facts facts;
    struct ash_elastic elastic; /* what to do next */
    struct ash_err failure;     /* the last error of an action */
    struct ash_run_sum sum;     /* of the last boundary */
    struct ash_run_turnover turnover;
    struct ash_run_faults faults;
    struct ash_run_files files;
    struct ash_run_saves saves;
    struct ash_run_progress progress;
    struct ash_run_pace pace;
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
/* Bytes of a folder's files on the disk; 0 if it cannot be read. */
double ash_run_folder_bytes(const char *dir);
/* Bytes of the finished model. */
double ash_run_model_bytes(const struct ash_run *run);
/* Where the disk has less than needed, the newest checkpoint alone is kept. train.keep=0 keeps all. */
void ash_run_make_room(struct ash_run *run, double needed);
/* Wait for free space for the last checkpoint. Ends early on a stop request. */
void ash_run_wait_for_room(struct ash_run *run);

/* ---- run_save.c -------------------------------------------------------------------------------------------------- */

/* Is there free space for the run's saves? Warns if not, and returns -ENOSPC if not even one checkpoint fits. First
 * rank only. */
int ash_run_check_disk(struct ash_run *run, struct ash_err *err);
/* Ready to save in the epoch that begins: where, and with how much memory. All ranks of the mesh call it. */
int ash_run_open_saver(struct ash_run *run, struct ash_err *err);
/* Wait for all saves that are under way. All ranks call it. */
int ash_run_settle_saves(struct ash_run *run, struct ash_err *err);
/* The epoch is over: a save that all ranks had written is committed, one that was being written restarts in the next
 * epoch. */
void ash_run_close_saver(struct ash_run *run);
/* A save in the middle of a run begins, while steps continue. A failure is a warning, and the next save tries again.
 * All ranks of the mesh call it. Returns 0 or the group's error. */
int ash_run_begin_save(struct ash_run *run, struct ash_err *err);
/* At the edge of each step, all ranks: how far is the save that is under way? Returns 0 or the group's error. */
int ash_run_watch_saves(struct ash_run *run, struct ash_err *err);
/* The state must be on disk now, unless it is already; saves under way are waited for. All ranks call it. On a full
 * disk, wait for room (train.save_wait). */
int ash_run_save_last(struct ash_run *run, struct ash_err *err);
/* Other ranks are lost: pending saves are committed if they are complete. If this rank holds the whole state, it saves
 * it; of a sharded state the last checkpoint remains. First rank only. */
int ash_run_save_alone(struct ash_run *run, struct ash_err *err);
/* Write the finished model. All ranks call it. */
int ash_run_export(struct ash_run *run, struct ash_err *err);
/* Remove old checkpoints, and partial ones of a killed process. A failure is a warning. */
void ash_run_remove_old(struct ash_run *run);

/* ---- run_recover.c ----------------------------------------------------------------------------------------------- */

/* Is it the error of ranks that are lost, so that the others can continue? */
bool ash_run_is_loss(const struct ash_run *run, int code);
/* What an error of the present action means for the run. It begins a turnover if that is needed; text and code are in
 * run->failure. */
void ash_run_take_error(struct ash_run *run, const struct ash_err *err, struct ash_elastic_event *event);
/* Form a group of the ranks that are left and of processes that join. */
int ash_run_do_reform(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);
/* End the epoch for all; cause: run->turnover.cause. */
int ash_run_do_abort(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);
/* Bring all ranks to one step, and the state into the next mesh. */
int ash_run_do_transfer(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);
/* The newest checkpoint instead. */
int ash_run_do_reload(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);
/* Before ranks leave, the others get what those hold: a mesh without them, in the same group. */
int ash_run_do_hand_over(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);
/* A larger mesh takes over, for which joining ranks have received the state. */
int ash_run_do_grow(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);
/* Become the first rank: lock the folder, open the log. */
int ash_run_do_take_over(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);
/* Is the last step open? Ranks that have come only now get its results. */
int ash_run_do_agree(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);
/* Open saves of the new epoch, and report it. */
int ash_run_do_take_up(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);
/* A part of the state was sent again so often (0: never), the last time from and to these ranks: warn of it. */
void ash_run_warn_damaged(struct ash_run *run, uint64_t repeated, size_t from, size_t to);
/* The first rank's ledger goes to the folder: DIR/ledger.json. run_step.c. */
void ash_run_write_ledger(struct ash_run *run);

/* ---- run_faults.c ------------------------------------------------------------------------------------------------ */

/* Where the GPU has failed: at what, and which checkpoint is left, as the cause of the run's end. */
void ash_run_tell_device(const struct ash_run *run, struct ash_err *cause);

/* At a step boundary, all ranks of the mesh: what of a request is meant for this one. */
void ash_run_take_faults(struct ash_run *run, const struct ash_run_fault_sum *faults);
/* A rank beyond the mesh: injected exit. die: as in struct ash_run_request. */
void ash_run_take_death(const struct ash_run *run, int64_t die);
/* After it, on all of them: injected bit flips. Returns 0 or the group's error. */
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
/* A new first rank: read its predecessor's requests. */
void ash_run_read_status(struct ash_run *run, struct ash_elastic_event *event);

/* ---- run_events.c ------------------------------------------------------------------------------------------------ */

/* First rank, once its log is open: begin a file of TensorBoard's events, if the job wants them. */
int ash_run_open_events(struct ash_run *run, struct ash_err *err);
/* Add a step that was logged. A failure is a warning. */
void ash_run_add_events(struct ash_run *run, const struct ash_log_record *record);

/* ---- run_step.c -------------------------------------------------------------------------------------------------- */

/* One step. */
int ash_run_do_step(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);
/* Validate, check, hash and log. */
int ash_run_do_follow(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);
/* Begin a save, write a report. */
int ash_run_do_record(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);

/* ---- run_boundary.c ---------------------------------------------------------------------------------------------- */

/* Did this process get a stop request? */
bool ash_run_is_told(const struct ash_run *run);
/* Exchange stop requests and joining ranks. All ranks of the mesh call it. */
int ash_run_do_meet(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);
/* The rest of the sum that they have made; saves that are under way. */
int ash_run_do_watch(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);
/* First rank: send a message to the spares. Returns 0 or the group's error. */
int ash_run_tell_spares(struct ash_run *run, enum ash_elastic_word word, struct ash_err *err);
/* First rank: send the message of this boundary to the spares. */
int ash_run_do_notify(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);
/* A spare: receive a message of the first rank. */
int ash_run_do_listen(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);
/* A spare: receive the state while the mesh makes a step. */
int ash_run_do_feed(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err);

/* This rank ends on a stop request that not all have agreed to: the others find the mark when this one is lost, and
 * end, too. */
void ash_run_mark_stopped(const struct ash_run *run);
/* After a re-form: has one of the lost ranks left such a mark? All ranks call it. Returns 0, the group's error, or
 * -ECANCELED on all ranks. */
int ash_run_check_stopped(const struct ash_run *run, struct ash_err *err);

/* ---- run_start.c, again ------------------------------------------------------------------------------------------ */

/* A first rank that has become one: lock the folder, replacing the previous lock, and open the log. */
int ash_run_take_over(struct ash_run *run, struct ash_err *err);
/* Reopen the log at the present step: lines of later ones are removed. */
int ash_run_open_log(struct ash_run *run, struct ash_err *err);
/* All ranks: the newest checkpoint, or the beginning, in the mesh of run->group. */
int ash_run_reload(struct ash_run *run, struct ash_err *err);

/* ---- run_text.c -------------------------------------------------------------------------------------------------- */

/* Hash the state. All ranks call it. */
int ash_run_hash(struct ash_run *run, struct ash_err *err);
/* Seconds that the run took so far, over all its parts. */
double ash_run_elapsed_s(const struct ash_run *run);
/* Print the job's summary and warnings. */
void ash_run_print_start(struct ash_run *run);
/* Print the outcome, and the next command. stopped: before the last step, on request. */
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

/* elastic - the boundary between two steps as a state machine, one for each rank of a run: results of actions and news
 * go in, the next action comes out. No group, clock, file or thread is in it, so the same code runs in a job
 * (train/run) and with many ranks in one process under a virtual clock (tests/unit/train/elastic).
 *
 *     state           actions                                        next state
 *     RUNNING         STEP MEET WATCH FOLLOW RECORD NOTIFY, again    ranks change: LEAVING, REFORMING, TRANSFERRING
 *                                                                    the run ends: DRAINING
 *     SPARE           LISTEN FEED, again                             as RUNNING, when the first rank sends it
 *     LEAVING         HAND_OVER REFORM                               ENDED
 *     REFORMING       REFORM (before it ABORT, if this rank is       TRANSFERRING
 *                     the reason)
 *     JOINING         TRANSFER, as TRANSFERRING
 *     TRANSFERRING    HAND_OVER, then REFORM; or TRANSFER, GROW      RUNNING, SPARE
 *                     or RELOAD, then TAKE_OVER AGREE TAKE_UP
 *     DRAINING        SAVE_LAST FINISH                               ENDED
 *     any but ENDED   a loss                                         REFORMING
 *
 * The rules:
 *   1. All ranks of the mesh decide from the same sums (votes), so all of them take the same action.
 *   2. A step is *open* from its end until it is logged. An open step is followed up once, by the ranks that are there
 *      then; a rank that has not made it is sent its results (claims).
 *   3. A loss in any action leads to REFORM. A loss in the recovery leads to REFORM again.
 *   4. A checkpoint is loaded only if a part of the state is missing or wrong on all ranks.
 *   5. A rank that leaves on purpose hands over its shard first. If another rank is lost meanwhile it stays, since its
 * memory may be needed.
 *
 * One owner thread. Fields are read by the owner and written by the machine. */
#ifndef ASH_TRAIN_ELASTIC_ELASTIC_H
#define ASH_TRAIN_ELASTIC_ELASTIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ASH_ELASTIC_TRIES_MAX 64           /* recoveries that fail one after the other */
#define ASH_ELASTIC_CORRUPTIONS_MAX 3      /* of one process; with more it ends */
#define ASH_ELASTIC_TOGETHER_NS 200000000u /* stop requests within this time are one request, for all ranks */

enum ash_elastic_state {
    ASH_ELASTIC_RUNNING,      /* in the mesh: steps and their follow-up */
    ASH_ELASTIC_SPARE,        /* beyond the mesh: waits for messages of the first rank */
    ASH_ELASTIC_JOINING,      /* admitted to the group, without a state */
    ASH_ELASTIC_REFORMING,    /* forms the group of the next epoch */
    ASH_ELASTIC_TRANSFERRING, /* the state moves to the next mesh */
    ASH_ELASTIC_LEAVING,      /* hands its shard over to the others, then ends */
    ASH_ELASTIC_DRAINING,     /* the run ends at this step: last save, finished model */
    ASH_ELASTIC_ENDED,
    ASH_ELASTIC_STATES
};

enum ash_elastic_do {
    ASH_ELASTIC_STEP,      /* compute the next step; if growth is OPEN, stream the state to joining ranks meanwhile */
    ASH_ELASTIC_MEET,      /* sum up votes over the mesh */
    ASH_ELASTIC_WATCH,     /* look at saves that are under way; if the mesh stays, spread new weights */
    ASH_ELASTIC_FOLLOW,    /* validate, check, hash, log, as `due` says */
    ASH_ELASTIC_RECORD,    /* begin a save if one is due; reports */
    ASH_ELASTIC_NOTIFY,    /* first rank: send `word` to the spares */
    ASH_ELASTIC_HAND_OVER, /* move the state to a mesh without the ranks that leave, in the same group */
    ASH_ELASTIC_GROW,      /* the larger mesh takes over, to which the state was streamed */
    ASH_ELASTIC_ABORT,     /* this rank's memory or results are wrong: end the epoch for all */
    ASH_ELASTIC_REFORM,    /* form the next epoch; `leaves`: without this rank */
    ASH_ELASTIC_TRANSFER,  /* finish or drop the step that was being made, move the state to the next mesh */
    ASH_ELASTIC_RELOAD,    /* the newest checkpoint; `is_refused`: one before the present step */
    ASH_ELASTIC_TAKE_OVER, /* become the first rank: its folder, log and screen */
    ASH_ELASTIC_AGREE,     /* take the maximum of claims over the mesh; send the open step to those that lack it */
    ASH_ELASTIC_TAKE_UP,   /* open saves of the new epoch */
    ASH_ELASTIC_LISTEN,    /* spare: receive a message of the first rank */
    ASH_ELASTIC_FEED,      /* spare: receive the state while the mesh computes a step */
    ASH_ELASTIC_SAVE_LAST, /* save the last step and wait for it */
    ASH_ELASTIC_FINISH,    /* write the model unless `is_stopped`; notify the spares */
    ASH_ELASTIC_END,       /* nothing more: see `end` */
    ASH_ELASTIC_DOS
};

/* How a rank ended. */
enum ash_elastic_end {
    ASH_ELASTIC_END_NONE,
    ASH_ELASTIC_END_FINISHED, /* all steps */
    ASH_ELASTIC_END_STOPPED,  /* before, by a stop request */
    ASH_ELASTIC_END_LEFT,     /* the others continue without it */
    ASH_ELASTIC_END_FAILED,   /* an error that no rank can overcome; the executor has its sentence */
    ASH_ELASTIC_END_TOO_FEW,  /* fewer than min_ranks are left; they have saved, if they have the state */
    ASH_ELASTIC_END_CORRUPT,  /* this process was wrong too often */
    ASH_ELASTIC_END_TRIES,    /* recoveries failed too often */
};

enum ash_elastic_growth {
    ASH_ELASTIC_GROWTH_NONE,
    ASH_ELASTIC_GROWTH_OPEN, /* a larger mesh is open beside the present one */
    ASH_ELASTIC_GROWTH_FED,  /* it has the state of the last step */
};

/* What changes at a step boundary. */
enum ash_elastic_change {
    ASH_ELASTIC_CHANGE_NONE,
    ASH_ELASTIC_CHANGE_REFORM,    /* processes join, or spares leave */
    ASH_ELASTIC_CHANGE_HAND_OVER, /* ranks of the mesh leave */
    ASH_ELASTIC_CHANGE_GROW,      /* joining ranks that have the state get their places */
};

/* A message of the first rank to spares. */
enum ash_elastic_word {
    ASH_ELASTIC_WORD_STEP,   /* a step is done */
    ASH_ELASTIC_WORD_FEED,   /* the next step begins, with the state on its way to you */
    ASH_ELASTIC_WORD_CHANGE, /* ranks change at this boundary */
    ASH_ELASTIC_WORD_GROW,   /* the larger mesh takes over */
    ASH_ELASTIC_WORD_RELOAD, /* the newest checkpoint is loaded */
    ASH_ELASTIC_WORD_OVER,   /* the run is over */
};

struct ash_elastic_opts {
    uint64_t steps;                                           /* of the run */
    int64_t save_every, valid_every, hash_every, check_every; /* steps between two; 0: at the end only, valid_every -1:
                                                               * never */
    int64_t min_ranks;
    bool replaces_slow;
};

/* Follow-up of a step. */
struct ash_elastic_due {
    bool last, stop, valid, save, hash, check;
};

/* The sum over the mesh. int64_t only: it is added up as an array. */
struct ash_elastic_votes {
    int64_t told;             /* ranks with a stop request */
    int64_t joiners, leavers; /* first rank: processes that wait for a place, spares that want to leave */
    int64_t stop;             /* first rank: the run is to end */
    int64_t wanted;           /* first rank: a resize to this many ranks; 0: none */
    int64_t keep;             /* first rank: ranks below this number stay; 0: all */
    int64_t settled;          /* first rank: some ranks got a stop request, and the others will not */
    int64_t slow;             /* ranks that are slower than their peers, for some steps */
};

/* The maximum over the mesh. int64_t only. */
struct ash_elastic_claims {
    int64_t is_open; /* a rank has the last step open */
    int64_t knows;   /* ranks minus the lowest rank that has the results of the last step; 0: none has */
    int64_t goes_on; /* a rank without a stop request */
    int64_t stops;   /* on a rank all had decided to stop */
};

enum ash_elastic_event_kind {
    /* News: they count at the next MEET. */
    ASH_ELASTIC_STOP,     /* this process got a stop request */
    ASH_ELASTIC_STOP_ALL, /* first rank: the run is to end */
    ASH_ELASTIC_JOIN,     /* first rank: `count` processes wait for a place */
    ASH_ELASTIC_LEAVE,    /* first rank: `count` spares want to leave */
    ASH_ELASTIC_RESIZE,   /* first rank: the run is to have `count` ranks */
    ASH_ELASTIC_SLOW,     /* this rank is slower than its peers, for some steps */
    ASH_ELASTIC_SAVE_DUE, /* a save was given up or goes elsewhere; the same on all ranks; before the end of WATCH */
    /* Results of the action. */
    ASH_ELASTIC_DONE,       /* which fields are set: see below */
    ASH_ELASTIC_LOSS,       /* ranks are lost, or a rank has ended the epoch */
    ASH_ELASTIC_CORRUPTION, /* this rank's memory has changed by itself, or its results are wrong */
    ASH_ELASTIC_DAMAGE,  /* the state in memory cannot be trusted, on all ranks; is_refused: a part of the trainer wants
                             * an earlier one */
    ASH_ELASTIC_MISSING, /* TRANSFER: a part of the state is on no rank; the same on all ranks */
    ASH_ELASTIC_FAILURE, /* any other error */
};

/* Zero but for the members of the kind and, for DONE, of the action. */
struct ash_elastic_event {
    enum ash_elastic_event_kind kind;
    int64_t count;     /* JOIN, LEAVE, RESIZE */
    bool is_refused;   /* DAMAGE */
    uint64_t now_ns;   /* MEET */
    uint64_t step;     /* STEP, also if it fails: the last step that was made; TRANSFER, RELOAD, GROW: of the state */
    uint64_t finished; /* TRANSFER: the step that was finished on the way; 0: none */
    size_t rank, ranks, mesh_ranks;   /* REFORM (rank, ranks; ranks 0: this one has left), TRANSFER, RELOAD, GROW */
    bool is_spare, is_growing;        /* TRANSFER, RELOAD, GROW */
    struct ash_elastic_votes votes;   /* MEET: the sum */
    struct ash_elastic_claims claims; /* AGREE: the maximum */
    int64_t behind;                   /* MEET: ranks behind a slow link that spares replace; is_behind: among them */
    bool is_behind, gives_up;         /* MEET: the guard ends the run after this step */
    bool is_logged;                   /* TAKE_OVER: the log has the present step; */
    int64_t wanted_ranks, resizes;    /* and the requests to the lost first rank */
    enum ash_elastic_word word;       /* LISTEN, with step, kept, hands_over */
    int64_t kept;
    bool hands_over, is_told; /* LISTEN: this process got a stop request */
};

struct ash_elastic {
    struct ash_elastic_opts opts;
    enum ash_elastic_state state;
    enum ash_elastic_do todo;
    enum ash_elastic_end end;
    enum ash_elastic_growth growth;
    enum ash_elastic_change change;
    enum ash_elastic_word word;
    struct ash_elastic_due due;
    struct ash_elastic_votes news; /* until the next sum */
    size_t rank, ranks, mesh_ranks;
    uint64_t at;            /* steps that the state has */
    uint64_t last;          /* the last step whose results this rank has */
    uint64_t lost;          /* finished steps that the last RELOAD has dropped */
    int64_t wanted_ranks;   /* of the last resize; 0: there was none */
    int64_t resizes;        /* how many there were */
    int64_t kept_ranks;     /* ranks from this one on leave at this boundary */
    int64_t joining, going; /* processes that join and ranks that leave at this boundary */
    uint64_t told_ns;       /* when some ranks, but not all, got a stop request; 0: not */
    unsigned tries, corruptions;
    bool is_first;   /* this process has the folder */
    bool is_open;    /* the last step's follow-up is still to be done */
    bool leaves;     /* this rank leaves at this boundary */
    bool is_refused; /* RELOAD: the present step must not be loaded */
    bool is_too_few; /* fewer ranks than min_ranks: those with the state save it, and all end */
    bool ends_here;  /* ranks were lost after all got a stop request, or too few are left: no other step begins */
    bool gives_up;   /* the guard ends the run after this step */
    bool is_stopped; /* the run ends before its last step */
};

/* Begin at the state of `step` steps, in a mesh of mesh_ranks of the `ranks`. */
void ash_elastic_start(struct ash_elastic *machine, const struct ash_elastic_opts *opts, uint64_t step, size_t rank,
                       size_t ranks, size_t mesh_ranks);
/* Begin as a process that has got a place in a group, and has no state. */
void ash_elastic_start_joining(struct ash_elastic *machine, const struct ash_elastic_opts *opts, size_t rank,
                               size_t ranks);
/* News, or the result of the action that machine->todo names; afterwards todo names the next one. */
void ash_elastic_take(struct ash_elastic *machine, const struct ash_elastic_event *event);
/* This rank's votes in the sum of a MEET. */
struct ash_elastic_votes ash_elastic_vote(const struct ash_elastic *machine, uint64_t now_ns);
/* The claims of this rank of the mesh in an AGREE. */
struct ash_elastic_claims ash_elastic_claim(const struct ash_elastic *machine, size_t mesh_rank, bool is_told);
/* Is a step open, after the maximum of all claims? Then *source_out is the rank of the mesh to send its results. */
bool ash_elastic_is_claimed(const struct ash_elastic_claims *claims, size_t mesh_ranks, size_t *source_out);
/* The name of a state: "running", and so on. */
const char *ash_elastic_state_name(enum ash_elastic_state state);
/* The name of an action: "step", and so on. */
const char *ash_elastic_do_name(enum ash_elastic_do todo);

#endif

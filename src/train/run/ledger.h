/* ledger - where the wall time of a run went: DIR/ledger.json. Every moment belongs to one kind, so the kinds add up to
 * the wall time. One owner thread. */
#ifndef ASH_TRAIN_RUN_LEDGER_H
#define ASH_TRAIN_RUN_LEDGER_H

#include <stdint.h>
#include "ashlar/err.h"

enum ash_ledger_kind {
    ASH_LEDGER_PRODUCTIVE, /* steps that count, validation */
    ASH_LEDGER_DETECT,     /* of a failed step, the time beyond a usual step: waiting for a lost rank */
    ASH_LEDGER_REFORM,     /* finding the remaining ranks */
    ASH_LEDGER_TRANSFER,   /* settling on a step, the new mesh, moving the state */
    ASH_LEDGER_REDONE,     /* work that was lost: begun steps, and finished ones after which a checkpoint was loaded */
    ASH_LEDGER_SAVE,       /* what steps waited for saves */
    ASH_LEDGER_IDLE,       /* the rest: start, reports, waiting as a spare */
    ASH_LEDGER_KINDS
};

/* Zero-initialise, then ash_ledger_start. */
struct ash_ledger {
    double seconds[ASH_LEDGER_KINDS];
    double rank_seconds[ASH_LEDGER_KINDS]; /* the same times the processes of the run, which come and go */
    double ranks;                          /* processes now, spares included */
    double usd_hour;                       /* of a process; 0: not known */
    uint64_t steps, recoveries, redone_steps, lost_steps; /* counted */
    uint64_t kept_grains, redone_grains; /* of redone steps: those that were finished, those that were computed again */
    double failed_s;                     /* of the step that failed last, charged as redone */
    uint64_t last_ns;
};

/* Read such a file; ranks: the processes of a run whose file counts none. Returns 0, -EINVAL (it is no ledger) or a
 * file's error. */
int ash_ledger_read(struct ash_ledger *ledger_out, const char *path, double ranks, struct ash_err *err);
/* Begin, at now_ns, with what earlier parts of the run have in path (a file that is not there has nothing); ranks and
 * usd_hour, if set, stay. */
void ash_ledger_start(struct ash_ledger *ledger, const char *path, uint64_t now_ns);
/* The time since the last charge was of this kind. */
void ash_ledger_charge(struct ash_ledger *ledger, enum ash_ledger_kind kind, uint64_t now_ns);
/* The time since the last charge was a step that failed. */
void ash_ledger_charge_failed(struct ash_ledger *ledger, uint64_t now_ns);
/* A step is redone except for `kept` of its grains, whose sums were salvaged: that takes less than a step by a share,
 * which is the useful part of the failed one. */
void ash_ledger_keep(struct ash_ledger *ledger, uint64_t kept, uint64_t grains, double share);
/* So many finished steps are lost: their time was for nothing. */
void ash_ledger_lose(struct ash_ledger *ledger, uint64_t steps);
/* The name of a kind: "productive", and so on. */
const char *ash_ledger_kind_name(enum ash_ledger_kind kind);
/* Seconds of all kinds. */
double ash_ledger_wall_s(const struct ash_ledger *ledger);
/* Write it, and show it in the metrics (ashlar_train_ledger_seconds). Returns 0 or a file's error. */
int ash_ledger_write(const struct ash_ledger *ledger, const char *path, struct ash_err *err);

#endif

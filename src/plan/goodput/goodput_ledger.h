/* goodput_ledger - what a run's own ledger (DIR/ledger.json, written by `ashlar train`) says about its failures, and
 * a prediction for other failure rates. */
#ifndef ASH_PLAN_GOODPUT_LEDGER_H
#define ASH_PLAN_GOODPUT_LEDGER_H

#include "plan/goodput/goodput.h"

/* Seconds of a run by what they went into, and counts. */
struct ash_goodput_ledger {
    double productive_s, detect_s, reform_s, transfer_s, redone_s, save_s, idle_s;
    int64_t steps, recoveries, lost_steps;
};

/* The text of such a file; name: for errors. Returns 0 or -EINVAL: it is no ledger. */
int ash_goodput_ledger_decode(const char *text, size_t size_bytes, const char *name,
                              struct ash_goodput_ledger *ledger_out, struct ash_err *err);
/* Seconds of all kinds. */
double ash_goodput_ledger_wall_s(const struct ash_goodput_ledger *ledger);
/* How such a run gets along with a failure every mtbf_s seconds: the costs of a failure, and what saves and idle time
 * take of the rest, are those of the ledger. Returns 0, or -EINVAL where the ledger has no steps or no failures. */
int ash_goodput_ledger_plan(const struct ash_goodput_ledger *ledger, double mtbf_s, struct ash_goodput_way *way_out,
                            struct ash_err *err);

#endif

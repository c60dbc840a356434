/* bill - what a run has used and what that costs: hours of its processes by kind, from its ledger. Cents are whole, and
 * the parts add up to the total. */
#ifndef ASH_TRAIN_RUN_BILL_H
#define ASH_TRAIN_RUN_BILL_H

#include <stdint.h>
#include "train/run/ledger.h"

enum ash_bill_kind {
    ASH_BILL_PRODUCTIVE, /* steps that count */
    ASH_BILL_REDONE,     /* work that was lost */
    ASH_BILL_SAVING,     /* what steps waited for saves */
    ASH_BILL_WAITING,    /* start, reports, finding and replacing lost ranks */
    ASH_BILL_KINDS
};

/* Of one process, which has a GPU or its share of a node. */
struct ash_bill_rates {
    double usd_hour; /* 0: not known */
    double watts;    /* 0: not known */
    double kg_kwh;   /* CO2; 0: not known */
};

struct ash_bill {
    double hours[ASH_BILL_KINDS], total_hours;
    int64_t cents[ASH_BILL_KINDS], total_cents; /* the total is rounded, and the parts add up to it */
    double kwh, co2_kg;
};

/* Find it. */
struct ash_bill ash_bill_of(const struct ash_ledger *ledger, const struct ash_bill_rates *rates);
/* "productive" and so on. */
const char *ash_bill_kind_name(enum ash_bill_kind kind);

#endif

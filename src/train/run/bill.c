/* bill: hours by kind, and their prices in cents that add up. */
#include "train/run/bill.h"

#include <math.h>
#include <stddef.h>

#include "base/assert.h"

#define HOURS_MAX 1e9 /* of a kind: cents then fit into 64 bits */

static const char *const names[ASH_BILL_KINDS] = {"productive", "redone", "saving", "waiting"};

static const enum ash_bill_kind kind_of[ASH_LEDGER_KINDS] = {
    [ASH_LEDGER_PRODUCTIVE] = ASH_BILL_PRODUCTIVE, [ASH_LEDGER_DETECT] = ASH_BILL_WAITING,
    [ASH_LEDGER_REFORM] = ASH_BILL_WAITING,        [ASH_LEDGER_TRANSFER] = ASH_BILL_WAITING,
    [ASH_LEDGER_REDONE] = ASH_BILL_REDONE,         [ASH_LEDGER_SAVE] = ASH_BILL_SAVING,
    [ASH_LEDGER_IDLE] = ASH_BILL_WAITING};

const char *ash_bill_kind_name(enum ash_bill_kind kind)
{
    ash_assert(kind < ASH_BILL_KINDS);
    return names[kind];
}

/* The kind whose cents, rounded down, are the furthest from what they should be. */
static size_t furthest(const double rests[ASH_BILL_KINDS])
{
    size_t kind = 0;

    for (size_t other = 1; other < ASH_BILL_KINDS; other++)
        if (rests[other] > rests[kind]) kind = other;
    return kind;
}

/* Whole cents of each kind, rounded down; what is left goes one by one to the largest rests. */
static void share_cents(struct ash_bill *bill, double usd_hour)
{
    double rests[ASH_BILL_KINDS];
    int64_t sum = 0;

    bill->total_cents = llround(bill->total_hours * usd_hour * 100.0);
    for (size_t kind = 0; kind < ASH_BILL_KINDS; kind++) {
        double exact = bill->hours[kind] * usd_hour * 100.0;

        bill->cents[kind] = (int64_t)floor(exact);
        rests[kind] = exact - floor(exact);
        sum += bill->cents[kind];
    }
    for (; sum < bill->total_cents; sum++) {
        size_t kind = furthest(rests);

        bill->cents[kind]++;
        rests[kind] -= 1.0;
    }
    bill->cents[ASH_BILL_PRODUCTIVE] -= sum - bill->total_cents; /* doubles that were rounded: a cent of trillions */
}

struct ash_bill ash_bill_of(const struct ash_ledger *ledger, const struct ash_bill_rates *rates)
{
    struct ash_bill bill = {0};

    ash_assert(rates->usd_hour >= 0.0 && rates->watts >= 0.0 && rates->kg_kwh >= 0.0);
    for (size_t kind = 0; kind < ASH_LEDGER_KINDS; kind++)
        bill.hours[kind_of[kind]] += fmin(fmax(ledger->rank_seconds[kind], 0.0) / 3600.0, HOURS_MAX);
    for (size_t kind = 0; kind < ASH_BILL_KINDS; kind++)
        bill.total_hours += bill.hours[kind];
    share_cents(&bill, rates->usd_hour);
    bill.kwh = bill.total_hours * rates->watts / 1000.0;
    bill.co2_kg = bill.kwh * rates->kg_kwh;
    return bill;
}

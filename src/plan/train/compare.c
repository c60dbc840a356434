/* One search per kind of machine and size of cluster; sizes are doubled from an estimate that is too small, and the gap
 * to the last one is halved. */
#include "plan/train/compare.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "plan/price.h"
#include "plan/train/parts.h"

#define DAY_S 86400.0
#define RATE_SHARE 0.8   /* of the peak in bf16: no machine does better, so the first cluster is not too large */
#define ROUNDED_MAX 0.1  /* of a batch by which rounding may change it */
#define DOUBLINGS_MAX 12 /* of a cluster that is too small or too slow, at once */
#define SIZES_MAX 16     /* of a cluster that are tried */
#define REFINEMENTS 3    /* between the last size and half of it: to an eighth of that gap */
#define IDLE_MAX 2       /* of them in a row that are not faster: one may have no good layout */

static void set_machines(const struct ash_machine *machine, double machines, struct ash_cluster *cluster)
{
    cluster->machine = *machine;
    cluster->machines = (int)machines;
    cluster->gpus = cluster->machines * machine->gpus;
    cluster->domain_gpus = machine->domain_gpus < cluster->gpus ? machine->domain_gpus : cluster->gpus;
}

static double nearest_multiple(double value, double part)
{
    return fmax(1, round(value / part)) * part;
}

/* The nearest batch that gives every GPU whole sequences or, if that is far from the requested one, every GPU of a
 * machine. */
static double rounded_batch(double batch, const struct ash_cluster *cluster)
{
    double rounded = nearest_multiple(batch, cluster->gpus);

    return fabs(rounded / batch - 1) <= ROUNDED_MAX ? rounded : nearest_multiple(batch, cluster->machine.gpus);
}

/* With a batch: the best plan, if it is faster than floor. */
static int search_batch(const struct ash_consts *consts, const struct ash_compare_job *asked, double batch,
                        double floor_tokens_s, struct ash_compare_row *row, struct ash_err *err)
{
    struct ash_layout hint = row->plan.layout; /* of a smaller cluster, or with another batch */
    struct ash_search wanted = asked->search;
    struct ash_search_result result;

    wanted.floor_tokens_s = floor_tokens_s;
    wanted.uncounted = err == NULL;
    if (row->plan.step.tokens_s > 0) wanted.hint = &hint;
    row->job.global_batch = batch;
    return ash_search_run(consts, &row->job, &wanted, &row->plan, 1, &result, err);
}

/* Search with the batch as asked for and, if that differs, rounded: the faster one, if it is faster than
 * floor. -ERANGE: neither is. */
static int search(const struct ash_consts *consts, const struct ash_compare_job *asked, double floor_tokens_s,
                  struct ash_compare_row *row, struct ash_err *err)
{
    double batch = asked->job.global_batch, rounded = rounded_batch(batch, &row->job.cluster);
    struct ash_compare_row other = *row;
    int rc = search_batch(consts, asked, batch, floor_tokens_s, row, NULL), rc_other = -EINVAL;

    if (rounded != batch)
        rc_other =
            search_batch(consts, asked, rounded, rc == 0 ? row->plan.step.tokens_s : floor_tokens_s, &other, NULL);
    if (rc_other == 0) *row = other;
    if (rc == 0 || rc_other == 0) return 0;
    if (rc == -ERANGE || rc_other == -ERANGE) return -ERANGE;
    return err == NULL ? rc : search_batch(consts, asked, batch, 0, row, err); /* again, for the message */
}

static double days_of(const struct ash_compare_row *row)
{
    return row->job.tokens / row->plan.step.tokens_s / DAY_S;
}

static int with_gpus(const struct ash_consts *consts, const struct ash_compare_job *asked,
                     const struct ash_machine *machine, struct ash_compare_row *row, struct ash_err *err)
{
    set_machines(machine, ceil(asked->gpus / machine->gpus), &row->job.cluster);
    return search(consts, asked, 0, row, err);
}

/* Machines that would need `days` if everything ran at the best rate that is possible, as a power of two. */
static double least_machines(const struct ash_compare_job *asked, const struct ash_machine *machine)
{
    double flops = asked->job.tokens * ash_shape_train_flops(&asked->job.shape, asked->job.seq_tokens);
    double rate = flops / (asked->days * DAY_S), one = machine->gpus * machine->gpu->flops[ASH_GPU_BF16];

    return exp2(fmax(0, floor(log2(rate / (RATE_SHARE * one)))));
}

/* Doublings to the next cluster that is worth a search: if speed doubled every time, and once more, the ones between
 * would still take too long. */
static int doublings(const struct ash_compare_row *row, double days, int most)
{
    return (int)fmax(1, fmin(floor(log2(days_of(row) / days)) - 1, most));
}

/* How the size of a cluster changes from search to search. */
struct growth {
    double machines; /* of the next search */
    int leap;        /* doublings from the last size that was kept */
    int most;        /* doublings at once from now on */
    int idle;        /* sizes in a row that were not faster */
};

/* Choose the next size: rc is what the search of this one returned, row the best so far. */
static void advance(const struct ash_compare_row *row, double days, int machine_gpus, int rc, struct growth *growth)
{
    growth->idle = rc == -ERANGE ? growth->idle + 1 : 0;
    growth->leap = rc == 0 ? doublings(row, days, growth->most) : 1;
    while (growth->leap > 1 && growth->machines * exp2(growth->leap) * machine_gpus > ASH_CLUSTER_GPUS_MAX)
        growth->leap--;
    ash_assert(growth->leap >= 1); /* the search ends */
    growth->machines *= exp2(growth->leap);
}

/* Grow the cluster of *row until it keeps the days, or until more do not help; true when anything was found. What went
 * too far is tried again half as far. */
static bool grow(const struct ash_consts *consts, const struct ash_compare_job *asked,
                 const struct ash_machine *machine, struct ash_compare_row *row)
{
    struct growth growth = {.machines = least_machines(asked, machine), .leap = 1, .most = DOUBLINGS_MAX};
    bool found = false;

    for (int i = 0; i < SIZES_MAX && growth.idle < IDLE_MAX; i++) {
        struct ash_compare_row next = *row;
        bool done;
        int rc;

        if (growth.machines * machine->gpus > ASH_CLUSTER_GPUS_MAX) break;
        set_machines(machine, growth.machines, &next.job.cluster);
        rc = search(consts, asked, found ? row->plan.step.tokens_s : 0, &next, NULL);
        done = rc == 0 && days_of(&next) <= asked->days;
        if (growth.leap > 1 && (done || rc < 0)) {
            growth.leap = growth.most = growth.leap / 2;
            growth.machines = row->job.cluster.machines * exp2(growth.leap);
            continue;
        }
        if (rc == 0) *row = next;
        found = found || rc == 0;
        if (done) break;
        advance(row, asked->days, machine->gpus, rc, &growth);
    }
    return found;
}

/* Half of these machines are too slow: halve the gap to the fewest that keep the days. */
static void refine(const struct ash_consts *consts, const struct ash_compare_job *asked,
                   const struct ash_machine *machine, struct ash_compare_row *row)
{
    double floor_tokens_s = row->job.tokens / (asked->days * DAY_S);
    int slow = row->job.cluster.machines / 2;

    for (int i = 0; i < REFINEMENTS && row->job.cluster.machines - slow > 1; i++) {
        struct ash_compare_row next = *row;
        int middle = (slow + row->job.cluster.machines) / 2;

        set_machines(machine, middle, &next.job.cluster);
        if (search(consts, asked, floor_tokens_s, &next, NULL) == 0 && days_of(&next) <= asked->days)
            *row = next;
        else
            slow = middle;
    }
}

static int within_days(const struct ash_consts *consts, const struct ash_compare_job *asked,
                       const struct ash_machine *machine, struct ash_compare_row *row, struct ash_err *err)
{
    bool found = grow(consts, asked, machine, row);
    double machines = least_machines(asked, machine);

    if (found && days_of(row) <= asked->days) {
        refine(consts, asked, machine, row);
        return 0;
    }
    if (found)
        return ash_err_set(err, -ENOSPC, "too slow: %d machines take %.1f days, bound by %s, and more do not help",
                           row->job.cluster.machines, days_of(row), ash_step_bound(&row->plan.step.time, 0));
    if (machines * machine->gpus > ASH_CLUSTER_GPUS_MAX)
        return ash_err_set(err, -ENOSPC, "%d of its GPUs at %.0f %% of their peak would take %.1f days",
                           ASH_CLUSTER_GPUS_MAX, 100 * RATE_SHARE,
                           asked->days * machines * machine->gpus / ASH_CLUSTER_GPUS_MAX);
    set_machines(machine, machines, &row->job.cluster);
    return search(consts, asked, 0, row, err);
}

static void add_price(const struct ash_machine *machine, struct ash_compare_row *row)
{
    struct ash_price price = ash_price_of(machine);

    row->days = days_of(row);
    row->usd_hour = price.usd_hour * row->job.cluster.machines;
    row->reserved_price = price.reserved;
    row->usd = row->usd_hour * row->days * 24;
    row->watts = machine->gpu->watts * row->job.cluster.gpus;
}

void ash_compare(const struct ash_consts *consts, const struct ash_compare_job *asked,
                 const struct ash_machine *machine, struct ash_compare_row *row_out)
{
    struct ash_compare_row row = {.job = asked->job};
    struct ash_compare_job shared = *asked; /* its searches share layers */
    enum ash_gpu_precision precision =
        asked->search.precision < 0 ? ASH_GPU_BF16 : (enum ash_gpu_precision)asked->search.precision;
    struct ash_err err = {0};
    int rc = -EINVAL;

    ash_assert((asked->gpus > 0 || asked->days > 0) && asked->job.tokens > 0);
    shared.search.memo = ash_plan_layer_memo_open();
    if (machine->gpu->flops[precision] <= 0)
        ash_err_set(&err, rc, "%s has no %s arithmetic", machine->gpu->name, ash_plan_precision_name(precision));
    else if (asked->gpus > 0)
        rc = with_gpus(consts, &shared, machine, &row, &err);
    else
        rc = within_days(consts, &shared, machine, &row, &err);
    ash_plan_layer_memo_close(shared.search.memo);
    row.found = rc == 0;
    if (row.found) add_price(machine, &row);
    snprintf(row.reason, sizeof(row.reason), "%s", err.text);
    *row_out = row;
}

int ash_compare_by_worth(const void *a, const void *b)
{
    const struct ash_compare_row *x = a, *y = b;
    double cost_x = x->usd > 0 ? x->usd : INFINITY, cost_y = y->usd > 0 ? y->usd : INFINITY;

    if (x->found != y->found) return x->found ? -1 : 1;
    if (cost_x != cost_y) return cost_x < cost_y ? -1 : 1;
    return (x->days > y->days) - (x->days < y->days);
}

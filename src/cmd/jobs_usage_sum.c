/* Sums of what jobs have used. A run's ledger is about all of its time; a job's hours are split as that whole is. */
#include "cmd/jobs_usage.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"

#define HOUR_S 3600.0

const char *ash_usage_kind_name(size_t kind)
{
    ash_assert(kind < ASH_USAGE_KINDS);
    return kind < ASH_BILL_KINDS ? ash_bill_kind_name((enum ash_bill_kind)kind) : "unknown";
}

static const char *key_of(const struct ash_usage_entry *entry, enum ash_usage_by by)
{
    return by == ASH_USAGE_BY_TEAM ? entry->team : by == ASH_USAGE_BY_USER ? entry->user : entry->id;
}

/* ---- one entry --------------------------------------------------------------------------------------------------- */

/* The ledger of its run, scaled to its hours of nodes. Returns whether there is one. */
static bool read_scaled(const struct ash_usage_entry *entry, double node_hours, struct ash_ledger *ledger_out)
{
    char path[PATH_MAX];
    struct ash_ledger ledger;
    double sum_s = 0.0;

    if (entry->out == NULL || ash_path_join(path, sizeof(path), entry->out, "ledger.json") < 0) return false;
    if (ash_ledger_read(&ledger, path, 1.0, NULL) < 0) return false;
    for (size_t kind = 0; kind < ASH_LEDGER_KINDS; kind++)
        sum_s += fmax(ledger.rank_seconds[kind], 0.0);
    if (!(sum_s > 0.0)) return false;
    for (size_t kind = 0; kind < ASH_LEDGER_KINDS; kind++)
        ledger.rank_seconds[kind] = fmax(ledger.rank_seconds[kind], 0.0) * (node_hours * HOUR_S / sum_s);
    *ledger_out = ledger;
    return true;
}

/* Dollars an hour of one of its nodes; 0: not known. */
static double price_of(const struct ash_usage_entry *entry, const struct ash_usage_rates *rates)
{
    if (rates->usd_gpu > 0.0 && entry->nodes > 0.0) return rates->usd_gpu * entry->gpus / entry->nodes;
    return rates->usd_node > 0.0 ? rates->usd_node : entry->price;
}

static void add_entry(struct ash_usage_sum *sum, const struct ash_usage_entry *entry,
                      const struct ash_usage_rates *rates)
{
    double node_hours = entry->nodes * (entry->end_s - entry->start_s) / HOUR_S,
           gpus = entry->nodes > 0.0 ? entry->gpus / entry->nodes : 0.0;
    struct ash_bill_rates price = {.usd_hour = price_of(entry, rates)};
    struct ash_ledger ledger = {0};
    bool has_ledger = read_scaled(entry, node_hours, &ledger);
    struct ash_bill bill;

    if (!has_ledger) ledger.rank_seconds[ASH_LEDGER_IDLE] = node_hours * HOUR_S;
    bill = ash_bill_of(&ledger, &price);
    for (size_t kind = 0; kind < ASH_BILL_KINDS; kind++) {
        size_t to = has_ledger ? kind : ASH_USAGE_UNKNOWN;

        sum->node_hours[to] += bill.hours[kind];
        sum->gpu_hours[to] += bill.hours[kind] * gpus;
        sum->cents[to] += bill.cents[kind];
    }
    sum->all_node_hours += bill.total_hours;
    sum->all_gpu_hours += bill.total_hours * gpus;
    sum->all_cents += bill.total_cents;
    sum->unpriced += price.usd_hour <= 0.0;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static int compare_texts(const char *a, const char *b, int otherwise)
{
    int order = strcmp(a, b);

    return order != 0 ? order : otherwise;
}

static int by_id(const void *a, const void *b)
{
    const struct ash_usage_entry *one = a, *other = b;

    return compare_texts(one->id, other->id, (one->start_s > other->start_s) - (one->start_s < other->start_s));
}

static int by_team(const void *a, const void *b)
{
    const struct ash_usage_entry *one = a, *other = b;

    return compare_texts(one->team, other->team, by_id(a, b));
}

static int by_user(const void *a, const void *b)
{
    const struct ash_usage_entry *one = a, *other = b;

    return compare_texts(one->user, other->user, by_id(a, b));
}

static int by_hours(const void *a, const void *b)
{
    const struct ash_usage_sum *one = a, *other = b;

    if (one->all_gpu_hours != other->all_gpu_hours) return one->all_gpu_hours < other->all_gpu_hours ? 1 : -1;
    if (one->all_node_hours != other->all_node_hours) return one->all_node_hours < other->all_node_hours ? 1 : -1;
    return strcmp(one->key, other->key);
}

static void begin(struct ash_usage_sum *sum, const struct ash_usage_entry *entry, enum ash_usage_by by)
{
    bool is_job = by == ASH_USAGE_BY_JOB;

    *sum = (struct ash_usage_sum){.key = key_of(entry, by),
                                  .name = is_job ? entry->name : "",
                                  .user = is_job ? entry->user : "",
                                  .team = is_job ? entry->team : ""};
}

static void add_sum(struct ash_usage_sum *total, const struct ash_usage_sum *sum)
{
    for (size_t kind = 0; kind < ASH_USAGE_KINDS; kind++) {
        total->node_hours[kind] += sum->node_hours[kind];
        total->gpu_hours[kind] += sum->gpu_hours[kind];
        total->cents[kind] += sum->cents[kind];
    }
    total->jobs += sum->jobs;
    total->all_node_hours += sum->all_node_hours;
    total->all_gpu_hours += sum->all_gpu_hours;
    total->all_cents += sum->all_cents;
    total->unpriced += sum->unpriced;
}

int ash_usage_sum_up(struct ash_usage_list *list, enum ash_usage_by by, const struct ash_usage_rates *rates,
                     struct ash_usage_sum **sums_out, size_t *count_out, struct ash_usage_sum *total_out)
{
    static int (*const orders[])(const void *, const void *) = {by_team, by_user, by_id};
    struct ash_usage_sum *sums = calloc(list->count + 1, sizeof(*sums)), total = {"total", "", "", "", .jobs = 0};
    size_t count = 0;

    if (sums == NULL) return -ENOMEM;
    if (list->count > 0) qsort(list->entries, list->count, sizeof(*list->entries), orders[by]);
    for (size_t i = 0; i < list->count; i++) {
        const struct ash_usage_entry *entry = &list->entries[i];
        bool is_new = i == 0 || strcmp(key_of(entry, by), key_of(entry - 1, by)) != 0;

        if (is_new) begin(&sums[count++], entry, by);
        sums[count - 1].jobs += is_new || strcmp(entry->id, entry[-1].id) != 0;
        add_entry(&sums[count - 1], entry, rates);
    }
    for (size_t i = 0; i < count; i++)
        add_sum(&total, &sums[i]);
    qsort(sums, count, sizeof(*sums), by_hours);
    *sums_out = sums;
    *count_out = count;
    *total_out = total;
    return 0;
}

/* What `ashlar plan queue` found: tables for people, JSON for programs. */
#include "cmd/plan/queue_priv.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/table.h"
#include "cmd/cmd.h"

#define QUEUES_SHOWN 12

static const char *span_text(double seconds, char *buf, size_t bytes)
{
    return ash_clock_format(seconds, buf, bytes);
}

/* ---- people ------------------------------------------------------------------------------------------------------ */

static void add_waits(struct ash_table *table, const char *name, const struct ash_replay_waits *waits)
{
    char mean[24], median[24], p95[24], most[24];

    if (waits->jobs == 0) return;
    ash_table_row(table, "%s|%zu|%s|%s|%s|%s|%.2f|%.0f", name, waits->jobs,
                  span_text(waits->mean_s, mean, sizeof(mean)), span_text(waits->median_s, median, sizeof(median)),
                  span_text(waits->p95_s, p95, sizeof(p95)), span_text(waits->max_s, most, sizeof(most)),
                  waits->slowdown, waits->gpu_hours);
}

static void print_groups(const struct ash_queue_answer *answer, const struct ash_replay_report *report)
{
    struct ash_table table = {.heads = "waits|>jobs|>mean|>median|>p95|>longest|>slowdown|>GPU hours", .indent = 2};

    add_waits(&table, "all", &report->all);
    for (int i = 0; i < ASH_REPLAY_SIZES; i++) {
        char name[24];

        snprintf(name, sizeof(name), "%s%d GPU%s", i + 1 == ASH_REPLAY_SIZES ? "from " : "", 1 << i, i == 0 ? "" : "s");
        add_waits(&table, name, &report->by_size[i]);
    }
    for (int i = 0; i < answer->trace->class_count && answer->trace->class_count > 1; i++)
        add_waits(&table, answer->trace->classes[i], &report->by_class[i]);
    for (int i = 0; i < answer->trace->queue_count && i < QUEUES_SHOWN && answer->trace->queue_count > 1; i++)
        add_waits(&table, answer->trace->queues[i], &report->by_queue[i]);
    ash_table_print(&table, stdout);
    if (answer->trace->queue_count > QUEUES_SHOWN)
        printf("  and %d queues more (--json has all)\n", answer->trace->queue_count - QUEUES_SHOWN);
}

static void print_places(const struct ash_replay_report *report)
{
    size_t several = 0;

    for (int i = 1; i < ASH_REPLAY_HEIGHTS; i++)
        several += report->spread[i];
    if (several == 0) return;
    printf("  jobs on several hosts: %zu starts, inside domains of height", several);
    for (int i = 1; i < ASH_REPLAY_HEIGHTS; i++)
        if (report->spread[i] > 0) printf(" %d: %.1f%%", i, 100.0 * (double)report->spread[i] / (double)several);
    printf("; %.1f%% higher than needed; steps cost %.0f GPU hours more\n",
           100.0 * (double)report->needless / (double)several, report->spread_hours);
}

static void print_report(const struct ash_queue_answer *answer, int which)
{
    const struct ash_replay_report *report = &answer->report[which];
    char span[24];

    printf("\n%s: %.1f%% of GPU time used over %s; while jobs waited, %.1f%% of GPUs were free on partly used hosts\n",
           answer->conf[which].name, 100 * report->used, span_text(report->submit_span_s, span, sizeof(span)),
           100 * report->stranded);
    print_groups(answer, report);
    print_places(report);
    printf(
        "  starts %zu, backfilled %zu, stopped for others %zu, shrunk %zu; GPU hours lost: preemption %.0f, failures "
        "%.0f, starting again %.0f\n",
        report->starts, report->backfilled, report->stops, report->shrinks, report->stopped_hours, report->failed_hours,
        report->restart_hours);
    if (report->failures > 0)
        printf("  host failures %zu: a spare took over %zu times, jobs waited again %zu times\n", report->failures,
               report->replaced, report->requeued);
    printf("  fairness: Jain's index of the queues' slowdowns %.3f\n", report->jain);
    if (report->refused > 0)
        printf("  refused at submission: %zu jobs; the first: %s\n", report->refused, report->refused_why);
    if (report->unfinished > 0) printf("  never started: %zu jobs\n", report->unfinished);
    printf("  simulated in %.1f s, %zu passes\n", answer->seconds[which], report->passes);
}

static void print_fill(const struct ash_queue_answer *answer)
{
    struct ash_table table = {.heads = "allocated of GPUs|>at 90%|>at 100%|>at 130%|>s"};

    for (int i = 0; i < answer->count; i++)
        ash_table_row(&table, "%s|%.2f%%|%.2f%%|%.2f%%|%.2f", answer->conf[i].name, 100 * answer->fill[i][90],
                      100 * answer->fill[i][100], 100 * answer->fill[i][130], answer->seconds[i]);
    ash_table_print(&table, stdout);
}

/* A measure of all policies. Returns which is the best in it, or -1 if several are. */
static int add_measure(struct ash_table *table, const struct ash_queue_answer *answer, const char *name,
                       const double *values, bool wants_most)
{
    int best = 0, equal = 0;

    ash_table_row(table, "%s", name);
    for (int i = 0; i < answer->count; i++) {
        ash_table_cell(table, "%.4g", values[i]);
        if (wants_most ? values[i] > values[best] : values[i] < values[best]) best = i;
    }
    for (int i = 0; i < answer->count; i++)
        equal += values[i] == values[best];
    ash_table_cell(table, "%s", equal > 1 ? "-" : answer->conf[best].name);
    return equal > 1 ? -1 : best;
}

/* The policies side by side, and a verdict: how often each is the best. */
static void print_comparison(const struct ash_queue_answer *answer)
{
    enum { USED, WAIT, P95, LOST, JAIN, MEASURES };
    static const char *const names[MEASURES] = {"GPU time used, %", "mean wait, s", "95th percentile of waits, s",
                                                "GPU hours lost", "fairness (Jain)"};
    double values[MEASURES][ASH_QUEUE_POLICIES_MAX] = {{0}};
    int wins[ASH_QUEUE_POLICIES_MAX] = {0}, best = 0;
    struct ash_table table = {.indent = 2};
    struct ash_str heads = {0};

    ash_str_adds(&heads, "compared");
    for (int i = 0; i < answer->count; i++) {
        const struct ash_replay_report *report = &answer->report[i];

        ash_str_addf(&heads, "|>%s", answer->conf[i].name);
        values[USED][i] = 100 * report->used;
        values[WAIT][i] = report->all.mean_s;
        values[P95][i] = report->all.p95_s;
        values[LOST][i] = report->stopped_hours + report->failed_hours + report->restart_hours;
        values[JAIN][i] = report->jain;
    }
    ash_str_adds(&heads, "|best");
    for (int m = 0; m < MEASURES; m++) {
        int winner = add_measure(&table, answer, names[m], values[m], m == USED || m == JAIN);

        if (winner >= 0) wins[winner]++;
    }
    printf("\n");
    table.heads = heads.rc == 0 ? heads.data : "";
    ash_table_print(&table, stdout);
    ash_str_fini(&heads);
    for (int i = 1; i < answer->count; i++)
        if (wins[i] > wins[best]) best = i;
    printf("verdict: %s is the best in %d of %d measures on this trace\n", answer->conf[best].name, wins[best],
           MEASURES);
}

void ash_queue_print_table(const struct ash_queue_answer *answer)
{
    printf("%s trace: %zu jobs (%zu rows left out), %d queue%s, %d users; %d hosts, %.0f GPUs, %d layer%s of domains\n",
           answer->trace->format, answer->trace->count, answer->trace->skipped, answer->trace->queue_count,
           answer->trace->queue_count == 1 ? "" : "s", answer->trace->user_count, answer->site.host_count,
           ash_site_gpus(&answer->site), answer->site.topology->nodes[0].height,
           answer->site.topology->nodes[0].height == 1 ? "" : "s");
    if (answer->mapped > 0)
        printf("%d queues of the trace are not in the policy: its own take their jobs in turn\n", answer->mapped);
    if (answer->is_fill) {
        print_fill(answer);
        return;
    }
    for (int i = 0; i < answer->count; i++)
        print_report(answer, i);
    if (answer->count > 1) print_comparison(answer);
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static json_t *encode_waits(const char *name, const struct ash_replay_waits *waits)
{
    return json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "name", name, "jobs", (json_int_t)waits->jobs,
                     "mean_s", waits->mean_s, "median_s", waits->median_s, "p95_s", waits->p95_s, "max_s", waits->max_s,
                     "slowdown", waits->slowdown, "gpu_hours", waits->gpu_hours);
}

static json_t *encode_list(char *const *names, const struct ash_replay_waits *waits, int count)
{
    json_t *list = json_array();

    for (int i = 0; i < count; i++) {
        char size[24];

        snprintf(size, sizeof(size), "%d", 1 << (i < 30 ? i : 30));
        if (waits[i].jobs > 0) json_array_append_new(list, encode_waits(names != NULL ? names[i] : size, &waits[i]));
    }
    return list;
}

static json_t *encode_lost(const struct ash_replay_report *report)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "preemption", report->stopped_hours, "failures", report->failed_hours,
                     "restarts", report->restart_hours, "spread", report->spread_hours);
}

static json_t *encode_counts(const struct ash_replay_report *report)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "starts", (json_int_t)report->starts,
                     "backfilled", (json_int_t)report->backfilled, "stopped", (json_int_t)report->stops, "shrunk",
                     (json_int_t)report->shrinks, "replaced", (json_int_t)report->replaced, "requeued",
                     (json_int_t)report->requeued, "host_failures", (json_int_t)report->failures, "refused",
                     (json_int_t)report->refused, "unfinished", (json_int_t)report->unfinished);
}

static json_t *encode_spread(const struct ash_replay_report *report)
{
    json_t *list = json_array();

    for (int i = 0; i < ASH_REPLAY_HEIGHTS; i++)
        json_array_append_new(list, json_integer((json_int_t)report->spread[i]));
    return json_pack("{s:o, s:I}", "starts_by_height", list, "higher_than_needed", (json_int_t)report->needless);
}

static json_t *encode_report(const struct ash_queue_answer *answer, int which)
{
    const struct ash_replay_report *report = &answer->report[which];
    const struct ash_trace *trace = answer->trace;

    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:I}", "policy",
                     answer->conf[which].name, "used", report->used, "stranded", report->stranded, "span_s",
                     report->span_s, "submit_span_s", report->submit_span_s, "waits", encode_waits("all", &report->all),
                     "by_gpus", encode_list(NULL, report->by_size, ASH_REPLAY_SIZES), "by_class",
                     encode_list(trace->classes, report->by_class, trace->class_count), "by_queue",
                     encode_list(trace->queues, report->by_queue, trace->queue_count), "domains", encode_spread(report),
                     "gpu_hours_lost", encode_lost(report), "counts", encode_counts(report), "jain", report->jain,
                     "simulated_s", answer->seconds[which], "passes", (json_int_t)report->passes);
}

static json_t *encode_fill(const struct ash_queue_answer *answer, int which)
{
    json_t *list = json_array();

    for (int i = 0; i < ASH_QUEUE_FILL_STEPS; i++)
        json_array_append_new(list, json_real(answer->fill[which][i]));
    return json_pack("{s:s, s:o, s:f}", "policy", answer->conf[which].name, "allocated_by_percent_arrived", list,
                     "simulated_s", answer->seconds[which]);
}

int ash_queue_print_json(const struct ash_queue_answer *answer, struct ash_err *err)
{
    json_t *list = json_array();

    for (int i = 0; i < answer->count; i++)
        json_array_append_new(list, answer->is_fill ? encode_fill(answer, i) : encode_report(answer, i));
    return ash_cmd_print_json(json_pack("{s:s, s:I, s:I, s:i, s:f, s:o}", "trace", answer->trace->format, "jobs",
                                        (json_int_t)answer->trace->count, "skipped", (json_int_t)answer->trace->skipped,
                                        "hosts", answer->site.host_count, "gpus", ash_site_gpus(&answer->site),
                                        "policies", list),
                              err);
}

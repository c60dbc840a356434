/* Nodes against each other: the value that most have, the median of all. */
#include "observe/check/cluster.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "ashlar/ashlar.h"
#include "base/assert.h"

#define CLOCK_LIMIT_S 0.1 /* tickets, leases and logs of nodes are compared */

static const struct {
    const char *name, *result; /* result: of the node's own check; NULL: read from the system */
} facts[ASH_FACTS] = {
    [ASH_FACT_VERSION] = {"ashlar", NULL},
    [ASH_FACT_KERNEL] = {"kernel", NULL},
    [ASH_FACT_CORES] = {"cores", "cores"},
    [ASH_FACT_GPUS] = {"GPUs", "GPUs"},
    [ASH_FACT_DRIVER] = {"GPU driver", "GPU driver"},
    [ASH_FACT_RDMA] = {"RDMA devices", "RDMA devices"},
    [ASH_FACT_NETWORK] = {"network", "network"},
};

const char *ash_node_fact_name(enum ash_node_fact fact)
{
    ash_assert(fact < ASH_FACTS);
    return facts[fact].name;
}

void ash_node_card_fill(struct ash_node_card *card, const struct ash_check_report *report)
{
    struct utsname system;

    if (gethostname(card->host, sizeof(card->host) - 1) < 0) snprintf(card->host, sizeof(card->host), "?");
    card->grade = (uint32_t)ash_check_worst(report);
    snprintf(card->facts[ASH_FACT_VERSION], sizeof(card->facts[0]), "%s", ash_version());
    if (uname(&system) == 0)
        snprintf(card->facts[ASH_FACT_KERNEL], sizeof(card->facts[0]), "%.20s %.40s", system.machine, system.release);
    for (size_t i = 0; i < report->count; i++) {
        const struct ash_check_result *result = &report->results[i];

        for (size_t fact = 0; fact < ASH_FACTS; fact++)
            if (facts[fact].result != NULL && strcmp(facts[fact].result, result->name) == 0)
                snprintf(card->facts[fact], sizeof(card->facts[0]), "%.60s",
                         result->grade == ASH_GRADE_SKIPPED ? "none" : result->found);
        if (result->grade == ASH_GRADE_BAD && card->worst[0] == '\0')
            snprintf(card->worst, sizeof(card->worst), "%s: %s", result->name, result->found);
    }
}

static void __attribute__((format(printf, 4, 5)))
find(struct ash_cluster_report *report, size_t node, size_t to, const char *fmt, ...)
{
    struct ash_cluster_finding *finding = &report->findings[report->count];
    va_list args;

    if (report->count == ASH_CLUSTER_FINDINGS_MAX) {
        report->left_out++;
        return;
    }
    *finding = (struct ash_cluster_finding){.node = node, .to = to};
    va_start(args, fmt);
    vsnprintf(finding->text, sizeof(finding->text), fmt, args);
    va_end(args);
    report->count++;
}

/* ---- facts ------------------------------------------------------------------------------------------------------- */

/* The node whose fact most nodes share, the first of equals. */
static size_t most_common(const struct ash_node_card *cards, size_t count, size_t fact, size_t *shared_out)
{
    size_t best = 0, best_shared = 0;

    for (size_t i = 0; i < count; i++) {
        size_t shared = 0;

        for (size_t k = 0; k < count; k++)
            shared += strcmp(cards[i].facts[fact], cards[k].facts[fact]) == 0;
        if (shared > best_shared) {
            best = i;
            best_shared = shared;
        }
    }
    *shared_out = best_shared;
    return best;
}

static void judge_facts(const struct ash_node_card *cards, size_t count, struct ash_cluster_report *report)
{
    for (size_t fact = 0; fact < ASH_FACTS; fact++) {
        size_t shared, common = most_common(cards, count, fact, &shared);

        for (size_t i = 0; i < count && shared < count; i++)
            if (strcmp(cards[i].facts[fact], cards[common].facts[fact]) != 0)
                find(report, i, i, "%s is %s; %zu of %zu nodes have %s", facts[fact].name,
                     cards[i].facts[fact][0] != '\0' ? cards[i].facts[fact] : "not known", shared, count,
                     cards[common].facts[fact]);
    }
    for (size_t i = 0; i < count; i++) {
        if (cards[i].grade == ASH_GRADE_BAD) find(report, i, i, "not fit for work: %s", cards[i].worst);
        if (fabs(cards[i].clock_s) > CLOCK_LIMIT_S + cards[i].clock_error_s)
            find(report, i, i, "its clock is %.3g s %s that of %s", fabs(cards[i].clock_s),
                 cards[i].clock_s > 0 ? "ahead of" : "behind", cards[0].host);
    }
}

/* ---- rates ------------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median of those that are not 0; values get sorted. */
static double median(double *values, size_t count)
{
    size_t known = 0;

    for (size_t i = 0; i < count; i++)
        if (values[i] > 0) values[known++] = values[i];
    if (known == 0) return 0;
    qsort(values, known, sizeof(*values), by_value);
    return values[known / 2];
}

static void judge_disks(const struct ash_node_card *cards, size_t count, double slow_share, double *scratch,
                        struct ash_cluster_report *report)
{
    for (int is_read = 0; is_read < 2; is_read++) {
        double usual;

        for (size_t i = 0; i < count; i++)
            scratch[i] = is_read ? cards[i].read_rate : cards[i].write_rate;
        usual = median(scratch, count);
        for (size_t i = 0; i < count; i++) {
            double rate = is_read ? cards[i].read_rate : cards[i].write_rate;

            if (rate > 0 && rate < slow_share * usual)
                find(report, i, i, "its disk %s %.3g MB/s; the median is %.3g MB/s", is_read ? "reads" : "writes",
                     rate * 1e-6, usual * 1e-6);
        }
    }
}

/* Is the node slow as a sender (or receiver)? More than half of these links are. */
static bool is_slow_end(const double *rates, size_t count, size_t node, bool sends, double limit)
{
    size_t slow = 0, all = 0;

    ash_assert(node < count);
    for (size_t other = 0; other < count; other++) {
        double rate = sends ? rates[node * count + other] : rates[other * count + node];

        all += rate > 0;
        slow += rate > 0 && rate < limit;
    }
    return all > 1 && 2 * slow > all;
}

bool ash_cluster_is_slow_node(const double *rates, size_t count, size_t node, double limit)
{
    return is_slow_end(rates, count, node, true, limit) || is_slow_end(rates, count, node, false, limit);
}

/* A node that is slow to most others is named; a link between two ends that are not is slow by itself. */
static void judge_links(const double *rates, size_t count, double slow_share, bool *is_slow,
                        struct ash_cluster_report *report)
{
    bool *sends_slowly = is_slow, *receives_slowly = is_slow + count;
    double limit = slow_share * report->rate_median;

    for (size_t node = 0; node < count; node++) {
        sends_slowly[node] = is_slow_end(rates, count, node, true, limit);
        receives_slowly[node] = is_slow_end(rates, count, node, false, limit);
        if (sends_slowly[node] || receives_slowly[node])
            find(report, node, node, "it %s%s%s with less than %.3g MB/s to most others; the median link has %.3g MB/s",
                 sends_slowly[node] ? "sends" : "", sends_slowly[node] && receives_slowly[node] ? " and " : "",
                 receives_slowly[node] ? "receives" : "", limit * 1e-6, report->rate_median * 1e-6);
    }
    for (size_t from = 0; from < count; from++)
        for (size_t to = 0; to < count; to++) {
            double rate = rates[from * count + to];

            if (rate > 0 && rate < limit && !sends_slowly[from] && !receives_slowly[to])
                find(report, from, to, "%.3g MB/s; the median of all links is %.3g MB/s", rate * 1e-6,
                     report->rate_median * 1e-6);
        }
}

int ash_cluster_median(const double *rates, size_t count, double *median_out)
{
    double *sorted = malloc((count + 1) * sizeof(*sorted));

    if (sorted == NULL) return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        sorted[i] = fabs(rates[i]);
    *median_out = median(sorted, count);
    free(sorted);
    return 0;
}

int ash_cluster_judge(const struct ash_node_card *cards, const double *rates, size_t count, double slow_share,
                      struct ash_cluster_report *report_out)
{
    double *scratch = malloc((count + 1) * sizeof(*scratch));
    bool *is_slow = calloc(2 * count + 1, sizeof(*is_slow));
    int rc = scratch == NULL || is_slow == NULL ? -ENOMEM : 0;

    *report_out = (struct ash_cluster_report){0};
    if (rc == 0) rc = ash_cluster_median(rates, count * count, &report_out->rate_median);
    if (rc == 0) {
        judge_facts(cards, count, report_out);
        judge_disks(cards, count, slow_share, scratch, report_out);
        judge_links(rates, count, slow_share, is_slow, report_out);
    }
    free(scratch);
    free(is_slow);
    return rc;
}

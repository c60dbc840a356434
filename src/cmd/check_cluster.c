/* ashlar check cluster: the nodes of an allocation, each by itself and against each other. Ranks meet as those of a job
 * do. Clocks are read over the shortest of some round trips; links by check_cluster_links.h. */
#include "cmd/check_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "cmd/check_cluster_links.h"
#include "cmd/cmd.h"
#include "observe/check/cluster.h"

#define TRIPS 16
#define NODES_MAX 1024

struct cluster {
    const struct ash_cluster_check *check;
    struct ash_group *group;
    size_t rank, size;
    struct ash_node_card *cards; /* [size] */
    struct ash_cluster_links links;
};

/* ---- clocks ------------------------------------------------------------------------------------------------------ */

/* The first rank asks, the other answers with its time. */
static int ask_clock(struct cluster *cluster, size_t other, struct ash_err *err)
{
    struct ash_node_card *card = &cluster->cards[other];
    double best_s = 0, theirs = 0;
    int rc = 0;

    for (int i = 0; i < TRIPS && rc == 0; i++) {
        double before = ash_clock_wall_s(), trip_s;

        rc = ash_group_send(cluster->group, other, &before, sizeof(before), err);
        if (rc == 0) rc = ash_group_recv(cluster->group, other, &theirs, sizeof(theirs), err);
        trip_s = ash_clock_wall_s() - before;
        if (rc < 0 || (i > 0 && trip_s >= best_s)) continue;
        best_s = trip_s;
        card->clock_s = theirs - (before + trip_s / 2);
        card->clock_error_s = trip_s / 2;
    }
    return rc;
}

static int answer_clock(struct cluster *cluster, struct ash_err *err)
{
    int rc = 0;

    for (int i = 0; i < TRIPS && rc == 0; i++) {
        double asked, now;

        rc = ash_group_recv(cluster->group, 0, &asked, sizeof(asked), err);
        now = ash_clock_wall_s();
        if (rc == 0) rc = ash_group_send(cluster->group, 0, &now, sizeof(now), err);
    }
    return rc;
}

static int compare_clocks(struct cluster *cluster, struct ash_err *err)
{
    int rc = 0;

    if (cluster->rank > 0) return answer_clock(cluster, err);
    for (size_t other = 1; other < cluster->size && rc == 0; other++)
        rc = ask_clock(cluster, other, err);
    return rc;
}

/* ---- what comes out ---------------------------------------------------------------------------------------------- */

static double least_rate(const struct cluster *cluster, size_t node)
{
    double least = 0;

    for (size_t other = 0; other < cluster->size; other++) {
        double there = fabs(cluster->links.rates[node * cluster->size + other]),
               back = fabs(cluster->links.rates[other * cluster->size + node]);

        if (there > 0 && (least == 0 || there < least)) least = there;
        if (back > 0 && (least == 0 || back < least)) least = back;
    }
    return least;
}

static void name_finding(const struct cluster *cluster, const struct ash_cluster_finding *finding, char *buf,
                         size_t buf_bytes)
{
    const char *from = cluster->cards[finding->node].host, *to = cluster->cards[finding->to].host;

    if (finding->node == finding->to)
        snprintf(buf, buf_bytes, "node %zu (%s)", finding->node, from);
    else
        snprintf(buf, buf_bytes, "link %zu (%s) to %zu (%s)", finding->node, from, finding->to, to);
}

static void print_table(const struct cluster *cluster, const struct ash_cluster_report *report)
{
    char name[256];

    printf("%4s %-20s %-8s %12s %12s %12s %12s  %s\n", "node", "host", "itself", "clock ms", "slowest MB/s",
           "disk write", "disk read", "network");
    for (size_t i = 0; i < cluster->size; i++) {
        const struct ash_node_card *card = &cluster->cards[i];

        printf("%4zu %-20s %-8s %12.3f %12.1f %12.1f %12.1f  %s\n", i, card->host,
               ash_check_grade_name((enum ash_check_grade)card->grade), card->clock_s * 1e3,
               least_rate(cluster, i) * 1e-6, card->write_rate * 1e-6, card->read_rate * 1e-6,
               card->facts[ASH_FACT_NETWORK]);
    }
    for (size_t i = 0; i < report->count; i++) {
        name_finding(cluster, &report->findings[i], name, sizeof(name));
        printf("OUTLIER  %s: %s\n", name, report->findings[i].text);
    }
    if (report->left_out > 0) printf("and %zu more\n", report->left_out);
    if (ash_cluster_links_unjudged(&cluster->links) > 0)
        printf("%zu of %zu links were not judged: other work kept the cores of their ends busy\n",
               ash_cluster_links_unjudged(&cluster->links), ash_cluster_links_measured(&cluster->links));
    if (cluster->links.is_halves)
        printf("%zu of %zu links in %zu rounds, the others in exchanges of groups\n",
               ash_cluster_links_measured(&cluster->links), cluster->size * (cluster->size - 1), cluster->links.rounds);
    if (cluster->links.uneven > 0)
        printf("%zu groups have halves that are far from each other: switches between them, no single link\n",
               cluster->links.uneven);
    printf("%zu nodes, %.1f MB/s over the median link: %s\n", cluster->size, report->rate_median * 1e-6,
           report->count == 0 ? "no outlier" : "NOT all alike");
}

static json_t *report_json(const struct cluster *cluster, const struct ash_cluster_report *report)
{
    json_t *nodes = json_array(), *findings = json_array(), *rates = json_array();
    char name[256];

    for (size_t i = 0; i < cluster->size; i++) {
        const struct ash_node_card *card = &cluster->cards[i];
        json_t *facts = json_object();

        for (size_t fact = 0; fact < ASH_FACTS; fact++)
            json_object_set_new(facts, ash_node_fact_name((enum ash_node_fact)fact), json_string(card->facts[fact]));
        json_array_append_new(nodes, json_pack("{s:s, s:s, s:f, s:f, s:f, s:o}", "host", card->host, "grade",
                                               ash_check_grade_name((enum ash_check_grade)card->grade), "clock_s",
                                               card->clock_s, "disk_write", card->write_rate, "disk_read",
                                               card->read_rate, "facts", facts));
    }
    for (size_t i = 0; i < report->count; i++) {
        name_finding(cluster, &report->findings[i], name, sizeof(name));
        json_array_append_new(findings, json_pack("{s:s, s:s}", "where", name, "text", report->findings[i].text));
    }
    for (size_t i = 0; i < cluster->size * cluster->size; i++)
        json_array_append_new(rates, json_real(fabs(cluster->links.rates[i])));
    return json_pack("{s:b, s:f, s:I, s:I, s:I, s:o, s:o, s:o}", "alike", report->count == 0, "rate_median",
                     report->rate_median, "links_measured", (json_int_t)ash_cluster_links_measured(&cluster->links),
                     "rounds", (json_int_t)cluster->links.rounds, "links_not_judged",
                     (json_int_t)ash_cluster_links_unjudged(&cluster->links), "nodes", nodes, "outliers", findings,
                     "rates", rates);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void check_self(const struct ash_cluster_check *check, struct ash_node_card *card)
{
    static struct ash_check_report report;
    struct ash_disk_rates rates = {0};

    ash_check_quick(check->node, &report);
    if (check->is_deep) ash_check_deep(check->node, &report);
    if (check->disk != NULL) ash_check_disk(check->node, check->disk, &report, &rates);
    card->write_rate = rates.write_rate;
    card->read_rate = rates.read_rate;
    ash_node_card_fill(card, &report);
}

/* Everybody's card at the first rank, and its judgement at everybody. */
static int gather_and_judge(struct cluster *cluster, struct ash_err *err)
{
    static struct ash_cluster_report report;
    struct ash_node_card own = cluster->cards[cluster->rank];
    double *clocks = calloc(2 * cluster->size, sizeof(*clocks));
    uint64_t outliers = 0;
    int rc = clocks == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : 0;

    for (size_t i = 0; rc == 0 && i < cluster->size; i++) {
        clocks[2 * i] = cluster->cards[i].clock_s;
        clocks[2 * i + 1] = cluster->cards[i].clock_error_s;
    }
    if (rc == 0) rc = ash_group_all_gather(cluster->group, &own, cluster->cards, sizeof(own), err);
    if (rc == 0 && cluster->rank == 0) {
        for (size_t i = 0; i < cluster->size; i++) {
            cluster->cards[i].clock_s = clocks[2 * i];
            cluster->cards[i].clock_error_s = clocks[2 * i + 1];
        }
        rc =
            ash_cluster_judge(cluster->cards, cluster->links.rates, cluster->size, cluster->check->slow_share, &report);
        outliers = report.count;
        if (rc == 0 && cluster->check->wants_json) rc = ash_cmd_print_json(report_json(cluster, &report), err);
        if (rc == 0 && !cluster->check->wants_json) print_table(cluster, &report);
    }
    if (rc == 0) rc = ash_group_broadcast(cluster->group, &outliers, sizeof(outliers), 0, err);
    free(clocks);
    return rc < 0 ? rc : outliers > 0;
}

static int check_all(struct cluster *cluster, struct ash_err *err)
{
    int rc;

    cluster->rank = ash_group_rank(cluster->group);
    cluster->size = ash_group_size(cluster->group);
    if (cluster->size > NODES_MAX)
        return ash_err_set(err, -EINVAL, "%zu nodes: at most %d are compared at once", cluster->size, NODES_MAX);
    cluster->cards = calloc(cluster->size, sizeof(*cluster->cards));
    if (cluster->cards == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = ash_cluster_links_init(&cluster->links, cluster->group, cluster->check->slow_share, err);
    if (rc < 0) return rc;
    check_self(cluster->check, &cluster->cards[cluster->rank]);
    rc = ash_group_barrier(cluster->group, err); /* deep checks end at different times */
    if (rc == 0) rc = compare_clocks(cluster, err);
    if (rc == 0) rc = ash_cluster_links_measure(&cluster->links, cluster->check->links_way, err);
    return rc < 0 ? rc : gather_and_judge(cluster, err);
}

int ash_cmd_check_cluster(const struct ash_cluster_check *check, struct ash_err *err)
{
    struct cluster cluster = {.check = check};
    struct ash_launch_env env;
    int rc = ash_launch_env_read(&env, err);

    if (rc < 0) return rc;
    if (env.size < 2)
        return ash_err_set(err, -EINVAL,
                           "a cluster has two nodes at least: start this once per node, as in `srun -N 4 ashlar check "
                           "cluster` or `ashlar launch --procs 1 --nodes 2 check cluster`");
    rc = ash_group_open(&env, check->group, &cluster.group, err);
    if (rc == 0) rc = check_all(&cluster, err);
    ash_group_close(cluster.group);
    free(cluster.cards);
    ash_cluster_links_fini(&cluster.links);
    return rc;
}

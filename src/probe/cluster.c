/* Deep checks end at different times: a barrier stands between them and the clocks. The first rank judges. */
#include "probe/cluster.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "collective/group.h"

#define TRIPS 16
#define NODES_MAX 1024

/* ---- clocks ------------------------------------------------------------------------------------------------------ */

/* The first rank sends a request, the other answers with its time. */
static int ask_clock(struct ash_cluster_probe *cluster, size_t other, struct ash_err *err)
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

static int answer_clock(struct ash_cluster_probe *cluster, struct ash_err *err)
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

static int compare_clocks(struct ash_cluster_probe *cluster, struct ash_err *err)
{
    int rc = 0;

    if (cluster->rank > 0) return answer_clock(cluster, err);
    for (size_t other = 1; other < cluster->size && rc == 0; other++)
        rc = ask_clock(cluster, other, err);
    return rc;
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

/* The cards of all nodes on all ranks; clocks as the first rank has read them. */
static int gather_cards(struct ash_cluster_probe *cluster, struct ash_err *err)
{
    struct ash_node_card own = cluster->cards[cluster->rank];
    double *clocks = calloc(2 * cluster->size, sizeof(*clocks));
    int rc = clocks == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : 0;

    for (size_t i = 0; rc == 0 && i < cluster->size; i++) {
        clocks[2 * i] = cluster->cards[i].clock_s;
        clocks[2 * i + 1] = cluster->cards[i].clock_error_s;
    }
    if (rc == 0) rc = ash_group_all_gather(cluster->group, &own, cluster->cards, sizeof(own), err);
    for (size_t i = 0; rc == 0 && i < cluster->size; i++) {
        cluster->cards[i].clock_s = clocks[2 * i];
        cluster->cards[i].clock_error_s = clocks[2 * i + 1];
    }
    free(clocks);
    return rc;
}

/* Returns how many outliers the first rank has found, on all ranks. */
static int judge(struct ash_cluster_probe *cluster, struct ash_err *err)
{
    uint64_t outliers = 0;
    int rc = 0;

    if (cluster->rank == 0) {
        rc = ash_cluster_judge(cluster->cards, cluster->links.rates, cluster->size, cluster->check->slow_share,
                               cluster->report);
        outliers = cluster->report->count;
    }
    if (rc == 0) rc = ash_group_broadcast(cluster->group, &outliers, sizeof(outliers), 0, err);
    return rc < 0 ? rc : outliers > 0;
}

int ash_cluster_probe_init(struct ash_cluster_probe *probe, const struct ash_cluster_check *check,
                           struct ash_group *group, struct ash_err *err)
{
    *probe = (struct ash_cluster_probe){
        .check = check, .group = group, .rank = ash_group_rank(group), .size = ash_group_size(group)};
    if (probe->size > NODES_MAX)
        return ash_err_set(err, -EINVAL, "%zu nodes: at most %d are compared at once", probe->size, NODES_MAX);
    probe->cards = calloc(probe->size, sizeof(*probe->cards));
    probe->report = calloc(1, sizeof(*probe->report));
    if (probe->cards == NULL || probe->report == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    return ash_cluster_links_init(&probe->links, group, check->slow_share, err);
}

void ash_cluster_probe_fini(struct ash_cluster_probe *probe)
{
    free(probe->cards);
    free(probe->report);
    ash_cluster_links_fini(&probe->links);
    *probe = (struct ash_cluster_probe){0};
}

int ash_cluster_probe_run(struct ash_cluster_probe *probe, struct ash_err *err)
{
    int rc;

    check_self(probe->check, &probe->cards[probe->rank]);
    rc = ash_group_barrier(probe->group, err);
    if (rc == 0) rc = compare_clocks(probe, err);
    if (rc == 0) rc = ash_cluster_links_measure(&probe->links, probe->check->links_way, err);
    if (rc == 0) rc = gather_cards(probe, err);
    return rc < 0 ? rc : judge(probe, err);
}

double ash_cluster_probe_least_rate(const struct ash_cluster_probe *probe, size_t node)
{
    double least = 0;

    for (size_t other = 0; other < probe->size; other++) {
        double there = fabs(probe->links.rates[node * probe->size + other]),
               back = fabs(probe->links.rates[other * probe->size + node]);

        if (there > 0 && (least == 0 || there < least)) least = there;
        if (back > 0 && (least == 0 || back < least)) least = back;
    }
    return least;
}

/* ashlar check cluster: the nodes of an allocation, each by itself and against each other. Ranks meet as those of a job
 * do. Clocks are read over the shortest of some round trips; links in rounds in which every rank has one partner, so
 * that all pairs are measured in as many rounds as there are nodes; slow ones again, alone. */
#include "cmd/check_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "cmd/cmd.h"
#include "observe/check/cluster.h"

#define TRIPS 16
#define PIECE_BYTES ((size_t)256 << 10)
#define BURSTS_MIN 3 /* of which the fastest counts: a busy core is no slow link */
#define BURSTS_MAX 64
#define BURST_S 0.003 /* shorter than a turn of the scheduler: some bursts meet nobody else */
#define LINK_S 0.06   /* of bursts in one direction, where they are fast */
#define PIECES_MAX 256
#define LOST_SHARE_MAX 0.9 /* of a burst without a core: more is not believed */
#define NODES_MAX 1024
#define SUSPECTS_MAX 256
#define SUSPECT_ROUNDS 4
#define FAR_SHARE 0.5 /* of the limit: what is slower is no accident, and measured alone only once */

/* What follows a piece; its first word. */
enum after_piece { AFTER_PIECE, AFTER_BURST, AFTER_NOTHING };

struct cluster {
    const struct ash_cluster_check *check;
    struct ash_group *group;
    size_t rank, size;
    struct ash_node_card *cards; /* [size] */
    double *rates;               /* [size][size]; negative: disturbed by other work, not judged */
    double *most;                /* [size][size]: what the rates are without that work, at most */
    char *piece;
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

/* ---- links ------------------------------------------------------------------------------------------------------- */

/* How long this thread was ready and had no core, since it began: such times say nothing about a link. 0 where
 * the kernel does not tell. */
static uint64_t queued_ns(void)
{
    unsigned long long ran = 0, waited = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "re");

    if (file == NULL) return 0;
    if (fscanf(file, "%llu %llu", &ran, &waited) != 2) waited = 0;
    fclose(file);
    return waited;
}

/* The fastest burst counts. What it were with a core for both ends all the time is at most the other value. */
static void take_burst(struct cluster *cluster, size_t to, double bytes, uint64_t burst_ns, uint64_t lost_ns)
{
    size_t link = cluster->rank * cluster->size + to;
    double whole_s = (double)burst_ns * 1e-9, lost_s = (double)lost_ns * 1e-9;

    lost_s = lost_s < LOST_SHARE_MAX * whole_s ? lost_s : LOST_SHARE_MAX * whole_s;
    cluster->rates[link] = fmax(cluster->rates[link], bytes / whole_s);
    cluster->most[link] = fmax(cluster->most[link], bytes / (whole_s - lost_s));
}

/* A burst: pieces until the time is over, then an answer. is_last: no other follows. */
static int send_burst(struct cluster *cluster, size_t to, bool is_last, struct ash_err *err)
{
    uint64_t before_ns = queued_ns(), start_ns = ash_clock_ns(), after, theirs_ns = 0;
    size_t sent = 0;
    int rc;

    do {
        after = AFTER_PIECE;
        if (sent + 1 >= PIECES_MAX || (double)(ash_clock_ns() - start_ns) * 1e-9 >= BURST_S)
            after = is_last ? AFTER_NOTHING : AFTER_BURST;
        memcpy(cluster->piece, &after, sizeof(after));
        rc = ash_group_send(cluster->group, to, cluster->piece, PIECE_BYTES, err);
        sent++;
    } while (rc == 0 && after == AFTER_PIECE);
    if (rc == 0) rc = ash_group_recv(cluster->group, to, &theirs_ns, sizeof(theirs_ns), err);
    if (rc == 0)
        take_burst(cluster, to, (double)(sent * PIECE_BYTES), ash_clock_ns() - start_ns,
                   queued_ns() - before_ns + theirs_ns);
    return rc;
}

/* One direction of a link: short bursts, many where they are fast. */
static int send_bursts(struct cluster *cluster, size_t to, struct ash_err *err)
{
    uint64_t start_ns = ash_clock_ns();
    bool is_last = false;
    int rc = 0;

    for (size_t i = 1; rc == 0 && !is_last; i++) {
        is_last = i >= BURSTS_MAX || (i >= BURSTS_MIN && (double)(ash_clock_ns() - start_ns) * 1e-9 >= LINK_S);
        rc = send_burst(cluster, to, is_last, err);
    }
    return rc;
}

static int recv_bursts(struct cluster *cluster, size_t from, struct ash_err *err)
{
    uint64_t after = AFTER_PIECE, before_ns = queued_ns(), lost_ns;
    int rc = 0;

    while (rc == 0 && after != AFTER_NOTHING) {
        rc = ash_group_recv(cluster->group, from, cluster->piece, PIECE_BYTES, err);
        memcpy(&after, cluster->piece, sizeof(after));
        if (rc < 0 || after == AFTER_PIECE) continue;
        lost_ns = queued_ns() - before_ns;
        before_ns += lost_ns;
        rc = ash_group_send(cluster->group, from, &lost_ns, sizeof(lost_ns), err);
    }
    return rc;
}

/* Whom a rank meets in a round of a tournament of `seats`, an even number: all others once in seats - 1 rounds. */
static size_t partner_in(size_t rank, size_t round, size_t seats)
{
    size_t last = seats - 1;

    if (rank == last) return round * (seats / 2) % last;
    if (2 * rank % last == round % last) return last;
    return (round + last - rank) % last;
}

static int measure_links(struct cluster *cluster, struct ash_err *err)
{
    size_t seats = cluster->size + cluster->size % 2;
    int rc = 0;

    for (size_t round = 0; round + 1 < seats && rc == 0; round++) {
        size_t other = partner_in(cluster->rank, round, seats);

        rc = ash_group_barrier(cluster->group, err);
        if (other >= cluster->size || rc < 0) continue; /* it sits this round out */
        for (int turn = 0; turn < 2 && rc == 0; turn++)
            rc = (cluster->rank < other) == (turn == 0) ? send_bursts(cluster, other, err)
                                                        : recv_bursts(cluster, other, err);
    }
    return rc;
}

/* Everybody's row of a matrix at everybody. */
static int gather_rows(struct cluster *cluster, double *matrix, struct ash_err *err)
{
    size_t row_bytes = cluster->size * sizeof(double);
    double *row = malloc(row_bytes);
    int rc = row == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : 0;

    if (rc == 0) memcpy(row, matrix + cluster->rank * cluster->size, row_bytes);
    if (rc == 0) rc = ash_group_all_gather(cluster->group, row, matrix, row_bytes, err);
    free(row);
    return rc;
}

static int gather_rates(struct cluster *cluster, struct ash_err *err)
{
    int rc = gather_rows(cluster, cluster->rates, err);

    return rc < 0 ? rc : gather_rows(cluster, cluster->most, err);
}

/* The rate below which a link is slow. */
static int find_limit(const struct cluster *cluster, double *limit_out, struct ash_err *err)
{
    double usual = 0;

    if (ash_cluster_median(cluster->rates, cluster->size * cluster->size, &usual) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory");
    *limit_out = cluster->check->slow_share * usual;
    return 0;
}

/* Links that were slow while all others were busy: once more, alone. Those that are far below the limit, however much
 * other work disturbed them (least_share of the limit), stay as they are. Returns how many were measured; all ranks see
 * the same rates. */
static int measure_suspects(struct cluster *cluster, double least_share, struct ash_err *err)
{
    double limit = 0;
    int rc = find_limit(cluster, &limit, err), suspects = 0;

    for (size_t i = 0; i < cluster->size * cluster->size && suspects < SUSPECTS_MAX && rc == 0; i++) {
        size_t from = i / cluster->size, to = i % cluster->size;

        if (from == to || cluster->rates[i] >= limit || cluster->most[i] < least_share * limit) continue;
        suspects++;
        rc = ash_group_barrier(cluster->group, err);
        if (rc == 0 && cluster->rank == from) rc = send_bursts(cluster, to, err);
        if (rc == 0 && cluster->rank == to) rc = recv_bursts(cluster, from, err);
    }
    if (rc == 0) rc = gather_rates(cluster, err);
    return rc < 0 ? rc : suspects;
}

/* Links near the limit may have met a busy core each time: they get some rounds more. What is still slow, and might not
 * be without the work of others, is not judged. */
static int measure_again(struct cluster *cluster, struct ash_err *err)
{
    int rc = gather_rates(cluster, err);
    double limit = 0;

    if (rc == 0) rc = measure_suspects(cluster, 0, err);
    for (int round = 1; round < SUSPECT_ROUNDS && rc > 0; round++)
        rc = measure_suspects(cluster, FAR_SHARE, err);
    if (rc >= 0) rc = find_limit(cluster, &limit, err);
    for (size_t i = 0; i < cluster->size * cluster->size && rc == 0; i++)
        if (cluster->rates[i] < limit && cluster->most[i] >= limit) cluster->rates[i] = -cluster->rates[i];
    return rc;
}

/* Links that other work disturbed so much that they may be slow or not. */
static size_t count_unjudged(const struct cluster *cluster)
{
    size_t count = 0;

    for (size_t i = 0; i < cluster->size * cluster->size; i++)
        count += i / cluster->size != i % cluster->size && cluster->rates[i] < 0;
    return count;
}

/* ---- what comes out ---------------------------------------------------------------------------------------------- */

static double least_rate(const struct cluster *cluster, size_t node)
{
    double least = 0;

    for (size_t other = 0; other < cluster->size; other++) {
        double there = fabs(cluster->rates[node * cluster->size + other]),
               back = fabs(cluster->rates[other * cluster->size + node]);

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
    if (count_unjudged(cluster) > 0)
        printf("%zu of %zu links were not judged: other work kept the cores of their ends busy\n",
               count_unjudged(cluster), cluster->size * (cluster->size - 1));
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
        json_array_append_new(rates, json_real(fabs(cluster->rates[i])));
    return json_pack("{s:b, s:f, s:I, s:o, s:o, s:o}", "alike", report->count == 0, "rate_median", report->rate_median,
                     "links_not_judged", (json_int_t)count_unjudged(cluster), "nodes", nodes, "outliers", findings,
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
        rc = ash_cluster_judge(cluster->cards, cluster->rates, cluster->size, cluster->check->slow_share, &report);
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
    cluster->rates = calloc(cluster->size * cluster->size, sizeof(*cluster->rates));
    cluster->most = calloc(cluster->size * cluster->size, sizeof(*cluster->most));
    cluster->piece = calloc(1, PIECE_BYTES);
    if (cluster->cards == NULL || cluster->rates == NULL || cluster->most == NULL || cluster->piece == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory");
    check_self(cluster->check, &cluster->cards[cluster->rank]);
    rc = ash_group_barrier(cluster->group, err); /* deep checks end at different times */
    if (rc == 0) rc = compare_clocks(cluster, err);
    if (rc == 0) rc = measure_links(cluster, err);
    if (rc == 0) rc = measure_again(cluster, err);
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
    free(cluster.rates);
    free(cluster.most);
    free(cluster.piece);
    return rc;
}

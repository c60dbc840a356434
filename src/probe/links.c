/* Links are timed in rounds in which every rank has one partner, so that all pairs are measured in as many rounds as
 * there are nodes; or by exchanges of groups (observe/check/halves.h). Slow ones again, alone. */
#include "probe/links.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/math.h"
#include "observe/check/cluster.h"
#include "observe/check/halves.h"

#define PIECE_BYTES ((size_t)256 << 10)
#define BURSTS_MIN 3 /* of which the fastest counts: a busy core is no slow link */
#define BURSTS_MAX 64
#define BURST_S 0.003 /* shorter than a time slice: some bursts run undisturbed */
#define LINK_S 0.06   /* of bursts in one direction, if they are fast */
#define LONG_S 0.05   /* of a small burst: the link is slow, and large ones would take seconds */
#define SMALL_BYTES ((size_t)64 << 10)
#define PIECES_MAX 256
#define LOST_SHARE_MAX 0.9 /* of a burst without a core: more is not believed */
#define SUSPECTS_MAX 256
#define SUSPECT_ROUNDS 4
#define FAR_SHARE 0.5      /* of the limit: slower links are no accident, and measured alone only once */
#define PAIRS_NODES_MAX 64 /* of which all pairs are measured: some seconds */
#define EXCHANGES 4
#define EXCHANGE_BYTES_MIN ((size_t)16 << 10)

/* The first word of a piece, what comes after it: another one, a burst of large or of small pieces, or nothing. */
enum after_piece { AFTER_PIECE, AFTER_BURST, AFTER_SMALL, AFTER_NOTHING };

/* ---- a link ------------------------------------------------------------------------------------------------------ */

/* How long this thread was ready and had no core, since it began: such times are no property of a link. 0 if the kernel
 * does not report it. */
static uint64_t queued_ns(void)
{
    unsigned long long ran = 0, waited = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "re");

    if (file == NULL) return 0;
    if (fscanf(file, "%llu %llu", &ran, &waited) != 2) waited = 0;
    fclose(file);
    return waited;
}

/* The fastest burst counts. The other value is an upper bound: its rate with a core for both ends all the time. */
static void take_burst(struct ash_cluster_links *links, size_t to, double bytes, uint64_t burst_ns, uint64_t lost_ns)
{
    size_t link = links->rank * links->size + to;
    double whole_s = (double)burst_ns * 1e-9, lost_s = (double)lost_ns * 1e-9;

    lost_s = lost_s < LOST_SHARE_MAX * whole_s ? lost_s : LOST_SHARE_MAX * whole_s;
    links->rates[link] = fmax(links->rates[link], bytes / whole_s);
    links->most[link] = fmax(links->most[link], bytes / (whole_s - lost_s));
}

/* A burst: pieces until the time is over, then an answer; with small pieces, one. after: what comes next. */
static int send_burst(struct ash_cluster_links *links, size_t to, size_t bytes, enum after_piece after,
                      struct ash_err *err)
{
    uint64_t before_ns = queued_ns(), start_ns = ash_clock_ns(), mark, theirs_ns = 0;
    size_t sent = 0;
    int rc;

    do {
        bool is_last =
            bytes == SMALL_BYTES || sent + 1 >= PIECES_MAX || (double)(ash_clock_ns() - start_ns) * 1e-9 >= BURST_S;

        mark = is_last ? after : AFTER_PIECE;
        memcpy(links->piece, &mark, sizeof(mark));
        rc = ash_group_send(links->group, to, links->piece, bytes, err);
        sent++;
    } while (rc == 0 && mark == AFTER_PIECE);
    if (rc == 0) rc = ash_group_recv(links->group, to, &theirs_ns, sizeof(theirs_ns), err);
    if (rc == 0)
        take_burst(links, to, (double)(sent * bytes), ash_clock_ns() - start_ns, queued_ns() - before_ns + theirs_ns);
    return rc;
}

/* One direction of a link. Two small bursts; where those take long, that is all. Else short bursts of large pieces,
 * many where they are fast. */
static int send_bursts(struct ash_cluster_links *links, size_t to, struct ash_err *err)
{
    uint64_t start_ns = ash_clock_ns();
    int rc = send_burst(links, to, SMALL_BYTES, AFTER_SMALL, err);
    enum after_piece after = (double)(ash_clock_ns() - start_ns) * 1e-9 >= LONG_S ? AFTER_NOTHING : AFTER_BURST;

    if (rc == 0) rc = send_burst(links, to, SMALL_BYTES, after, err);
    start_ns = ash_clock_ns();
    for (size_t i = 1; rc == 0 && after != AFTER_NOTHING; i++) {
        double gone_s = (double)(ash_clock_ns() - start_ns) * 1e-9;

        if (i >= BURSTS_MAX || (i >= BURSTS_MIN && gone_s >= LINK_S)) after = AFTER_NOTHING;
        rc = send_burst(links, to, PIECE_BYTES, after, err);
    }
    return rc;
}

static int recv_bursts(struct ash_cluster_links *links, size_t from, struct ash_err *err)
{
    uint64_t after = AFTER_SMALL, before_ns = queued_ns(), lost_ns;
    size_t bytes = SMALL_BYTES;
    int rc = 0;

    while (rc == 0 && after != AFTER_NOTHING) {
        rc = ash_group_recv(links->group, from, links->piece, bytes, err);
        memcpy(&after, links->piece, sizeof(after));
        if (rc < 0 || after == AFTER_PIECE) continue;
        bytes = after == AFTER_SMALL ? SMALL_BYTES : PIECE_BYTES;
        lost_ns = queued_ns() - before_ns;
        before_ns += lost_ns;
        rc = ash_group_send(links->group, from, &lost_ns, sizeof(lost_ns), err);
    }
    return rc;
}

/* All-gather the rows of a matrix. */
static int gather_rows(struct ash_cluster_links *links, double *matrix, struct ash_err *err)
{
    size_t row_bytes = links->size * sizeof(double);
    double *row = malloc(row_bytes);
    int rc = row == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : 0;

    if (rc == 0) memcpy(row, matrix + links->rank * links->size, row_bytes);
    if (rc == 0) rc = ash_group_all_gather(links->group, row, matrix, row_bytes, err);
    free(row);
    return rc;
}

static int gather_rates(struct ash_cluster_links *links, struct ash_err *err)
{
    int rc = gather_rows(links, links->rates, err);

    return rc < 0 ? rc : gather_rows(links, links->most, err);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* Both directions of this rank's link to another, one after the other. */
static int measure_link(struct ash_cluster_links *links, size_t other, struct ash_err *err)
{
    int rc = 0;

    for (int turn = 0; turn < 2 && rc == 0; turn++)
        rc = (links->rank < other) == (turn == 0) ? send_bursts(links, other, err) : recv_bursts(links, other, err);
    return rc;
}

static int measure_pairs(struct ash_cluster_links *links, struct ash_err *err)
{
    size_t seats = links->size + links->size % 2;
    int rc = 0;

    for (size_t round = 0; round + 1 < seats && rc == 0; round++) {
        size_t other = ash_halves_partner(links->rank, round, seats);

        rc = ash_group_barrier(links->group, err);
        links->rounds++;
        if (other >= links->size || rc < 0) continue; /* it sits this round out */
        rc = measure_link(links, other, err);
    }
    return rc;
}

static int halves_pairs(void *ctx, const size_t *partner, struct ash_err *err)
{
    struct ash_cluster_links *links = ctx;
    int rc = ash_group_barrier(links->group, err);

    if (rc == 0 && partner[links->rank] != SIZE_MAX) rc = measure_link(links, partner[links->rank], err);
    return rc < 0 ? rc : gather_rates(links, err);
}

/* A rank's times of the exchanges of its group, in seconds: the duration of each, and the time without a core in it. */
struct exchange {
    double took_s[EXCHANGES], lost_s[EXCHANGES];
};

static size_t piece_bytes(size_t members)
{
    return ash_max(PIECE_BYTES / (members - 1), EXCHANGE_BYTES_MIN);
}

static int exchange_all(struct ash_group *group, struct exchange *seen_out, struct ash_err *err)
{
    size_t members = ash_group_size(group), bytes = members > 1 ? piece_bytes(members) : 0;
    char *in = calloc(members, bytes + 1), *out = malloc(members * (bytes + 1));
    size_t *sizes = malloc(members * sizeof(*sizes));
    int rc = in == NULL || out == NULL || sizes == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : 0;

    for (size_t r = 0; r < members && rc == 0; r++)
        sizes[r] = r != ash_group_rank(group) ? bytes : 0;
    for (size_t i = 0; i < EXCHANGES && members > 1 && rc == 0; i++) {
        uint64_t before_ns, start_ns;

        rc = ash_group_barrier(group, err);
        before_ns = queued_ns();
        start_ns = ash_clock_ns();
        if (rc == 0) rc = ash_group_all_to_all(group, in, sizes, out, sizes, err);
        seen_out->took_s[i] = (double)(ash_clock_ns() - start_ns) * 1e-9;
        seen_out->lost_s[i] = (double)(queued_ns() - before_ns) * 1e-9;
    }
    free(in);
    free(out);
    free(sizes);
    return rc;
}

/* The rate of a group's best exchange. It lasts as long as its slowest member; time without a core is taken out. */
static double best_rate(const struct ash_cluster_links *links, const struct exchange *seen, const size_t *group,
                        size_t wanted)
{
    double best = 0;

    for (size_t i = 0; i < EXCHANGES; i++) {
        double took_s = 0, lost_s = 0;
        size_t members = 0;

        for (size_t r = 0; r < links->size; r++) {
            if (group[r] != wanted) continue;
            members++;
            took_s = fmax(took_s, seen[r].took_s[i]);
            lost_s += seen[r].lost_s[i];
        }
        if (members < 2 || took_s <= 0) continue;
        took_s -= fmin(lost_s, LOST_SHARE_MAX * took_s);
        best = fmax(best, (double)((members - 1) * piece_bytes(members)) / took_s);
    }
    return best;
}

static int halves_groups(void *ctx, const size_t *group, size_t groups, double *rates_out, struct ash_err *err)
{
    struct ash_cluster_links *links = ctx;
    struct exchange *seen = calloc(links->size, sizeof(*seen)), own = {{0}, {0}};
    size_t mine = group[links->rank];
    struct ash_group *part = NULL;
    int rc = seen == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : 0;

    if (rc == 0) rc = ash_group_split(links->group, mine != SIZE_MAX ? (int64_t)mine : -1, 0, &part, err);
    if (rc == 0 && part != NULL) rc = exchange_all(part, &own, err);
    ash_group_close(part);
    if (rc == 0) rc = ash_group_all_gather(links->group, &own, seen, sizeof(own), err);
    for (size_t g = 0; g < groups && rc == 0; g++)
        rates_out[g] = best_rate(links, seen, group, g);
    free(seen);
    return rc;
}

static int measure_halves(struct ash_cluster_links *links, struct ash_err *err)
{
    static const struct ash_halves_ops ops = {halves_pairs, halves_groups};
    /* Rates without the work of others: such work is no reason to search. */
    struct ash_halves halves = {
        .count = links->size, .slow_share = links->slow_share, .rates = links->most, .ops = &ops, .ctx = links};
    int rc = ash_halves_run(&halves, err);

    links->rounds = halves.rounds;
    links->uneven = halves.uneven;
    return rc;
}

/* ---- slow ones again --------------------------------------------------------------------------------------------- */

/* The rate below which a link is slow. */
static int find_limit(const struct ash_cluster_links *links, double *limit_out, struct ash_err *err)
{
    double usual = 0;

    if (ash_cluster_median(links->rates, links->size * links->size, &usual) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory");
    *limit_out = links->slow_share * usual;
    return 0;
}

/* Links that were slow while all others were busy: once more, alone. Those that are far below the limit, however much
 * other work disturbed them (least_share of the limit), stay as they are. Returns how many were measured; all ranks see
 * the same rates. */
static int measure_suspects(struct ash_cluster_links *links, double least_share, struct ash_err *err)
{
    double limit = 0;
    int rc = find_limit(links, &limit, err), suspects = 0;

    for (size_t i = 0; i < links->size * links->size && suspects < SUSPECTS_MAX && rc == 0; i++) {
        size_t from = i / links->size, to = i % links->size;

        if (from == to || links->rates[i] == 0 || links->rates[i] >= limit || links->most[i] < least_share * limit)
            continue;
        suspects++;
        rc = ash_group_barrier(links->group, err);
        if (rc == 0 && links->rank == from) rc = send_bursts(links, to, err);
        if (rc == 0 && links->rank == to) rc = recv_bursts(links, from, err);
    }
    if (rc == 0) rc = gather_rates(links, err);
    return rc < 0 ? rc : suspects;
}

/* Links near the limit may have met a busy core each time: they get some rounds more. Links that are still slow, but
 * perhaps only because of the work of others, get no verdict. */
static int measure_again(struct ash_cluster_links *links, struct ash_err *err)
{
    int rc = gather_rates(links, err);
    double limit = 0;

    if (rc == 0) rc = measure_suspects(links, 0, err);
    for (int round = 1; round < SUSPECT_ROUNDS && rc > 0; round++)
        rc = measure_suspects(links, FAR_SHARE, err);
    if (rc >= 0) rc = find_limit(links, &limit, err);
    for (size_t i = 0; i < links->size * links->size && rc == 0; i++)
        if (links->rates[i] < limit && links->most[i] >= limit) links->rates[i] = -links->rates[i];
    return rc;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

int ash_cluster_links_init(struct ash_cluster_links *links, struct ash_group *group, double slow_share,
                           struct ash_err *err)
{
    size_t size = ash_group_size(group);

    *links = (struct ash_cluster_links){
        .group = group, .rank = ash_group_rank(group), .size = size, .slow_share = slow_share};
    links->rates = calloc(size * size, sizeof(*links->rates));
    links->most = calloc(size * size, sizeof(*links->most));
    links->piece = calloc(1, PIECE_BYTES);
    if (links->rates != NULL && links->most != NULL && links->piece != NULL) return 0;
    ash_cluster_links_fini(links);
    return ash_err_set(err, -ENOMEM, "out of memory");
}

void ash_cluster_links_fini(struct ash_cluster_links *links)
{
    free(links->rates);
    free(links->most);
    free(links->piece);
    *links = (struct ash_cluster_links){0};
}

int ash_cluster_links_measure(struct ash_cluster_links *links, enum ash_links_way way, struct ash_err *err)
{
    int rc;

    links->is_halves = way == ASH_LINKS_HALVES || (way == ASH_LINKS_AUTO && links->size > PAIRS_NODES_MAX);
    rc = links->is_halves ? measure_halves(links, err) : measure_pairs(links, err);
    return rc < 0 ? rc : measure_again(links, err);
}

size_t ash_cluster_links_unjudged(const struct ash_cluster_links *links)
{
    size_t count = 0;

    for (size_t i = 0; i < links->size * links->size; i++)
        count += links->rates[i] < 0;
    return count;
}

size_t ash_cluster_links_measured(const struct ash_cluster_links *links)
{
    size_t count = 0;

    for (size_t i = 0; i < links->size * links->size; i++)
        count += links->rates[i] != 0;
    return count;
}

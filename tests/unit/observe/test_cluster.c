/* Nodes compared with each other on drawn clusters: what was planted is named, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "observe/check/cluster.h"
#include "observe/check/halves.h"

#define NODES_MAX 12
#define ROUNDS 200

enum plant { NOTHING, SLOW_SENDER, SLOW_RECEIVER, SLOW_LINK, OTHER_KERNEL, WRONG_CLOCK, SLOW_DISK, UNFIT, PLANTS };

struct drawn {
    struct ash_node_card cards[NODES_MAX];
    double rates[NODES_MAX * NODES_MAX];
    size_t count, node, to;
};

static void draw(struct drawn *drawn, uint64_t seed, enum plant plant)
{
    *drawn = (struct drawn){.count = 4 + ash_rng_below(seed, 1, 0, NODES_MAX - 3)};
    drawn->node = ash_rng_below(seed, 2, 0, drawn->count);
    drawn->to = (drawn->node + 1 + ash_rng_below(seed, 3, 0, drawn->count - 1)) % drawn->count;
    for (size_t i = 0; i < drawn->count; i++) {
        struct ash_node_card *card = &drawn->cards[i];

        snprintf(card->host, sizeof(card->host), "n%zu", i);
        for (size_t fact = 0; fact < ASH_FACTS; fact++)
            snprintf(card->facts[fact], sizeof(card->facts[fact]), "usual %zu", fact);
        card->clock_s = 0.01 * (ash_rng_uniform(seed, 4, i) - 0.5);
        card->write_rate = 1e9 * (0.9 + 0.2 * ash_rng_uniform(seed, 5, i));
        card->read_rate = 2e9 * (0.9 + 0.2 * ash_rng_uniform(seed, 6, i));
        for (size_t k = 0; k < drawn->count; k++) {
            bool is_slow = (plant == SLOW_SENDER && i == drawn->node) || (plant == SLOW_RECEIVER && k == drawn->node) ||
                           (plant == SLOW_LINK && i == drawn->node && k == drawn->to);

            if (i != k)
                drawn->rates[i * drawn->count + k] =
                    (is_slow ? 3e9 : 1e10) * (0.85 + 0.3 * ash_rng_uniform(seed, 7, i * NODES_MAX + k));
        }
    }
    if (plant == OTHER_KERNEL) snprintf(drawn->cards[drawn->node].facts[ASH_FACT_KERNEL], 64, "6.1");
    if (plant == WRONG_CLOCK) drawn->cards[drawn->node].clock_s = -2;
    if (plant == SLOW_DISK) drawn->cards[drawn->node].read_rate = 5e8;
    if (plant == UNFIT) {
        drawn->cards[drawn->node].grade = ASH_GRADE_BAD;
        snprintf(drawn->cards[drawn->node].worst, sizeof(drawn->cards[0].worst), "GPUs: 7 that answer");
    }
}

static void test_planted(void **state)
{
    static const char *const words[PLANTS] = {
        "",           "sends with",   "receives with", "MB/s; the median of all", "kernel is 6.1", "2 s behind that of",
        "disk reads", "7 that answer"};
    static struct ash_cluster_report report;
    static struct drawn drawn;

    (void)state;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++)
        for (enum plant plant = NOTHING; plant < PLANTS; plant++) {
            draw(&drawn, seed, plant);
            assert_int_equal(ash_cluster_judge(drawn.cards, drawn.rates, drawn.count, 0.6, &report), 0);
            if (report.count != (plant != NOTHING))
                fail_msg("seed %d, plant %d: %zu findings, the first: %s", (int)seed, (int)plant, report.count,
                         report.findings[0].text);
            if (plant == NOTHING) continue;
            assert_int_equal(report.findings[0].node, drawn.node);
            assert_int_equal(report.findings[0].to, plant == SLOW_LINK ? drawn.to : drawn.node);
            if (strstr(report.findings[0].text, words[plant]) == NULL)
                fail_msg("seed %d: '%s' is not in '%s'", (int)seed, words[plant], report.findings[0].text);
        }
}

/* ---- halves ------------------------------------------------------------------------------------------------------ */

#define LARGE_MAX 321

/* A cluster whose every link has a rate, and nodes with a card of that rate. */
struct simulated {
    size_t count;
    double links[LARGE_MAX * LARGE_MAX]; /* all of them: what the plain way measures */
    double rates[LARGE_MAX * LARGE_MAX]; /* those that were measured */
    size_t measured;
};

static int simulate_pairs(void *ctx, const size_t *partner, struct ash_err *err)
{
    struct simulated *cluster = ctx;

    (void)err;
    for (size_t i = 0; i < cluster->count; i++) {
        if (partner[i] == SIZE_MAX) continue;
        assert_true(partner[i] < cluster->count && partner[partner[i]] == i && partner[i] != i);
        cluster->measured += cluster->rates[i * cluster->count + partner[i]] == 0;
        cluster->rates[i * cluster->count + partner[i]] = cluster->links[i * cluster->count + partner[i]];
    }
    return 0;
}

/* An exchange lasts as long as the slowest card needs for all that it sends, or the slowest link for its share. */
static int simulate_groups(void *ctx, const size_t *group, size_t groups, double *rates_out, struct ash_err *err)
{
    struct simulated *cluster = ctx;

    (void)err;
    for (size_t g = 0; g < groups; g++) {
        double slowest = INFINITY, card = INFINITY;
        size_t size = 0;

        for (size_t i = 0; i < cluster->count; i++) {
            double fastest = 0;

            size += group[i] == g;
            for (size_t k = 0; k < cluster->count; k++) {
                if (group[i] != g || group[k] != g || i == k) continue;
                slowest = fmin(slowest, cluster->links[i * cluster->count + k]);
                fastest = fmax(fastest, cluster->links[i * cluster->count + k]);
            }
            if (fastest > 0) card = fmin(card, fastest);
        }
        rates_out[g] = size > 1 ? fmin(card, (double)(size - 1) * slowest) : card;
    }
    return 0;
}

static void draw_large(struct simulated *cluster, struct drawn *ends, uint64_t seed, enum plant plant)
{
    size_t count = 2 + ash_rng_below(seed, 11, 0, seed % 10 == 0 ? LARGE_MAX - 1 : 30);

    *cluster = (struct simulated){.count = count};
    ends->node = ash_rng_below(seed, 12, 0, count);
    ends->to = (ends->node + 1 + ash_rng_below(seed, 13, 0, count - 1)) % count;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < count; k++) {
            double noise = 0.85 + 0.3 * ash_rng_uniform(seed, 14, i * LARGE_MAX + k), rate = i != k ? 1e10 : 0;

            if ((plant == SLOW_SENDER && i == ends->node) || (plant == SLOW_RECEIVER && k == ends->node)) rate /= 3;
            if (plant == SLOW_LINK && i == ends->node && k == ends->to) rate /= 4.0 * (double)count;
            cluster->links[i * count + k] = rate * noise;
        }
}

/* Rounds that a cluster of that size may take, with one thing that is slow. */
static size_t rounds_max(size_t count)
{
    size_t levels = 0;

    while ((size_t)1 << levels < count)
        levels++;
    return 4 + 3 * levels + 2;
}

/* What halves find is what all pairs say, in rounds by the logarithm of the nodes. */
static void test_halves(void **state)
{
    static const struct ash_halves_ops ops = {simulate_pairs, simulate_groups};
    static struct ash_cluster_report plain, report;
    static struct ash_node_card cards[LARGE_MAX];
    static struct simulated cluster;
    static struct drawn ends;

    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        for (enum plant plant = NOTHING; plant <= SLOW_LINK; plant++) {
            struct ash_halves halves = {.slow_share = 0.6, .rates = cluster.rates, .ops = &ops, .ctx = &cluster};
            struct ash_err err = {0};

            draw_large(&cluster, &ends, seed, plant);
            halves.count = cluster.count;
            assert_int_equal(ash_halves_run(&halves, &err), 0);
            assert_int_equal(ash_cluster_judge(cards, cluster.links, cluster.count, 0.6, &plain), 0);
            assert_int_equal(ash_cluster_judge(cards, cluster.rates, cluster.count, 0.6, &report), 0);
            if (report.count != plain.count || halves.rounds > rounds_max(cluster.count))
                fail_msg("seed %d, plant %d, %zu nodes: %zu findings of %zu, %zu rounds", (int)seed, (int)plant,
                         cluster.count, report.count, plain.count, halves.rounds);
            for (size_t i = 0; i < report.count; i++) {
                assert_int_equal(report.findings[i].node, plain.findings[i].node);
                assert_int_equal(report.findings[i].to, plain.findings[i].to);
            }
            if (cluster.count > 64) assert_true(cluster.measured < cluster.count * cluster.count / 8);
        }
}

/* Nodes on two switches with little between them: no link is to blame, and the search ends. */
static void test_halves_uneven(void **state)
{
    static const struct ash_halves_ops ops = {simulate_pairs, simulate_groups};
    static struct simulated cluster;
    struct ash_halves halves = {.count = 64, .slow_share = 0.6, .rates = cluster.rates, .ops = &ops, .ctx = &cluster};
    struct ash_err err = {0};

    (void)state;
    cluster = (struct simulated){.count = 64};
    for (size_t i = 0; i < 64 * 64; i++)
        if (i / 64 != i % 64) cluster.links[i] = (i / 64 < 32) == (i % 64 < 32) ? 1e10 : 5e7;
    assert_int_equal(ash_halves_run(&halves, &err), 0);
    assert_true(halves.rounds < 40);
    print_message("[ measured ] 64 nodes on two switches: %zu rounds, uneven groups: %zu\n", halves.rounds,
                  halves.uneven);
}

/* All links slow, no link, and more to say than there is room for. */
static void test_edges(void **state)
{
    static struct ash_cluster_report report;
    static struct ash_node_card cards[600];
    static double rates[600 * 600];

    (void)state;
    assert_int_equal(ash_cluster_judge(cards, rates, 1, 0.6, &report), 0);
    assert_int_equal(report.count, 0);
    assert_true(report.rate_median == 0);
    for (size_t i = 0; i < 600; i++)
        cards[i].clock_s = i > 0 ? 5 : 0;
    assert_int_equal(ash_cluster_judge(cards, rates, 600, 0.6, &report), 0);
    assert_int_equal(report.count, ASH_CLUSTER_FINDINGS_MAX);
    assert_int_equal(report.left_out, 599 - ASH_CLUSTER_FINDINGS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_planted), cmocka_unit_test(test_halves),
                                       cmocka_unit_test(test_halves_uneven), cmocka_unit_test(test_edges)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

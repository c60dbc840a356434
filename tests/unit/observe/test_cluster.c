/* Nodes compared with each other on drawn clusters: what was planted is named, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "observe/check/cluster.h"

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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_planted), cmocka_unit_test(test_edges)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Drawn runs with one fault each, as their logs, ledgers and ranks tell them: rank, node, layer and counter are named,
 * and nothing else. A hundred clean ones have no finding, with all normal noise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/hash.h"
#include "observe/health/rank_health.h"
#include "observe/health/run_health.h"

static uint64_t seed;

static double draw(void)
{
    seed = ash_hash_mix(seed + 0x9e3779b97f4a7c15u);
    return (double)(seed >> 11) * 0x1p-53;
}

/* About a normal distribution. */
static double noise(double share)
{
    double sum = -6;

    for (int i = 0; i < 12; i++)
        sum += draw();
    return share * sum;
}

static struct ash_diagnose *open_empty(void)
{
    struct ash_diagnose *diagnose = NULL;

    assert_int_equal(ash_diagnose_open(&diagnose, NULL), 0);
    return diagnose;
}

/* Findings with a fault. */
static size_t count_blamed(const struct ash_diagnose *diagnose)
{
    size_t count = 0;

    for (size_t i = 0; i < ash_diagnose_finding_count(diagnose); i++)
        count += ash_diagnose_finding(diagnose, i)->severity > ASH_WATCH;
    return count;
}

static void print_findings(const struct ash_diagnose *diagnose)
{
    for (size_t i = 0; i < ash_diagnose_finding_count(diagnose); i++) {
        const struct ash_finding *finding = ash_diagnose_finding(diagnose, i);

        printf("  %s %s %s %s: %s\n", ash_severity_name(finding->severity), ash_health_layer_name(finding->layer),
               finding->where, finding->metric, finding->value);
    }
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* A drawn run: what happens to it, and from which step on. */
struct run {
    size_t ranks, steps, since;
    size_t slow; /* rank; SIZE_MAX: none */
    double slower, data, comm,
        compute;   /* of a step, more: the slow rank's work and data; all ranks' comm and compute */
    size_t lost;   /* rank that is lost at half; SIZE_MAX: none */
    size_t more;   /* so many ranks have two grains, the others one; 0: not known */
    double save_s; /* of 100 s */
    uint64_t recoveries;
};

static void add_line(struct ash_run_record *record, size_t step, const double parts[3])
{
    char line[256];

    snprintf(line, sizeof(line),
             "{\"step\":%zu,\"loss\":%g,\"compute_s\":%.9g,\"comm_s\":%.9g,\"data_s\":%.9g,\"idle_s\":0,"
             "\"skipped\":%s}\n",
             step, 2 + noise(0.1), parts[0], parts[1], parts[2], draw() < 0.01 ? "true" : "false");
    assert_int_equal(ash_run_record_take(record, line, strlen(line)), 0);
}

static void share_grains(const struct run *run, size_t rank, struct ash_rank_point *point)
{
    if (run->more == 0) return;
    point->grains = rank < run->more ? 2 : 1;
    point->own_s *= point->grains;
}

/* The run as its log and its ranks tell it, judged. The caller closes it. */
static struct ash_diagnose *diagnose_run(const struct run *run)
{
    struct ash_run_record record = {
        .name = "drawn", .has_ledger = true, .wall_s = 100, .save_s = run->save_s, .recoveries = run->recoveries};
    struct ash_diagnose *diagnose = open_empty();
    struct ash_rank_list list = {0};
    struct ash_rank_point *points = calloc(run->steps, sizeof(*points));
    double *waits = calloc(run->steps, sizeof(*waits));

    assert_true(points != NULL && waits != NULL);
    for (size_t r = 0; r < run->ranks; r++) {
        struct ash_rank_record rank = {.job = "7", .run = "drawn", .rank = r, .points = points, .count = run->steps};

        if (r == run->lost) rank.count = run->steps / 2;
        snprintf(rank.node, sizeof(rank.node), "node-%zu", r / 2);
        for (size_t s = 0; s < rank.count; s++) {
            bool is_late = s + 1 >= run->since, is_slow = is_late && r == run->slow;
            double data = 0.001 + (is_slow ? 0.1 * run->data : 0);

            if (draw() < 0.01) data += 0.02; /* a page that was not there */
            points[s] = (struct ash_rank_point){s + 1,
                                                data + 0.08 * (1 + noise(0.02)) * (1 + (is_slow ? run->slower : 0)) +
                                                    (is_late ? 0.1 * run->compute : 0),
                                                data, 0, 0};
            share_grains(run, r, &points[s]);
            waits[s] = fmax(waits[s], points[s].own_s);
        }
        assert_int_equal(ash_rank_list_add(&list, &rank), 0);
    }
    for (size_t s = 0; s < run->steps; s++) {
        const struct ash_rank_point *first = &list.records[0].points[s];
        double parts[3] = {first->own_s - first->data_s,
                           0.02 * (1 + fabs(noise(0.1))) + (s + 1 >= run->since ? 0.1 * run->comm : 0) + waits[s] -
                               first->own_s,
                           first->data_s};

        add_line(&record, s + 1, parts);
        for (size_t r = 0; r < run->ranks; r++)
            if (s < list.records[r].count)
                list.records[r].points[s].comm_s = parts[1] + first->own_s - list.records[r].points[s].own_s;
    }
    assert_int_equal(ash_rank_list_judge(&list, diagnose), 0);
    ash_run_record_share(&record, &list);
    assert_int_equal(ash_run_record_judge(&record, diagnose), 0);
    assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
    ash_rank_list_fini(&list);
    ash_run_record_fini(&record);
    free(points);
    free(waits);
    return diagnose;
}

static void test_every_fault_of_a_run_is_named(void **state)
{
    static const struct {
        const char *what;
        struct run run;
        enum ash_health_layer layer;
        const char *metric, *where;
    } cases[] = {
        {"10 % slower", {.slow = 3, .slower = 0.1}, ASH_HEALTH_STEP, "own work by step", "node-1 rank 3 of drawn"},
        {"20 % slower", {.slow = 2, .slower = 0.2}, ASH_HEALTH_STEP, "own work by step", "node-1 rank 2 of drawn"},
        {"50 % slower", {.slow = 5, .slower = 0.5}, ASH_HEALTH_STEP, "own work by step", "node-2 rank 5 of drawn"},
        {"the first rank slower",
         {.slow = 0, .slower = 0.3},
         ASH_HEALTH_STEP,
         "own work by step",
         "node-0 rank 0 of drawn"},
        {"a slow loader", {.slow = 4, .data = 0.4}, ASH_HEALTH_STEP, "data wait by step", "node-2 rank 4 of drawn"},
        {"a slow network", {.slow = SIZE_MAX, .comm = 0.3}, ASH_HEALTH_NETWORK, "comm_s by step", "run drawn"},
        {"slow saves", {.slow = SIZE_MAX, .save_s = 25}, ASH_HEALTH_STORAGE, "save_s", "run drawn"},
        {"all ranks slower", {.slow = SIZE_MAX, .compute = 0.4}, ASH_HEALTH_STEP, "compute_s by step", "run drawn"},
    };

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        for (uint64_t drawn = 1; drawn <= 5; drawn++) {
            struct run run = cases[i].run;
            const struct ash_finding *first;
            struct ash_diagnose *diagnose;

            run.ranks = 6;
            run.since = 60 + drawn * 7;
            run.steps = run.since + 60;
            run.lost = SIZE_MAX;
            seed = 100 * i + drawn;
            diagnose = diagnose_run(&run);
            first = ash_diagnose_first(diagnose);
            if (first == NULL || count_blamed(diagnose) != 1 || first->layer != cases[i].layer ||
                strcmp(first->metric, cases[i].metric) != 0 || strcmp(first->where, cases[i].where) != 0) {
                print_findings(diagnose);
                fail_msg("%s, drawn %llu", cases[i].what, (unsigned long long)drawn);
            }
            ash_diagnose_close(diagnose);
        }
    }
}

/* The first rank waits longer. Where the other does too it is the network; where not, it is waited for. */
static void test_waits_for_a_rank_are_not_the_networks(void **state)
{
    (void)state;
    for (int is_network = 0; is_network < 2; is_network++) {
        struct ash_rank_point points[160];
        struct ash_rank_record rank = {.job = "7", .run = "waits", .rank = 1, .points = points, .count = 160};
        struct ash_run_record record = {.name = "waits"};
        struct ash_diagnose *diagnose = open_empty();
        struct ash_rank_list list = {0};

        seed = 5;
        for (size_t s = 0; s < 160; s++) {
            double parts[3] = {0.08 * (1 + noise(0.02)), s < 80 ? 0.01 : 0.03, 0.001};

            add_line(&record, s + 1, parts);
            points[s] = (struct ash_rank_point){s + 1, 0.081, 0.001, is_network ? parts[1] : 0.01, 1};
        }
        assert_int_equal(ash_rank_list_add(&list, &rank), 0);
        ash_run_record_share(&record, &list);
        assert_int_equal(ash_run_record_judge(&record, diagnose), 0);
        assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
        if (count_blamed(diagnose) != (size_t)is_network) print_findings(diagnose);
        assert_int_equal(count_blamed(diagnose), is_network);
        ash_diagnose_close(diagnose);
        ash_rank_list_fini(&list);
        ash_run_record_fini(&record);
    }
}

static void test_clean_runs_blame_nobody(void **state)
{
    (void)state;
    for (uint64_t drawn = 1; drawn <= 100; drawn++) {
        struct run run = {.ranks = 2 + drawn % 7,
                          .steps = 50 + 7 * drawn,
                          .since = SIZE_MAX,
                          .slow = SIZE_MAX,
                          .lost = SIZE_MAX,
                          .more = drawn % 3,
                          .save_s = (double)(drawn % 9)};
        struct ash_diagnose *diagnose;

        seed = drawn;
        if (drawn % 5 == 4) { /* elastic: a rank is lost, and the others have more to do */
            run.lost = 1;
            run.recoveries = 1;
            run.since = run.steps / 2;
            run.compute = 0.8 / (double)run.ranks;
        }
        diagnose = diagnose_run(&run);
        if (count_blamed(diagnose) > 0) {
            print_findings(diagnose);
            fail_msg("clean run %llu", (unsigned long long)drawn);
        }
        ash_diagnose_close(diagnose);
    }
}

/* A loader that fetches for eight steps at once makes one in eight wait; two waits in all are no finding. */
static void test_waits_in_bursts_are_seen(void **state)
{
    (void)state;
    for (int is_slow = 0; is_slow < 2; is_slow++) {
        struct ash_run_record record = {.name = "bursts"};
        struct ash_diagnose *diagnose = open_empty();

        for (size_t step = 1; step <= 64; step++) {
            bool waits = is_slow ? step % 8 == 0 : step == 40 || step == 56;
            double parts[3] = {0.01, 0, waits ? 6 : 0.0001};

            add_line(&record, step, parts);
        }
        assert_int_equal(ash_run_record_judge(&record, diagnose), 0);
        assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
        assert_int_equal(count_blamed(diagnose), is_slow);
        if (is_slow) assert_string_equal(ash_diagnose_first(diagnose)->metric, ASH_METRIC_DATA_STEP);
        ash_run_record_fini(&record);
        ash_diagnose_close(diagnose);
    }
}

/* Text that is no log, cut lines, steps that come again, a loss that is none. */
static void test_logs_that_are_odd(void **state)
{
    static const char text[] = "<html>\n{\"step\":1,\"loss\":1,\"compute_s\":1}\n{\"step\":2,\"loss\":nul\n"
                               "{\"step\":-4}\n{\"step\":1e99}\n{\"step\":1,\"loss\":3,\"comm_s\":-7}\n\0\n{\"ste";
    struct ash_run_record record = {.name = "odd"};
    struct ash_diagnose *diagnose = open_empty();
    const struct ash_finding *first;

    (void)state;
    for (size_t i = 0; i < sizeof(text) - 1; i++) /* byte by byte: lines may come in pieces */
        assert_int_equal(ash_run_record_take(&record, text + i, 1), 0);
    assert_int_equal(record.count, 1);
    assert_true(record.steps[0].comm_s == 0);
    for (size_t step = 2; step < 60; step++) {
        char line[64];

        snprintf(line, sizeof(line), "{\"step\":%zu,\"loss\":null,\"compute_s\":1}\n", step);
        assert_int_equal(ash_run_record_take(&record, line, strlen(line)), 0);
    }
    assert_int_equal(record.count, 59);
    assert_int_equal(ash_run_record_judge(&record, diagnose), 0);
    assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
    first = ash_diagnose_first(diagnose);
    assert_non_null(first);
    assert_string_equal(first->metric, "loss");
    assert_int_equal(first->severity, ASH_BROKEN);
    ash_run_record_fini(&record);
    ash_diagnose_close(diagnose);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_fault_of_a_run_is_named),
        cmocka_unit_test(test_waits_for_a_rank_are_not_the_networks),
        cmocka_unit_test(test_clean_runs_blame_nobody),
        cmocka_unit_test(test_waits_in_bursts_are_seen),
        cmocka_unit_test(test_logs_that_are_odd),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

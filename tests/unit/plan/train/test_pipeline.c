/* Pipeline schedules: bubbles of the published formulas, order and exclusivity of what every rank does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdlib.h>
#include <cmocka.h>

#include "plan/train/pipeline.h"

#define F 1.0
#define B 2.0
#define W 1.0 /* of B */

/* Even stages, whose backward passes are half gradients of weights. */
static double play_as(enum ash_plan_schedule schedule, int stages, int chunks, int micro_batches, double saved_s,
                      double p2p_s, struct ash_plan_pipeline_event *events)
{
    double forward[64], backward[64];
    struct ash_plan_pipeline pipeline = {.schedule = schedule,
                                         .stages = stages,
                                         .chunks = chunks,
                                         .micro_batches = micro_batches,
                                         .forward_s = forward,
                                         .backward_s = backward,
                                         .weight_s = forward,
                                         .saved_s = saved_s,
                                         .p2p_s = p2p_s};

    for (int i = 0; i < stages * chunks; i++) {
        forward[i] = F / chunks;
        backward[i] = B / chunks;
    }
    return ash_plan_pipeline_run(&pipeline, events);
}

static double play(int stages, int chunks, int micro_batches, double p2p_s, struct ash_plan_pipeline_event *events)
{
    return play_as(ASH_PLAN_1F1B, stages, chunks, micro_batches, 0, p2p_s, events);
}

/* Narayanan et al. 2021 (arXiv 2104.04473): 1F1B idles (p - 1)(f + b), interleaving divides that by the chunks. */
static void bubbles_are_the_published_ones(void **state)
{
    (void)state;
    assert_float_equal(play(1, 1, 7, 0, NULL), 7 * (F + B), 1e-9);
    for (int stages = 2; stages <= 8; stages *= 2)
        for (int micro = stages; micro <= 4 * stages; micro += stages) {
            assert_float_equal(play(stages, 1, micro, 0, NULL), (micro + stages - 1) * (F + B), 1e-9);
            assert_float_equal(play(stages, 2, micro, 0, NULL), micro * (F + B) + (stages - 1) * (F + B) / 2, 1e-9);
            assert_float_equal(play(stages, 4, micro, 0, NULL), micro * (F + B) + (stages - 1) * (F + B) / 4, 1e-9);
        }
}

/* Qi et al. 2023 (arXiv 2401.10241): ZB-H1 idles (p - 1)(f + b - w), b without w. DeepSeek-V3 (arXiv 2412.19437, table
 * 2): DualPipe idles (p / 2 - 1)(f&b + b - 3w), b with w, f&b a pass of both directions side by side. */
static void zero_bubble_and_dual_bubbles_are_the_published_ones(void **state)
{
    (void)state;
    for (int stages = 2; stages <= 16; stages *= 2)
        for (int micro = 2 * stages; micro <= 6 * stages; micro += stages) {
            double zb = play_as(ASH_PLAN_ZB_H1, stages, 1, micro, 0, 0, NULL);
            double dual = play_as(ASH_PLAN_DUALPIPE, stages, 1, micro, 0, 0, NULL);

            assert_float_equal(zb, micro * (F + B) + (stages - 1) * (F + (B - W) - W), 1e-9);
            assert_float_equal(dual, micro * (F + B) + (stages / 2.0 - 1) * (F + B + B - 3 * W), 1e-9);
        }
}

static void fewer_micro_batches_than_stages_work(void **state)
{
    (void)state;
    assert_float_equal(play(4, 1, 1, 0, NULL), 4 * (F + B), 1e-9);
    assert_float_equal(play(4, 1, 2, 0, NULL), 5 * (F + B), 1e-9);
    assert_true(play(4, 2, 3, 0, NULL) >= 3 * (F + B));
    assert_true(play(8, 3, 5, 0, NULL) >= 5 * (F + B));
}

static void transfers_cost_at_the_ends(void **state)
{
    (void)state;
    assert_float_equal(play(4, 1, 1, 0.5, NULL), 4 * (F + B) + 2 * 3 * 0.5, 1e-9);
    assert_true(play(4, 1, 16, 0.5, NULL) > play(4, 1, 16, 0, NULL));
}

/* No rank does two things at once, and everything is done exactly once. */
static void every_rank_does_one_thing_at_a_time(void **state)
{
    enum { STAGES = 4, CHUNKS = 3, MICRO = 8, EACH = 2 * CHUNKS * MICRO };
    struct ash_plan_pipeline_event *events = calloc(STAGES * EACH, sizeof(*events));
    int done[2][STAGES][CHUNKS][MICRO] = {0};

    (void)state;
    assert_non_null(events);
    play(STAGES, CHUNKS, MICRO, 0.1, events);
    for (int stage = 0; stage < STAGES; stage++)
        for (int i = 0; i < EACH; i++) {
            const struct ash_plan_pipeline_event *e = &events[stage * EACH + i];
            assert_int_equal(e->stage, stage);
            done[e->kind][stage][e->chunk][e->micro_batch]++;
            assert_true(e->end_s > e->start_s);
            if (i > 0) assert_true(e->start_s >= events[stage * EACH + i - 1].end_s - 1e-12);
        }
    for (int b = 0; b < 2; b++)
        for (int s = 0; s < STAGES; s++)
            for (int c = 0; c < CHUNKS; c++)
                for (int m = 0; m < MICRO; m++)
                    assert_int_equal(done[b][s][c][m], 1);
    free(events);
}

/* The same for schedules whose backward passes may be split: inputs and weights once each, or both at once. */
static void split_passes_are_whole_in_the_end(void **state)
{
    enum { STAGES = 6, MICRO = 20, EACH = 3 * MICRO };

    (void)state;
    for (int schedule = ASH_PLAN_ZB_H1; schedule < ASH_PLAN_SCHEDULES; schedule++) {
        struct ash_plan_pipeline_event *events = calloc(STAGES * EACH, sizeof(*events));
        double work[STAGES] = {0}, busy[STAGES] = {0}, free_s[STAGES] = {0};
        int forwards[STAGES] = {0};

        assert_non_null(events);
        assert_true(play_as((enum ash_plan_schedule)schedule, STAGES, 1, MICRO, 0, 0.1, events) > MICRO * (F + B));
        for (int i = 0; i < STAGES * EACH; i++) {
            const struct ash_plan_pipeline_event *e = &events[i];
            double each = e->kind == ASH_PLAN_TASK_BACKWARD ? B : F;

            if (e->end_s <= 0) continue;
            forwards[e->stage] += e->kind == ASH_PLAN_TASK_FORWARD;
            work[e->stage] += each;
            busy[e->stage] += e->paired ? (e->end_s - e->start_s) / 2 : e->end_s - e->start_s;
            if (!e->paired) assert_true(e->start_s >= free_s[e->stage] - 1e-12);
            free_s[e->stage] = e->end_s;
        }
        for (int s = 0; s < STAGES; s++) {
            assert_int_equal(forwards[s], MICRO);
            assert_float_equal(work[s], MICRO * (F + B), 1e-9);
            assert_float_equal(busy[s], work[s], 1e-9);
        }
        free(events);
    }
}

/* A long pipeline is not simulated to its end: the answer must be that of simulating it all, for uneven stages too. */
static void long_pipelines_are_continued(void **state)
{
    static const struct {
        enum ash_plan_schedule schedule;
        int stages, chunks, micro_batches;
    } cases[] = {{ASH_PLAN_1F1B, 4, 1, 4001},    {ASH_PLAN_1F1B, 8, 1, 2048},  {ASH_PLAN_1F1B, 16, 1, 1000},
                 {ASH_PLAN_1F1B, 8, 4, 512},     {ASH_PLAN_1F1B, 6, 3, 1203},  {ASH_PLAN_1F1B, 16, 2, 640},
                 {ASH_PLAN_ZB_H1, 8, 1, 1501},   {ASH_PLAN_ZB_H1, 16, 1, 800}, {ASH_PLAN_DUALPIPE, 8, 1, 1500},
                 {ASH_PLAN_DUALPIPE, 16, 1, 806}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int count = cases[i].stages * cases[i].chunks;
        double forward[64], backward[64], simulated, continued;
        struct ash_plan_pipeline pipeline = {.schedule = cases[i].schedule,
                                             .stages = cases[i].stages,
                                             .chunks = cases[i].chunks,
                                             .micro_batches = cases[i].micro_batches,
                                             .forward_s = forward,
                                             .backward_s = backward,
                                             .weight_s = forward,
                                             .saved_s = 0.4,
                                             .p2p_s = 0.03};
        struct ash_plan_pipeline_event *events =
            calloc((size_t)cases[i].stages * ash_plan_pipeline_events(&pipeline), sizeof(*events));

        assert_non_null(events);
        for (int v = 0; v < count; v++) {
            forward[v] = F * (1 + 0.1 * (v % 3)) + (v == count - 1 ? 0.7 : 0);
            backward[v] = 2 * forward[v];
        }
        simulated = ash_plan_pipeline_run(&pipeline, events);
        continued = ash_plan_pipeline_run(&pipeline, NULL);
        if (continued > simulated * 1.001 || continued < simulated * 0.999)
            fail_msg("%d stages, %d chunks: %.6g, not %.6g", cases[i].stages, cases[i].chunks, continued, simulated);
        free(events);
    }
    assert_true(play(8, 1, 2000000000, 0, NULL) > 1.99e9 * (F + B));
}

/* What a search prunes by is never more than what is simulated, whatever the stages take. */
static void least_is_never_more(void **state)
{
    unsigned seed = 7;

    (void)state;
    for (int round = 0; round < 300; round++) {
        double times[3][64];
        int schedule = round % 3, chunks = schedule == ASH_PLAN_1F1B ? 1 + round % 4 : 1;
        struct ash_plan_pipeline p = {.schedule = (enum ash_plan_schedule)schedule,
                                      .stages = 2 * (1 + round % 6),
                                      .chunks = chunks,
                                      .forward_s = times[0],
                                      .backward_s = times[1],
                                      .weight_s = times[2]};

        p.micro_batches = p.stages * (2 + round % 5);
        p.p2p_s = (round % 7) * 0.05;
        p.saved_s = (round % 3) * 0.2;
        for (int v = 0; v < p.stages * chunks; v++) {
            seed = seed * 1103515245 + 12345;
            times[0][v] = 0.5 + (seed >> 16) % 100 / 100.0;
            times[1][v] = 2 * times[0][v];
            times[2][v] = times[0][v] * 0.8;
        }
        assert_true(ash_plan_pipeline_least(&p) <= ash_plan_pipeline_run(&p, NULL) * (1 + 1e-9));
    }
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    assert_true(play(0, 1, 1, 0, NULL) == -EINVAL);
    assert_true(play(1, 0, 1, 0, NULL) == -EINVAL);
    assert_true(play(1, 1, 0, 0, NULL) == -EINVAL);
    assert_true(play_as(ASH_PLAN_ZB_H1, 4, 2, 8, 0, 0, NULL) == -EINVAL);
    assert_true(play_as(ASH_PLAN_DUALPIPE, 4, 1, 6, 0, 0, NULL) == -EINVAL);
    assert_true(play_as(ASH_PLAN_DUALPIPE, 5, 1, 20, 0, 0, NULL) == -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bubbles_are_the_published_ones),
        cmocka_unit_test(zero_bubble_and_dual_bubbles_are_the_published_ones),
        cmocka_unit_test(fewer_micro_batches_than_stages_work),
        cmocka_unit_test(transfers_cost_at_the_ends),
        cmocka_unit_test(every_rank_does_one_thing_at_a_time),
        cmocka_unit_test(long_pipelines_are_continued),
        cmocka_unit_test(split_passes_are_whole_in_the_end),
        cmocka_unit_test(least_is_never_more),
        cmocka_unit_test(nonsense_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

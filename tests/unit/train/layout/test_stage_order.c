/* The order of a pipeline: every micro-batch once forward and once backward through every chunk, ascending, never more
 * under way than said, and never waiting for one another: all ranks together come to the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "train/layout/stage_order.h"

#define RANKS_MAX 5
#define CHUNKS_MAX 3
#define MICROS_MAX 20

/* done[backward][stage][micro] */
static bool done[2][RANKS_MAX * CHUNKS_MAX][MICROS_MAX];

/* Has the stage before (in the backward pass: after) sent it? */
static bool is_ready(const struct ash_stage_order *p, const struct ash_stage_op *op)
{
    size_t stage = op->chunk * p->ranks + p->rank, last = p->ranks * p->chunks - 1;

    if (!op->backward) return stage == 0 || done[0][stage - 1][op->micro];
    return stage == last ? done[0][stage][op->micro] : done[1][stage + 1][op->micro];
}

/* Run the operations of all ranks as far as each can go, until nothing moves. Returns how many were run. */
static size_t play(const struct ash_stage_order *ranks)
{
    size_t at[RANKS_MAX] = {0}, total = 0;
    bool moved = true;

    memset(done, 0, sizeof(done));
    while (moved) {
        moved = false;
        for (size_t r = 0; r < ranks[0].ranks; r++) {
            while (at[r] < ash_stage_order_count(&ranks[r])) {
                struct ash_stage_op op = ash_stage_order_at(&ranks[r], at[r]);
                if (!is_ready(&ranks[r], &op)) break;
                assert_false(done[op.backward][op.chunk * ranks[r].ranks + r][op.micro]);
                done[op.backward][op.chunk * ranks[r].ranks + r][op.micro] = true;
                at[r]++;
                total++;
                moved = true;
            }
        }
    }
    return total;
}

static void check_rank(const struct ash_stage_order *p)
{
    size_t next[2][CHUNKS_MAX] = {{0}};

    for (size_t i = 0; i < ash_stage_order_count(p); i++) {
        struct ash_stage_op op = ash_stage_order_at(p, i);
        assert_true(op.chunk < p->chunks && op.micro < p->micros);
        assert_int_equal(op.micro, next[op.backward][op.chunk]++);
        assert_true(next[0][op.chunk] - next[1][op.chunk] <= ash_stage_order_depth(p, op.chunk));
    }
}

static void test_all_shapes_come_to_the_end(void **state)
{
    (void)state;
    for (size_t ranks = 1; ranks <= RANKS_MAX; ranks++)
        for (size_t chunks = 1; chunks <= (ranks > 1 ? CHUNKS_MAX : 1); chunks++)
            for (size_t micros = 1; micros <= MICROS_MAX; micros++) {
                struct ash_stage_order all[RANKS_MAX];
                for (size_t r = 0; r < ranks; r++)
                    all[r] = (struct ash_stage_order){r, ranks, chunks, micros};
                if (ash_stage_order_check(&all[0], NULL) < 0) {
                    assert_true(chunks > 1 && micros % ranks != 0);
                    continue;
                }
                for (size_t r = 0; r < ranks; r++)
                    check_rank(&all[r]);
                assert_int_equal(play(all), ranks * ash_stage_order_count(&all[0]));
            }
}

/* 1F1B's point: a stage holds as many micro-batches as there are stages from it to the end, however many there are. */
static void test_depth_is_bounded(void **state)
{
    (void)state;
    for (size_t r = 0; r < 4; r++) {
        struct ash_stage_order p = {r, 4, 1, 16};
        assert_int_equal(ash_stage_order_depth(&p, 0), 4 - r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_shapes_come_to_the_end),
        cmocka_unit_test(test_depth_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* One step boundary, event by event: which action follows from which. Whole histories are in test_histories.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "train/elastic/elastic.h"

static const struct ash_elastic_opts opts = {.steps = 3, .save_every = 2, .valid_every = -1, .min_ranks = 2};

static void done(struct ash_elastic *machine, struct ash_elastic_event event)
{
    event.kind = ASH_ELASTIC_DONE;
    ash_elastic_take(machine, &event);
}

static void expect(const struct ash_elastic *machine, enum ash_elastic_state state, enum ash_elastic_do todo)
{
    assert_string_equal(ash_elastic_state_name(machine->state), ash_elastic_state_name(state));
    assert_string_equal(ash_elastic_do_name(machine->todo), ash_elastic_do_name(todo));
}

/* Through actions that need nothing, up to this one. */
static void advance(struct ash_elastic *machine, enum ash_elastic_do todo)
{
    for (int i = 0; machine->todo != todo && i < 20; i++)
        done(machine, (struct ash_elastic_event){.step = machine->at + (machine->todo == ASH_ELASTIC_STEP)});
    assert_int_equal(machine->todo, todo);
}

static struct ash_elastic mesh_rank(size_t rank, size_t ranks, size_t mesh_ranks)
{
    struct ash_elastic machine;

    ash_elastic_start(&machine, &opts, 0, rank, ranks, mesh_ranks);
    return machine;
}

static struct ash_elastic_event next_mesh(uint64_t step, size_t rank, size_t ranks)
{
    return (struct ash_elastic_event){.step = step, .rank = rank, .ranks = ranks, .mesh_ranks = ranks};
}

static void test_to_the_end(void **state)
{
    struct ash_elastic machine = mesh_rank(0, 2, 2);

    (void)state;
    for (uint64_t step = 1; step <= 3; step++) {
        expect(&machine, ASH_ELASTIC_RUNNING, ASH_ELASTIC_STEP);
        done(&machine, (struct ash_elastic_event){.step = step});
        assert_true(machine.is_open);
        advance(&machine, ASH_ELASTIC_FOLLOW);
        assert_true(machine.due.save == (step >= 2) && machine.due.last == (step == 3) && !machine.due.valid);
        done(&machine, (struct ash_elastic_event){0});
        assert_false(machine.is_open);
        if (step < 3) advance(&machine, ASH_ELASTIC_STEP);
    }
    expect(&machine, ASH_ELASTIC_DRAINING, ASH_ELASTIC_SAVE_LAST);
    advance(&machine, ASH_ELASTIC_END);
    assert_int_equal(machine.end, ASH_ELASTIC_END_FINISHED);
}

/* An overdue save is written, and shows in nothing else. */
static void test_overdue_save(void **state)
{
    struct ash_elastic machine = mesh_rank(0, 2, 2);

    (void)state;
    advance(&machine, ASH_ELASTIC_WATCH);
    ash_elastic_take(&machine, &(struct ash_elastic_event){.kind = ASH_ELASTIC_SAVE_DUE});
    advance(&machine, ASH_ELASTIC_FOLLOW);
    assert_true(machine.due.save && !machine.due.hash && !machine.due.check);
}

/* Some ranks are told to stop: they leave once it is clear that not all will be. All are told: the run ends. */
static void test_told(void **state)
{
    struct ash_elastic machine = mesh_rank(0, 4, 4);

    (void)state;
    advance(&machine, ASH_ELASTIC_MEET);
    done(&machine, (struct ash_elastic_event){.votes = {.told = 1}, .now_ns = 1000});
    assert_int_equal(machine.change, ASH_ELASTIC_CHANGE_NONE);
    assert_int_equal(ash_elastic_vote(&machine, 2000).settled, 0);
    assert_int_equal(ash_elastic_vote(&machine, 1000 + ASH_ELASTIC_TOGETHER_NS).settled, 1);
    advance(&machine, ASH_ELASTIC_STEP);
    advance(&machine, ASH_ELASTIC_MEET);
    ash_elastic_take(&machine, &(struct ash_elastic_event){.kind = ASH_ELASTIC_STOP});
    assert_int_equal(ash_elastic_vote(&machine, 0).told, 1);
    done(&machine, (struct ash_elastic_event){.votes = {.told = 1, .settled = 1}});
    assert_int_equal(machine.change, ASH_ELASTIC_CHANGE_HAND_OVER);
    advance(&machine, ASH_ELASTIC_HAND_OVER);
    expect(&machine, ASH_ELASTIC_LEAVING, ASH_ELASTIC_HAND_OVER);
    done(&machine, (struct ash_elastic_event){0});
    expect(&machine, ASH_ELASTIC_LEAVING, ASH_ELASTIC_REFORM);
    done(&machine, (struct ash_elastic_event){0});
    assert_int_equal(machine.end, ASH_ELASTIC_END_LEFT);

    machine = mesh_rank(1, 2, 2);
    advance(&machine, ASH_ELASTIC_MEET);
    done(&machine, (struct ash_elastic_event){.votes = {.told = 2}});
    advance(&machine, ASH_ELASTIC_SAVE_LAST);
    assert_true(machine.is_stopped);
}

/* A rank that hands over stays if another one is lost meanwhile. */
static void test_loss_while_leaving(void **state)
{
    struct ash_elastic machine = mesh_rank(3, 4, 4);

    (void)state;
    advance(&machine, ASH_ELASTIC_MEET);
    done(&machine, (struct ash_elastic_event){.votes = {.keep = 3, .wanted = 3}});
    assert_true(machine.leaves && machine.wanted_ranks == 3);
    advance(&machine, ASH_ELASTIC_HAND_OVER);
    ash_elastic_take(&machine, &(struct ash_elastic_event){.kind = ASH_ELASTIC_LOSS});
    expect(&machine, ASH_ELASTIC_REFORMING, ASH_ELASTIC_REFORM);
    assert_false(machine.leaves);
}

/* A step that was finished on the way is followed up; one that a checkpoint lacks is not. */
static void test_open_step(void **state)
{
    struct ash_elastic machine = mesh_rank(1, 3, 3);
    struct ash_elastic_event moved = next_mesh(1, 0, 2);

    (void)state;
    ash_elastic_take(&machine, &(struct ash_elastic_event){.kind = ASH_ELASTIC_LOSS});
    done(&machine, (struct ash_elastic_event){.rank = 0, .ranks = 2});
    expect(&machine, ASH_ELASTIC_TRANSFERRING, ASH_ELASTIC_TRANSFER);
    moved.finished = 1;
    done(&machine, moved);
    expect(&machine, ASH_ELASTIC_TRANSFERRING, ASH_ELASTIC_TAKE_OVER);
    done(&machine, (struct ash_elastic_event){0});
    assert_true(machine.is_first && ash_elastic_claim(&machine, 0, false).is_open);
    done(&machine, (struct ash_elastic_event){.claims = ash_elastic_claim(&machine, 0, false)});
    done(&machine, (struct ash_elastic_event){0});
    expect(&machine, ASH_ELASTIC_RUNNING, ASH_ELASTIC_MEET);

    ash_elastic_take(&machine, &(struct ash_elastic_event){.kind = ASH_ELASTIC_DAMAGE, .is_refused = true});
    expect(&machine, ASH_ELASTIC_TRANSFERRING, ASH_ELASTIC_RELOAD);
    assert_true(machine.is_refused);
    done(&machine, next_mesh(0, 0, 2));
    assert_true(machine.lost == 1 && !machine.is_open);
    done(&machine, (struct ash_elastic_event){.claims = {.knows = 2, .goes_on = 1}});
    done(&machine, (struct ash_elastic_event){0});
    expect(&machine, ASH_ELASTIC_RUNNING, ASH_ELASTIC_STEP);
}

static void test_ends(void **state)
{
    struct ash_elastic machine = mesh_rank(0, 3, 3);

    (void)state;
    ash_elastic_take(&machine, &(struct ash_elastic_event){.kind = ASH_ELASTIC_LOSS});
    done(&machine, (struct ash_elastic_event){.rank = 0, .ranks = 1}); /* too few, but they have the state: save it */
    expect(&machine, ASH_ELASTIC_TRANSFERRING, ASH_ELASTIC_TRANSFER);
    done(&machine, next_mesh(1, 0, 1));
    done(&machine, (struct ash_elastic_event){.claims = {.knows = 1, .goes_on = 1}});
    done(&machine, (struct ash_elastic_event){0});
    expect(&machine, ASH_ELASTIC_DRAINING, ASH_ELASTIC_SAVE_LAST);
    done(&machine, (struct ash_elastic_event){0});
    done(&machine, (struct ash_elastic_event){0});
    assert_int_equal(machine.end, ASH_ELASTIC_END_TOO_FEW);

    machine = mesh_rank(0, 3, 3);
    ash_elastic_take(&machine, &(struct ash_elastic_event){.kind = ASH_ELASTIC_LOSS});
    done(&machine, (struct ash_elastic_event){.rank = 0, .ranks = 1});
    ash_elastic_take(&machine, &(struct ash_elastic_event){.kind = ASH_ELASTIC_MISSING});
    assert_int_equal(machine.end, ASH_ELASTIC_END_TOO_FEW);

    machine = mesh_rank(0, 3, 3); /* enough again before they have ended: the run continues */
    ash_elastic_take(&machine, &(struct ash_elastic_event){.kind = ASH_ELASTIC_LOSS});
    done(&machine, (struct ash_elastic_event){.rank = 0, .ranks = 1});
    ash_elastic_take(&machine, &(struct ash_elastic_event){.kind = ASH_ELASTIC_LOSS});
    done(&machine, (struct ash_elastic_event){.rank = 0, .ranks = 2});
    done(&machine, next_mesh(1, 0, 2));
    done(&machine, (struct ash_elastic_event){.claims = {.knows = 2, .goes_on = 1}});
    done(&machine, (struct ash_elastic_event){0});
    expect(&machine, ASH_ELASTIC_RUNNING, ASH_ELASTIC_STEP);

    machine = mesh_rank(0, 3, 3);
    for (int i = 0; i < ASH_ELASTIC_CORRUPTIONS_MAX; i++) {
        ash_elastic_take(&machine, &(struct ash_elastic_event){.kind = ASH_ELASTIC_CORRUPTION});
        assert_int_equal(machine.todo, ASH_ELASTIC_ABORT);
        done(&machine, (struct ash_elastic_event){0});
    }
    ash_elastic_take(&machine, &(struct ash_elastic_event){.kind = ASH_ELASTIC_CORRUPTION});
    assert_int_equal(machine.end, ASH_ELASTIC_END_CORRUPT);

    machine = mesh_rank(0, 3, 3);
    for (int i = 0; i < ASH_ELASTIC_TRIES_MAX; i++)
        ash_elastic_take(&machine, &(struct ash_elastic_event){.kind = ASH_ELASTIC_LOSS});
    expect(&machine, ASH_ELASTIC_REFORMING, ASH_ELASTIC_REFORM);
    ash_elastic_take(&machine, &(struct ash_elastic_event){.kind = ASH_ELASTIC_LOSS});
    assert_int_equal(machine.end, ASH_ELASTIC_END_TRIES);
}

/* A resize to fewer ranks than may remain would end the run: it is not heard. */
static void test_resize(void **state)
{
    struct ash_elastic first = mesh_rank(0, 3, 3);

    (void)state;
    for (int64_t ranks = 0; ranks < 4; ranks++) {
        ash_elastic_take(&first, &(struct ash_elastic_event){.kind = ASH_ELASTIC_RESIZE, .count = ranks});
        assert_int_equal(ash_elastic_vote(&first, 0).wanted, ranks >= opts.min_ranks ? ranks : 0);
    }
}

/* Damage is found by ranks of the mesh; spares are told before all load a checkpoint. */
static void test_spare(void **state)
{
    struct ash_elastic first = mesh_rank(0, 3, 2), spare = mesh_rank(2, 3, 2);

    (void)state;
    ash_elastic_take(&first, &(struct ash_elastic_event){.kind = ASH_ELASTIC_DAMAGE});
    expect(&first, ASH_ELASTIC_TRANSFERRING, ASH_ELASTIC_NOTIFY);
    assert_int_equal(first.word, ASH_ELASTIC_WORD_RELOAD);
    expect(&spare, ASH_ELASTIC_SPARE, ASH_ELASTIC_LISTEN);
    done(&spare, (struct ash_elastic_event){.word = ASH_ELASTIC_WORD_STEP});
    expect(&spare, ASH_ELASTIC_SPARE, ASH_ELASTIC_LISTEN);
    done(&spare, (struct ash_elastic_event){.word = ASH_ELASTIC_WORD_FEED});
    expect(&spare, ASH_ELASTIC_SPARE, ASH_ELASTIC_FEED);
    done(&spare, (struct ash_elastic_event){0});
    done(&spare, (struct ash_elastic_event){.word = first.word});
    expect(&spare, ASH_ELASTIC_TRANSFERRING, ASH_ELASTIC_RELOAD);
    done(&spare, (struct ash_elastic_event){.rank = 2, .ranks = 3, .mesh_ranks = 2, .is_spare = true});
    done(&spare, (struct ash_elastic_event){.word = ASH_ELASTIC_WORD_CHANGE, .kept = 2});
    expect(&spare, ASH_ELASTIC_LEAVING, ASH_ELASTIC_REFORM);
    ash_elastic_take(&spare, &(struct ash_elastic_event){.kind = ASH_ELASTIC_FAILURE});
    assert_int_equal(spare.end, ASH_ELASTIC_END_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_to_the_end),
        cmocka_unit_test(test_overdue_save),
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_loss_while_leaving),
        cmocka_unit_test(test_open_step),
        cmocka_unit_test(test_spare),
        cmocka_unit_test(test_resize),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

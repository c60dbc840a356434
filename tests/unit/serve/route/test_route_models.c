/* Which of several models are in memory: drawn requests, loads, failures and crashes, held to the rules that the
 * contract gives. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/rng.h"
#include "serve/route/models.h"

#define SEED 41
#define MODELS 6
#define CASES 60
#define STEPS 2000

static uint64_t drawn;

static uint64_t below(uint64_t limit)
{
    return ash_rng_below(SEED, 2, drawn++, limit);
}

static struct ash_route_models *open_models(const struct ash_route_models_opts *opts)
{
    struct ash_route_models *models = NULL;
    struct ash_err err = {0};
    char name[16];

    assert_int_equal(ash_route_models_open(opts, &models), 0);
    for (size_t i = 0; i < MODELS; i++) {
        snprintf(name, sizeof(name), "m%zu", i);
        assert_int_equal(ash_route_models_add(models, name, "path", 10 * (i + 1), 0, &err), 0);
    }
    return models;
}

static void load(struct ash_route_models *models, size_t wanted)
{
    size_t model = MODELS;

    assert_true(ash_route_models_use(models, wanted, ASH_ROUTE_MODEL_UNUSED, ASH_ROUTE_MODEL_WAITS));
    assert_int_equal(ash_route_models_next(models, 1, &model), ASH_ROUTE_MODEL_START);
    assert_int_equal(model, wanted);
    ash_route_models_note_loaded(models, wanted);
    assert_true(ash_route_models_use(models, wanted, ASH_ROUTE_MODEL_WAITS, ASH_ROUTE_MODEL_RUNS));
}

static void test_names(void **state)
{
    struct ash_route_models_opts opts = {.idle_seconds = -1};
    struct ash_route_models *models = open_models(&opts);
    char longer[ASH_ROUTE_MODEL_NAME_BYTES + 1];
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_route_models_find(models, "m3"), 3);
    assert_int_equal(ash_route_models_find(models, "m3:latest"), 3);
    assert_true(ash_route_models_find(models, "m3:other") == ASH_ROUTE_NO_MODEL);
    assert_true(ash_route_models_find(models, ":latest") == ASH_ROUTE_NO_MODEL);
    assert_true(ash_route_models_find(models, "") == ASH_ROUTE_NO_MODEL);
    assert_int_equal(ash_route_models_add(models, "m3", "elsewhere", 0, 0, &err), -EEXIST);
    assert_int_equal(ash_route_models_add(models, "", "path", 0, 0, &err), -EINVAL);
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_int_equal(ash_route_models_add(models, longer, "path", 0, 0, &err), -EINVAL);
    assert_int_equal(ash_route_models_count(models), MODELS);
    ash_route_models_close(models);
}

/* Which of 1 (used last), 2 (used before it) leaves for another? */
static size_t find_victim(bool first_runs, bool second_runs)
{
    struct ash_route_models_opts opts = {.loaded_max = 2, .idle_seconds = -1};
    struct ash_route_models *models = open_models(&opts);
    size_t model = MODELS;

    load(models, 2);
    load(models, 1);
    if (!second_runs) ash_route_models_use(models, 2, ASH_ROUTE_MODEL_RUNS, ASH_ROUTE_MODEL_UNUSED);
    if (!first_runs) ash_route_models_use(models, 1, ASH_ROUTE_MODEL_RUNS, ASH_ROUTE_MODEL_UNUSED);
    ash_route_models_use(models, 0, ASH_ROUTE_MODEL_UNUSED, ASH_ROUTE_MODEL_WAITS);
    if (first_runs && second_runs) { /* it leaves when its requests are done, and takes no more */
        assert_int_equal(ash_route_models_next(models, 1, &model), ASH_ROUTE_MODEL_NOTHING);
        assert_false(ash_route_models_use(models, 2, ASH_ROUTE_MODEL_UNUSED, ASH_ROUTE_MODEL_RUNS));
        ash_route_models_use(models, 2, ASH_ROUTE_MODEL_RUNS, ASH_ROUTE_MODEL_UNUSED);
    }
    assert_int_equal(ash_route_models_next(models, 1, &model), ASH_ROUTE_MODEL_END);
    ash_route_models_note_ended(models, model, 0, 0);
    ash_route_models_close(models);
    return model;
}

static void test_the_idle_one_used_longest_ago_leaves(void **state)
{
    (void)state;
    assert_int_equal(find_victim(false, false), 2);
    assert_int_equal(find_victim(true, false), 2);
    assert_int_equal(find_victim(false, true), 1);
    assert_int_equal(find_victim(true, true), 2);
}

static void test_a_model_is_put_away_after_idle_seconds(void **state)
{
    struct ash_route_models_opts opts = {.idle_seconds = 60};
    struct ash_route_models *models = open_models(&opts);
    uint64_t later_ns;
    size_t model = MODELS;

    (void)state;
    load(models, 4);
    later_ns = ash_clock_ns() + 120000000000ull;
    assert_int_equal(ash_route_models_next(models, later_ns, &model), ASH_ROUTE_MODEL_NOTHING); /* it runs */
    ash_route_models_use(models, 4, ASH_ROUTE_MODEL_RUNS, ASH_ROUTE_MODEL_UNUSED);
    assert_true(ash_route_models_get(models, 4).idle_s > 0);
    assert_int_equal(ash_route_models_next(models, ash_clock_ns(), &model), ASH_ROUTE_MODEL_NOTHING);
    ash_route_models_keep(models, 4, -1);
    assert_int_equal(ash_route_models_next(models, later_ns, &model), ASH_ROUTE_MODEL_NOTHING);
    ash_route_models_keep(models, 4, NAN);
    assert_int_equal(ash_route_models_next(models, later_ns, &model), ASH_ROUTE_MODEL_END);
    assert_int_equal(model, 4);
    ash_route_models_close(models);
}

/* ---- drawn ------------------------------------------------------------------------------------------------------- */

/* The outside of the models: requests and servers. */
struct world {
    struct ash_route_models *models;
    struct ash_route_models_opts opts;
    size_t uses[MODELS][ASH_ROUTE_MODEL_USES];
    bool runs[MODELS]; /* its server */
    bool was_asked[MODELS];
};

static void check_limits(const struct world *world)
{
    size_t count = 0;
    uint64_t bytes = 0;

    for (size_t i = 0; i < MODELS; i++) {
        struct ash_route_model facts = ash_route_models_get(world->models, i);

        assert_int_equal(facts.state != ASH_ROUTE_MODEL_UNLOADED, world->runs[i]);
        for (size_t use = ASH_ROUTE_MODEL_WAITS; use < ASH_ROUTE_MODEL_USES; use++)
            assert_int_equal(facts.uses[use], world->uses[i][use]);
        count += world->runs[i];
        bytes += world->runs[i] ? facts.bytes : 0;
    }
    if (world->opts.loaded_max > 0) assert_true(count <= world->opts.loaded_max);
    if (world->opts.bytes_max > 0 && count > 1) assert_true(bytes <= world->opts.bytes_max);
}

static void change_request(struct world *world)
{
    size_t i = below(MODELS);
    enum ash_route_model_use from = below(ASH_ROUTE_MODEL_USES), to = below(ASH_ROUTE_MODEL_USES);
    bool is_loaded = ash_route_models_get(world->models, i).state == ASH_ROUTE_MODEL_LOADED;

    if (from == to || (from != ASH_ROUTE_MODEL_UNUSED && world->uses[i][from] == 0)) return;
    if (to == ASH_ROUTE_MODEL_WAITS && below(4) > 0) return;
    assert_int_equal(ash_route_models_use(world->models, i, from, to), to != ASH_ROUTE_MODEL_RUNS || is_loaded);
    if (to == ASH_ROUTE_MODEL_RUNS && !is_loaded) return;
    world->uses[i][from] -= from != ASH_ROUTE_MODEL_UNUSED;
    world->uses[i][to] += to != ASH_ROUTE_MODEL_UNUSED;
}

static void change_server(struct world *world)
{
    size_t i = below(MODELS);

    if (!world->runs[i]) return;
    if (!world->was_asked[i] && below(4) > 0) {
        ash_route_models_note_loaded(world->models, i);
        return;
    }
    ash_route_models_note_ended(world->models, i, world->was_asked[i] ? 0 : 1, 0);
    world->runs[i] = world->was_asked[i] = false;
}

static void act(struct world *world)
{
    size_t i = MODELS;
    enum ash_route_model_act what = ash_route_models_next(world->models, 1, &i);

    if (what == ASH_ROUTE_MODEL_START) {
        assert_false(world->runs[i]);
        world->runs[i] = true;
    } else if (what == ASH_ROUTE_MODEL_END) {
        assert_true(world->runs[i] && !world->was_asked[i]);
        assert_int_equal(world->uses[i][ASH_ROUTE_MODEL_RUNS], 0);
        world->was_asked[i] = true;
    }
}

/* Without new requests every one that waits gets its model. */
static void settle(struct world *world)
{
    size_t waiting = 1;

    for (size_t turn = 0; waiting > 0; turn++) {
        assert_true(turn < 20 * MODELS);
        act(world);
        waiting = 0;
        for (size_t i = 0; i < MODELS; i++) {
            if (world->runs[i] && !world->was_asked[i]) ash_route_models_note_loaded(world->models, i);
            if (world->was_asked[i]) ash_route_models_note_ended(world->models, i, 0, 0);
            if (world->was_asked[i]) world->runs[i] = world->was_asked[i] = false;
            for (; world->uses[i][ASH_ROUTE_MODEL_RUNS] > 0; world->uses[i][ASH_ROUTE_MODEL_RUNS]--)
                ash_route_models_use(world->models, i, ASH_ROUTE_MODEL_RUNS, ASH_ROUTE_MODEL_UNUSED);
            while (world->uses[i][ASH_ROUTE_MODEL_WAITS] > 0 &&
                   ash_route_models_use(world->models, i, ASH_ROUTE_MODEL_WAITS, ASH_ROUTE_MODEL_RUNS)) {
                world->uses[i][ASH_ROUTE_MODEL_WAITS]--;
                world->uses[i][ASH_ROUTE_MODEL_RUNS]++;
            }
            waiting += world->uses[i][ASH_ROUTE_MODEL_WAITS] + world->uses[i][ASH_ROUTE_MODEL_RUNS];
        }
        check_limits(world);
    }
}

static void test_drawn_requests_get_their_models_within_the_limits(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        struct world world = {
            .opts = {.loaded_max = below(4), .bytes_max = below(2) * (40 + below(100)), .idle_seconds = -1}};

        world.models = open_models(&world.opts);
        for (size_t step = 0; step < STEPS; step++) {
            uint64_t what = below(8);

            if (what < 3)
                change_request(&world);
            else if (what < 5)
                change_server(&world);
            else if (what < 6 && below(8) == 0)
                ash_route_models_want(world.models, below(MODELS), below(2));
            else
                act(&world);
            check_limits(&world);
        }
        settle(&world);
        ash_route_models_close(world.models);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_the_idle_one_used_longest_ago_leaves),
        cmocka_unit_test(test_a_model_is_put_away_after_idle_seconds),
        cmocka_unit_test(test_drawn_requests_get_their_models_within_the_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a router believes of a replica is what the replica holds: drawn histories of a cache, whose events are read at
 * drawn moments by readers that come late, fall behind and leave. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/json.h"
#include "base/rng.h"
#include "serve/engine/page_events.h"
#include "serve/engine/prefix.h"
#include "serve/engine/prompt_blocks.h"
#include "serve/route/event.h"
#include "serve/route/held.h"
#include "serve/route/kv_batch.h"

#define SEED 41
#define PAGES 24
#define PAGE ASH_CACHE_PAGE_TOKENS
#define RECORDS 40
#define STEPS 1500
#define PATH_MAX_PAGES 6

static uint64_t drawn;

static uint64_t below(uint64_t limit)
{
    return ash_rng_below(SEED, 1, drawn++, limit);
}

/* ---- the set ----------------------------------------------------------------------------------------------------- */

static void test_the_set_counts_as_a_list_does(void **state)
{
    struct ash_route_held held = {0};
    uint64_t times[97] = {0};

    (void)state;
    ash_route_held_remove(&held, 1);
    for (size_t step = 0; step < 60000; step++) {
        uint64_t hash = below(ASH_COUNT(times));
        size_t distinct = 0;

        assert_int_equal(ash_route_held_has(&held, hash * 64), times[hash] > 0);
        if (below(2) == 0) {
            assert_int_equal(ash_route_held_add(&held, hash * 64), 0);
            times[hash]++;
        } else {
            ash_route_held_remove(&held, hash * 64);
            times[hash] -= times[hash] > 0;
        }
        for (size_t i = 0; i < ASH_COUNT(times); i++)
            distinct += times[i] > 0;
        assert_int_equal(held.count, distinct);
    }
    ash_route_held_clear(&held);
    assert_false(ash_route_held_has(&held, 64));
    ash_route_held_fini(&held);
}

/* ---- a cache and its readers ------------------------------------------------------------------------------------- */

struct world {
    struct ash_cache *cache;
    struct ash_prefix *prefix;
    struct ash_page_events *events;
    struct ash_page_reader *reader;
    struct ash_route_held held;
    size_t woken;
};

static void wake(void *ctx)
{
    struct world *world = ctx;

    world->woken++;
}

static void open_world(struct world *world)
{
    struct ash_page_events_opts opts = {.pages = PAGES, .page_tokens = PAGE, .medium = "CPU", .records_max = RECORDS};
    struct ash_err err;

    *world = (struct world){.cache = NULL};
    assert_int_equal(ash_cache_open_bare(PAGES, &world->cache, &err), 0);
    assert_int_equal(ash_prefix_open(world->cache, &world->prefix, &err), 0);
    assert_int_equal(ash_page_events_open(&opts, &world->events, &err), 0);
    ash_prefix_publish(world->prefix, world->events);
}

static void leave(struct world *world)
{
    ash_page_reader_close(world->reader);
    world->reader = NULL;
    ash_route_held_clear(&world->held);
}

static void close_world(struct world *world)
{
    leave(world);
    ash_route_held_fini(&world->held);
    ash_prefix_close(world->prefix);
    ash_page_events_close(world->events);
    ash_cache_close(world->cache);
}

/* A prompt of ids: a path in a small tree, each page of which is one of three. Its blocks are the router's. */
static size_t draw_prompt(int32_t *ids, struct ash_prompt_blocks *blocks)
{
    size_t pages = 1 + (size_t)below(PATH_MAX_PAGES);
    json_t *list = json_array(), *json;

    for (size_t page = 0; page < pages; page++) {
        uint64_t which = below(3);

        for (size_t i = 0; i < PAGE; i++)
            ids[page * PAGE + i] = (int32_t)(which * 1000 + i);
    }
    for (size_t i = 0; i < pages * PAGE; i++)
        json_array_append_new(list, json_integer(ids[i]));
    json = json_pack("{s:o}", "prompt", list);
    assert_non_null(json);
    assert_int_equal(ash_prompt_blocks_read(json, 0, blocks), 0);
    assert_int_equal(blocks->count, pages);
    json_decref(json);
    return pages;
}

/* A request comes and is over: its pages are in the tree, as the engine puts them there. */
static void answer(struct world *world)
{
    int32_t ids[PATH_MAX_PAGES * PAGE];
    struct ash_prompt_blocks blocks;
    size_t pages = draw_prompt(ids, &blocks);
    struct ash_prefix_text text = {.tokens = ids, .count = pages * PAGE};
    struct ash_block_table table;
    struct ash_prefix_part part;

    assert_int_equal(ash_block_table_init(&table, text.count), 0);
    (void)ash_prefix_match(world->prefix, &text, &table, &part);
    for (size_t page = 0; page < pages; page++) {
        if (page >= table.count) {
            assert_true(ash_prefix_evict(world->prefix, 1));
            assert_int_equal(ash_block_table_grow(&table, world->cache, (page + 1) * PAGE), 0);
        }
        ash_prefix_insert(world->prefix, &text, &table, page);
        assert_int_equal(ash_prompt_blocks_end(&blocks, page, text.count), (page + 1) * PAGE);
        ash_page_events_add_block(world->events, table.pages[page], blocks.hashes[page]);
    }
    ash_prefix_release(world->prefix, world->cache, &table);
    ash_block_table_fini(&table);
    ash_prompt_blocks_fini(&blocks);
}

/* Hashes of an event are in order: a page's parent was named before, or is in front of it. */
static void check_form(const char *bytes, size_t size_bytes, struct ash_route_held *names)
{
    json_t *json = ash_json_load_text(bytes + 5, size_bytes - 5, 0, &(json_error_t){0}), *event;
    size_t i;

    assert_true(json_is_number(json_object_get(json, "ts")));
    json_array_foreach(json_object_get(json, "events"), i, event) {
        const char *type = json_string_value(json_object_get(event, "type"));
        const char *parent = json_string_value(json_object_get(event, "parent_block_hash"));
        const json_t *hashes = json_object_get(event, "block_hashes");

        if (strcmp(type, "AllBlocksCleared") == 0)
            ash_route_held_clear(names);
        else
            assert_int_equal(json_array_size(hashes), json_array_size(json_object_get(event, "prompt_blocks")));
        if (parent != NULL) assert_true(ash_route_held_has(names, strtoull(parent, NULL, 16)));
        for (size_t at = 0; strcmp(type, "BlockStored") == 0 && at < json_array_size(hashes); at++)
            assert_int_equal(
                ash_route_held_add(names, strtoull(json_string_value(json_array_get(hashes, at)), NULL, 16)), 0);
        if (strcmp(type, "BlockStored") == 0)
            assert_int_equal(json_array_size(json_object_get(event, "token_ids")), json_array_size(hashes) * PAGE);
    }
    json_decref(json);
}

static void read_once(struct world *world, struct ash_route_held *names)
{
    struct ash_str out = {0};
    size_t used = 0, one;

    assert_int_equal(ash_page_reader_read(world->reader, &out), 1);
    while (used < out.size_bytes) {
        one = ash_route_event_bytes(out.data + used, out.size_bytes - used);
        assert_true(one > 0);
        assert_int_equal(ash_route_kv_batch_apply(&world->held, out.data + used, one), 0);
        check_form(out.data + used, one, names);
        used += one;
    }
    ash_str_fini(&out);
}

static void read_all(struct world *world, struct ash_route_held *names)
{
    for (size_t i = 0; i < 64; i++)
        read_once(world, names);
}

/* Every path of the tree: known to the router exactly as far as the cache has it. */
static void check_belief(struct world *world)
{
    int32_t ids[PATH_MAX_PAGES * PAGE];

    for (size_t i = 0; i < 50; i++) {
        struct ash_prompt_blocks blocks;
        size_t pages = draw_prompt(ids, &blocks), known = 0;
        struct ash_prefix_text text = {.tokens = ids, .count = pages * PAGE};

        while (known < pages && ash_route_held_has(&world->held, blocks.hashes[known]))
            known++;
        assert_int_equal(known, ash_prefix_peek(world->prefix, &text) / PAGE);
        ash_prompt_blocks_fini(&blocks);
    }
}

static void test_the_router_believes_what_the_replica_holds(void **state)
{
    struct ash_route_held names = {0};
    struct world world;

    (void)state;
    open_world(&world);
    for (size_t step = 0; step < STEPS; step++) {
        uint64_t kind = below(20);

        if (kind < 12) answer(&world);
        if (kind == 12) (void)ash_prefix_evict(world.prefix, (size_t)below(PAGES + 1));
        if (kind == 13 && below(4) == 0) leave(&world);
        if (world.reader == NULL)
            assert_int_equal(ash_page_reader_open(world.events, true, wake, &world, &world.reader), 0);
        if (kind == 14) read_once(&world, &names);
        if (kind > 14 && below(3) == 0) {
            read_all(&world, &names);
            check_belief(&world);
        }
    }
    (void)ash_prefix_evict(world.prefix, PAGES);
    read_all(&world, &names);
    assert_int_equal(world.held.count, 0);
    ash_route_held_fini(&names);
    close_world(&world);
}

static void test_readers_are_woken_once_for_news_and_at_the_end(void **state)
{
    struct ash_str out = {0};
    struct world world;

    (void)state;
    open_world(&world);
    assert_int_equal(ash_page_reader_open(world.events, false, wake, &world, &world.reader), 0);
    ash_page_events_publish(world.events);
    assert_int_equal(world.woken, 0);
    answer(&world);
    ash_page_events_publish(world.events);
    ash_page_events_publish(world.events);
    assert_int_equal(world.woken, 1);
    ash_page_events_end(world.events);
    assert_int_equal(world.woken, 2);
    assert_int_equal(ash_page_reader_read(world.reader, &out), 0);
    assert_int_equal(out.size_bytes, 0);
    close_world(&world);
}

/* ---- other texts ------------------------------------------------------------------------------------------------- */

static void test_what_is_no_batch_is_refused(void **state)
{
    static const char *const wrong[] = {
        "data: 1\n\n", "data: {\"events\":[{}]}\n\n", "data: {\"events\":[1]}\n\n", "data: [\n\n",
        "data: {\"events\":[{\"type\":\"BlockStored\",\"prompt_blocks\":[[\"12\"]]}]}\n\n"};
    static const char *const passed[] = {": alive\n\n", "data: {\"events\":[]}\n\n",
                                         "data: {\"events\":[{\"type\":\"Later\"}]}\n\n",
                                         "data: {\"events\":[{\"type\":\"BlockStored\",\"block_hashes\":[7]}]}\n\n"};
    struct ash_route_held held = {0};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(wrong); i++)
        assert_int_equal(ash_route_kv_batch_apply(&held, wrong[i], strlen(wrong[i])), -EBADMSG);
    for (size_t i = 0; i < ASH_COUNT(passed); i++)
        assert_int_equal(ash_route_kv_batch_apply(&held, passed[i], strlen(passed[i])), 0);
    assert_int_equal(held.count, 0);
    ash_route_held_fini(&held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_set_counts_as_a_list_does),
        cmocka_unit_test(test_the_router_believes_what_the_replica_holds),
        cmocka_unit_test(test_readers_are_woken_once_for_news_and_at_the_end),
        cmocka_unit_test(test_what_is_no_batch_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* route_trace TRACE [ROOM_TOKENS...]: four replicas behind a router, on a trace of requests (JSON lines with timestamp,
 * input_length, output_length, hash_ids, as `ashlar bench serve --trace` reads them) and a virtual clock. Caches, their
 * events, what the router reads of them and its choice are the program's own; only computing is a formula: a replica
 * computes one prompt at a time, and writes answers at a constant rate. Prints, for each room for tokens of a replica's
 * cache, the share of the tokens that one cache of all rooms together finds at once, by what the router goes by. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"
#include "serve/client/workload.h"
#include "serve/engine/page_events.h"
#include "serve/engine/prefix.h"
#include "serve/engine/prompt_blocks.h"
#include "serve/route/choose.h"
#include "serve/route/event.h"
#include "serve/route/index.h"
#include "serve/route/kv_batch.h"

#define REPLICAS 4
#define PAGE ASH_CACHE_PAGE_TOKENS
#define PREFILL_PER_S 20000.0 /* tokens that a replica computes */
#define TOKEN_S 0.02          /* of an answer */
#define SENT_BLOCKS 65536     /* that the router remembers without events, for each replica */

enum belief { IN_TURNS, BY_LOAD, BY_SENT, BY_EVENTS, BELIEFS };

static const char *const belief_names[BELIEFS] = {"round-robin", "least-loaded", "prompts sent", "cache events"};

/* A cache and, for those of replicas, what the router knows of it. */
struct cache {
    struct ash_cache *pool;
    struct ash_prefix *prefix;
    struct ash_page_events *events;
    struct ash_page_reader *reader;
    struct ash_route_held held, computing;
    struct ash_route_index *sent;
    double free_at; /* when the prompts that it has got are computed */
    size_t in_flight;
    uint64_t turn, requests;
};

/* A request on its way. */
struct flight {
    double computed_at, end_at;
    size_t item, replica;
    bool is_computed;
};

struct world {
    const struct ash_workload *workload;
    enum belief belief;
    struct cache replicas[REPLICAS];
    struct flight *flights;
    size_t flight_count;
    int32_t *ids; /* of the longest prompt */
    struct ash_prompt_blocks blocks;
    size_t room;
    uint64_t turn;
    double found, prompt_tokens, wait_s;
};

static void ignore(void *ctx)
{
    (void)ctx;
}

static void must(int rc, const struct ash_err *err)
{
    if (rc == 0) return;
    fprintf(stderr, "route_trace: %s\n", err->text);
    exit(1);
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

/* Ids of an item's prompt, and its blocks as prompt_blocks makes them of ids. */
static size_t write_prompt(struct world *world, const struct ash_workload_item *item)
{
    size_t count = 0;
    uint64_t hash = 0;

    for (size_t i = 0; i < item->block_count; i++) {
        const struct ash_workload_block *block = &world->workload->blocks[item->first_block + i];

        for (size_t at = 0; at < block->tokens; at++)
            world->ids[count++] = (int32_t)(ash_hash_mix(block->name * 4096 + at) & 0xffff);
    }
    world->blocks.count = count * sizeof(*world->ids) / ASH_PROMPT_BLOCK_BYTES;
    for (size_t i = 0; i < world->blocks.count; i++)
        world->blocks.hashes[i] = hash =
            ash_hash_bytes((const char *)world->ids + i * ASH_PROMPT_BLOCK_BYTES, ASH_PROMPT_BLOCK_BYTES, hash);
    return count;
}

static void open_world(struct world *world, const struct ash_workload *workload)
{
    size_t longest = 0;

    world->workload = workload;
    for (size_t i = 0; i < workload->count; i++)
        longest = ash_max(longest, workload->items[i].prompt_tokens);
    world->ids = calloc(longest, sizeof(*world->ids));
    world->blocks.hashes = calloc(longest / PAGE + 1, sizeof(*world->blocks.hashes));
    world->flights = calloc(workload->count, sizeof(*world->flights));
    if (world->ids == NULL || world->blocks.hashes == NULL || world->flights == NULL) exit(1);
}

/* ---- caches ------------------------------------------------------------------------------------------------------ */

static void open_cache(struct cache *cache, size_t tokens)
{
    struct ash_page_events_opts opts = {
        .pages = tokens / PAGE, .page_tokens = PAGE, .medium = "GPU", .records_max = 16384};
    struct ash_err err = {0};

    *cache = (struct cache){.free_at = 0};
    must(ash_cache_open_bare(tokens / PAGE, &cache->pool, &err), &err);
    must(ash_prefix_open(cache->pool, &cache->prefix, &err), &err);
    must(ash_page_events_open(&opts, &cache->events, &err), &err);
    must(ash_page_reader_open(cache->events, false, ignore, NULL, &cache->reader), &err);
    must(ash_route_index_open(SENT_BLOCKS, &cache->sent), &err);
    ash_prefix_publish(cache->prefix, cache->events);
}

static void close_cache(struct cache *cache)
{
    ash_prefix_close(cache->prefix);
    ash_page_reader_close(cache->reader);
    ash_page_events_close(cache->events);
    ash_cache_close(cache->pool);
    ash_route_index_close(cache->sent);
    ash_route_held_fini(&cache->held);
    ash_route_held_fini(&cache->computing);
}

/* The prompt's whole pages are in the cache, as the engine puts them there. Returns the tokens that it had. */
static size_t fill(struct cache *cache, const struct world *world, size_t count)
{
    struct ash_prefix_text text = {.tokens = world->ids, .count = count / PAGE * PAGE};
    struct ash_block_table table;
    struct ash_prefix_part part;
    size_t found;

    must(ash_block_table_init(&table, count), &(struct ash_err){.text = "no memory"});
    found = ash_prefix_match(cache->prefix, &text, &table, &part);
    for (size_t page = table.count; page < text.count / PAGE; page++) {
        if (!ash_prefix_evict(cache->prefix, 1)) break; /* longer than the cache */
        must(ash_block_table_grow(&table, cache->pool, (page + 1) * PAGE), &(struct ash_err){.text = "no page"});
        ash_prefix_insert(cache->prefix, &text, &table, page);
        ash_page_events_add_block(cache->events, table.pages[page], world->blocks.hashes[page]);
    }
    ash_prefix_release(cache->prefix, cache->pool, &table);
    ash_block_table_fini(&table);
    return found;
}

static void read_events(struct cache *cache)
{
    struct ash_str out = {0};

    do {
        ash_str_clear(&out);
        must(ash_page_reader_read(cache->reader, &out) == 1 ? 0 : -1, &(struct ash_err){.text = "no events"});
        if (out.size_bytes > 0)
            must(ash_route_kv_batch_apply(&cache->held, out.data, out.size_bytes), &(struct ash_err){.text = "events"});
    } while (out.size_bytes > 0);
    ash_str_fini(&out);
}

/* ---- the router -------------------------------------------------------------------------------------------------- */

static size_t known_blocks(const struct world *world, const struct cache *cache)
{
    const struct ash_prompt_blocks *blocks = &world->blocks;
    size_t known = 0;

    if (world->belief == BY_SENT) return ash_route_index_match(cache->sent, blocks->hashes, blocks->count);
    while (world->belief == BY_EVENTS && known < blocks->count &&
           (ash_route_held_has(&cache->held, blocks->hashes[known]) ||
            ash_route_held_has(&cache->computing, blocks->hashes[known])))
        known++;
    return known;
}

static size_t choose(struct world *world)
{
    static const enum ash_route_policy policies[BELIEFS] = {ASH_ROUTE_ROUND_ROBIN, ASH_ROUTE_LEAST_LOADED,
                                                            ASH_ROUTE_PREFIX, ASH_ROUTE_PREFIX};
    struct ash_route_candidate candidates[REPLICAS];
    size_t chosen;

    for (size_t r = 0; r < REPLICAS; r++)
        candidates[r] = (struct ash_route_candidate){.is_usable = true,
                                                     .in_flight = world->replicas[r].in_flight,
                                                     .known_blocks = known_blocks(world, &world->replicas[r]),
                                                     .turn = world->replicas[r].turn};
    chosen = ash_route_choose(policies[world->belief], candidates, REPLICAS);
    world->replicas[chosen].turn = ++world->turn;
    return chosen;
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* The prompt is computed: the cache has it, and says so. */
static void compute(struct world *world, struct flight *flight)
{
    struct cache *cache = &world->replicas[flight->replica];
    size_t count = write_prompt(world, &world->workload->items[flight->item]);

    world->found += (double)fill(cache, world, count);
    world->prompt_tokens += (double)count;
    flight->is_computed = true;
    if (world->belief == BY_EVENTS) read_events(cache);
}

static void end(struct world *world, size_t index)
{
    struct flight *flight = &world->flights[index];
    struct cache *cache = &world->replicas[flight->replica];

    (void)write_prompt(world, &world->workload->items[flight->item]);
    for (size_t i = 0; i < world->blocks.count; i++)
        ash_route_held_remove(&cache->computing, world->blocks.hashes[i]);
    cache->in_flight--;
    *flight = world->flights[--world->flight_count];
}

/* All that happens up to a time, in order. */
static void advance(struct world *world, double now)
{
    for (;;) {
        double first_at = now;
        size_t first = SIZE_MAX;

        for (size_t i = 0; i < world->flight_count; i++) {
            const struct flight *flight = &world->flights[i];
            double at = flight->is_computed ? flight->end_at : flight->computed_at;

            if (at > first_at) continue;
            first_at = at;
            first = i;
        }
        if (first == SIZE_MAX) return;
        if (world->flights[first].is_computed)
            end(world, first);
        else
            compute(world, &world->flights[first]);
    }
}

static void arrive(struct world *world, size_t item_index)
{
    const struct ash_workload_item *item = &world->workload->items[item_index];
    size_t count = write_prompt(world, item), replica = choose(world);
    struct cache *cache = &world->replicas[replica];
    struct ash_prefix_text text = {.tokens = world->ids, .count = count};
    double work = (double)(count - ash_prefix_peek(cache->prefix, &text)) / PREFILL_PER_S;
    struct flight *flight = &world->flights[world->flight_count++];

    cache->free_at = ash_max(cache->free_at, item->at_s) + work;
    *flight = (struct flight){.item = item_index, .replica = replica, .computed_at = cache->free_at};
    flight->end_at = flight->computed_at + (double)item->answer_tokens * TOKEN_S;
    world->wait_s += flight->computed_at - item->at_s;
    cache->in_flight++;
    cache->requests++;
    ash_route_index_add(cache->sent, world->blocks.hashes, world->blocks.count);
    for (size_t i = 0; i < world->blocks.count; i++)
        (void)ash_route_held_add(&cache->computing, world->blocks.hashes[i]);
}

/* Tokens that one cache of all rooms finds, if every prompt is in it at once. */
static double ideal(struct world *world)
{
    struct cache cache;
    double found = 0;

    open_cache(&cache, REPLICAS * world->room);
    for (size_t i = 0; i < world->workload->count; i++) {
        size_t count = write_prompt(world, &world->workload->items[i]);

        found += (double)fill(&cache, world, count);
    }
    close_cache(&cache);
    return found;
}

static void run(struct world *world, double ideal_found)
{
    uint64_t most = 0;

    world->found = world->prompt_tokens = world->wait_s = 0;
    world->turn = 0;
    world->flight_count = 0;
    for (size_t r = 0; r < REPLICAS; r++)
        open_cache(&world->replicas[r], world->room);
    for (size_t i = 0; i < world->workload->count; i++) {
        advance(world, world->workload->items[i].at_s);
        arrive(world, i);
    }
    advance(world, 1e18);
    for (size_t r = 0; r < REPLICAS; r++) {
        most = ash_max(most, world->replicas[r].requests);
        close_cache(&world->replicas[r]);
    }
    printf("%12zu  %-12s  %9.4f  %9.4f  %10.3f  %9.3f\n", world->room, belief_names[world->belief],
           world->found / world->prompt_tokens, world->found / ideal_found,
           world->wait_s / (double)world->workload->count, (double)(most * REPLICAS) / (double)world->workload->count);
}

int main(int argc, char **argv)
{
    struct ash_workload_opts opts = {.trace = argc > 1 ? argv[1] : NULL, .trace_speed = 1, .trace_scale = 1};
    static const char *const rooms[] = {"250000", "1000000", "10000000"};
    struct ash_workload workload = {0};
    struct world world = {0};
    struct ash_err err = {0};

    if (opts.trace == NULL) {
        fprintf(stderr, "usage: route_trace TRACE [ROOM_TOKENS...]\n");
        return 2;
    }
    must(ash_workload_make(&opts, &workload, &err), &err);
    open_world(&world, &workload);
    printf("%12s  %-12s  %9s  %9s  %10s  %9s\n", "room_tokens", "router_by", "found", "of_ideal", "prompt_s",
           "most_load");
    for (int i = 0; i < (argc > 2 ? argc - 2 : (int)ASH_COUNT(rooms)); i++) {
        double ideal_found;

        world.room = (size_t)strtoull(argc > 2 ? argv[2 + i] : rooms[i], NULL, 10);
        ideal_found = ideal(&world);
        for (world.belief = 0; world.belief < BELIEFS; world.belief++)
            run(&world, ideal_found);
    }
    free(world.ids);
    free(world.blocks.hashes);
    free(world.flights);
    ash_workload_fini(&workload);
    return 0;
}

/* Which replica gets a request: the index of prompts and the choice, each against a plain version, in drawn cases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/rng.h"
#include "base/str.h"
#include "serve/route/choose.h"
#include "serve/route/index.h"
#include "serve/route/prompt.h"

#define SEED 37
#define CAPACITY 40
#define PROMPTS 3000

static uint64_t drawn;

static uint64_t below(uint64_t limit)
{
    return ash_rng_below(SEED, 1, drawn++, limit);
}

/* ---- the index --------------------------------------------------------------------------------------------------- */

/* The same as a list, newest first. */
struct plain_index {
    uint64_t blocks[2 * CAPACITY];
    size_t count;
};

static void plain_use(struct plain_index *index, uint64_t block)
{
    size_t at = 0;

    while (at < index->count && index->blocks[at] != block)
        at++;
    if (at == index->count) index->count++;
    memmove(index->blocks + 1, index->blocks, at * sizeof(*index->blocks));
    index->blocks[0] = block;
    if (index->count > CAPACITY) index->count = CAPACITY;
}

static size_t plain_match(const struct plain_index *index, const uint64_t *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool is_known = false;

        for (size_t at = 0; at < index->count; at++)
            is_known = is_known || index->blocks[at] == blocks[i];
        if (!is_known) return i;
    }
    return count;
}

/* Prompts are paths in a small tree, so that they share beginnings. */
static size_t draw_prompt(uint64_t *blocks)
{
    size_t count = 1 + (size_t)below(12);
    uint64_t hash = 1;

    for (size_t i = 0; i < count; i++) {
        hash = hash * 4 + below(i < 3 ? 2 : 4);
        blocks[i] = hash;
    }
    return count;
}

static void test_index_knows_what_a_list_knows(void **state)
{
    struct plain_index plain = {.count = 0};
    struct ash_route_index *index = NULL;
    uint64_t blocks[64];

    (void)state;
    assert_int_equal(ash_route_index_open(CAPACITY, &index), 0);
    for (size_t i = 0; i < PROMPTS; i++) {
        size_t count = draw_prompt(blocks);

        assert_int_equal(ash_route_index_match(index, blocks, count), plain_match(&plain, blocks, count));
        if (below(3) == 0) continue;
        ash_route_index_add(index, blocks, count);
        for (size_t at = count; at-- > 0;)
            plain_use(&plain, blocks[at]);
        assert_int_equal(ash_route_index_count(index), plain.count);
    }
    assert_int_equal(plain.count, CAPACITY);
    ash_route_index_clear(index);
    assert_int_equal(ash_route_index_match(index, blocks, 1), 0);
    ash_route_index_close(index);
}

static void test_index_takes_the_beginning_of_a_prompt_larger_than_itself(void **state)
{
    struct ash_route_index *index = NULL;
    uint64_t blocks[9];

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(blocks); i++)
        blocks[i] = i;
    assert_int_equal(ash_route_index_open(4, &index), 0);
    ash_route_index_add(index, blocks, ASH_COUNT(blocks));
    assert_int_equal(ash_route_index_match(index, blocks, ASH_COUNT(blocks)), 4);
    ash_route_index_close(index);
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

/* Is a better than b? By the words of the contract. */
static bool is_better(enum ash_route_policy policy, const struct ash_route_candidate *a,
                      const struct ash_route_candidate *b, double limit)
{
    long a_known = (double)a->in_flight <= limit ? (long)a->known_blocks : 0;
    long b_known = (double)b->in_flight <= limit ? (long)b->known_blocks : 0;
    long more_load = ((long)a->in_flight - (long)b->in_flight) * ASH_ROUTE_REQUEST_BLOCKS;

    if (policy == ASH_ROUTE_PREFIX && more_load != a_known - b_known) return more_load < a_known - b_known;
    if (policy == ASH_ROUTE_LEAST_LOADED && more_load != 0) return more_load < 0;
    return a->turn < b->turn;
}

static void check_choice(enum ash_route_policy policy, const struct ash_route_candidate *candidates, size_t count)
{
    size_t chosen = ash_route_choose(policy, candidates, count);
    double load = 0, usable = 0, limit;

    for (size_t i = 0; i < count; i++) {
        load += candidates[i].is_usable ? (double)candidates[i].in_flight : 0;
        usable += candidates[i].is_usable;
    }
    if (usable == 0) {
        assert_true(chosen == ASH_ROUTE_NONE);
        return;
    }
    limit = load / usable * ASH_ROUTE_LOAD_FACTOR + ASH_ROUTE_LOAD_SLACK;
    assert_true(chosen < count && candidates[chosen].is_usable);
    for (size_t i = 0; i < count; i++)
        if (candidates[i].is_usable) assert_false(is_better(policy, &candidates[i], &candidates[chosen], limit));
}

static void test_no_replica_is_better_than_the_chosen_one(void **state)
{
    struct ash_route_candidate candidates[12];

    (void)state;
    for (size_t round = 0; round < 20000; round++) {
        size_t count = (size_t)below(ASH_COUNT(candidates) + 1);

        for (size_t i = 0; i < count; i++)
            candidates[i] = (struct ash_route_candidate){.is_usable = below(5) > 0,
                                                         .in_flight = (size_t)below(below(2) ? 4 : 40),
                                                         .known_blocks = (size_t)(below(2) * below(90)),
                                                         .turn = round * 100 + below(20)};
        check_choice((enum ash_route_policy)below(3), candidates, count);
    }
}

static void test_a_known_prefix_gives_way_to_load(void **state)
{
    struct ash_route_candidate two[] = {{true, 4, 60, 1}, {true, 0, 0, 2}};

    (void)state;
    assert_int_equal(ash_route_choose(ASH_ROUTE_PREFIX, two, 2), 0);
    assert_int_equal(ash_route_choose(ASH_ROUTE_LEAST_LOADED, two, 2), 1);
    two[0].known_blocks = 4 * ASH_ROUTE_REQUEST_BLOCKS - 1;
    assert_int_equal(ash_route_choose(ASH_ROUTE_PREFIX, two, 2), 1);
    two[0].known_blocks = 1000;
    two[0].in_flight = 40;
    assert_int_equal(ash_route_choose(ASH_ROUTE_PREFIX, two, 2), 1);
}

static void test_a_short_common_prefix_leaves_no_replica_idle(void **state)
{
    struct ash_route_candidate three[] = {{true, 1, 3, 1}, {true, 1, 3, 2}, {true, 0, 0, 3}};

    (void)state;
    assert_int_equal(ash_route_choose(ASH_ROUTE_PREFIX, three, 3), 2);
}

/* ---- conversations ----------------------------------------------------------------------------------------------- */

#define REPLICAS 4
#define SESSIONS 400
#define TURNS 4   /* on average */
#define WINDOW 24 /* requests that are being answered at the same time */

struct session {
    uint64_t blocks[400];
    size_t count;
};

/* Replicas with caches that keep all, and one cache that sees every prompt. */
struct fleet {
    struct ash_route_index *replicas[REPLICAS], *ideal;
    size_t in_flight[REPLICAS], window[WINDOW], next;
    uint64_t turns[REPLICAS];
    size_t found, ideal_found;
};

/* The next turn of a session: its prompt grows by some blocks. */
static void extend(struct session *session)
{
    size_t more = 10 + (size_t)below(40);

    if (session->count == 0) { /* one of a few system prompts */
        uint64_t system = below(8);

        for (; session->count < 4; session->count++)
            session->blocks[session->count] = 1 + system * 4 + session->count;
    }
    for (; more > 0 && session->count < ASH_COUNT(session->blocks); more--)
        session->blocks[session->count++] = ash_rng_below(SEED, 2, drawn++, UINT64_MAX) | 1ull << 63;
}

static void send_to_fleet(struct fleet *fleet, enum ash_route_policy policy, const struct session *session)
{
    struct ash_route_candidate candidates[REPLICAS];
    size_t chosen, *slot = &fleet->window[fleet->next % WINDOW];

    if (fleet->next >= WINDOW) fleet->in_flight[*slot]--; /* the oldest is answered */
    for (size_t r = 0; r < REPLICAS; r++)
        candidates[r] = (struct ash_route_candidate){
            true, fleet->in_flight[r], ash_route_index_match(fleet->replicas[r], session->blocks, session->count),
            fleet->turns[r]};
    chosen = ash_route_choose(policy, candidates, REPLICAS);
    fleet->found += candidates[chosen].known_blocks;
    fleet->ideal_found += ash_route_index_match(fleet->ideal, session->blocks, session->count);
    ash_route_index_add(fleet->replicas[chosen], session->blocks, session->count);
    ash_route_index_add(fleet->ideal, session->blocks, session->count);
    fleet->turns[chosen] = ++fleet->next;
    fleet->in_flight[chosen]++;
    *slot = chosen;
}

/* Blocks found of those that one ideal cache finds, with conversations in drawn order. */
static double found_share(enum ash_route_policy policy)
{
    struct session *sessions = calloc(SESSIONS, sizeof(*sessions));
    struct fleet fleet = {.next = 0};

    assert_non_null(sessions);
    assert_int_equal(ash_route_index_open(1 << 16, &fleet.ideal), 0);
    for (size_t r = 0; r < REPLICAS; r++)
        assert_int_equal(ash_route_index_open(1 << 16, &fleet.replicas[r]), 0);
    drawn = 1000000;
    for (size_t i = 0; i < (size_t)SESSIONS * TURNS; i++) {
        struct session *session = &sessions[below(SESSIONS)];

        extend(session);
        send_to_fleet(&fleet, policy, session);
    }
    for (size_t r = 0; r < REPLICAS; r++)
        ash_route_index_close(fleet.replicas[r]);
    ash_route_index_close(fleet.ideal);
    free(sessions);
    return (double)fleet.found / (double)fleet.ideal_found;
}

static void test_conversations_stay_with_their_replica(void **state)
{
    double prefix = found_share(ASH_ROUTE_PREFIX), turns = found_share(ASH_ROUTE_ROUND_ROBIN);

    (void)state;
    print_message("of an ideal cache: %.3f by prefix, %.3f in turns\n", prefix, turns);
    assert_true(prefix >= 0.95);
    assert_true(prefix >= 1.5 * turns);
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

static struct ash_route_prompt read_prompt(const char *body, uint64_t salt)
{
    struct ash_route_prompt prompt;

    assert_int_equal(ash_route_prompt_read(body, strlen(body), salt, &prompt), 0);
    return prompt;
}

/* {"prompt": a text of these bytes, all of which are the letter but for the last}. */
static struct ash_route_prompt text_prompt(const char *model, size_t bytes, char last, uint64_t salt)
{
    struct ash_str body = {0};
    struct ash_route_prompt prompt;

    assert_int_equal(ash_str_addf(&body, "{\"temperature\":1,\"model\":\"%s\",\"prompt\":\"", model), 0);
    for (size_t i = 0; i + 1 < bytes; i++)
        assert_int_equal(ash_str_adds(&body, "a"), 0);
    assert_int_equal(ash_str_addf(&body, "%c\",\"stream\":true}", last), 0);
    prompt = read_prompt(body.data, salt);
    ash_str_fini(&body);
    return prompt;
}

static size_t common(struct ash_route_prompt a, struct ash_route_prompt b)
{
    size_t same = 0;

    while (same < a.blocks.count && same < b.blocks.count && a.blocks.hashes[same] == b.blocks.hashes[same])
        same++;
    ash_route_prompt_fini(&a);
    ash_route_prompt_fini(&b);
    return same;
}

static void test_blocks_are_equal_as_far_as_texts_are(void **state)
{
    struct ash_route_prompt prompt = text_prompt("m", 1000, 'b', 0);

    (void)state;
    assert_true(prompt.is_stream);
    assert_string_equal(prompt.model, "m");
    assert_int_equal(prompt.blocks.count, 1001 / ASH_PROMPT_BLOCK_BYTES);
    ash_route_prompt_fini(&prompt);
    assert_int_equal(common(text_prompt("m", 1000, 'b', 0), text_prompt("m", 5000, 'c', 0)), 3);
    assert_int_equal(common(text_prompt("m", 768, 'b', 0), text_prompt("m", 5000, 'c', 0)), 2);
    assert_int_equal(common(text_prompt("m", 1000, 'b', 0), text_prompt("n", 1000, 'b', 0)), 0);
    assert_int_equal(common(text_prompt("m", 1000, 'b', 0), text_prompt("m", 1000, 'b', 7)), 0);
}

static void test_turns_of_a_chat_extend_each_other(void **state)
{
    char filler[600], first[1400], second[3000];
    struct ash_route_prompt a;
    size_t blocks;

    (void)state;
    memset(filler, 'x', sizeof(filler) - 1);
    filler[sizeof(filler) - 1] = '\0';
    snprintf(first, sizeof(first), "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"n\":1}", filler);
    snprintf(second, sizeof(second),
             "{\"seed\":3,\"messages\":[{\"role\":\"user\",\"content\":\"%s\"},{\"role\":\"assistant\",\"content\":[{"
             "\"type\":\"text\",\"text\":\"%s\"}]}]}",
             filler, filler);
    a = read_prompt(first, 0);
    blocks = a.blocks.count;
    assert_int_equal(blocks, 2);
    assert_int_equal(common(a, read_prompt(second, 0)), blocks);
}

static void test_other_bodies_have_no_blocks(void **state)
{
    static const char *const bodies[] = {"", "[1]", "{", "{\"prompt\":\"a\"}", "3", "{\"model\":7}"};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(bodies); i++) {
        struct ash_route_prompt prompt = read_prompt(bodies[i], 0);

        assert_int_equal(prompt.blocks.count, 0);
        assert_string_equal(prompt.model, "");
        ash_route_prompt_fini(&prompt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index_knows_what_a_list_knows),
        cmocka_unit_test(test_index_takes_the_beginning_of_a_prompt_larger_than_itself),
        cmocka_unit_test(test_no_replica_is_better_than_the_chosen_one),
        cmocka_unit_test(test_a_known_prefix_gives_way_to_load),
        cmocka_unit_test(test_a_short_common_prefix_leaves_no_replica_idle),
        cmocka_unit_test(test_conversations_stay_with_their_replica),
        cmocka_unit_test(test_blocks_are_equal_as_far_as_texts_are),
        cmocka_unit_test(test_turns_of_a_chat_extend_each_other),
        cmocka_unit_test(test_other_bodies_have_no_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Pages of a prompt that another process is computing: each comes when it was told, in order, whole; where the other one
 * ends early, forgets a page or leaves, what follows is not waited for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "harness/ranks.h"
#include "serve/kv/kv.h"

#define PAGE ASH_CACHE_PAGE_TOKENS
#define PAGES_MOST 6
#define PAGE_BYTES 640
#define CASES 60

/* Two pools of bytes, and the tiers below them. */
struct side {
    uint8_t pool[PAGES_MOST][PAGE_BYTES];
    struct ash_kv *kv;
};

static int read_pool(void *ctx, int32_t page, void *data)
{
    const struct side *side = ctx;

    memcpy(data, side->pool[page], PAGE_BYTES);
    return 0;
}

static int write_pool(void *ctx, int32_t page, const void *data)
{
    struct side *side = ctx;

    memcpy(side->pool[page], data, PAGE_BYTES);
    return 0;
}

static void open_side(struct side *side, const struct ash_kv_opts *opts)
{
    struct ash_kv_pool pool = {.page_bytes = PAGE_BYTES, .read = read_pool, .write = write_pool, .ctx = side};

    memset(side, 0, sizeof(*side));
    assert_int_equal(ash_kv_open(opts, &pool, &ash_memory_host, (PAGES_MOST + 1) * PAGE, &side->kv, NULL), 0);
    ash_kv_arm(side->kv, 9);
}

/* Wait for the next page. Returns as ash_kv_load_take, but never 0. */
static int take(struct side *decode, struct ash_kv_load *load, int32_t page)
{
    uint64_t limit_ns = ash_clock_ns() + RANKS_PATIENCE_NS;
    int rc;

    while ((rc = ash_kv_load_take(load, page)) == 0 && ash_clock_ns() < limit_ns)
        ash_kv_wait(decode->kv, 0.02);
    return rc;
}

static void paint(struct side *side, uint64_t number, size_t page)
{
    for (size_t i = 0; i < PAGE_BYTES; i++)
        side->pool[page][i] = (uint8_t)ash_rng_below(21, number * 8 + page, i, 256);
}

static void draw_tokens(uint64_t number, int32_t *tokens)
{
    for (size_t t = 0; t < PAGES_MOST * PAGE; t++)
        tokens[t] = (int32_t)ash_rng_below(22, number, t, 1000);
}

/* One prompt: `told` of its pages come one by one, the others never do. */
static void try_prompt(struct side *prefill, struct side *decode, uint64_t number)
{
    size_t told = ash_rng_below(23, number, 0, PAGES_MOST + 1), lacks = ash_rng_below(23, number, 1, 2 * PAGES_MOST);
    bool is_ahead = ash_rng_below(23, number, 2, 2) == 0; /* pages are there before they are told */
    static int32_t tokens[PAGES_MOST * PAGE];
    struct ash_kv_page text = {.salt = number % 2, .tokens = tokens, .count = PAGES_MOST * PAGE};
    struct ash_kv_source source;
    struct ash_kv_load *load;
    size_t came = 0;

    draw_tokens(number, tokens);
    assert_true(ash_kv_describe(prefill->kv, &source));
    source.tokens = PAGES_MOST * PAGE;
    source.job = ash_kv_open_job(prefill->kv);
    text.source = &source;
    load = ash_kv_load_open(decode->kv, &text, 0, 0);
    assert_non_null(load);
    for (size_t i = 0; i < told; i++) {
        size_t put = is_ahead && i + 1 < told ? i + 1 : i;

        for (size_t page = i == 0 ? 0 : put; page <= put; page++) {
            struct ash_kv_page one = {text.salt, tokens, (page + 1) * PAGE, (int32_t)page, NULL};

            paint(prefill, number, page);
            if (page != lacks) ash_kv_keep(prefill->kv, &one);
        }
        assert_int_equal(ash_kv_load_take(load, (int32_t)i), 0); /* it was not told */
        ash_kv_tell_job(prefill->kv, source.job, i + 1, false);
        if (take(decode, load, (int32_t)i) != 1) break;
        assert_memory_equal(decode->pool[i], prefill->pool[i], PAGE_BYTES);
        came++;
    }
    assert_int_equal(came, lacks < told ? lacks : told);
    ash_kv_tell_job(prefill->kv, source.job, 0, true);
    assert_true(take(decode, load, 0) < 0 || came == PAGES_MOST);
    ash_kv_load_close(load);
}

static void test_pages_that_come(void **state)
{
    struct ash_kv_opts shelf = {.shelf_bytes = 1 << 20}, reader = {.reads_peers = true};
    static struct side prefill, decode;
    struct ash_kv_stats stats;

    (void)state;
    open_side(&prefill, &shelf);
    open_side(&decode, &reader);
    for (uint64_t number = 0; number < CASES; number++)
        try_prompt(&prefill, &decode, number);
    ash_kv_get_stats(decode.kv, &stats);
    assert_true(stats.tiers[ASH_KV_PEER].pages_read > CASES && stats.tiers[ASH_KV_PEER].read_failures > 0);
    ash_kv_close(decode.kv);
    ash_kv_close(prefill.kv);
}

/* The process leaves in the middle of a prompt: what it had told came, the rest is not waited for. */
static void test_a_source_that_leaves(void **state)
{
    struct ash_kv_opts shelf = {.shelf_bytes = 1 << 20}, reader = {.reads_peers = true};
    static struct side prefill, decode;
    static int32_t tokens[PAGES_MOST * PAGE];
    struct ash_kv_page text = {.tokens = tokens, .count = PAGES_MOST * PAGE}, one = {.tokens = tokens, .count = PAGE};
    struct ash_kv_source source;
    struct ash_kv_load *load;

    (void)state;
    open_side(&prefill, &shelf);
    open_side(&decode, &reader);
    draw_tokens(1, tokens);
    paint(&prefill, 1, 0);
    assert_true(ash_kv_describe(prefill.kv, &source));
    source.tokens = text.count;
    source.job = ash_kv_open_job(prefill.kv);
    text.source = &source;
    load = ash_kv_load_open(decode.kv, &text, 0, 0);
    assert_non_null(load);
    ash_kv_keep(prefill.kv, &one);
    ash_kv_tell_job(prefill.kv, source.job, 1, false);
    assert_int_equal(take(&decode, load, 0), 1);
    ash_kv_close(prefill.kv);
    assert_true(take(&decode, load, 1) < 0);
    ash_kv_load_close(load);
    ash_kv_close(decode.kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_that_come),
        cmocka_unit_test(test_a_source_that_leaves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

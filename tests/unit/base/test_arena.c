/* arena: alignment, growth, rewinding across blocks, accounting, overflow. */
#include "base/arena.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void test_alignment_and_contents(void **state)
{
    struct ash_arena *arena = ash_arena_open(1);
    unsigned char *blocks[200];
    (void)state;

    assert_non_null(arena);
    for (int i = 0; i < 200; i++) {
        size_t size_bytes = (size_t)(i * 37 % 1000);
        blocks[i] = ash_arena_alloc(arena, size_bytes);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 64, 0);
        memset(blocks[i], i, size_bytes);
    }
    for (int i = 0; i < 200; i++) /* nobody overwrote a neighbour */
        for (size_t j = 0; j < (size_t)(i * 37 % 1000); j++)
            assert_int_equal(blocks[i][j], i);
    ash_arena_close(arena);
}

static void test_rewind_reuses_memory(void **state)
{
    struct ash_arena *arena = ash_arena_open(1024);
    struct ash_arena_mark start, middle;
    void *first, *second;
    size_t used;
    (void)state;

    assert_non_null(ash_arena_strdup(arena, "kept"));
    start = ash_arena_mark(arena);
    used = ash_arena_used_bytes(arena);
    first = ash_arena_alloc(arena, 100);
    middle = ash_arena_mark(arena);
    for (int i = 0; i < 50; i++) /* crosses several blocks */
        assert_non_null(ash_arena_alloc(arena, 5000));
    ash_arena_rewind(arena, middle);
    assert_int_equal(ash_arena_used_bytes(arena), used + 128);
    ash_arena_rewind(arena, start);
    assert_int_equal(ash_arena_used_bytes(arena), used);
    second = ash_arena_alloc(arena, 100);
    assert_ptr_equal(first, second);
    ash_arena_close(arena);
}

static void test_steady_state_needs_no_new_blocks(void **state)
{
    struct ash_arena *arena = ash_arena_open(256);
    struct ash_arena_mark mark = ash_arena_mark(arena);
    void *seen[3][40];
    (void)state;

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 40; i++)
            seen[round][i] = ash_arena_alloc(arena, (size_t)(i % 7) * 300 + 1);
        ash_arena_rewind(arena, mark);
    }
    for (int i = 0; i < 40; i++) { /* the same addresses each time: nothing was allocated behind our back */
        assert_ptr_equal(seen[0][i], seen[1][i]);
        assert_ptr_equal(seen[1][i], seen[2][i]);
    }
    ash_arena_close(arena);
}

static void test_grows_past_a_kept_block_that_is_too_small(void **state)
{
    struct ash_arena *arena = ash_arena_open(256);
    struct ash_arena_mark mark = ash_arena_mark(arena);
    char *big;
    (void)state;

    for (int i = 0; i < 8; i++)
        assert_non_null(ash_arena_alloc(arena, 200));
    ash_arena_rewind(arena, mark);
    assert_non_null(ash_arena_alloc(arena, 200));
    big = ash_arena_alloc(arena, 100000);
    assert_non_null(big);
    memset(big, 1, 100000);
    for (int i = 0; i < 8; i++)
        assert_non_null(ash_arena_alloc(arena, 200));
    assert_int_equal(big[0] + big[99999], 2);
    ash_arena_close(arena);
}

static void test_accounting(void **state)
{
    struct ash_arena *arena = ash_arena_open(4096);
    struct ash_arena_mark mark = ash_arena_mark(arena);
    (void)state;

    assert_int_equal(ash_arena_used_bytes(arena), 0);
    ash_arena_alloc(arena, 0);
    ash_arena_alloc(arena, 65);
    assert_int_equal(ash_arena_used_bytes(arena), 64 + 128);
    ash_arena_alloc(arena, 10000); /* the rest of the first block is skipped, not counted */
    assert_int_equal(ash_arena_used_bytes(arena), 64 + 128 + 10048);
    ash_arena_rewind(arena, mark);
    assert_int_equal(ash_arena_used_bytes(arena), 0);
    assert_int_equal(ash_arena_peak_bytes(arena), 64 + 128 + 10048);
    ash_arena_close(arena);
}

static void test_calloc_and_overflow(void **state)
{
    struct ash_arena *arena = ash_arena_open(4096);
    struct ash_arena_mark mark = ash_arena_mark(arena);
    unsigned char *bytes = ash_arena_alloc(arena, 1000);
    (void)state;

    memset(bytes, 0xff, 1000);
    ash_arena_rewind(arena, mark);
    bytes = ash_arena_calloc(arena, 10, 100);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(bytes[i], 0);
    assert_null(ash_arena_calloc(arena, SIZE_MAX / 2, 4));
    assert_null(ash_arena_alloc(arena, SIZE_MAX));
    assert_null(ash_arena_alloc(arena, SIZE_MAX - 64));
    assert_non_null(ash_arena_alloc(arena, 64)); /* still usable */
    ash_arena_close(arena);
    ash_arena_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alignment_and_contents),
        cmocka_unit_test(test_rewind_reuses_memory),
        cmocka_unit_test(test_steady_state_needs_no_new_blocks),
        cmocka_unit_test(test_grows_past_a_kept_block_that_is_too_small),
        cmocka_unit_test(test_accounting),
        cmocka_unit_test(test_calloc_and_overflow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

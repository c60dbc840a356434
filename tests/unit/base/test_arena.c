/* arena: alignment, growth, accounting, overflow. */
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
    for (int i = 0; i < 200; i++) /* no block overlaps a neighbour */
        for (size_t j = 0; j < (size_t)(i * 37 % 1000); j++)
            assert_int_equal(blocks[i][j], i);
    ash_arena_close(arena);
}

static void test_grows_past_what_was_asked_for(void **state)
{
    struct ash_arena *arena = ash_arena_open(256);
    char *big;
    (void)state;

    for (int i = 0; i < 8; i++)
        assert_non_null(ash_arena_alloc(arena, 200));
    big = ash_arena_alloc(arena, 100000);
    assert_non_null(big);
    memset(big, 1, 100000);
    for (int i = 0; i < 8; i++)
        assert_non_null(ash_arena_alloc(arena, 200));
    assert_int_equal(big[0] + big[99999], 2);
    assert_string_equal(ash_arena_strdup(arena, "kept"), "kept");
    ash_arena_close(arena);
}

static void test_accounting(void **state)
{
    struct ash_arena *arena = ash_arena_open(4096);
    (void)state;

    assert_int_equal(ash_arena_used_bytes(arena), 0);
    ash_arena_alloc(arena, 0);
    ash_arena_alloc(arena, 65);
    assert_int_equal(ash_arena_used_bytes(arena), 64 + 128);
    ash_arena_alloc(arena, 10000); /* the rest of the first block is skipped, not counted */
    assert_int_equal(ash_arena_used_bytes(arena), 64 + 128 + 10048);
    ash_arena_close(arena);
}

static void test_calloc_and_overflow(void **state)
{
    struct ash_arena *arena = ash_arena_open(4096);
    unsigned char *bytes = ash_arena_calloc(arena, 10, 100);
    (void)state;

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
        cmocka_unit_test(test_grows_past_what_was_asked_for),
        cmocka_unit_test(test_accounting),
        cmocka_unit_test(test_calloc_and_overflow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

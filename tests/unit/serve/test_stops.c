/* Stop strings: found wherever the cuts between pieces fall, and no part of one ever given out. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/str.h"
#include "serve/stops.h"

/* Feed text in pieces of piece_bytes as a generator would; returns whether a stop string was found. */
static bool feed(const struct ash_stops *stops, const char *text, size_t piece_bytes, struct ash_str *shown)
{
    struct ash_str held = {0};
    size_t size_bytes = strlen(text);
    bool found = false;

    for (size_t at = 0; at < size_bytes && !found; at += piece_bytes) {
        size_t bytes = size_bytes - at < piece_bytes ? size_bytes - at : piece_bytes, give;
        struct ash_str rest = {0};

        assert_int_equal(ash_str_add(&held, text + at, bytes), 0);
        give = ash_stops_scan(stops, held.data, held.size_bytes, &found);
        assert_int_equal(ash_str_add(shown, held.data, give), 0);
        if (!found) assert_int_equal(ash_str_add(&rest, held.data + give, held.size_bytes - give), 0);
        ash_str_fini(&held);
        held = rest;
    }
    if (!found && held.size_bytes > 0) assert_int_equal(ash_str_add(shown, held.data, held.size_bytes), 0);
    ash_str_fini(&held);
    return found;
}

/* For every size of piece the same text is shown. */
static void check(const char *const *items, size_t count, const char *text, const char *expected, bool expect_found)
{
    struct ash_stops stops = {0};
    struct ash_err err = {0};

    assert_int_equal(ash_stops_init(&stops, items, count, &err), 0);
    for (size_t piece_bytes = 1; piece_bytes <= strlen(text); piece_bytes++) {
        struct ash_str shown = {0};

        assert_int_equal(feed(&stops, text, piece_bytes, &shown), expect_found);
        assert_string_equal(shown.data != NULL ? shown.data : "", expected);
        ash_str_fini(&shown);
    }
    ash_stops_fini(&stops);
}

static void one_string(void **state)
{
    const char *const items[] = {"\n\nUser:"};

    (void)state;
    check(items, 1, "Hello there.\n\nUser: and so on", "Hello there.", true);
    check(items, 1, "Hello there.\n\nUsed", "Hello there.\n\nUsed", false);
    check(items, 1, "\n\nUser:", "", true);
}

static void beginnings_that_repeat(void **state)
{
    const char *const items[] = {"aab"};

    (void)state;
    check(items, 1, "aaaaab!", "aaa", true);
    check(items, 1, "aaacaa", "aaacaa", false);
}

static void the_first_of_several_wins(void **state)
{
    const char *const items[] = {"world", "o w", "zzz"};

    (void)state;
    check(items, 2, "Hello world", "Hell", true);
    check(items + 2, 1, "Hello world", "Hello world", false);
}

static void overlapping_strings(void **state)
{
    const char *const items[] = {"abcd", "bc"};

    (void)state;
    check(items, 2, "xbcy", "x", true);
    check(items, 2, "xabcdy", "xa", true); /* "bc" is complete before "abcd" */
}

static void nothing_to_stop_at(void **state)
{
    struct ash_stops stops = {0};
    bool found = true;

    (void)state;
    assert_int_equal(ash_stops_scan(&stops, "abc", 3, &found), 3);
    assert_false(found);
    assert_int_equal(ash_stops_scan(&stops, NULL, 0, &found), 0);
    ash_stops_fini(&stops);
}

static void bad_lists_are_refused(void **state)
{
    static char huge[ASH_STOP_BYTES_MAX + 2];
    const char *const empty[] = {"fine", ""};
    const char *const too_long[] = {huge};
    const char *many[ASH_STOPS_MAX + 1];
    struct ash_stops stops = {0};
    struct ash_err err = {0};

    (void)state;
    memset(huge, 'x', sizeof(huge) - 1);
    for (size_t i = 0; i < ASH_COUNT(many); i++)
        many[i] = "x";
    assert_int_equal(ash_stops_init(&stops, empty, 2, &err), -EINVAL);
    assert_int_equal(ash_stops_init(&stops, too_long, 1, &err), -EINVAL);
    assert_int_equal(ash_stops_init(&stops, many, ASH_COUNT(many), &err), -EINVAL);
    assert_null(stops.items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_string),
        cmocka_unit_test(beginnings_that_repeat),
        cmocka_unit_test(the_first_of_several_wins),
        cmocka_unit_test(overlapping_strings),
        cmocka_unit_test(nothing_to_stop_at),
        cmocka_unit_test(bad_lists_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

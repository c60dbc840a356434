/* The screen: what a terminal and a pipe get, what fits a narrow terminal, and numbers for people. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "train/run/live.h"

struct screen {
    FILE *stream;
    char *text;
    size_t size;
};

static void open_screen(struct screen *screen)
{
    screen->stream = open_memstream(&screen->text, &screen->size);
    assert_non_null(screen->stream);
}

static void close_screen(struct screen *screen)
{
    fclose(screen->stream);
    free(screen->text);
}

static struct ash_live_view view_of(uint64_t step, uint64_t total)
{
    return (struct ash_live_view){.step = step,
                                  .total = total,
                                  .loss = 1.25,
                                  .lr = 3e-4,
                                  .norm = 0.5,
                                  .tokens = 52100,
                                  .step_s = 1,
                                  .valid_loss = NAN,
                                  .valid_accuracy = NAN,
                                  .left_s = 62};
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;

    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part))
        count++;
    return count;
}

static void test_a_pipe_gets_few_plain_lines(void **state)
{
    struct screen screen;
    struct ash_live live;

    (void)state;
    open_screen(&screen);
    ash_live_init(&live, screen.stream, false, 0, 1000);
    for (uint64_t s = 1; s <= 1000; s++) {
        struct ash_live_view view = view_of(s, 1000);
        view.measured = s == 333;
        if (s >= 333) view.valid_loss = 1.5;
        ash_live_step(&live, &view);
    }
    ash_live_clear(&live);
    assert_int_equal(count_of(screen.text, "\n"), 22); /* the first, every 50th, one validation */
    assert_null(strchr(screen.text, '\r'));
    assert_null(strchr(screen.text, '\033'));
    assert_non_null(
        strstr(screen.text, "step    1/1000  loss  1.2500  52.1k tok/s  lr 3.00e-04  norm 0.5       1m02s left\n"));
    assert_non_null(
        strstr(screen.text,
               "step  333/1000  loss  1.2500  52.1k tok/s  lr 3.00e-04  norm 0.5       1m02s left  valid 1.5000\n"));
    assert_non_null(strstr(screen.text, "step 1000/1000"));
    close_screen(&screen);
}

static void test_a_line_shows_the_mean_rate_since_the_last_one(void **state)
{
    struct screen screen;
    struct ash_live live;

    (void)state;
    open_screen(&screen);
    ash_live_init(&live, screen.stream, false, 0, 100);
    for (uint64_t s = 1; s <= 10; s++) {
        struct ash_live_view view = view_of(s, 100);
        view.tokens = 1000;
        view.step_s = s % 5 == 0 ? 6 : 1; /* four quick steps and a slow one */
        ash_live_step(&live, &view);
    }
    assert_int_equal(count_of(screen.text, "\n"), 3);
    assert_non_null(strstr(screen.text, "step   1/100  loss  1.2500   1.0k tok/s"));
    assert_non_null(strstr(screen.text, "step   5/100  loss  1.2500    444 tok/s")); /* 4000 tokens in 9 s */
    assert_non_null(strstr(screen.text, "step  10/100  loss  1.2500    500 tok/s"));
    close_screen(&screen);
}

static void test_a_terminal_sees_the_first_step_begin(void **state)
{
    struct screen screen;
    struct ash_live live;

    (void)state;
    open_screen(&screen);
    ash_live_init(&live, screen.stream, true, 60, 1000);
    ash_live_start(&live, 0, 1000);
    assert_string_equal(screen.text, "\r\033[Kstep    0/1000  first step under way");
    ash_live_clear(&live);
    assert_string_equal(screen.text + screen.size - 4, "\r\033[K");
    close_screen(&screen);
}

static void test_a_terminal_gets_one_line(void **state)
{
    struct screen screen;
    struct ash_live live;

    (void)state;
    open_screen(&screen);
    ash_live_init(&live, screen.stream, true, 140, 1000);
    for (uint64_t s = 1; s <= 1000; s++) {
        struct ash_live_view view = view_of(s, 1000);
        ash_live_step(&live, &view);
    }
    assert_null(strchr(screen.text, '\n'));
    assert_in_range(count_of(screen.text, "\r\033[K"), 2, 4); /* the first, the last, at most ten a second between */
    ash_live_clear(&live);
    assert_string_equal(screen.text + screen.size - 4, "\r\033[K");
    size_t size = screen.size;
    ash_live_clear(&live);
    fflush(screen.stream);
    assert_int_equal(screen.size, size); /* nothing to clear twice */
    close_screen(&screen);
}

/* Columns of the text after the last clear; a bar's stroke is three bytes. */
static size_t columns(const char *text)
{
    const char *line = strrchr(text, '\033') + 3;
    size_t count = 0;

    for (; *line != '\0'; line++)
        count += (*line & 0xc0) != 0x80;
    return count;
}

static void test_a_line_never_wraps(void **state)
{
    (void)state;
    for (int width = 20; width <= 160; width++) {
        struct ash_live_view view = view_of(99999, 100000);
        struct screen screen;
        struct ash_live live;

        view.valid_loss = 2.0;
        open_screen(&screen);
        ash_live_init(&live, screen.stream, true, width, 100000);
        ash_live_step(&live, &view);
        assert_in_range(columns(screen.text), 10, width - 1);
        assert_true((strstr(screen.text, "\xe2\x94\x81") != NULL) == (width >= 101));
        if (width >= 40) assert_non_null(strstr(screen.text, "loss 1.2500"));
        close_screen(&screen);
    }
}

static void test_no_screen_is_silent(void **state)
{
    struct ash_live live;
    struct ash_live_view view = view_of(1, 2);

    (void)state;
    ash_live_init(&live, NULL, true, 0, 2);
    ash_live_step(&live, &view);
    ash_live_clear(&live);
}

static void test_numbers_for_people(void **state)
{
    char buf[32];

    (void)state;
    assert_string_equal(ash_live_count(0, buf, sizeof(buf)), "0");
    assert_string_equal(ash_live_count(999, buf, sizeof(buf)), "999");
    assert_string_equal(ash_live_count(1234567, buf, sizeof(buf)), "1,234,567");
    assert_string_equal(ash_live_count(UINT64_MAX, buf, sizeof(buf)), "18,446,744,073,709,551,615");
    assert_string_equal(ash_live_short(12, buf, sizeof(buf)), "12");
    assert_string_equal(ash_live_short(999.6, buf, sizeof(buf)), "1.0k");
    assert_string_equal(ash_live_short(52100, buf, sizeof(buf)), "52.1k");
    assert_string_equal(ash_live_short(123456789, buf, sizeof(buf)), "123M");
    assert_string_equal(ash_live_short(1.5e9, buf, sizeof(buf)), "1.5B");
    assert_string_equal(ash_live_short(7e15, buf, sizeof(buf)), "7000T");
    assert_string_equal(ash_live_bytes(12, buf, sizeof(buf)), "12 B");
    assert_string_equal(ash_live_bytes(12.9e6, buf, sizeof(buf)), "12.9 MB");
    assert_string_equal(ash_live_bytes(3e9, buf, sizeof(buf)), "3.0 GB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pipe_gets_few_plain_lines),
        cmocka_unit_test(test_a_line_shows_the_mean_rate_since_the_last_one),
        cmocka_unit_test(test_a_terminal_sees_the_first_step_begin),
        cmocka_unit_test(test_a_terminal_gets_one_line),
        cmocka_unit_test(test_a_line_never_wraps),
        cmocka_unit_test(test_no_screen_is_silent),
        cmocka_unit_test(test_numbers_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* table: widths from cells, alignment, short rows, wide characters, cells with separators; drawn tables keep their
 * columns. */
#include "base/table.h"

#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/rng.h"
#include "base/utf8.h"

/* The printed text; the caller frees it. */
static char *print(struct ash_table *table)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    assert_int_equal(ash_table_print(table, out), 0);
    fclose(out);
    return text;
}

static void assert_prints(struct ash_table *table, const char *want)
{
    char *text = print(table);

    assert_string_equal(text, want);
    free(text);
}

static void test_columns_are_as_wide_as_cells(void **state)
{
    struct ash_table table = {.heads = "name|>GPUs|state", .indent = 2};
    (void)state;

    ash_table_row(&table, "%s|%d|%s", "a", 8, "runs");
    ash_table_row(&table, "%s|%d", "longer", 12345);
    ash_table_cell(&table, "%s", "waits");
    ash_table_row(&table, "x||");
    assert_prints(&table, "  name     GPUs  state\n"
                          "  a           8  runs\n"
                          "  longer  12345  waits\n"
                          "  x\n");
}

static void test_a_short_row_runs_over(void **state)
{
    struct ash_table table = {.heads = "name|>a|>b"};
    (void)state;

    ash_table_row(&table, "one|1|2");
    ash_table_row(&table, "two|does not divide");
    assert_prints(&table, "name  a  b\none   1  2\ntwo   does not divide\n");
}

static void test_arguments_do_not_part_cells(void **state)
{
    struct ash_table table = {.heads = "|"};
    (void)state;

    ash_table_row(&table, "%s|%s", "a|b", "c\x1e\t\nd");
    assert_prints(&table, "a|b  c   d\n");
}

static void test_wide_characters(void **state)
{
    struct ash_table table = {.heads = "|>"};
    (void)state;

    ash_table_row(&table, "\xe4\xbd\xa0\xe5\xa5\xbd|1");
    ash_table_row(&table, "e\xcc\x81t\xc3\xa9|22");
    ash_table_row(&table, "\xff|3");
    assert_prints(&table, "\xe4\xbd\xa0\xe5\xa5\xbd   1\ne\xcc\x81t\xc3\xa9   22\n\xff      3\n");
}

static void test_no_rows(void **state)
{
    struct ash_table table = {.heads = "a|b"};
    (void)state;

    assert_prints(&table, "a  b\n");
}

static void test_no_memory_is_said(void **state)
{
    struct ash_table table = {.heads = "a"};
    FILE *out = tmpfile();
    (void)state;

    ash_str_fail(&table.text, -ENOMEM);
    ash_table_row(&table, "x");
    assert_int_equal(ash_table_print(&table, out), -ENOMEM);
    assert_true(ftell(out) > 0);
    fclose(out);
}

/* Every cell of a drawn table begins (or ends, right-aligned) in the column of its head. */
static void test_drawn_tables_keep_their_columns(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct ash_table table = {.heads = "h0|>h1|h2", .indent = seed % 3};
        char cells[8][3][32], *text, *line;
        size_t widths[3] = {2, 2, 2}, rows = seed % 8;

        for (size_t r = 0; r < rows; r++) {
            for (size_t c = 0; c < 3; c++) {
                size_t bytes = ash_rng_below(seed, r, c, 20) + 1;

                memset(cells[r][c], (char)('a' + c), bytes);
                cells[r][c][bytes] = '\0';
                widths[c] = widths[c] > bytes ? widths[c] : bytes;
            }
            ash_table_row(&table, "%s|%s|%s", cells[r][0], cells[r][1], cells[r][2]);
        }
        text = print(&table);
        line = strchr(text, '\n') + 1;
        for (size_t r = 0; r < rows; r++) {
            char *want = NULL;

            assert_true(asprintf(&want, "%*s%-*s  %*s  %s\n", (int)table.indent, "", (int)widths[0], cells[r][0],
                                 (int)widths[1], cells[r][1], cells[r][2]) > 0);
            if (strncmp(line, want, strlen(want)) != 0) fail_msg("seed %llu: %s", (unsigned long long)seed, text);
            line += strlen(want);
            free(want);
        }
        assert_string_equal(line, "");
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns_are_as_wide_as_cells),
        cmocka_unit_test(test_a_short_row_runs_over),
        cmocka_unit_test(test_arguments_do_not_part_cells),
        cmocka_unit_test(test_wide_characters),
        cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_no_memory_is_said),
        cmocka_unit_test(test_drawn_tables_keep_their_columns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

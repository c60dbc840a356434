/* Tables of text: quotes, line ends, short rows, and everything that is no table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/csv.h"

static struct ash_csv *parse(const char *text)
{
    struct ash_csv *csv = NULL;
    struct ash_err err = {0};

    if (ash_csv_parse(text, strlen(text), "t.csv", &csv, &err) < 0) fail_msg("%s", err.text);
    return csv;
}

static void test_fields(void **state)
{
    struct ash_csv *csv = parse("a,b,c\n1,\"x, \"\"y\"\"\nz\",3\r\n\n4\n5,6,7");

    (void)state;
    assert_int_equal(ash_csv_rows(csv), 3);
    assert_string_equal(ash_csv_field(csv, 0, "b"), "x, \"y\"\nz");
    assert_string_equal(ash_csv_field(csv, 0, "c"), "3");
    assert_string_equal(ash_csv_field(csv, 1, "a"), "4");
    assert_string_equal(ash_csv_field(csv, 1, "c"), "");
    assert_string_equal(ash_csv_field(csv, 2, "c"), "7");
    assert_string_equal(ash_csv_field(csv, 2, "no such"), "");
    assert_true(ash_csv_has(csv, "b") && !ash_csv_has(csv, "no such"));
    assert_true(ash_csv_number(csv, 2, "b", -1) == 6);
    assert_true(ash_csv_number(csv, 0, "b", -1) == -1);
    ash_csv_close(csv);
    csv = parse("only,header");
    assert_int_equal(ash_csv_rows(csv), 0);
    ash_csv_close(csv);
}

/* What other people's programs write. */
static void test_loose_tables(void **state)
{
    static const char *const same[] = {"\xEF\xBB\xBFRow ID,Seq-Len,note\r\nx,\"8,192\",hi\r\n",
                                       "row_id;seq_len;note\nx;8192;hi\n", "row_id\tseq_len\tnote\rx\t8K\thi\r",
                                       "\n row_id , seq_len,note\n x ,~8192, \"hi\" ,,\n"};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(same); i++) {
        struct ash_csv *csv = parse(same[i]);

        assert_int_equal(ash_csv_rows(csv), 1);
        assert_string_equal(ash_csv_field(csv, 0, "row_id"), "x");
        assert_string_equal(ash_csv_field(csv, 0, "note"), "hi");
        assert_true(ash_csv_number(csv, 0, "seq_len", -1) == 8192);
        ash_csv_alias(csv, "length", "seq_len");
        ash_csv_alias(csv, "row_id", "note"); /* there is one already */
        assert_true(ash_csv_number(csv, 0, "length", -1) == 8192);
        assert_string_equal(ash_csv_field(csv, 0, "row_id"), "x");
        ash_csv_close(csv);
    }
}

static void test_broken_tables_are_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "no header"},
        {"\n\n", "no header"},
        {"a,b\n1,2,3\n", "t.csv:2: more than 2 fields"},
        {"a,b\n1,\"2\n3\n", "t.csv:2: a quote is never closed"},
        {"a,b\n\"1\"x,2\n", "t.csv:2: text between"},
    };

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        struct ash_csv *csv = NULL;
        struct ash_err err = {0};

        assert_true(ash_csv_parse(cases[i].text, strlen(cases[i].text), "t.csv", &csv, &err) < 0);
        assert_null(csv);
        assert_non_null(strstr(err.text, cases[i].says));
    }
    {
        struct ash_csv *csv = NULL;
        struct ash_err err = {0};

        assert_true(ash_csv_parse("a\0b", 3, "t.csv", &csv, &err) < 0);
        assert_true(ash_csv_load("/nowhere.csv", &csv, &err) < 0);
    }
    ash_csv_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_loose_tables),
        cmocka_unit_test(test_broken_tables_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

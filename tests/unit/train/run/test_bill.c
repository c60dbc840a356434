/* What a run costs: drawn ledgers, whose parts add up to the total to the cent, and each within a cent of its own; a ledger that is
 * written and read again; processes that come and go. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/rng.h"
#include "train/run/bill.h"

#define DRAWN 20000

static void test_parts_add_up(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < DRAWN; i++) {
        struct ash_ledger ledger = {0};
        struct ash_bill_rates rates = {.usd_hour = (double)ash_rng_below(7, i, 100, 1000000) / 1e4,
                                       .watts = (double)ash_rng_below(7, i, 101, 2000),
                                       .kg_kwh = 0.5};
        double scale = pow(10.0, (double)ash_rng_below(7, i, 102, 9)), hours = 0;
        struct ash_bill bill;
        int64_t sum = 0;

        for (size_t kind = 0; kind < ASH_LEDGER_KINDS; kind++)
            ledger.rank_seconds[kind] = (double)ash_rng_below(7, i, kind, 1000000) * 1e-6 * scale;
        bill = ash_bill_of(&ledger, &rates);
        for (size_t kind = 0; kind < ASH_BILL_KINDS; kind++) {
            double exact = bill.hours[kind] * rates.usd_hour * 100.0;

            sum += bill.cents[kind];
            hours += bill.hours[kind];
            if (fabs((double)bill.cents[kind] - exact) > 1.0 + 1e-6)
                fail_msg("case %d: %s is %lld cents, not %.3f", (int)i, ash_bill_kind_name((enum ash_bill_kind)kind),
                         (long long)bill.cents[kind], exact);
        }
        if (sum != bill.total_cents)
            fail_msg("case %d: parts are %lld cents of %lld", (int)i, (long long)sum, (long long)bill.total_cents);
        if (fabs((double)bill.total_cents - hours * rates.usd_hour * 100.0) > 0.5 + 1e-6)
            fail_msg("case %d: the total", (int)i);
        assert_true(fabs(bill.kwh - hours * rates.watts / 1e3) <= 1e-9 * (1.0 + bill.kwh));
        assert_true(bill.co2_kg == bill.kwh * rates.kg_kwh);
    }
}

/* Every kind of the ledger is in one kind of the cost. */
static void test_kinds(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < ASH_LEDGER_KINDS; kind++) {
        struct ash_ledger ledger = {0};
        struct ash_bill bill;

        ledger.rank_seconds[kind] = 7200.0;
        bill = ash_bill_of(&ledger, &(struct ash_bill_rates){.usd_hour = 3.0});
        assert_true(bill.total_hours == 2.0 && bill.total_cents == 600);
        assert_true((bill.hours[ASH_BILL_PRODUCTIVE] == 2.0) == (kind == ASH_LEDGER_PRODUCTIVE));
        assert_true((bill.hours[ASH_BILL_REDONE] == 2.0) == (kind == ASH_LEDGER_REDONE));
        assert_true((bill.hours[ASH_BILL_SAVING] == 2.0) == (kind == ASH_LEDGER_SAVE));
    }
}

/* Four processes for an hour, two for the next; a lost hour moves with its processes. */
static void test_ranks_that_go(void **state)
{
    char path[] = "/tmp/test_bill.XXXXXX";
    const uint64_t hour = 3600000000000u;
    struct ash_ledger ledger = {.ranks = 4, .usd_hour = 1.5}, read;
    struct ash_err err = {0};
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    ash_ledger_start(&ledger, "/nonexistent/ledger.json", 0);
    assert_true(ledger.ranks == 4 && ledger.usd_hour == 1.5);
    ash_ledger_charge(&ledger, ASH_LEDGER_PRODUCTIVE, hour);
    ledger.steps = 10;
    ledger.ranks = 2;
    ash_ledger_charge(&ledger, ASH_LEDGER_SAVE, 2 * hour);
    assert_true(ledger.rank_seconds[ASH_LEDGER_PRODUCTIVE] == 4 * 3600.0);
    assert_true(ledger.rank_seconds[ASH_LEDGER_SAVE] == 2 * 3600.0);
    ash_ledger_lose(&ledger, 5);
    assert_true(fabs(ledger.rank_seconds[ASH_LEDGER_REDONE] - 2 * 3600.0) < 1e-6);
    assert_int_equal(ash_ledger_write(&ledger, path, &err), 0);
    assert_int_equal(ash_ledger_read(&read, path, 9, &err), 0);
    for (size_t kind = 0; kind < ASH_LEDGER_KINDS; kind++)
        assert_true(fabs(read.rank_seconds[kind] - ledger.rank_seconds[kind]) < 1e-5);
    assert_true(read.usd_hour == 1.5 && read.steps == 5);
    close(fd);
    unlink(path);
}

/* A ledger without them has as many processes as the run has now. */
static void test_old_ledger(void **state)
{
    char path[] = "/tmp/test_bill.XXXXXX";
    struct ash_ledger ledger;
    struct ash_err err = {0};
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0 && dprintf(fd, "{\"productive_s\": 1800, \"save_s\": 900}") > 0);
    assert_int_equal(ash_ledger_read(&ledger, path, 4, &err), 0);
    assert_true(ledger.rank_seconds[ASH_LEDGER_PRODUCTIVE] == 7200.0 && ledger.rank_seconds[ASH_LEDGER_SAVE] == 3600.0);
    assert_true(ftruncate(fd, 5) == 0);
    assert_int_equal(ash_ledger_read(&ledger, path, 4, &err), -EINVAL);
    assert_non_null(strstr(err.text, "no ledger"));
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts_add_up), cmocka_unit_test(test_kinds),
                                       cmocka_unit_test(test_ranks_that_go), cmocka_unit_test(test_old_ledger)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

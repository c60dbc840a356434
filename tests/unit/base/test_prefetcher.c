/* Bringing mapped files in: what was fetched is read without faults, and stopping early, nothing to do or odd ranges do
 * no harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/prefetcher.h"

#define PAGE_COUNT 8192 /* several pieces */
#define POPULATE_READ 22

static size_t page_bytes;

/* A new mapping of a file of PAGE_COUNT pages. */
static uint8_t *map_file(void)
{
    char name[] = "/tmp/ashlar-fetch-XXXXXX";
    int fd = mkstemp(name);
    uint8_t *base;

    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    assert_true(fd >= 0);
    unlink(name);
    assert_int_equal(ftruncate(fd, (off_t)(PAGE_COUNT * page_bytes)), 0);
    for (size_t i = 0; i < PAGE_COUNT; i++)
        assert_int_equal(pwrite(fd, "x", 1, (off_t)(i * page_bytes)), 1);
    base = mmap(NULL, PAGE_COUNT * page_bytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    assert_true(base != MAP_FAILED);
    return base;
}

/* Faults that reading pages [first, first + count) takes. A sanitizer's own memory must not count. */
#if defined(__clang__)
__attribute__((no_sanitize("address", "thread", "undefined")))
#else
__attribute__((no_sanitize_address, no_sanitize_thread, no_sanitize_undefined))
#endif
static long
faults(const volatile uint8_t *base, size_t first, size_t count)
{
    struct rusage before, after;

    getrusage(RUSAGE_THREAD, &before);
    for (size_t i = first; i < first + count; i++)
        (void)base[i * page_bytes];
    getrusage(RUSAGE_THREAD, &after);
    return after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt;
}

/* Can this kernel do it at all? Old ones cannot, and emulators take the call for advice. */
static bool can_populate(void)
{
    uint8_t *base = map_file();
    bool can = madvise(base, PAGE_COUNT * page_bytes, POPULATE_READ) == 0 && faults(base, 0, PAGE_COUNT) < 8;

    munmap(base, PAGE_COUNT * page_bytes);
    return can;
}

static void test_fetched(void **state)
{
    uint8_t *base = map_file();
    /* from inside a page to inside a page, an empty one, and the rest but for the last quarter */
    struct ash_prefetch_range ranges[] = {{base + 100, 5000 * page_bytes},
                                          {base, 0},
                                          {base + 5000 * page_bytes, (PAGE_COUNT * 3 / 4 - 5000) * page_bytes}};
    struct ash_prefetcher *prefetcher = ash_prefetcher_start(ranges, 3);

    (void)state;
    assert_non_null(prefetcher);
    ash_prefetcher_finish(prefetcher);
    if (can_populate()) {
        assert_true(faults(base, 0, PAGE_COUNT * 3 / 4) < 8);
        assert_true(faults(base, PAGE_COUNT * 3 / 4 + 64, PAGE_COUNT / 8) >= 8);
    }
    munmap(base, PAGE_COUNT * page_bytes);
}

/* A thread that waits for a range reads it without faults, though the walk continues. */
static void test_waited(void **state)
{
    uint8_t *base = map_file(), *half = base + PAGE_COUNT / 2 * page_bytes;
    struct ash_prefetch_range ranges[] = {{base, PAGE_COUNT / 2 * page_bytes}, {half, PAGE_COUNT / 2 * page_bytes}};
    struct ash_prefetcher *prefetcher = ash_prefetcher_start(ranges, 2);

    (void)state;
    assert_non_null(prefetcher);
    ash_prefetcher_wait(prefetcher, base + 1); /* no range starts there */
    ash_prefetcher_wait(prefetcher, half);
    if (can_populate()) assert_true(faults(base, 0, PAGE_COUNT) < 8);
    ash_prefetcher_wait(prefetcher, base);
    ash_prefetcher_wait(NULL, base);
    ash_prefetcher_stop(prefetcher);
    munmap(base, PAGE_COUNT * page_bytes);
}

static void test_stopped(void **state)
{
    uint8_t *base = map_file();
    struct ash_prefetch_range range = {base, PAGE_COUNT * page_bytes};

    (void)state;
    for (int i = 0; i < 20; i++)
        ash_prefetcher_stop(ash_prefetcher_start(&range, 1));
    ash_prefetcher_stop(ash_prefetcher_start(NULL, 0));
    ash_prefetcher_finish(ash_prefetcher_start(NULL, 0));
    ash_prefetcher_stop(NULL);
    ash_prefetcher_finish(NULL);
    munmap(base, PAGE_COUNT * page_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fetched), cmocka_unit_test(test_waited),
                                       cmocka_unit_test(test_stopped)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

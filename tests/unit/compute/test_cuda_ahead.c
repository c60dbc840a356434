/* Which product comes next: links of drawn steps against the order of the products. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "compute/cuda/host/ahead.h"

#define WEIGHTS 200

static char memory[WEIGHTS];

/* What product i reads first: lines of its outputs, of some bytes each. */
static struct ash_cuda_ahead draw_reads(uint64_t seed, size_t i)
{
    struct ash_cuda_ahead reads = {.bytes = 16 * (1 + (unsigned)ash_rng_below(seed, 1, i, 1000))};

    for (size_t p = 0; p < 1 + i % ASH_PROJECT_OUTS_MAX; p++) {
        reads.parts[p].data = memory + (i + p) % WEIGHTS;
        reads.parts[p].stride = reads.bytes;
        reads.parts[p].count = 1 + (unsigned)ash_rng_below(seed, 2 + p, i, 3000);
    }
    return reads;
}

static size_t lines_of(const struct ash_cuda_ahead *reads)
{
    size_t lines = 0;

    for (size_t p = 0; p < ASH_PROJECT_OUTS_MAX; p++)
        lines += reads->parts[p].count;
    return lines;
}

/* The same lines, and as many bytes of each as the limit has room for. */
static void check_ahead(const struct ash_cuda_ahead *ahead, const struct ash_cuda_ahead *reads, size_t limit)
{
    size_t lines = lines_of(reads);

    assert_true(ahead->bytes * lines <= limit);
    assert_true(ahead->bytes == reads->bytes || (ahead->bytes + 128) * lines > limit);
    for (size_t p = 0; ahead->bytes > 0 && p < ASH_PROJECT_OUTS_MAX; p++) {
        assert_ptr_equal(ahead->parts[p].data, reads->parts[p].data);
        assert_int_equal(ahead->parts[p].stride, reads->parts[p].stride);
        assert_int_equal(ahead->parts[p].count, reads->parts[p].count);
    }
}

static void run_step(struct ash_cuda_backend *backend, enum ash_cuda_links_way way, const size_t *order, size_t count,
                     uint64_t seed, size_t limit)
{
    ash_cuda_links_turn(backend, way);
    for (size_t i = 0; i < count; i++) {
        struct ash_cuda_ahead reads = draw_reads(seed, order[i]), ahead = ash_cuda_links_next(backend, &reads), next;

        if (way != ASH_LINKS_USE || i + 1 == count) {
            assert_int_equal(ahead.bytes, 0);
            continue;
        }
        next = draw_reads(seed, order[i + 1]);
        check_ahead(&ahead, &next, limit);
    }
    ash_cuda_links_turn(backend, ASH_LINKS_OFF);
}

/* Two models take turns; some of their weights lie where others lay before. */
static void test_steps(void **state)
{
    struct ash_cuda_backend backend = {0};
    size_t order[2][WEIGHTS / 2];

    (void)state;
    for (size_t i = 0; i < WEIGHTS; i++)
        order[i % 2][i / 2] = i;
    for (uint64_t seed = 0; seed < 20; seed++) {
        size_t limit = (size_t)1 << ash_rng_below(seed, 0, 0, 26), count = 1 + ash_rng_below(seed, 0, 1, WEIGHTS / 2);

        ash_cuda_links_limit(&backend, limit);
        for (int m = 0; m < 2; m++)
            run_step(&backend, ASH_LINKS_WATCH, order[m], count, seed, limit);
        for (int m = 0; m < 2; m++)
            run_step(&backend, ASH_LINKS_USE, order[m], count, seed, limit);
    }
    ash_cuda_links_close(&backend);
}

/* Nothing is asked for outside steps, and of products that were not seen. */
static void test_unknown(void **state)
{
    struct ash_cuda_backend backend = {0};
    struct ash_cuda_ahead reads = draw_reads(1, 0);

    (void)state;
    assert_int_equal(ash_cuda_links_next(&backend, &reads).bytes, 0);
    ash_cuda_links_turn(&backend, ASH_LINKS_USE);
    assert_int_equal(ash_cuda_links_next(&backend, &reads).bytes, 0);
    ash_cuda_links_close(&backend);
}

/* More products than there are places: none of them is wrong. */
static void test_many(void **state)
{
    enum { COUNT = 10000 };
    static char weights[COUNT];
    struct ash_cuda_backend backend = {0};

    (void)state;
    for (enum ash_cuda_links_way way = ASH_LINKS_WATCH; way <= ASH_LINKS_USE; way++) {
        ash_cuda_links_turn(&backend, way);
        for (size_t i = 0; i < COUNT; i++) {
            struct ash_cuda_ahead reads = {.bytes = 16, .parts = {{.data = weights + i, .stride = 16, .count = 1}}};
            struct ash_cuda_ahead ahead = ash_cuda_links_next(&backend, &reads);

            if (ahead.bytes > 0) assert_ptr_equal(ahead.parts[0].data, weights + i + 1);
        }
    }
    ash_cuda_links_close(&backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_unknown),
                                       cmocka_unit_test(test_many)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

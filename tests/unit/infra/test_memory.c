/* memory: buffers are zeroed, aligned and counted; too much is a sentence. */
#include "infra/memory.h"

#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void test_zeroed_aligned_counted(void **state)
{
    static const size_t sizes[] = {1, 63, 64, 65, 4096, (size_t)2 << 20, ((size_t)5 << 20) + 3};
    size_t before = ash_memory_used_bytes();
    (void)state;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct ash_buffer buffer = {0};
        assert_int_equal(ash_buffer_init(&buffer, &ash_memory_host, sizes[i], "test", NULL), 0);
        assert_int_equal((uintptr_t)buffer.data % ASH_MEMORY_ALIGN, 0);
        assert_int_equal(buffer.size_bytes, sizes[i]);
        for (size_t j = 0; j < sizes[i]; j++)
            if (((const char *)buffer.data)[j] != 0) fail_msg("byte %zu of %zu is not zero", j, sizes[i]);
        assert_int_equal(ash_memory_used_bytes(), before + sizes[i]);
        assert_true(ash_memory_peak_bytes() >= before + sizes[i]);
        memset(buffer.data, 0xa5, sizes[i]); /* so that a reused block shows whether it is cleared */
        ash_buffer_fini(&buffer);
        assert_null(buffer.data);
        ash_buffer_fini(&buffer);
    }
    assert_int_equal(ash_memory_used_bytes(), before);
    ash_buffer_fini(NULL);
}

static void test_empty(void **state)
{
    struct ash_buffer buffer = {.data = state};

    assert_int_equal(ash_buffer_init(&buffer, &ash_memory_host, 0, "nothing", NULL), 0);
    assert_null(buffer.data);
    ash_buffer_fini(&buffer);
}

static void test_too_much(void **state)
{
    struct ash_buffer buffer = {0};
    struct ash_err err = {0};
    size_t before = ash_memory_used_bytes();
    (void)state;

    assert_int_equal(ash_buffer_init(&buffer, &ash_memory_host, SIZE_MAX / 2, "weights", &err), -ENOMEM);
    assert_non_null(strstr(err.text, "out of host memory: cannot allocate "));
    assert_non_null(strstr(err.text, " GiB for weights ("));
    assert_null(buffer.data);
    assert_int_equal(ash_memory_used_bytes(), before);
}

/* Large blocks come from the system as they are touched: zeros, on a huge page's border, whatever their last byte. */
static void test_large(void **state)
{
    enum { HUGE = 2 << 20 };
    static const size_t sizes[] = {HUGE - 1, HUGE, HUGE + 1, 3 * HUGE + 12345};
    (void)state;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        struct ash_buffer buffer = {0};
        const char *bytes;

        assert_int_equal(ash_buffer_init(&buffer, &ash_memory_host, sizes[i], "weights", NULL), 0);
        bytes = buffer.data;
        assert_int_equal((uintptr_t)bytes % (sizes[i] < HUGE ? ASH_MEMORY_ALIGN : HUGE), 0);
        for (size_t at = 0; at < sizes[i]; at += 4095)
            assert_int_equal(bytes[at], 0);
        memset(buffer.data, 1, sizes[i]);
        ash_buffer_fini(&buffer);
    }
}

static void test_copy(void **state)
{
    char to[4] = "abc";
    (void)state;

    assert_int_equal(ash_memory_host.copy(to, "xyz", 3), 0);
    assert_string_equal(to, "xyz");
    assert_int_equal(ash_memory_host.copy(NULL, NULL, 0), 0);
    assert_int_equal(ash_memory_host.zero(to, 2), 0);
    assert_int_equal(to[1] + to[2], 'z');
    assert_true(ash_memory_host.host_visible);
    assert_int_equal(ash_memory_host.size, sizeof(struct ash_memory_ops));
}

/* Much at once, from any byte to any byte, and not one more. */
static void test_zero_much(void **state)
{
    enum { BYTES = 9 << 20 };
    char *data = malloc(BYTES);

    (void)state;
    assert_non_null(data);
    for (size_t begin = 1; begin < 200; begin += 66)
        for (size_t end = BYTES - 1; end > BYTES - 200; end -= 65) {
            memset(data, 1, BYTES);
            assert_int_equal(ash_memory_host.zero(data + begin, end - begin), 0);
            for (size_t i = 0; i < BYTES; i++)
                if ((data[i] == 0) != (i >= begin && i < end)) fail_msg("byte %zu of %zu to %zu", i, begin, end);
        }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zeroed_aligned_counted),
        cmocka_unit_test(test_zero_much),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_copy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

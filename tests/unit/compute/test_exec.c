/* exec: places that workers hand results on in do not come again at once, and all of each is there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "compute/ops.h"

#define MANY 12
#define SLOT_BYTES ((size_t)700000)

static void open_exec(struct ash_exec *exec, int threads)
{
    struct ash_err err = {0};

    if (ash_exec_init(exec, "ref", threads, &err) < 0) fail_msg("%s", err.text);
}

/* With few threads there is one place. */
static void test_one_place(void **state)
{
    struct ash_exec exec;
    void *first;

    (void)state;
    open_exec(&exec, 2);
    assert_int_equal(ash_exec_broadcast_bytes(&exec), 0);
    first = ash_exec_broadcast(&exec, SLOT_BYTES);
    for (int i = 0; i < 5; i++)
        assert_ptr_equal(ash_exec_broadcast(&exec, SLOT_BYTES - (size_t)i), first);
    ash_exec_fini(&exec);
}

/* With many, a place follows the one before until there is no more room, and then in front. */
static void test_places(void **state)
{
    struct ash_exec exec;
    size_t all, seen = 0;
    uintptr_t first, last = 0;

    (void)state;
    open_exec(&exec, MANY);
    all = ash_exec_broadcast_bytes(&exec);
    assert_true(all >= 4 * SLOT_BYTES);
    first = (uintptr_t)ash_exec_broadcast(&exec, SLOT_BYTES);
    for (uintptr_t at = first; at != first || seen == 0;
         at = (uintptr_t)ash_exec_broadcast(&exec, SLOT_BYTES), seen++) {
        if (seen > 0) assert_true(at >= last + SLOT_BYTES);
        assert_true(at + SLOT_BYTES <= first + all);
        memset((void *)at, 0x5a, SLOT_BYTES);
        last = at;
    }
    assert_true(seen * SLOT_BYTES > all - 2 * SLOT_BYTES);
    ash_exec_fini(&exec);
}

/* One that is larger than all of them is given, too, and smaller ones after it. */
static void test_large_place(void **state)
{
    struct ash_exec exec;
    size_t large;

    (void)state;
    open_exec(&exec, MANY);
    large = ash_exec_broadcast_bytes(&exec) + 5;
    memset(ash_exec_broadcast(&exec, SLOT_BYTES), 1, SLOT_BYTES);
    memset(ash_exec_broadcast(&exec, large), 2, large);
    memset(ash_exec_broadcast(&exec, SLOT_BYTES), 3, SLOT_BYTES);
    memset(ash_exec_broadcast(&exec, large), 4, large);
    assert_non_null(ash_exec_broadcast(&exec, 0));
    ash_exec_fini(&exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_place),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_large_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* cgroup: limits of made-up control groups. */
#include "base/cgroup.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"

static char root[64], membership[128];

static int make_groups(void **state)
{
    char path[PATH_MAX];
    (void)state;

    snprintf(root, sizeof(root), "/tmp/ashlar-cgroup-XXXXXX");
    if (mkdtemp(root) == NULL) return -1;
    snprintf(membership, sizeof(membership), "%s/membership", root);
    snprintf(path, sizeof(path), "%s/slice/job/step", root);
    return ash_dir_make(path, NULL);
}

static int remove_groups(void **state)
{
    (void)state;
    return ash_dir_remove(root, NULL);
}

static void put(const char *name, const char *text)
{
    char path[PATH_MAX];

    assert_int_equal(ash_path_join(path, sizeof(path), root, name), 0);
    assert_int_equal(ash_file_replace(path, text, strlen(text), NULL), 0);
}

static double limit(const char *name)
{
    return ash_cgroup_limit_at(root, membership, name);
}

static void test_smallest_ancestor_binds(void **state)
{
    (void)state;
    put("membership", "4:memory:/other\n0::/slice/job/step\n");
    assert_true(isinf(limit("cpu.max")));
    put("slice/job/step/cpu.max", "max 100000\n");
    assert_true(isinf(limit("cpu.max")));
    put("slice/job/cpu.max", "250000 100000\n");
    put("slice/cpu.max", "800000 100000\n");
    assert_true(limit("cpu.max") == 2.5);
    put("cpu.max", "100000 100000\n");
    assert_true(limit("cpu.max") == 1);
    put("slice/memory.max", "1073741824\n");
    put("slice/job/memory.max", "max\n");
    assert_true(limit("memory.max") == 0x1p30);
}

static void test_nothing_known(void **state)
{
    (void)state;
    put("membership", "0::/\n");
    assert_true(isinf(limit("memory.high")));
    put("membership", "1:cpu:/x\n");
    assert_true(isinf(limit("memory.max")));
    put("membership", "");
    assert_true(isinf(limit("memory.max")));
    put("membership", "0::/slice/gone/for/ever\n");
    assert_true(limit("memory.max") == 0x1p30); /* what is left of the path still counts */
    assert_true(isinf(ash_cgroup_limit_at(root, "/nonexistent", "memory.max")));
    assert_true(ash_cgroup_limit("cpu.max") > 0);
}

static void test_garbage(void **state)
{
    (void)state;
    put("membership", "0::/slice\n");
    put("slice/cpu.max", "-5 100000\n");
    put("cpu.max", "lots\n");
    assert_true(isinf(limit("cpu.max")));
    put("cpu.max", "5000 0\n");
    assert_true(limit("cpu.max") > 0);
}

static void test_memory_of_version_1(void **state)
{
    char path[PATH_MAX];

    (void)state;
    snprintf(path, sizeof(path), "%s/memory/batch/job", root);
    assert_int_equal(ash_dir_make(path, NULL), 0);
    put("membership", "9:cpu,cpuacct:/x\n5:hugetlb,memory:/batch/job\n1:name=systemd:/y\n");
    put("memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(isinf(limit("memory.max")));
    put("memory/batch/memory.limit_in_bytes", "157286400\n");
    assert_true(limit("memory.max") == 157286400);
    put("memory/batch/job/memory.limit_in_bytes", "100000000\n");
    assert_true(limit("memory.max") == 100000000);
    put("membership", "5:memory:/somewhere/of/the/host\n0::/\n"); /* as a container sees it */
    put("memory/memory.limit_in_bytes", "200000000\n");
    assert_true(limit("memory.max") == 200000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smallest_ancestor_binds),
        cmocka_unit_test(test_nothing_known),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_memory_of_version_1),
    };

    return cmocka_run_group_tests(tests, make_groups, remove_groups);
}

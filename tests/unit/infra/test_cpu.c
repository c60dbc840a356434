/* cpu: what is found agrees with what the kernel says in /proc/cpuinfo, and reads well. */
#include "infra/cpu.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/cores.h"

/* The list of features in /proc/cpuinfo, with a space at both ends; empty when there is none. */
static void read_flags(char *flags, size_t flags_bytes)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    static char line[16384];

    flags[0] = '\0';
    while (file != NULL && flags[0] == '\0' && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "Features", 8) != 0 && strncmp(line, "flags", 5) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(flags, flags_bytes, "%s ", strchr(line, ':') + 1);
    }
    if (file != NULL) fclose(file);
}

static void check_flag(const char *flags, const char *name, bool present)
{
    char word[32];

    snprintf(word, sizeof(word), " %s ", name);
    if ((strstr(flags, word) != NULL) != present) fail_msg("%s: found %d, the kernel says otherwise", name, present);
}

static void check_arm(const char *flags, const struct ash_cpu *cpu)
{
    check_flag(flags, "asimd", cpu->asimd);
    check_flag(flags, "asimdhp", cpu->fp16);
    check_flag(flags, "asimddp", cpu->dotprod);
    check_flag(flags, "bf16", cpu->bf16);
    check_flag(flags, "i8mm", cpu->i8mm);
    check_flag(flags, "sve", cpu->sve);
    assert_false(cpu->avx2 || cpu->avx512f || cpu->amx_tile);
}

static void check_x86(const char *flags, const struct ash_cpu *cpu)
{
    check_flag(flags, "avx2", cpu->avx2);
    check_flag(flags, "fma", cpu->fma);
    check_flag(flags, "f16c", cpu->f16c);
    check_flag(flags, "avx512f", cpu->avx512f);
    check_flag(flags, "avx512bw", cpu->avx512bw);
    check_flag(flags, "avx512vl", cpu->avx512vl);
    check_flag(flags, "avx512dq", cpu->avx512dq);
    check_flag(flags, "avx512_bf16", cpu->avx512_bf16);
    check_flag(flags, "avx512_vnni", cpu->avx512_vnni);
    assert_false(cpu->asimd || cpu->sve);
}

static void test_features_agree_with_the_kernel(void **state)
{
    static char flags[16384];
    const struct ash_cpu *cpu = ash_cpu_get();
    (void)state;

    read_flags(flags, sizeof(flags));
    if (flags[0] == '\0') skip();
    if (strcmp(cpu->arch, "arm64") == 0) check_arm(flags, cpu);
    if (strcmp(cpu->arch, "x86-64") == 0) check_x86(flags, cpu);
}

static void test_sizes_are_plausible(void **state)
{
    const struct ash_cpu *cpu = ash_cpu_get();
    (void)state;

    assert_ptr_equal(cpu, ash_cpu_get());
    assert_int_equal(cpu->core_count, ash_cores_usable());
    assert_true(cpu->memory_bytes > (uint64_t)64 << 20);
    assert_true(cpu->l1d_bytes == 0 || (cpu->l1d_bytes >= 4096 && cpu->l1d_bytes <= (size_t)1 << 20));
    assert_true(cpu->l2_bytes == 0 || cpu->l2_bytes >= cpu->l1d_bytes);
    assert_true(cpu->line_bytes == 0 || (cpu->line_bytes >= 16 && cpu->line_bytes <= 512));
}

static void test_describe(void **state)
{
    const struct ash_cpu cpu = {.arch = "arm64",
                                .model = "Neoverse V1",
                                .core_count = 2,
                                .l1d_bytes = 65536,
                                .l2_bytes = 1 << 20,
                                .l3_bytes = 32 << 20,
                                .memory_bytes = (uint64_t)3 << 29,
                                .asimd = true,
                                .bf16 = true};
    const struct ash_cpu bare = {.arch = "other", .core_count = 1};
    char buf[256], small[12];
    (void)state;

    assert_string_equal(ash_cpu_describe(&cpu, buf, sizeof(buf)),
                        "arm64 Neoverse V1, 2 cores, L1d 64 KiB, L2 1 MiB, L3 32 MiB, 1.5 GiB memory, asimd bf16");
    assert_string_equal(ash_cpu_describe(&bare, buf, sizeof(buf)), "other, 1 core");
    assert_string_equal(ash_cpu_describe(&cpu, small, sizeof(small)), "arm64 Neove"); /* cut, not overrun */
    print_message("%s\n", ash_cpu_describe(ash_cpu_get(), buf, sizeof(buf)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_features_agree_with_the_kernel),
        cmocka_unit_test(test_sizes_are_plausible),
        cmocka_unit_test(test_describe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* XIDs: reading codes and logs, the verdicts of public sources, what settings change, and no verdict on the unknown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "observe/health/xid.h"

static const struct ash_xid_setting plain = {.remaps_left = -1, .corrected_per_day = -1};

static struct ash_xid_answer judge(const struct ash_xid_setting *setting, const char *codes)
{
    struct ash_xid_answer answer;
    struct ash_xid_gpu gpu;
    struct ash_err err = {0};

    if (ash_xid_codes_parse(codes, &gpu, &err) < 0) fail_msg("%s", err.text);
    ash_xid_judge(setting, &gpu, &answer);
    return answer;
}

static struct ash_xid_log log_of(const char *text)
{
    static struct ash_xid_log log;
    struct ash_err err = {0};

    if (ash_xid_log_parse(text, strlen(text), &log, &err) < 0) fail_msg("%s", err.text);
    return log;
}

static void assert_verdict(const struct ash_xid_setting *setting, const char *codes, enum ash_xid_verdict verdict)
{
    struct ash_xid_answer answer = judge(setting, codes);

    if (answer.verdict != verdict)
        fail_msg("XID %s: %s instead of %s", codes, ash_xid_verdict_name(answer.verdict),
                 ash_xid_verdict_name(verdict));
}

static bool has_note(const struct ash_xid_answer *answer, const char *words)
{
    for (size_t i = 0; i < answer->note_count; i++)
        if (strstr(answer->notes[i], words) != NULL) return true;
    return false;
}

/* The classes of AWS's check, which follows NVIDIA's r590 catalog. */
static void verdicts_are_those_of_the_sources(void **state)
{
    static const int reboot[] = {79, 151, 168};
    static const int reset[] = {48, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158};
    static const int monitor[] = {13,  31,  43,  63,  81,  92,  94,  121, 125, 126, 144, 145,
                                  146, 147, 148, 149, 150, 154, 157, 159, 162, 163, 164, 165};
    char code[16];

    (void)state;
    assert_verdict(&plain, "54", ASH_XID_ISOLATE);
    for (size_t i = 0; i < ASH_COUNT(reboot); i++) {
        snprintf(code, sizeof(code), "%d", reboot[i]);
        assert_verdict(&plain, code, ASH_XID_REBOOT);
    }
    for (size_t i = 0; i < ASH_COUNT(reset); i++) {
        snprintf(code, sizeof(code), "%d", reset[i]);
        assert_verdict(&plain, code, ASH_XID_RESET);
    }
    for (size_t i = 0; i < ASH_COUNT(monitor); i++) {
        snprintf(code, sizeof(code), "%d", monitor[i]);
        assert_verdict(&plain, code, ASH_XID_MONITOR);
    }
}

static void every_known_code_says_all(void **state)
{
    size_t known = 0;

    (void)state;
    for (int code = 1; code < 300; code++) {
        struct ash_xid_gpu gpu = {.seen = {{code, 1}}, .count = 1, .action = ASH_XID_ACTION_ABSENT};
        struct ash_xid_answer answer;
        const struct ash_xid_finding *finding = &answer.findings[0];

        ash_xid_judge(&plain, &gpu, &answer);
        assert_int_equal(answer.unknown, finding->verdict == ASH_XID_UNKNOWN);
        if (answer.unknown) continue;
        known++;
        assert_true(finding->meaning != NULL && finding->why != NULL && finding->next != NULL);
        assert_non_null(strstr(finding->source, "NVIDIA XID catalog"));
    }
    assert_in_range(known, 90, 172);
}

static void the_unknown_gets_no_verdict(void **state)
{
    struct ash_xid_answer answer = judge(&plain, "999");

    (void)state;
    assert_int_equal(answer.verdict, ASH_XID_UNKNOWN);
    assert_null(answer.findings[0].meaning);
    answer = judge(&plain, "999,13");
    assert_int_equal(answer.verdict, ASH_XID_MONITOR);
    assert_int_equal(answer.decided, 1);
    assert_int_equal(answer.unknown, 1);
    assert_true(has_note(&answer, "not in this table"));
}

static void the_hardest_code_decides(void **state)
{
    struct ash_xid_answer answer = judge(&plain, "63,79,48");

    (void)state;
    assert_int_equal(answer.verdict, ASH_XID_REBOOT);
    assert_int_equal(answer.findings[answer.decided].code, 79);
    assert_int_equal(answer.job, ASH_XID_JOB_NODE);
    assert_int_equal(judge(&plain, "63").job, ASH_XID_JOB_GOES_ON);
    assert_int_equal(judge(&plain, "94").job, ASH_XID_JOB_PROCESS);
    assert_int_equal(judge(&plain, "95").job, ASH_XID_JOB_GPU);
}

static void settings_change_verdicts(void **state)
{
    struct ash_xid_setting a100 = plain, hopper = plain, strict = plain, uvm = plain, empty = plain, few = plain;
    struct ash_xid_answer answer;

    (void)state;
    a100.kind = ASH_XID_A100;
    hopper.kind = ASH_XID_HOPPER;
    assert_verdict(&a100, "64", ASH_XID_REBOOT);
    assert_verdict(&a100, "95", ASH_XID_REBOOT);
    assert_verdict(&hopper, "64", ASH_XID_RESET);
    assert_verdict(&hopper, "95", ASH_XID_RESET);
    a100.mig = true;
    assert_verdict(&a100, "95", ASH_XID_RESET);
    assert_verdict(&a100, "64", ASH_XID_REBOOT);
    strict.strict = true;
    assert_verdict(&strict, "74", ASH_XID_ISOLATE);
    assert_verdict(&strict, "165", ASH_XID_ISOLATE);
    assert_verdict(&strict, "73", ASH_XID_REBOOT);
    assert_verdict(&strict, "63", ASH_XID_MONITOR);
    uvm.uvm = true;
    assert_verdict(&uvm, "159", ASH_XID_RESET);
    empty.remaps_left = 0;
    assert_verdict(&empty, "63", ASH_XID_ISOLATE);
    assert_int_equal(judge(&empty, "63").job, ASH_XID_JOB_GOES_ON);
    assert_int_equal(judge(&strict, "74").job, ASH_XID_JOB_GPU);
    assert_int_equal(judge(&plain, "54").job, ASH_XID_JOB_NODE);
    answer = judge(&empty, "13");
    assert_int_equal(answer.verdict, ASH_XID_MONITOR);
    assert_true(has_note(&answer, "no memory error was logged"));
    few.remaps_left = 2;
    few.corrected_per_day = 1e6;
    answer = judge(&few, "92");
    assert_int_equal(answer.verdict, ASH_XID_MONITOR);
    assert_true(has_note(&answer, "few spare rows"));
    assert_true(has_note(&answer, "corrected errors alone never change"));
}

static void says_where_sources_differ(void **state)
{
    (void)state;
    assert_non_null(strstr(judge(&plain, "74").findings[0].differ, "HyperPod"));
    assert_non_null(strstr(judge(&plain, "63").findings[0].differ, "four-code"));
    assert_non_null(strstr(judge(&plain, "64").findings[0].differ, "79"));
    assert_null(judge(&plain, "13").findings[0].differ);
}

static void a_kind_comes_from_the_catalog(void **state)
{
    static const struct {
        const char *name, *arch;
        enum ash_xid_kind kind;
    } gpus[] = {{"A100-SXM4-80GB", "Ampere", ASH_XID_A100},
                {"A10G", "Ampere", ASH_XID_AMPERE},
                {"H200-SXM5-141GB", "Hopper", ASH_XID_HOPPER},
                {"GB300", "Blackwell Ultra", ASH_XID_BLACKWELL},
                {"V100-SXM2-32GB", "Volta", ASH_XID_OLDER}};
    enum ash_xid_kind kind;
    struct ash_err err = {0};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(gpus); i++) {
        assert_int_equal(ash_xid_kind_of(gpus[i].name, gpus[i].arch, &kind, &err), 0);
        assert_int_equal(kind, gpus[i].kind);
    }
    assert_int_equal(ash_xid_kind_of("MI300X", "CDNA3", &kind, &err), -EINVAL);
    assert_non_null(strstr(err.text, "NVIDIA"));
    assert_int_equal(ash_xid_kind_of("mine", NULL, &kind, &err), -EINVAL);
}

static void bad_codes_are_refused(void **state)
{
    static const char *const bad[] = {"",   "x", "79,", ",79", "79;80", "-1", "0", "10000", "99999999999999999999",
                                      "7 9"};
    struct ash_xid_gpu gpu;
    struct ash_err err = {0};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(bad); i++)
        assert_int_equal(ash_xid_codes_parse(bad[i], &gpu, &err), -EINVAL);
    assert_non_null(strstr(err.text, "48,63"));
    assert_int_equal(ash_xid_codes_parse("48,63,48", &gpu, &err), 0);
    assert_int_equal(gpu.count, 2);
    assert_int_equal(gpu.seen[0].count, 2);
}

static void a_log_is_grouped_by_gpu(void **state)
{
    struct ash_xid_log log =
        log_of("[  12.5] nvidia: loading module\n"
               "Nov 15 10:00:01 n7 kernel: [99.1] NVRM: Xid (PCI:0000:3b:00): 63, pid=1896, Row Remapper: New row\n"
               "Nov 15 10:00:02 n7 kernel: NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE\n"
               "NVRM: Xid (PCI:0000:3b:00): 48, pid='<unknown>', name=<unknown>, DBE\r\n"
               "NVRM: Xid (0000:af:00): 31, Ch 0000000b\n"
               "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n"
               "a program wrote Xid (not): 79, nonsense\n"
               "NVRM: Xid (PCI:0000:3b:00): abc, pid=1\n"
               "NVRM: Xid (PCI:0000:3b:00): 63, pid=1896, Row Remapper");

    (void)state;
    assert_int_equal(log.gpu_count, 3);
    assert_int_equal(log.lines, 5);
    assert_int_equal(log.switch_lines, 1);
    assert_string_equal(log.gpus[0].address, "0000:3b:00");
    assert_int_equal(log.gpus[0].count, 2);
    assert_int_equal(log.gpus[0].seen[0].code, 63);
    assert_int_equal(log.gpus[0].seen[0].count, 2);
    assert_false(log.gpus[0].mig);
    assert_true(log.gpus[1].mig);
    assert_string_equal(log.gpus[2].address, "0000:af:00");
    assert_int_equal(log_of("").gpu_count, 0);
}

static void the_driver_s_advice_counts(void **state)
{
    static const struct {
        const char *text;
        enum ash_xid_action action;
        enum ash_xid_verdict verdict;
    } lines[] = {
        {"0x2 (Node Reboot Required)", ASH_XID_ACTION_REBOOT, ASH_XID_REBOOT},
        {"0x2 (OS Reboot)", ASH_XID_ACTION_REBOOT, ASH_XID_REBOOT},
        {"0x1 (GPU Reset Required)", ASH_XID_ACTION_RESET, ASH_XID_RESET},
        {"0x3 (Drain P2P)", ASH_XID_ACTION_DRAIN_P2P, ASH_XID_RESET},
        {"0x4 (Drain and Reset)", ASH_XID_ACTION_DRAIN_RESET, ASH_XID_RESET},
        {"0x0 (None)", ASH_XID_ACTION_NONE, ASH_XID_MONITOR},
        {"0x77 (Dance)", ASH_XID_ACTION_UNREAD, ASH_XID_MONITOR},
    };
    struct ash_xid_answer answer;
    struct ash_xid_log log;
    char line[256];

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(lines); i++) {
        snprintf(line, sizeof(line),
                 "NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to %s\n", lines[i].text);
        log = log_of(line);
        assert_int_equal(log.gpus[0].action, lines[i].action);
        ash_xid_judge(&plain, &log.gpus[0], &answer);
        assert_int_equal(answer.verdict, lines[i].verdict);
    }
    assert_true(has_note(&answer, "none that is known here"));
    answer = judge(&plain, "154");
    assert_true(has_note(&answer, "give the log"));
}

static void too_much_is_refused(void **state)
{
    static struct ash_xid_log log;
    static char text[ASH_XID_GPUS_MAX * 64];
    struct ash_err err = {0};
    size_t at = 0;

    (void)state;
    for (int i = 0; i <= ASH_XID_GPUS_MAX; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "NVRM: Xid (PCI:%04x:00:00): 79, x\n", (unsigned)i);
    assert_int_equal(ash_xid_log_parse(text, at, &log, &err), -E2BIG);
    assert_non_null(strstr(err.text, "one machine"));
    at = 0;
    for (int i = 1; i <= ASH_XID_CODES_MAX + 1; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "NVRM: Xid (PCI:0000:01:00): %d, x\n", i);
    assert_int_equal(ash_xid_log_parse(text, at, &log, &err), -E2BIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts_are_those_of_the_sources),
        cmocka_unit_test(every_known_code_says_all),
        cmocka_unit_test(the_unknown_gets_no_verdict),
        cmocka_unit_test(the_hardest_code_decides),
        cmocka_unit_test(settings_change_verdicts),
        cmocka_unit_test(says_where_sources_differ),
        cmocka_unit_test(a_kind_comes_from_the_catalog),
        cmocka_unit_test(bad_codes_are_refused),
        cmocka_unit_test(a_log_is_grouped_by_gpu),
        cmocka_unit_test(the_driver_s_advice_counts),
        cmocka_unit_test(too_much_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

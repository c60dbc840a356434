/* kernel_log, node_state: lines of real logs are judged; a node's status follows from them and survives a restart. */
#include "observe/health/node_state.h"
#include "observe/health/xid_pairs.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const struct {
    const char *line;
    enum ash_kernel_kind kind;
    enum ash_node_remedy remedy;
    int code;
    const char *part;
} lines[] = {
    {"NVRM: Xid (PCI:0000:b9:00): 79, pid=1384, GPU has fallen off the bus.", ASH_KERNEL_XID, ASH_REMEDY_REBOOT, 79,
     "0000:b9:00"},
    {"NVRM: Xid (PCI:0000:3b:00): 63, Row Remapper: New row marked for remapping", ASH_KERNEL_XID, ASH_REMEDY_WATCH, 63,
     "0000:3b:00"},
    {"NVRM: Xid (PCI:0000:3b:00): 48, pid=5, DBE", ASH_KERNEL_XID, ASH_REMEDY_RESET, 48, "0000:3b:00"},
    {"NVRM: Xid (PCI:0000:3b:00): 54, aux power", ASH_KERNEL_XID, ASH_REMEDY_REPLACE, 54, "0000:3b:00"},
    {"nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", ASH_KERNEL_SXID,
     ASH_REMEDY_REBOOT, 20034, "0000:05:00.0"},
    {"nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress", ASH_KERNEL_SXID, ASH_REMEDY_WATCH,
     12028, "0000:05:00.0"},
    {"pcieport 0000:00:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer", ASH_KERNEL_PCIE,
     ASH_REMEDY_WATCH, 0, "0000:00:01.0"},
    {"mce: [Hardware Error]: Machine check events logged", ASH_KERNEL_MCE, ASH_REMEDY_WATCH, 0, NULL},
    {"EDAC MC0: 1 UE memory read error on CPU_SrcID#0", ASH_KERNEL_EDAC, ASH_REMEDY_REPLACE, 0, "EDAC MC0"},
    {"EDAC MC1: 5 CE memory scrubbing error", ASH_KERNEL_EDAC, ASH_REMEDY_WATCH, 0, "EDAC MC1"},
    {"Out of memory: Killed process 4711 (python3) total-vm:1kB", ASH_KERNEL_OOM, ASH_REMEDY_WATCH, 0, NULL},
    {"Memory cgroup out of memory: Killed process 12 (train)", ASH_KERNEL_OOM, ASH_REMEDY_WATCH, 0, NULL},
    {"watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [train:123]", ASH_KERNEL_LOCKUP, ASH_REMEDY_WATCH, 0, NULL},
    {"INFO: task kworker/u8:1:77 blocked for more than 120 seconds.", ASH_KERNEL_HUNG_TASK, ASH_REMEDY_WATCH, 0, NULL},
    {"EXT4-fs error (device sda1): ext4_lookup:1855: inode #2", ASH_KERNEL_FILE_SYSTEM, ASH_REMEDY_REPLACE, 0, "sda1"},
    {"nvme nvme1: controller is down; will reset: CSTS=0xffffffff", ASH_KERNEL_NVME, ASH_REMEDY_REPLACE, 0, "nvme1"},
    {"LustreError: 11-0: scratch-MDT0000-mdc: this client was evicted by scratch-MDT0000", ASH_KERNEL_LUSTRE,
     ASH_REMEDY_WATCH, 0, NULL},
    {"mlx5_core 0000:18:00.0 eth2: Link down", ASH_KERNEL_LINK, ASH_REMEDY_WATCH, 0, "eth2"},
    {"mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 4: be00000000800400", ASH_KERNEL_MCE, ASH_REMEDY_REPLACE, 0,
     NULL},
    {"mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 7: 8c00004000010090", ASH_KERNEL_MCE, ASH_REMEDY_WATCH, 0,
     NULL},
    {"{2}[Hardware Error]: event severity: corrected", ASH_KERNEL_MCE, ASH_REMEDY_WATCH, 0, NULL},
    {"{1}[Hardware Error]: event severity: fatal", ASH_KERNEL_MCE, ASH_REMEDY_REPLACE, 0, NULL},
    {"NVRM: GPU 0000:b9:00.0: GPU has fallen off the bus.", ASH_KERNEL_PCIE, ASH_REMEDY_REBOOT, 0, "0000:b9:00.0"},
    {"nvidia 0000:b9:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer", ASH_KERNEL_PCIE,
     ASH_REMEDY_WATCH, 0, "0000:b9:00.0"},
    {"nfs: server fs1 not responding, still trying", ASH_KERNEL_FILE_SYSTEM, ASH_REMEDY_WATCH, 0, NULL},
    {"XFS (nvme2n1): Filesystem has been shut down due to log error (0x2).", ASH_KERNEL_FILE_SYSTEM, ASH_REMEDY_REPLACE,
     0, "nvme2n1"},
    {"Aborting journal on device nvme0n1-8.", ASH_KERNEL_FILE_SYSTEM, ASH_REMEDY_REPLACE, 0, "nvme0n1-8."},
    {"Lustre: scratch-OST0001-osc-ffff8a: Connection to scratch-OST0001 (at 10.0.0.9@tcp) was lost; in progress",
     ASH_KERNEL_LUSTRE, ASH_REMEDY_WATCH, 0, NULL},
    {"ice 0000:31:00.0 ens1f0: NIC Link is Down", ASH_KERNEL_LINK, ASH_REMEDY_WATCH, 0, "ens1f0"},
    {"NETDEV WATCHDOG: eth0 (ena): transmit queue 3 timed out", ASH_KERNEL_LINK, ASH_REMEDY_WATCH, 0, "eth0"},
    {"CPU3: Package temperature is above threshold, cpu clock is throttled (total events = 9)", ASH_KERNEL_THROTTLE,
     ASH_REMEDY_WATCH, 0, NULL},
    {"CPU5: Core temperature above threshold, cpu clock throttled (total events = 1)", ASH_KERNEL_THROTTLE,
     ASH_REMEDY_WATCH, 0, NULL},
    {"NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08", ASH_KERNEL_XID, ASH_REMEDY_RESET, 149,
     "0000:3b:00"},
    {"NVRM: Xid (PCI:0000:3b:00): 145, RLW_REMAP  Nonfatal XC0 i0 Link 08", ASH_KERNEL_XID, ASH_REMEDY_WATCH, 145,
     "0000:3b:00"},
};

static void test_lines(void **unused)
{
    struct ash_kernel_event event;
    (void)unused;

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        if (!ash_kernel_log_judge(lines[i].line, &event)) fail_msg("no event: %s", lines[i].line);
        if (event.kind != lines[i].kind || event.remedy != lines[i].remedy || event.code != lines[i].code)
            fail_msg("%s %s %d: %s", ash_kernel_kind_name(event.kind), ash_node_remedy_name(event.remedy), event.code,
                     lines[i].line);
        if (lines[i].part != NULL) assert_string_equal(event.part, lines[i].part);
    }
    assert_false(ash_kernel_log_judge("Linux version 6.1.0 (gcc)", &event));
    assert_false(ash_kernel_log_judge("nvidia: loading out-of-tree module taints kernel.", &event));
    assert_false(ash_kernel_log_judge("", &event));
}

static void test_records(void **unused)
{
    static const char text[] = "6,339,5140900,-,caller=T1;NET: Registered\n SUBSYSTEM=acpi\n";
    struct ash_kernel_record record;
    (void)unused;

    assert_int_equal(ash_kernel_record_parse(text, sizeof(text) - 1, &record), 0);
    assert_true(record.priority == 6 && record.sequence == 339 && record.us == 5140900 && record.text_bytes == 15);
    assert_memory_equal(record.text, "NET: Registered", 15);
    assert_int_equal(ash_kernel_record_parse("plain; line\n", 12, &record), -EINVAL);
    assert_int_equal(record.text_bytes, 11);
    assert_int_equal(ash_kernel_record_parse("", 0, &record), -EINVAL);
}

static bool take(struct ash_node_state *state, const char *line, double now_s)
{
    struct ash_kernel_event event;

    assert_true(ash_kernel_log_judge(line, &event));
    return ash_node_state_event(state, &event, line, now_s);
}

static void test_status(void **unused)
{
    static struct ash_node_state state, again;
    char path[] = "/tmp/ashlar-node-XXXXXX";
    (void)unused;

    assert_int_equal(close(mkstemp(path)), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ash_node_state_load(&state, path, NULL), 0);
    ash_node_state_boot(&state, "one", 1000);
    /* what is watched changes nothing, unless it comes often; then it ends when it stays away */
    for (int i = 0; i < 9; i++)
        assert_false(take(&state, "EDAC MC1: 5 CE memory scrubbing error", 1000 + i));
    assert_int_equal(state.status, ASH_NODE_HEALTHY);
    assert_true(take(&state, "EDAC MC1: 5 CE memory scrubbing error", 1010));
    assert_int_equal(state.status, ASH_NODE_DOUBTFUL);
    assert_false(ash_node_state_tick(&state, 1100));
    assert_true(ash_node_state_tick(&state, 1010 + 601));
    assert_int_equal(state.status, ASH_NODE_HEALTHY);
    /* it came back: it stays twice as long */
    for (int i = 0; i < 10; i++)
        take(&state, "EDAC MC1: 5 CE memory scrubbing error", 2000);
    assert_int_equal(state.findings[0].flaps, 1);
    assert_false(ash_node_state_tick(&state, 2000 + 1100));
    assert_true(ash_node_state_tick(&state, 2000 + 1201));
    /* the hardest decides, and is kept */
    assert_true(take(&state, lines[2].line, 4000));
    assert_true(take(&state, lines[0].line, 4001));
    assert_int_equal(state.status, ASH_NODE_DRAIN_REBOOT);
    state.kernel_number = 77;
    assert_int_equal(ash_node_state_save(&state, path, NULL), 0);
    assert_int_equal(ash_node_state_load(&again, path, NULL), 0);
    assert_memory_equal(&again, &state, sizeof(state));
    /* a reboot cures it, and asks for a check; what needs a new machine stays */
    ash_node_state_boot(&again, "two", 5000);
    assert_int_equal(again.status, ASH_NODE_TO_CHECK);
    assert_int_equal(again.kernel_number, 0);
    take(&again, lines[3].line, 5001);
    ash_node_state_boot(&again, "three", 5002);
    assert_int_equal(again.status, ASH_NODE_DRAIN_REPLACE);
    ash_node_state_clear(&again, 5003);
    assert_int_equal(again.status, ASH_NODE_HEALTHY);
    unlink(path);
}

/* A repair that worked leaves the node healthy: what makes it doubtful is named, not what came first. */
static void test_the_reason_is_what_decides(void **unused)
{
    static const struct ash_node_finding pressure = {
        .key = "pressure", .source = "metrics", .remedy = ASH_REMEDY_WATCH};
    static struct ash_node_state state;

    (void)unused;
    assert_null(ash_node_state_reason(&state));
    assert_false(take(&state, "NVRM: Xid (PCI:0000:3b:00): 63, Row Remapper: New row marked for remapping", 100));
    assert_true(ash_node_state_note(&state, &pressure, 110));
    assert_int_equal(state.status, ASH_NODE_DOUBTFUL);
    assert_string_equal(ash_node_state_reason(&state)->key, "pressure");
    assert_true(take(&state, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 120));
    assert_non_null(strstr(ash_node_state_reason(&state)->key, "79"));
}

static void test_damaged_states(void **unused)
{
    static struct ash_node_state state;
    static const char *const texts[] = {"", "[]", "{\"status\":\"mad\"}",
                                        "{\"status\":\"healthy\",\"findings\":[{\"layer\":\"x\"}]}",
                                        "{\"status\":\"healthy\",\"kernel_number\":-1}"};
    (void)unused;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(ash_node_state_parse(&state, texts[i], strlen(texts[i]), NULL), -EINVAL);
        assert_int_equal(state.count, 0);
    }
}

/* More findings than there is room for: hard ones are kept. */
static void test_many_findings(void **unused)
{
    static struct ash_node_state state;
    char line[128];
    (void)unused;

    memset(&state, 0, sizeof(state));
    take(&state, lines[0].line, 1);
    for (int i = 0; i < 1000; i++) {
        snprintf(line, sizeof(line), "EDAC MC%d: 1 CE memory error", i);
        take(&state, line, 2 + i);
    }
    assert_int_equal(state.count, ASH_NODE_FINDINGS_MAX);
    assert_int_equal(state.status, ASH_NODE_DRAIN_REBOOT);
    assert_int_equal(state.counts[ASH_KERNEL_EDAC], 1000);
}

/* Lines and NVML's counter tell of the same events in any order; NVML's may begin again, lines may be missing. */
static void test_an_event_of_two_sources_counts_once(void **unused)
{
    static struct ash_xid_pairs pairs;
    uint64_t counted = 0;
    (void)unused;

    memset(&pairs, 0, sizeof(pairs));
    for (uint64_t seed = 1; seed <= 200; seed++) {
        uint64_t lines_left = seed % 7, told = 0, events = seed % 5 > lines_left ? seed % 5 : lines_left, bits = seed;

        counted = 0;
        while (lines_left > 0 || told < seed % 5) {
            bits = bits * 6364136223846793005u + 1442695040888963407u;
            if (lines_left > 0 && (bits >> 40) % 2 == 0) {
                counted += ash_xid_pairs_line(&pairs, (int)seed, "0000:3b:00");
                lines_left--;
            } else if (told < seed % 5) {
                counted += ash_xid_pairs_told(&pairs, (int)seed, "0000:3b:00", ++told);
            }
        }
        if (counted != events) fail_msg("seed %d: %d of %d", (int)seed, (int)counted, (int)events);
    }
    assert_int_equal(ash_xid_pairs_told(&pairs, 1, "0000:b9:00", 2), 2);
    assert_int_equal(ash_xid_pairs_told(&pairs, 1, "0000:b9:00", 1), 1); /* it began again */
    assert_true(ash_xid_pairs_line(&pairs, 9999, "0000:b9:00"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_damaged_states),
        cmocka_unit_test(test_the_reason_is_what_decides),
        cmocka_unit_test(test_many_findings),
        cmocka_unit_test(test_an_event_of_two_sources_counts_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Clusters of text with one thing wrong at a time: the layer, the place and the severity that are named; and nothing
 * where nothing is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/str.h"
#include "observe/health/diagnose.h"

#define NODES 3
#define GPUS 4

/* One series of one part of a node that is not like the others. */
struct fault {
    const char *metric;
    double now, before;
};

static double value_of(const struct fault *fault, const char *metric, int node, int part, bool before, double usual)
{
    if (fault == NULL || node != 1 || part != 2 || strcmp(fault->metric, metric) != 0) return usual;
    return before ? fault->before : fault->now;
}

struct usual {
    const char *metric;
    double now, before;
};

static const struct usual gpu_series[] = {
    {"DCGM_FI_DEV_GPU_TEMP", 50, 50},
    {"DCGM_FI_DEV_XID_ERRORS", 0, 0},
    {"DCGM_FI_DEV_ROW_REMAP_FAILURE", 0, 0},
    {"DCGM_FI_DEV_GPU_UTIL", 98, 98},
    {"DCGM_FI_DEV_SM_CLOCK", 1980, 1980},
    {"DCGM_FI_DEV_THERMAL_VIOLATION", 700, 700},
    {"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 5, 5},
    {"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 9e6, 1e6},
};

static const struct usual efa_series[] = {
    {"node_amazonefa_rx_bytes", 8e9, 1e9}, {"node_amazonefa_tx_bytes", 8e9, 1e9},
    {"node_amazonefa_rx_drops", 7, 7},     {"node_amazonefa_retrans_timeout_events", 0, 0},
    {"node_infiniband_state_id", 4, 4},
};

static const struct usual node_series[] = {
    {"node_time_seconds", 1060, 1000},          {"node_memory_MemAvailable_bytes", 1e12, 1e12},
    {"node_memory_MemTotal_bytes", 2e12, 2e12}, {"node_pressure_io_stalled_seconds_total", 10.5, 10},
    {"node_cpu_package_throttles_total", 3, 3}, {"ashlar_train_save_errors_total", 0, 0},
};

static void write_parts(struct ash_str *text, const struct usual *series, size_t count, const char *labels, int node,
                        const struct fault *fault, bool before)
{
    for (size_t i = 0; i < count; i++) {
        for (int part = 0; part < GPUS; part++) {
            double usual = before ? series[i].before : series[i].now;

            ash_str_addf(text, "%s{", series[i].metric);
            ash_str_addf(text,
                         labels[0] == 'g' ? "gpu=\"%d\",modelName=\"H100\",Hostname=\"node-%d\"" : "device=\"efa%d\"",
                         part, node);
            ash_str_addf(text, "} %.17g\n", value_of(fault, series[i].metric, node, part, before, usual));
        }
    }
}

static void write_node(struct ash_str *text, int node, const struct fault *fault, bool before)
{
    write_parts(text, gpu_series, ASH_COUNT(gpu_series), "gpu", node, fault, before);
    write_parts(text, efa_series, ASH_COUNT(efa_series), "device", node, fault, before);
    for (size_t i = 0; i < ASH_COUNT(node_series); i++)
        ash_str_addf(text, "%s %.17g\n", node_series[i].metric,
                     value_of(fault, node_series[i].metric, node, 2, before,
                              before ? node_series[i].before : node_series[i].now));
}

static void add(struct ash_diagnose *diagnose, const char *text, const char *name, bool before)
{
    struct ash_scrape *scrape = NULL;
    struct ash_err err = {0};

    if (ash_scrape_parse(text, strlen(text), name, &scrape, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_diagnose_add(diagnose, scrape, name, before, &err), 0);
}

static struct ash_diagnose *open_empty(void)
{
    struct ash_diagnose *diagnose = NULL;

    assert_int_equal(ash_diagnose_open(&diagnose, NULL), 0);
    return diagnose;
}

/* The cluster with one fault; scrapes: 1 or 2. */
static struct ash_diagnose *diagnose_fault(const struct fault *fault, int scrapes)
{
    struct ash_diagnose *diagnose = open_empty();

    for (int node = 0; node < NODES; node++) {
        for (int before = 0; before < scrapes; before++) {
            struct ash_str text = {0};

            write_node(&text, node, fault, before == 1);
            add(diagnose, text.data, "file", before == 1);
            ash_str_fini(&text);
        }
    }
    assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
    return diagnose;
}

static const struct ash_check *check_of(const struct ash_diagnose *diagnose, const char *metric,
                                        enum ash_rule_kind kind)
{
    for (size_t i = 0; i < ash_diagnose_check_count(diagnose); i++) {
        const struct ash_check *check = ash_diagnose_check(diagnose, i);

        if (strcmp(check->rule->metric, metric) == 0 && check->rule->kind == kind) return check;
    }
    fail_msg("no rule for %s", metric);
    return NULL;
}

static void test_healthy(void **state)
{
    struct ash_diagnose *diagnose = diagnose_fault(NULL, 2);

    (void)state;
    if (ash_diagnose_finding_count(diagnose) > 0)
        fail_msg("%s %s", ash_diagnose_finding(diagnose, 0)->metric, ash_diagnose_finding(diagnose, 0)->value);
    assert_null(ash_diagnose_first(diagnose));
    assert_int_equal(ash_diagnose_nodes(diagnose), NODES); /* unlabelled series are of the file's one node */
    assert_int_equal(check_of(diagnose, "DCGM_FI_DEV_SM_CLOCK", ASH_RULE_PEER_LOW)->state, ASH_CHECK_NORMAL);
    assert_int_equal(check_of(diagnose, "DCGM_FI_DEV_SM_CLOCK", ASH_RULE_PEER_LOW)->series, NODES * GPUS);
    assert_int_equal(check_of(diagnose, "node_load1", ASH_RULE_PEER_HIGH)->state, ASH_CHECK_ABSENT);
    ash_diagnose_close(diagnose);
}

static void test_single_faults(void **state)
{
    static const struct {
        struct fault fault;
        enum ash_health_layer layer;
        enum ash_severity severity;
        const char *where;
    } cases[] = {
        {{"DCGM_FI_DEV_XID_ERRORS", 79, 0}, ASH_HEALTH_GPU, ASH_BROKEN, "node-1 gpu 2"},
        {{"DCGM_FI_DEV_ROW_REMAP_FAILURE", 1, 1}, ASH_HEALTH_GPU, ASH_BROKEN, "node-1 gpu 2"},
        {{"DCGM_FI_DEV_SM_CLOCK", 1200, 1980}, ASH_HEALTH_GPU, ASH_SLOW, "node-1 gpu 2"},
        {{"DCGM_FI_DEV_THERMAL_VIOLATION", 900, 700}, ASH_HEALTH_GPU, ASH_SLOW, "node-1 gpu 2"},
        {{"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 6, 5}, ASH_HEALTH_NVLINK, ASH_SLOW, "node-1 gpu 2"},
        {{"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 3, 5},
         ASH_HEALTH_NVLINK,
         ASH_SLOW,
         "node-1 gpu 2"}, /* reset */
        {{"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 2e6, 1e6}, ASH_HEALTH_NVLINK, ASH_SLOW, "node-1 gpu 2"},
        {{"node_amazonefa_rx_drops", 9, 7}, ASH_HEALTH_NETWORK, ASH_SLOW, "node-1 device efa2"},
        {{"node_amazonefa_retrans_timeout_events", 1, 0}, ASH_HEALTH_NETWORK, ASH_SLOW, "node-1 device efa2"},
        {{"node_amazonefa_tx_bytes", 2e9, 1e9}, ASH_HEALTH_NETWORK, ASH_SLOW, "node-1 device efa2"},
        {{"node_infiniband_state_id", 1, 4}, ASH_HEALTH_NETWORK, ASH_BROKEN, "node-1 device efa2"},
        {{"node_pressure_io_stalled_seconds_total", 40, 10}, ASH_HEALTH_STORAGE, ASH_SLOW, "node-1"},
        {{"ashlar_train_save_errors_total", 1, 0}, ASH_HEALTH_STORAGE, ASH_BROKEN, "node-1"},
        {{"node_memory_MemAvailable_bytes", 1e9, 1e12}, ASH_HEALTH_HOST, ASH_SLOW, "node-1"},
        {{"node_cpu_package_throttles_total", 4, 3}, ASH_HEALTH_HOST, ASH_SLOW, "node-1"},
        {{"DCGM_FI_DEV_GPU_UTIL", 20, 98}, ASH_HEALTH_STEP, ASH_SLOW, "node-1 gpu 2"},
    };

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        struct ash_diagnose *diagnose = diagnose_fault(&cases[i].fault, 2);
        const struct ash_finding *first = ash_diagnose_first(diagnose);

        if (first == NULL || ash_diagnose_finding_count(diagnose) != 1)
            fail_msg("%s: %zu findings", cases[i].fault.metric, ash_diagnose_finding_count(diagnose));
        assert_string_equal(first->metric, cases[i].fault.metric);
        assert_int_equal(first->layer, cases[i].layer);
        assert_int_equal(first->severity, cases[i].severity);
        assert_string_equal(first->where, cases[i].where);
        ash_diagnose_close(diagnose);
    }
}

/* The last XID stays until the driver is loaded again, and some are no fault. */
static void test_xids_that_are_only_watched(void **state)
{
    static const struct fault faults[] = {
        {"DCGM_FI_DEV_XID_ERRORS", 63, 0}, {"DCGM_FI_DEV_XID_ERRORS", 43, 0}, {"DCGM_FI_DEV_XID_ERRORS", 79, 79}};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(faults); i++) {
        struct ash_diagnose *diagnose = diagnose_fault(&faults[i], 2);

        assert_null(ash_diagnose_first(diagnose));
        assert_int_equal(ash_diagnose_finding_count(diagnose), 1);
        assert_int_equal(ash_diagnose_finding(diagnose, 0)->severity, ASH_WATCH);
        ash_diagnose_close(diagnose);
    }
}

static void test_one_scrape(void **state)
{
    const struct fault fault = {"DCGM_FI_DEV_XID_ERRORS", 79, 0};
    struct ash_diagnose *diagnose = diagnose_fault(&fault, 1);

    (void)state;
    assert_int_equal(ash_diagnose_first(diagnose)->severity, ASH_BROKEN);
    assert_non_null(strstr(ash_diagnose_first(diagnose)->value, "perhaps long ago"));
    assert_int_equal(check_of(diagnose, "node_amazonefa_rx_drops", ASH_RULE_GROWTH)->state, ASH_CHECK_SECOND);
    assert_int_equal(check_of(diagnose, "DCGM_FI_DEV_SM_CLOCK", ASH_RULE_PEER_LOW)->state, ASH_CHECK_NORMAL);
    ash_diagnose_close(diagnose);
}

/* An idle GPU clocks down, and a full disk has exactly nothing left. */
static void test_idle_and_full(void **state)
{
    struct ash_diagnose *diagnose = open_empty();

    (void)state;
    add(diagnose,
        "DCGM_FI_DEV_SM_CLOCK{gpu=\"0\"} 1980\nDCGM_FI_DEV_SM_CLOCK{gpu=\"1\"} 1980\n"
        "DCGM_FI_DEV_SM_CLOCK{gpu=\"2\"} 1980\nDCGM_FI_DEV_SM_CLOCK{gpu=\"3\"} 1975\n"
        "DCGM_FI_DEV_SM_CLOCK{gpu=\"4\"} 345\nDCGM_FI_DEV_GPU_UTIL{gpu=\"4\"} 0\n"
        "node_filesystem_avail_bytes{fstype=\"tmpfs\",mountpoint=\"/run\"} 0\n"
        "node_filesystem_size_bytes{fstype=\"tmpfs\",mountpoint=\"/run\"} 9\n"
        "node_filesystem_avail_bytes{fstype=\"lustre\",mountpoint=\"/fsx\"} 0\n"
        "node_filesystem_size_bytes{fstype=\"lustre\",mountpoint=\"/fsx\"} 9\n",
        "one", false);
    assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
    assert_int_equal(ash_diagnose_finding_count(diagnose), 1);
    assert_string_equal(ash_diagnose_first(diagnose)->where, "one mountpoint /fsx");
    assert_int_equal(check_of(diagnose, "DCGM_FI_DEV_GPU_UTIL", ASH_RULE_MIN)->state, ASH_CHECK_IDLE);
    ash_diagnose_close(diagnose);
}

/* By peers, and by what the node itself had. */
static void test_missing_parts(void **state)
{
    static const char *const all = "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 50\nDCGM_FI_DEV_GPU_TEMP{gpu=\"1\"} 50\n";
    static const char *const one = "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 50\n";
    struct ash_diagnose *diagnose = open_empty();

    (void)state;
    add(diagnose, all, "a", false);
    add(diagnose, one, "b", false);
    add(diagnose, all, "c", false);
    assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
    assert_int_equal(ash_diagnose_finding_count(diagnose), 1);
    assert_string_equal(ash_diagnose_first(diagnose)->where, "b");
    ash_diagnose_close(diagnose);
    diagnose = open_empty();
    add(diagnose, one, "b", false);
    add(diagnose, all, "b", true);
    assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
    assert_string_equal(ash_diagnose_first(diagnose)->value, "1, before 2");
    ash_diagnose_close(diagnose);
}

/* Step times of Ashlar's own exporter, as means between the scrapes. */
static void test_straggler(void **state)
{
    struct ash_diagnose *diagnose = open_empty();

    (void)state;
    for (int node = 0; node < 5; node++) {
        char text[256], name[16];

        snprintf(name, sizeof(name), "n%d", node);
        add(diagnose, "ashlar_train_step_seconds_sum 1000\nashlar_train_step_seconds_count 100\n", name, true);
        snprintf(text, sizeof(text), "ashlar_train_step_seconds_sum %d\nashlar_train_step_seconds_count 110\n",
                 node == 3 ? 1030 : 1020);
        add(diagnose, text, name, false);
    }
    assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
    assert_int_equal(ash_diagnose_finding_count(diagnose), 1);
    assert_string_equal(ash_diagnose_first(diagnose)->where, "n3");
    assert_int_equal(ash_diagnose_first(diagnose)->layer, ASH_HEALTH_STEP);
    ash_diagnose_close(diagnose);
}

/* Of two like errors the earlier line is the cause: line 2, not 11. And a line may say more than its code. */
static void test_the_first_line_comes_first(void **state)
{
    struct ash_diagnose *diagnose = open_empty();
    char text[2048] = "";

    (void)state;
    for (int i = 1; i <= 12; i++)
        strcat(text, i == 2    ? "kernel: NVRM: Xid (PCI:0000:10:1c): 79, GPU has fallen off the bus.\n"
                     : i == 11 ? "kernel: NVRM: Xid (PCI:0000:10:1c): 95, uncontained\n"
                               : "kernel: all is well\n");
    assert_int_equal(ash_diagnose_log(diagnose, text, strlen(text), "k.log", NULL), 0);
    assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
    assert_true(strcmp(ash_diagnose_first(diagnose)->where, "k.log:2") == 0);
    ash_diagnose_close(diagnose);
    diagnose = open_empty();
    snprintf(text, sizeof(text),
             "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 "
             "(Node Reboot Required)\n");
    assert_int_equal(ash_diagnose_log(diagnose, text, strlen(text), "k.log", NULL), 0);
    assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
    assert_int_equal(ash_diagnose_first(diagnose)->severity, ASH_BROKEN);
    assert_non_null(strstr(ash_diagnose_first(diagnose)->value, "reboot"));
    ash_diagnose_close(diagnose);
}

static void test_logs(void **state)
{
    static const struct {
        const char *line, *says;
        enum ash_health_layer layer;
    } cases[] = {
        {"RuntimeError: CUDA error 802: system not yet initialized", "fabric manager", ASH_HEALTH_SOFTWARE},
        {"ip-1:9:9 [3] NCCL INFO Using network Socket", "sockets", ASH_HEALTH_SOFTWARE},
        {"ip-1:9:9 [3] NCCL INFO NET/Plugin: Could not find: libnccl-net.so", "plugin", ASH_HEALTH_SOFTWARE},
        {"x: undefined symbol: ncclFoo", "another version", ASH_HEALTH_SOFTWARE},
        {"kernel: NVRM: Xid (PCI:0000:10:1c): 79, pid=1, GPU has fallen off the bus.", "bus", ASH_HEALTH_GPU},
    };
    static const char *const fine = "a [0] NCCL INFO Using network AWS Libfabric\nNVRM: Xid (PCI:0): 63, x\n\xff\x01";

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        struct ash_diagnose *diagnose = open_empty();
        char text[256];

        snprintf(text, sizeof(text), "first\n%s\nlast\n", cases[i].line);
        assert_int_equal(ash_diagnose_log(diagnose, text, strlen(text), "job.log", NULL), 0);
        assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
        if (ash_diagnose_finding_count(diagnose) != 1) fail_msg("%s", cases[i].line);
        assert_int_equal(ash_diagnose_first(diagnose)->layer, cases[i].layer);
        assert_non_null(strstr(ash_diagnose_first(diagnose)->means, cases[i].says));
        assert_true(strncmp(ash_diagnose_first(diagnose)->where, "job.log:2", 9) == 0);
        if (i == 1) assert_string_equal(ash_diagnose_first(diagnose)->where, "job.log:2 ip-1 gpu 3");
        assert_non_null(strstr(ash_diagnose_first(diagnose)->value, "lines: 1, ")); /* also where two traces match */
        assert_int_equal(ash_diagnose_log_lines(diagnose), 3);
        ash_diagnose_close(diagnose);
    }
    struct ash_diagnose *diagnose = open_empty();
    assert_int_equal(ash_diagnose_log(diagnose, fine, strlen(fine), "job.log", NULL), 0);
    assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
    assert_null(ash_diagnose_first(diagnose));
    assert_int_equal(ash_diagnose_log_good(diagnose), 1);
    ash_diagnose_close(diagnose);
}

static void add_text(struct ash_diagnose *diagnose, const char *text, bool before)
{
    struct ash_scrape *scrape = NULL;

    assert_int_equal(ash_scrape_parse(text, strlen(text), "node-1", &scrape, NULL), 0);
    assert_int_equal(ash_diagnose_add(diagnose, scrape, "node-1", before, NULL), 0);
}

/* Slow storage is no finding, unless steps wait for data: then it is the reason, and comes first. */
static void test_storage_is_blamed_where_steps_wait(void **state)
{
    static const char *const now[] = {
        "node_time_seconds 1010\nnode_pressure_io_waiting_seconds_total 18\n",
        "node_time_seconds 1010\nashlar_s3_calls_total{rank=\"0\"} 120\nashlar_s3_call_seconds_total{rank=\"0\"} 70\n",
        "node_time_seconds 1010\nashlar_s3_retries_total{rank=\"0\"} 90\n"};
    static const char *const before =
        "node_time_seconds 1000\nnode_pressure_io_waiting_seconds_total 10\nashlar_s3_calls_total{rank=\"0\"} 100\n"
        "ashlar_s3_call_seconds_total{rank=\"0\"} 10\nashlar_s3_retries_total{rank=\"0\"} 5\n";
    static const char *const metrics[] = {"node_pressure_io_waiting_seconds_total", "ashlar_s3_call_seconds_total",
                                          "ashlar_s3_retries_total"};

    (void)state;
    for (size_t i = 0; i < 2 * ASH_COUNT(now); i++) {
        struct ash_finding waits = {.layer = ASH_HEALTH_STEP, .severity = ASH_SLOW, .metric = ASH_METRIC_DATA_STEP};
        struct ash_diagnose *diagnose = NULL;
        bool is_waiting = i >= ASH_COUNT(now);

        assert_int_equal(ash_diagnose_open(&diagnose, NULL), 0);
        add_text(diagnose, now[i % ASH_COUNT(now)], false);
        add_text(diagnose, before, true);
        if (is_waiting) assert_int_equal(ash_diagnose_report(diagnose, &waits), 0);
        assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
        assert_int_equal(ash_diagnose_finding_count(diagnose), is_waiting ? 2 : 0);
        if (is_waiting) {
            assert_int_equal(ash_diagnose_first(diagnose)->layer, ASH_HEALTH_STORAGE);
            assert_string_equal(ash_diagnose_first(diagnose)->metric, metrics[i % ASH_COUNT(now)]);
        }
        ash_diagnose_close(diagnose);
    }
}

/* Who lacks memory waits for the drive that its pages come back from: the drive is not to blame, unless elsewhere. */
static void test_storage_is_not_blamed_for_a_lack_of_memory(void **state)
{
    static const char *const now = "node_time_seconds 1010\nnode_pressure_io_stalled_seconds_total 18\n"
                                   "ashlar_job_memory_limit_bytes{job=\"7\"} 1e9\n"
                                   "ashlar_job_refault_bytes_total{job=\"7\"} 6e9\n";
    static const char *const before = "node_time_seconds 1000\nnode_pressure_io_stalled_seconds_total 10\n"
                                      "ashlar_job_refault_bytes_total{job=\"7\"} 1e9\n";
    static const char *const other[] = {"node_pressure_io_stalled_seconds_total{instance=\"node-2\"} 18\n",
                                        "node_pressure_io_stalled_seconds_total{instance=\"node-2\"} 10\n"};

    (void)state;
    for (int is_other = 0; is_other < 2; is_other++) {
        struct ash_diagnose *diagnose = NULL;
        const struct ash_finding *first;

        assert_int_equal(ash_diagnose_open(&diagnose, NULL), 0);
        add_text(diagnose, now, false);
        add_text(diagnose, before, true);
        if (is_other) add_text(diagnose, other[0], false);
        if (is_other) add_text(diagnose, other[1], true);
        assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
        assert_int_equal(ash_diagnose_finding_count(diagnose), 1 + is_other);
        first = ash_diagnose_first(diagnose);
        assert_int_equal(first->layer, is_other ? ASH_HEALTH_STORAGE : ASH_HEALTH_HOST);
        assert_string_equal(first->where, is_other ? "node-2" : "node-1 job 7");
        ash_diagnose_close(diagnose);
    }
}

/* A run that slows down on a node whose cores are taken: the host is named, the step is not. */
static void test_a_step_is_not_blamed_for_a_lack_of_cores(void **state)
{
    struct ash_finding slower = {.layer = ASH_HEALTH_STEP, .severity = ASH_SLOW, .metric = "compute_s by step"};
    struct ash_diagnose *diagnose = NULL;

    (void)state;
    assert_int_equal(ash_diagnose_open(&diagnose, NULL), 0);
    add_text(diagnose, "node_time_seconds 1010\nnode_pressure_cpu_waiting_seconds_total 19\n", false);
    add_text(diagnose, "node_time_seconds 1000\nnode_pressure_cpu_waiting_seconds_total 10\n", true);
    assert_int_equal(ash_diagnose_report(diagnose, &slower), 0);
    assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
    assert_int_equal(ash_diagnose_finding_count(diagnose), 1);
    assert_int_equal(ash_diagnose_first(diagnose)->layer, ASH_HEALTH_HOST);
    ash_diagnose_close(diagnose);
}

/* A slow link makes the first rank's steps longer, also where it computes: the link is named alone. */
static void test_a_step_is_not_blamed_for_a_slow_link(void **state)
{
    static const char *const metrics[] = {"compute_s by step", "comm_s by step"};
    struct ash_diagnose *diagnose = NULL;

    (void)state;
    assert_int_equal(ash_diagnose_open(&diagnose, NULL), 0);
    add_text(diagnose, "ashlar_rank_slow_link{from=\"0\",to=\"3\"} 1\n", false);
    for (size_t i = 0; i < ASH_COUNT(metrics); i++) {
        struct ash_finding slower = {.layer = ASH_HEALTH_STEP, .severity = ASH_SLOW, .metric = metrics[i]};

        assert_int_equal(ash_diagnose_report(diagnose, &slower), 0);
    }
    assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
    assert_int_equal(ash_diagnose_finding_count(diagnose), 1);
    assert_string_equal(ash_diagnose_first(diagnose)->metric, "ashlar_rank_slow_link");
    ash_diagnose_close(diagnose);
}

/* One node has no peers to compare with: a port that has received data is down, an unused one may be. */
static void test_a_port_is_down_on_the_only_node(void **state)
{
    struct ash_diagnose *diagnose = NULL;

    (void)state;
    assert_int_equal(ash_diagnose_open(&diagnose, NULL), 0);
    for (int port = 0; port < 3; port++) {
        char text[512];

        snprintf(text, sizeof(text),
                 "node_infiniband_state_id{device=\"mlx5_%d\",port=\"1\"} %d\n"
                 "node_infiniband_port_data_received_bytes_total{device=\"mlx5_%d\",port=\"1\"} %d\n",
                 port, port == 0 ? 4 : 1, port, port < 2 ? 1000 : 0);
        add_text(diagnose, text, false);
    }
    assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
    assert_int_equal(ash_diagnose_finding_count(diagnose), 1);
    assert_string_equal(ash_diagnose_first(diagnose)->where, "node-1 device mlx5_1 port 1");
    assert_string_equal(ash_diagnose_first(diagnose)->metric, "node_infiniband_state_id");
    ash_diagnose_close(diagnose);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_healthy),
        cmocka_unit_test(test_single_faults),
        cmocka_unit_test(test_one_scrape),
        cmocka_unit_test(test_xids_that_are_only_watched),
        cmocka_unit_test(test_idle_and_full),
        cmocka_unit_test(test_missing_parts),
        cmocka_unit_test(test_straggler),
        cmocka_unit_test(test_the_first_line_comes_first),
        cmocka_unit_test(test_logs),
        cmocka_unit_test(test_storage_is_blamed_where_steps_wait),
        cmocka_unit_test(test_storage_is_not_blamed_for_a_lack_of_memory),
        cmocka_unit_test(test_a_step_is_not_blamed_for_a_lack_of_cores),
        cmocka_unit_test(test_a_step_is_not_blamed_for_a_slow_link),
        cmocka_unit_test(test_a_port_is_down_on_the_only_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

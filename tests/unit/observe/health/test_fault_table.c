/* Drawn clusters with one fault each, row by row of the table of faults: the right layer, node and counter are named,
 * and nothing else is blamed. A hundred drawn clean clusters have no finding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/str.h"
#include "observe/health/diagnose.h"

#define NODES 6
#define PARTS 4
#define SECONDS 60

static uint64_t seed;

static double draw(void)
{
    seed = ash_hash_mix(seed + 0x9e3779b97f4a7c15u);
    return (double)(seed >> 11) * 0x1p-53;
}

/* About a normal distribution. */
static double noise(double share)
{
    double sum = -6;

    for (int i = 0; i < 12; i++)
        sum += draw();
    return share * sum;
}

/* ---- a cluster --------------------------------------------------------------------------------------------------- */

enum owner { NODE, GPU, EFA, NIC, MOUNT, DRIVE, JOB, RANK, KIND, COLLECTOR };

/* A family of a healthy node: a gauge has no growth, a counter grows by about `growth` in a minute. */
struct family {
    const char *metric;
    enum owner owner;
    double value, growth, jitter;
};

static const struct family families[] = {
    {"DCGM_FI_DEV_GPU_TEMP", GPU, 60, 0, 0.03},
    {"DCGM_FI_DEV_SM_CLOCK", GPU, 1900, 0, 0.01},
    {"DCGM_FI_DEV_MEM_CLOCK", GPU, 3200, 0, 0},
    {"DCGM_FI_DEV_POWER_USAGE", GPU, 640, 0, 0.05},
    {"DCGM_FI_DEV_GPU_UTIL", GPU, 97, 0, 0.01},
    {"DCGM_FI_DEV_XID_ERRORS", GPU, 0, 0, 0},
    {"DCGM_FI_DEV_ROW_REMAP_FAILURE", GPU, 0, 0, 0},
    {"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", GPU, 0, 0, 0},
    {"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", GPU, 0, 0, 0},
    {"DCGM_FI_DEV_THERMAL_VIOLATION", GPU, 500, 0, 0},
    {"DCGM_FI_DEV_POWER_VIOLATION", GPU, 1e6, 2e5, 0.1},
    {"DCGM_FI_DEV_PCIE_REPLAY_COUNTER", GPU, 20, 3, 0.3},
    {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", GPU, 0.4, 0, 0.03},
    {"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", GPU, 1e9, 5e8, 0.02},
    {"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", GPU, 4, 0, 0},
    {"DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", GPU, 0, 0, 0},
    {"ashlar_gpu_row_remap_pending", GPU, 0, 0, 0},
    {"DCGM_FI_DEV_PCIE_LINK_WIDTH", GPU, 16, 0, 0},
    {"DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", GPU, 16, 0, 0},
    {"DCGM_FI_DEV_PCIE_LINK_GEN", GPU, 5, 0, 0},
    {"DCGM_FI_DEV_PCIE_MAX_LINK_GEN", GPU, 5, 0, 0},
    {"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", GPU, 4, 0, 0}, /* the power cap, as under full load */
    {"node_amazonefa_rx_bytes", EFA, 1e12, 8e10, 0.02},
    {"node_amazonefa_tx_bytes", EFA, 1e12, 8e10, 0.02},
    {"node_amazonefa_rx_drops", EFA, 12, 0, 0},
    {"node_amazonefa_retrans_bytes", EFA, 1e6, 1e4, 0.2},
    {"node_amazonefa_retrans_timeout_events", EFA, 0, 0, 0},
    {"node_amazonefa_unresponsive_remote_events", EFA, 0, 0, 0},
    {"node_infiniband_state_id", EFA, 4, 0, 0},
    {"node_infiniband_rate_bytes_per_second", EFA, 5e10, 0, 0},
    {"node_infiniband_link_error_recovery_total", EFA, 3, 0, 0},
    {"node_network_carrier_down_changes_total", NIC, 2, 0, 0},
    {"node_network_up", NIC, 1, 0, 0},
    {"node_network_speed_bytes", NIC, 1.25e10, 0, 0},
    {"node_network_transmit_bytes_total", NIC, 1e12, 8e9, 0.1},
    {"node_netstat_Tcp_RetransSegs", NODE, 4000, 300, 0.3},
    {"node_netstat_TcpExt_TCPTimeouts", NODE, 40, 0, 0},
    {"ashlar_rank_slow_link", RANK, 0, 0, 0},
    {"ashlar_kernels_forced", RANK, 0, 0, 0},
    {"node_filesystem_readonly", MOUNT, 0, 0, 0},
    {"ashlar_ext4_errors_total", DRIVE, 2, 0, 0},
    {"node_pressure_io_waiting_seconds_total", NODE, 900, 30, 0.3},
    {"node_pressure_memory_waiting_seconds_total", NODE, 20, 1, 0.3},
    {"ashlar_job_pressure_io_stalled_seconds_total", JOB, 30, 0.5, 0.3},
    {"ashlar_job_pressure_memory_stalled_seconds_total", JOB, 3, 0.1, 0.3},
    {"ashlar_job_memory_limit_bytes", JOB, 64e9, 0, 0},
    {"ashlar_job_refault_bytes_total", JOB, 1e12, 2e10, 0.5},
    {"ashlar_s3_calls_total", RANK, 1e5, 600, 0.1},
    {"ashlar_s3_call_seconds_total", RANK, 1e5, 1200, 0.1},
    {"node_filesystem_avail_bytes", MOUNT, 8e12, 0, 0.01},
    {"node_filesystem_size_bytes", MOUNT, 1e13, 0, 0},
    {"node_filesystem_files_free", MOUNT, 8e8, 0, 0.01},
    {"node_filesystem_files", MOUNT, 1e9, 0, 0},
    {"node_filesystem_device_error", MOUNT, 0, 0, 0},
    {"ashlar_mount_probe_seconds", MOUNT, 0.0005, 0, 0.3},
    {"ashlar_lustre_evictions", NODE, 1, 0, 0},
    {"ashlar_nvme_media_errors_total", DRIVE, 0, 0, 0},
    {"ashlar_nvme_critical_warning", DRIVE, 0, 0, 0},
    {"node_pressure_io_stalled_seconds_total", NODE, 100, 0.5, 0.3},
    {"node_pressure_memory_stalled_seconds_total", NODE, 10, 0.1, 0.3},
    {"node_pressure_cpu_waiting_seconds_total", NODE, 1000, 4, 0.3},
    {"node_memory_MemAvailable_bytes", NODE, 1e12, 0, 0.05},
    {"node_memory_MemTotal_bytes", NODE, 2e12, 0, 0},
    {"node_vmstat_oom_kill", NODE, 3, 0, 0},
    {"node_cpu_package_throttles_total", NODE, 5, 0, 0},
    {"node_cpu_core_throttles_total", NODE, 5, 0, 0},
    {"node_edac_uncorrectable_errors_total", NODE, 0, 0, 0},
    {"node_edac_correctable_errors_total", NODE, 7, 0, 0},
    {"ashlar_fabric_manager_up", NODE, 1, 0, 0},
    {"node_load1", NODE, 40, 0, 0.1},
    {"ashlar_processes_stuck", NODE, 0, 0, 0},
    {"ashlar_job_cpu_throttled_seconds_total", JOB, 20, 0.2, 0.3},
    {"ashlar_job_oom_kills_total", JOB, 0, 0, 0},
    {"ashlar_kernel_events_total", KIND, 7, 0, 0},
    {"ashlar_collector_up", COLLECTOR, 1, 0, 0},
};

/* What is different in one part of one node; -1: in all of its parts. */
struct fault {
    const char *metric;
    double now, before; /* NaN before: as usual; NaN now: the series is gone */
    int part;
};

/* A cluster: which fault, on which node (-1: on all), and what clean life brings. */
struct cluster {
    const struct fault *fault;
    int node, spare; /* spare: a node whose GPUs idle, -1: none */
    int restarted;   /* a node that has rebooted: its counters are small */
};

static const char *const kinds[] = {"mce", "sxid", "link", "lustre"};
static const char *const collectors[] = {"gpu", "host", "net", "mounts"};

static void name_part(const struct family *family, int node, int part, char *buf, size_t buf_bytes)
{
    switch (family->owner) {
    case GPU:
        snprintf(buf, buf_bytes, "gpu=\"%d\",modelName=\"H200\",Hostname=\"node-%d\"", part, node);
        break;
    case EFA:
        snprintf(buf, buf_bytes, "device=\"efa%d\",port=\"1\"", part);
        break;
    case NIC:
        snprintf(buf, buf_bytes, "device=\"%s%d\"", part == 3 ? "veth" : "ens", part);
        break;
    case MOUNT:
        snprintf(buf, buf_bytes, "fstype=\"lustre\",mountpoint=\"/fs%d\"", part);
        break;
    case DRIVE:
        snprintf(buf, buf_bytes, "device=\"nvme%d\"", part);
        break;
    case JOB:
        snprintf(buf, buf_bytes, "job=\"%d\"", 4000 + part);
        break;
    case RANK:
        snprintf(buf, buf_bytes, "rank=\"%d\"", PARTS * node + part);
        break;
    case KIND:
        snprintf(buf, buf_bytes, "kind=\"%s\"", kinds[part]);
        break;
    case COLLECTOR:
        snprintf(buf, buf_bytes, "collector=\"%s\"", collectors[part]);
        break;
    default:
        snprintf(buf, buf_bytes, "instance=\"node-%d:9470\"", node);
    }
}

static double value_of(const struct cluster *cluster, const struct family *family, int node, bool before)
{
    bool is_idle = node == cluster->spare;
    double value = family->value * (1 + noise(family->jitter)), grown = family->growth * (1 + noise(family->jitter));

    if (family->growth == 0) {
        if (!is_idle) return value;
        if (strcmp(family->metric, "DCGM_FI_DEV_GPU_UTIL") == 0) return 0;
        if (strcmp(family->metric, "DCGM_FI_DEV_SM_CLOCK") == 0) return 345;
        if (strcmp(family->metric, "DCGM_FI_DEV_POWER_USAGE") == 0) return 90;
        return strcmp(family->metric, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE") == 0 ? 0 : value;
    }
    if (is_idle) grown *= 0.001;
    if (node == cluster->restarted) return before ? family->value : grown;
    return family->value + (before ? 0 : fmax(grown, 0));
}

static void write_series(struct ash_str *text, const struct cluster *cluster, const struct family *family, int node,
                         bool before)
{
    const struct fault *fault = cluster->fault;

    for (int part = 0; part < (family->owner == NODE ? 1 : PARTS); part++) {
        double value = value_of(cluster, family, node, before);
        char labels[96];

        if (fault != NULL && strcmp(fault->metric, family->metric) == 0 &&
            (cluster->node < 0 || node == cluster->node) && (fault->part < 0 || part == fault->part)) {
            if (!before && isnan(fault->now)) continue;
            if (!before || !isnan(fault->before)) value = before ? fault->before : fault->now;
        }
        name_part(family, node, part, labels, sizeof(labels));
        ash_str_addf(text, "%s{%s} %.17g\n", family->metric, labels, value);
    }
}

static void add_node(struct ash_diagnose *diagnose, const struct cluster *cluster, int node, bool before)
{
    struct ash_scrape *scrape = NULL;
    struct ash_str text = {0};
    char name[32];

    ash_str_addf(&text, "node_time_seconds %d\n", before ? 1000 : 1000 + SECONDS);
    for (size_t i = 0; i < ASH_COUNT(families); i++)
        write_series(&text, cluster, &families[i], node, before);
    snprintf(name, sizeof(name), "node-%d", node);
    assert_int_equal(ash_scrape_parse(text.data, text.size_bytes, name, &scrape, NULL), 0);
    assert_int_equal(ash_diagnose_add(diagnose, scrape, name, before, NULL), 0);
    ash_str_fini(&text);
}

static struct ash_diagnose *diagnose_cluster(const struct cluster *cluster)
{
    struct ash_diagnose *diagnose = NULL;

    assert_int_equal(ash_diagnose_open(&diagnose, NULL), 0);
    for (int node = 0; node < NODES; node++) {
        add_node(diagnose, cluster, node, true);
        add_node(diagnose, cluster, node, false);
    }
    assert_int_equal(ash_diagnose_run(diagnose, 0, NULL), 0);
    return diagnose;
}

/* Findings with a fault. */
static size_t count_blamed(const struct ash_diagnose *diagnose)
{
    size_t count = 0;

    for (size_t i = 0; i < ash_diagnose_finding_count(diagnose); i++)
        count += ash_diagnose_finding(diagnose, i)->severity > ASH_WATCH;
    return count;
}

static void print_findings(const struct ash_diagnose *diagnose)
{
    for (size_t i = 0; i < ash_diagnose_finding_count(diagnose); i++) {
        const struct ash_finding *finding = ash_diagnose_finding(diagnose, i);

        printf("  %s %s %s %s: %s\n", ash_severity_name(finding->severity), ash_health_layer_name(finding->layer),
               finding->where, finding->metric, finding->value);
    }
}

/* ---- scrapes ----------------------------------------------------------------------------------------------------- */

struct row {
    const char *what;
    struct fault fault;
    enum ash_health_layer layer;
    enum ash_severity severity;
    const char *part; /* of where, after the node */
};

static const struct row rows[] = {
    {"an XID", {"DCGM_FI_DEV_XID_ERRORS", 79, NAN, 2}, ASH_HEALTH_GPU, ASH_BROKEN, " gpu 2"},
    {"a double-bit error", {"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1, NAN, 1}, ASH_HEALTH_GPU, ASH_BROKEN, " gpu 1"},
    {"a failed remap", {"DCGM_FI_DEV_ROW_REMAP_FAILURE", 1, NAN, 0}, ASH_HEALTH_GPU, ASH_BROKEN, " gpu 0"},
    {"remapped rows", {"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 2, NAN, 0}, ASH_HEALTH_GPU, ASH_BROKEN, " gpu 0"},
    {"a pending remap", {"ashlar_gpu_row_remap_pending", 1, NAN, 3}, ASH_HEALTH_GPU, ASH_SLOW, " gpu 3"},
    {"a missing GPU", {"DCGM_FI_DEV_GPU_TEMP", NAN, NAN, 3}, ASH_HEALTH_GPU, ASH_BROKEN, ""},
    {"heat", {"DCGM_FI_DEV_THERMAL_VIOLATION", 9000, NAN, 2}, ASH_HEALTH_GPU, ASH_SLOW, " gpu 2"},
    {"power", {"DCGM_FI_DEV_POWER_VIOLATION", 3e7, NAN, 2}, ASH_HEALTH_GPU, ASH_SLOW, " gpu 2"},
    {"a low clock", {"DCGM_FI_DEV_SM_CLOCK", 1200, NAN, 1}, ASH_HEALTH_GPU, ASH_SLOW, " gpu 1"},
    {"slow memory", {"DCGM_FI_DEV_MEM_CLOCK", 2600, NAN, 1}, ASH_HEALTH_GPU, ASH_SLOW, " gpu 1"},
    {"stuck NVML", {"ashlar_collector_up", 0, NAN, 0}, ASH_HEALTH_GPU, ASH_BROKEN, " collector gpu"},
    {"PCIe replays", {"DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 5000, NAN, 1}, ASH_HEALTH_GPU, ASH_SLOW, " gpu 1"},
    {"lost PCIe lanes", {"DCGM_FI_DEV_PCIE_LINK_WIDTH", 8, NAN, 1}, ASH_HEALTH_GPU, ASH_SLOW, " gpu 1"},
    {"a slow PCIe link", {"DCGM_FI_DEV_PCIE_LINK_GEN", 3, NAN, 3}, ASH_HEALTH_GPU, ASH_SLOW, " gpu 3"},
    {"a power brake", {"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 0x88, NAN, 0}, ASH_HEALTH_GPU, ASH_SLOW, " gpu 0"},
    {"NVLink replays",
     {"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 9, NAN, 2},
     ASH_HEALTH_NVLINK,
     ASH_SLOW,
     " gpu 2"},
    {"an NVLink that went down",
     {"DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 1, NAN, 2},
     ASH_HEALTH_NVLINK,
     ASH_BROKEN,
     " gpu 2"},
    {"a slow NVLink", {"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 1.1e9, NAN, 2}, ASH_HEALTH_NVLINK, ASH_SLOW, " gpu 2"},
    {"an SXid", {"ashlar_kernel_events_total", 8, NAN, 1}, ASH_HEALTH_NVLINK, ASH_BROKEN, ""},
    {"EFA drops", {"node_amazonefa_rx_drops", 90, NAN, 1}, ASH_HEALTH_NETWORK, ASH_SLOW, " device efa1 port 1"},
    {"EFA retransmits",
     {"node_amazonefa_retrans_timeout_events", 5, NAN, 1},
     ASH_HEALTH_NETWORK,
     ASH_SLOW,
     " device efa1 port 1"},
    {"a device that is gone", {"node_amazonefa_rx_bytes", NAN, NAN, 3}, ASH_HEALTH_NETWORK, ASH_BROKEN, ""},
    {"a device at a tenth",
     {"node_amazonefa_tx_bytes", 1.008e12, NAN, 0},
     ASH_HEALTH_NETWORK,
     ASH_SLOW,
     " device efa0 port 1"},
    {"a port that is down", {"node_infiniband_state_id", 1, NAN, 2}, ASH_HEALTH_NETWORK, ASH_BROKEN, " device efa2"},
    {"a port that is slow",
     {"node_infiniband_rate_bytes_per_second", 1.25e10, NAN, 2},
     ASH_HEALTH_NETWORK,
     ASH_SLOW,
     " device efa2"},
    {"a port that recovers",
     {"node_infiniband_link_error_recovery_total", 4, NAN, 2},
     ASH_HEALTH_NETWORK,
     ASH_SLOW,
     " device efa2"},
    {"flaps", {"node_network_carrier_down_changes_total", 5, NAN, 0}, ASH_HEALTH_NETWORK, ASH_SLOW, " device ens0"},
    {"a link in the kernel log", {"ashlar_kernel_events_total", 9, NAN, 2}, ASH_HEALTH_NETWORK, ASH_SLOW, ""},
    {"one card of two down", {"node_network_up", 0, NAN, 1}, ASH_HEALTH_NETWORK, ASH_BROKEN, " device ens1"},
    {"a link at a tenth of its speed",
     {"node_network_speed_bytes", 1.25e9, NAN, 1},
     ASH_HEALTH_NETWORK,
     ASH_SLOW,
     " device ens1"},
    {"a card that is not used",
     {"node_network_transmit_bytes_total", 1e12 + 1e6, NAN, 2},
     ASH_HEALTH_NETWORK,
     ASH_SLOW,
     " device ens2"},
    {"a link that loses packets", {"node_netstat_Tcp_RetransSegs", 90000, NAN, 0}, ASH_HEALTH_NETWORK, ASH_SLOW, ""},
    {"a link that the job timed", {"ashlar_rank_slow_link", 12, NAN, 2}, ASH_HEALTH_NETWORK, ASH_SLOW, " rank "},
    {"a mount that turns read-only",
     {"node_filesystem_readonly", 1, NAN, 2},
     ASH_HEALTH_STORAGE,
     ASH_BROKEN,
     " mountpoint /fs2"},
    {"a failing disk", {"ashlar_ext4_errors_total", 5, NAN, 1}, ASH_HEALTH_STORAGE, ASH_BROKEN, " device nvme1"},
    {"a job that stalls for storage",
     {"ashlar_job_pressure_io_stalled_seconds_total", 50, NAN, 1},
     ASH_HEALTH_STORAGE,
     ASH_SLOW,
     " job 4001"},
    {"storage that stalls", {"node_pressure_io_stalled_seconds_total", 140, NAN, 0}, ASH_HEALTH_STORAGE, ASH_SLOW, ""},
    {"a full mount", {"node_filesystem_avail_bytes", 1e10, NAN, 2}, ASH_HEALTH_STORAGE, ASH_BROKEN, " mountpoint /fs2"},
    {"a mount without inodes",
     {"node_filesystem_files_free", 1e5, NAN, 1},
     ASH_HEALTH_STORAGE,
     ASH_BROKEN,
     " mountpoint /fs1"},
    {"a hanging mount",
     {"node_filesystem_device_error", 1, NAN, 2},
     ASH_HEALTH_STORAGE,
     ASH_BROKEN,
     " mountpoint /fs2"},
    {"a slow mount", {"ashlar_mount_probe_seconds", 4, NAN, 2}, ASH_HEALTH_STORAGE, ASH_SLOW, " mountpoint /fs2"},
    {"a Lustre eviction", {"ashlar_lustre_evictions", 2, NAN, 0}, ASH_HEALTH_STORAGE, ASH_SLOW, ""},
    {"media errors", {"ashlar_nvme_media_errors_total", 3, NAN, 1}, ASH_HEALTH_STORAGE, ASH_BROKEN, " device nvme1"},
    {"a drive that warns",
     {"ashlar_nvme_critical_warning", 1, NAN, 1},
     ASH_HEALTH_STORAGE,
     ASH_BROKEN,
     " device nvme1"},
    {"a group without CPU",
     {"ashlar_job_cpu_throttled_seconds_total", 60, NAN, 0},
     ASH_HEALTH_HOST,
     ASH_SLOW,
     " job 4000"},
    {"memory pressure", {"node_pressure_memory_stalled_seconds_total", 40, NAN, 0}, ASH_HEALTH_HOST, ASH_SLOW, ""},
    {"a process short of memory",
     {"node_pressure_memory_waiting_seconds_total", 50, NAN, 0},
     ASH_HEALTH_HOST,
     ASH_SLOW,
     ""},
    {"a job short of memory",
     {"ashlar_job_pressure_memory_stalled_seconds_total", 15, NAN, 1},
     ASH_HEALTH_HOST,
     ASH_SLOW,
     " job 4001"},
    {"a job that thrashes", {"ashlar_job_refault_bytes_total", 3e12, NAN, 1}, ASH_HEALTH_HOST, ASH_SLOW, " job 4001"},
    {"OOM", {"node_vmstat_oom_kill", 4, NAN, 0}, ASH_HEALTH_HOST, ASH_BROKEN, ""},
    {"OOM in a job", {"ashlar_job_oom_kills_total", 1, NAN, 1}, ASH_HEALTH_HOST, ASH_BROKEN, " job 4001"},
    {"a noisy neighbour", {"node_pressure_cpu_waiting_seconds_total", 1050, NAN, 0}, ASH_HEALTH_HOST, ASH_SLOW, ""},
    {"processes in D", {"ashlar_processes_stuck", 2, NAN, 0}, ASH_HEALTH_HOST, ASH_SLOW, ""},
    {"a machine check", {"ashlar_kernel_events_total", 8, NAN, 0}, ASH_HEALTH_HOST, ASH_BROKEN, ""},
    {"uncorrected memory", {"node_edac_uncorrectable_errors_total", 1, NAN, 0}, ASH_HEALTH_HOST, ASH_BROKEN, ""},
    {"throttling", {"node_cpu_package_throttles_total", 50, NAN, 0}, ASH_HEALTH_HOST, ASH_SLOW, ""},
    {"a hot core", {"node_cpu_core_throttles_total", 50, NAN, 0}, ASH_HEALTH_HOST, ASH_SLOW, ""},
    {"GPUs that wait for data", {"DCGM_FI_DEV_GPU_UTIL", 20, NAN, -1}, ASH_HEALTH_STEP, ASH_SLOW, " gpu "},
    {"no fabric manager", {"ashlar_fabric_manager_up", 0, NAN, 0}, ASH_HEALTH_SOFTWARE, ASH_BROKEN, ""},
    {"forced kernels", {"ashlar_kernels_forced", 1, NAN, 0}, ASH_HEALTH_SOFTWARE, ASH_SLOW, " rank "},
};

static void check_row(const struct row *row, int node)
{
    struct ash_diagnose *diagnose =
        diagnose_cluster(&(struct cluster){.fault = &row->fault, .node = node, .spare = -1, .restarted = -1});
    const struct ash_finding *first = ash_diagnose_first(diagnose);
    size_t blamed = row->fault.part < 0 ? PARTS : 1;
    char where[64];

    snprintf(where, sizeof(where), "node-%d%s", node, row->part);
    if (first == NULL || count_blamed(diagnose) != blamed || first->layer != row->layer ||
        first->severity != row->severity || strcmp(first->metric, row->fault.metric) != 0 ||
        strncmp(first->where, where, strlen(where)) != 0) {
        print_findings(diagnose);
        fail_msg("%s on node %d: seed %llu", row->what, node, (unsigned long long)seed);
    }
    ash_diagnose_close(diagnose);
}

static void test_every_row_names_layer_node_and_counter(void **state)
{
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(rows); i++) {
        seed = i + 1;
        check_row(&rows[i], (int)(i % NODES));
    }
}

/* ---- clean clusters ---------------------------------------------------------------------------------------------- */

static void test_clean_clusters_blame_nobody(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= 100; i++) {
        static const struct fault clean_up = {"DCGM_FI_DEV_XID_ERRORS", 45, NAN, -1};
        struct cluster cluster = {.node = -1, .spare = -1, .restarted = -1};
        struct ash_diagnose *diagnose;

        seed = i;
        if (i % 4 == 1) cluster.spare = (int)(i % NODES);
        if (i % 4 == 2) cluster.restarted = (int)(i % NODES);
        if (i % 4 == 3) cluster.fault = &clean_up;
        diagnose = diagnose_cluster(&cluster);
        if (count_blamed(diagnose) > 0) {
            print_findings(diagnose);
            fail_msg("clean cluster %llu", (unsigned long long)i);
        }
        ash_diagnose_close(diagnose);
    }
}

/* A code that takes single nodes out is the job's doing where all nodes have it at once. */
static void test_one_code_everywhere_is_the_job(void **state)
{
    static const struct fault everywhere = {"DCGM_FI_DEV_XID_ERRORS", 95, NAN, -1};
    struct ash_diagnose *diagnose;

    (void)state;
    seed = 7;
    diagnose = diagnose_cluster(&(struct cluster){.fault = &everywhere, .node = -1, .spare = -1, .restarted = -1});
    assert_int_equal(count_blamed(diagnose), 0);
    assert_int_equal(ash_diagnose_finding_count(diagnose), NODES * PARTS);
    assert_non_null(strstr(ash_diagnose_finding(diagnose, 0)->value, "the job's doing"));
    ash_diagnose_close(diagnose);
    seed = 7;
    diagnose = diagnose_cluster(&(struct cluster){.fault = &everywhere, .node = 2, .spare = -1, .restarted = -1});
    assert_int_equal(count_blamed(diagnose), PARTS);
    assert_memory_equal(ash_diagnose_first(diagnose)->where, "node-2 ", 7);
    ash_diagnose_close(diagnose);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_names_layer_node_and_counter),
        cmocka_unit_test(test_clean_clusters_blame_nobody),
        cmocka_unit_test(test_one_code_everywhere_is_the_job),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

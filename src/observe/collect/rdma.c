/* InfiniBand and EFA devices: /sys/class/infiniband/DEVICE/ports/PORT. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "observe/collect/collector.h"
#include "observe/collect/exposition.h"

#define IB(file, name, help)                                                                                           \
    {                                                                                                                  \
        "counters/" file, "node_infiniband_" name "_total", "counter", help, 1                                         \
    }
static const struct ash_sys_file ib_files[] = {
    IB("excessive_buffer_overrun_errors", "excessive_buffer_overrun_errors",
       "Number of times that OverrunErrors consecutive flow control update periods occurred, each with at least one "
       "overrun error."),
    IB("link_downed", "link_downed", "Number of times the link failed to recover from an error state and went down"),
    IB("link_error_recovery", "link_error_recovery",
       "Number of times the link successfully recovered from an error state"),
    IB("local_link_integrity_errors", "local_link_integrity_errors",
       "Number of times that the count of local physical errors exceeded the threshold."),
    {"counters/port_rcv_data", "node_infiniband_port_data_received_bytes_total", "counter",
     "Number of data octets received on all links", 4},
    {"counters/port_xmit_data", "node_infiniband_port_data_transmitted_bytes_total", "counter",
     "Number of data octets transmitted on all links", 4},
    IB("port_rcv_constraint_errors", "port_constraint_errors_received",
       "Number of packets received on the switch physical port that are discarded"),
    IB("port_xmit_constraint_errors", "port_constraint_errors_transmitted",
       "Number of packets not transmitted from the switch physical port"),
    IB("port_xmit_discards", "port_discards_transmitted",
       "Number of outbound packets discarded by the port because the port is down or congested"),
    IB("port_rcv_errors", "port_errors_received",
       "Number of packets containing an error that were received on this port"),
    IB("port_rcv_packets", "port_packets_received",
       "Number of packets received on all VLs by this port (including errors)"),
    IB("port_xmit_packets", "port_packets_transmitted",
       "Number of packets transmitted on all VLs from this port (including errors)"),
    IB("port_xmit_wait", "port_transmit_wait",
       "Number of ticks during which the port had data to transmit but no data was sent during the entire tick"),
    IB("port_rcv_remote_physical_errors", "port_receive_remote_physical_errors",
       "Number of packets marked with the EBP (End of Bad Packet) delimiter received on the port."),
    IB("symbol_error", "symbol_error", "Number of minor link errors detected on one or more physical lanes."),
    IB("VL15_dropped", "vl15_dropped", "Number of incoming VL15 packets dropped due to resource limitations."),
};
/* Of all ports, EFA's too. */
static const struct ash_sys_file port_files[] = {
    {"state", "node_infiniband_state_id", "gauge",
     "State of the InfiniBand port (0: no change, 1: down, 2: init, 3: armed, 4: active, 5: act defer)", 1},
    {"phys_state", "node_infiniband_physical_state_id", "gauge",
     "Physical state of the InfiniBand port (0: no change, 1: sleep, 2: polling, 3: disable, 4: shift, 5: link up, 6: "
     "link error recover, 7: phytest)",
     1},
    {"rate", "node_infiniband_rate_bytes_per_second", "gauge", "Maximum signal transfer rate", 125000000},
};

/* Counters of EFA's driver, shown as AWS's exporter shows them: gauges by name. */
static const char *const efa_counters[] = {"alloc_ah_err",
                                           "alloc_pd_err",
                                           "alloc_ucontext_err",
                                           "cmds_err",
                                           "completed_cmds",
                                           "create_ah_err",
                                           "create_cq_err",
                                           "create_qp_err",
                                           "impaired_remote_conn_events",
                                           "keep_alive_rcvd",
                                           "lifespan",
                                           "mmap_err",
                                           "no_completion_cmds",
                                           "rdma_read_bytes",
                                           "rdma_read_resp_bytes",
                                           "rdma_read_wr_err",
                                           "rdma_read_wrs",
                                           "rdma_write_bytes",
                                           "rdma_write_recv_bytes",
                                           "rdma_write_wr_err",
                                           "rdma_write_wrs",
                                           "recv_bytes",
                                           "recv_wrs",
                                           "reg_mr_err",
                                           "retrans_bytes",
                                           "retrans_pkts",
                                           "retrans_timeout_events",
                                           "rx_bytes",
                                           "rx_drops",
                                           "rx_pkts",
                                           "send_bytes",
                                           "send_wrs",
                                           "submitted_cmds",
                                           "tx_bytes",
                                           "tx_pkts",
                                           "unresponsive_remote_events"};

static void add_port(struct ash_devices *ports, const char *device, const char *port)
{
    char path[PATH_MAX], labels[ASH_EXP_LABELS_BYTES];

    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%s", device, port);
    ash_devices_add(ports, path, ash_exp_labels(labels, sizeof(labels), "device", device, "port", port, (char *)NULL));
}

static bool is_efa(const struct ash_host_files *source, const char *device, const char *port)
{
    char path[PATH_MAX];
    double value;

    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%s/hw_counters/submitted_cmds", device, port);
    return strncmp(device, "efa", 3) == 0 || ash_host_number(source, path, &value) == 0 ||
           strncmp(device, "rdmap", 5) == 0;
}

/* ---- the collector ----------------------------------------------------------------------------------------------- */

#define EFA_COUNTERS ASH_COUNT(efa_counters)
#define LOOK_NS 60000000000u

struct rdma {
    const struct ash_host_files *source;
    uint64_t looked_ns;                /* for ports; 0: never */
    struct ash_names devices;          /* whose ports those are */
    struct ash_devices ports, ib, efa; /* all; those of each */
    struct ash_sys_file efa_files[EFA_COUNTERS];
    char texts[EFA_COUNTERS][3][128]; /* file, name and help of each */
};

static void name_efa_files(struct rdma *rdma)
{
    for (size_t i = 0; i < EFA_COUNTERS; i++) {
        char *file = rdma->texts[i][0], *name = rdma->texts[i][1], *help = rdma->texts[i][2];

        snprintf(file, sizeof(rdma->texts[i][0]), "hw_counters/%s", efa_counters[i]);
        snprintf(name, sizeof(rdma->texts[i][1]), "node_amazonefa_%s", efa_counters[i]);
        snprintf(help, sizeof(rdma->texts[i][2]), "Counter %s of the EFA driver.", efa_counters[i]);
        rdma->efa_files[i] =
            (struct ash_sys_file){.file = file, .name = name, .type = "gauge", .help = help, .scale = 1};
    }
}

static int open_rdma(const struct ash_host_files *source, void **state_out, struct ash_err *err)
{
    struct rdma *rdma = calloc(1, sizeof(*rdma));

    if (rdma == NULL) return ash_err_set(err, -ENOMEM, "no memory for network devices");
    rdma->source = source;
    name_efa_files(rdma);
    *state_out = rdma;
    return 0;
}

static void find_ports(struct rdma *rdma)
{
    const struct ash_names *devices = &rdma->devices;

    for (size_t d = 0; d < devices->count; d++) {
        struct ash_names numbers = {0};
        char path[PATH_MAX];

        snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports", devices->items[d]);
        ash_names_list(rdma->source, path, &numbers);
        for (size_t p = 0; p < numbers.count; p++) {
            bool efa = is_efa(rdma->source, devices->items[d], numbers.items[p]);

            add_port(&rdma->ports, devices->items[d], numbers.items[p]);
            add_port(efa ? &rdma->efa : &rdma->ib, devices->items[d], numbers.items[p]);
        }
        ash_names_fini(&numbers);
    }
}

static void forget_ports(struct rdma *rdma)
{
    ash_devices_fini(&rdma->ports);
    ash_devices_fini(&rdma->ib);
    ash_devices_fini(&rdma->efa);
    ash_names_fini(&rdma->devices);
}

static bool is_same(const struct ash_names *a, const struct ash_names *b)
{
    for (size_t i = 0; i < a->count && a->count == b->count; i++)
        if (strcmp(a->items[i], b->items[i]) != 0) return false;
    return a->count == b->count;
}

/* Ports are looked for where devices came or went: there may be dozens, with dozens of files each. A driver makes the
 * device first and its ports a moment later, so they are looked for again now and then. */
static int collect_rdma(void *state, struct ash_str *out, struct ash_err *err)
{
    struct rdma *rdma = state;
    struct ash_names devices = {0};

    (void)err;
    ash_names_list(rdma->source, "/sys/class/infiniband", &devices);
    if (is_same(&devices, &rdma->devices) && ash_clock_ns() - rdma->looked_ns < LOOK_NS) {
        ash_names_fini(&devices);
    } else {
        forget_ports(rdma);
        rdma->devices = devices;
        find_ports(rdma);
        rdma->ports.keeps = rdma->ib.keeps = rdma->efa.keeps = true;
        rdma->looked_ns = ash_clock_ns();
    }
    if (rdma->ports.folders.count > 0)
        ash_collect_files(rdma->source, port_files, ASH_COUNT(port_files), &rdma->ports, out);
    if (rdma->ib.folders.count > 0) ash_collect_files(rdma->source, ib_files, ASH_COUNT(ib_files), &rdma->ib, out);
    if (rdma->efa.folders.count > 0) ash_collect_files(rdma->source, rdma->efa_files, EFA_COUNTERS, &rdma->efa, out);
    return 0;
}

static void close_rdma(void *state)
{
    if (state == NULL) return;
    forget_ports(state);
    free(state);
}

const struct ash_collector_ops ash_collect_rdma = {
    .name = "rdma", .deadline_s = 2, .open = open_rdma, .collect = collect_rdma, .close = close_rdma};

/* The network and disks: /proc/net/dev, netstat, snmp, sockstat, /proc/diskstats. */
#include "observe/collect/parse.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "observe/collect/exposition.h"
#include "observe/collect/source.h"

/* ---- columns: one family per column of a table of devices -------------------------------------------------------- */

#define COLUMNS_MAX 24
#define SECTOR_BYTES 512

struct column {
    const char *name, *type, *help;
    double scale; /* 0: not wanted */
};

/* A table as it is read, column by column. */
struct columns {
    const struct column *list;
    size_t count;
    struct ash_str samples[COLUMNS_MAX];
};

static void add_row(struct columns *columns, const char *device, char *rest)
{
    char labels[ASH_EXP_LABELS_BYTES];

    ash_exp_labels(labels, sizeof(labels), "device", device, NULL);
    for (size_t i = 0; i < columns->count; i++) {
        const struct column *column = &columns->list[i];
        char *word = ash_text_word(&rest);

        if (word == NULL) return;
        if (column->scale == 0) continue;
        if (column->scale == 1)
            ash_exp_count(&columns->samples[i], column->name, labels, strtoull(word, NULL, 10));
        else
            ash_exp_value(&columns->samples[i], column->name, labels, strtod(word, NULL) * column->scale);
    }
}

static void finish_columns(struct columns *columns, struct ash_str *out)
{
    for (size_t i = 0; i < columns->count; i++) {
        const struct column *column = &columns->list[i];

        if (columns->samples[i].size_bytes > 0) {
            ash_exp_family(out, column->name, column->type, column->help);
            ash_str_add(out, columns->samples[i].data, columns->samples[i].size_bytes);
        }
        ash_str_fini(&columns->samples[i]);
    }
}

#define NET(column)                                                                                                    \
    {                                                                                                                  \
        "node_network_" column "_total", "counter", "Network device statistic " column ".", 1                          \
    }
static const struct column net_columns[] = {
    NET("receive_bytes"),  NET("receive_packets"),  NET("receive_errs"),       NET("receive_drop"),
    NET("receive_fifo"),   NET("receive_frame"),    NET("receive_compressed"), NET("receive_multicast"),
    NET("transmit_bytes"), NET("transmit_packets"), NET("transmit_errs"),      NET("transmit_drop"),
    NET("transmit_fifo"),  NET("transmit_colls"),   NET("transmit_carrier"),   NET("transmit_compressed"),
};

static void parse_net_dev(char *text, struct ash_str *out)
{
    struct columns columns = {.list = net_columns, .count = ASH_COUNT(net_columns)};
    char *line;

    while ((line = ash_text_line(&text)) != NULL) {
        char *colon = strrchr(line, ':');

        if (colon == NULL) continue; /* the two heading lines */
        *colon = '\0';
        add_row(&columns, line + strspn(line, " "), colon + 1);
    }
    finish_columns(&columns, out);
}

static const struct column disk_columns[] = {
    {"node_disk_reads_completed_total", "counter", "The total number of reads completed successfully.", 1},
    {"node_disk_reads_merged_total", "counter", "The total number of reads merged.", 1},
    {"node_disk_read_bytes_total", "counter", "The total number of bytes read successfully.", SECTOR_BYTES},
    {"node_disk_read_time_seconds_total", "counter", "The total number of seconds spent by all reads.", 0.001},
    {"node_disk_writes_completed_total", "counter", "The total number of writes completed successfully.", 1},
    {"node_disk_writes_merged_total", "counter", "The number of writes merged.", 1},
    {"node_disk_written_bytes_total", "counter", "The total number of bytes written successfully.", SECTOR_BYTES},
    {"node_disk_write_time_seconds_total", "counter", "This is the total number of seconds spent by all writes.",
     0.001},
    {"node_disk_io_now", "gauge", "The number of I/Os currently in progress.", 1},
    {"node_disk_io_time_seconds_total", "counter", "Total seconds spent doing I/Os.", 0.001},
    {"node_disk_io_time_weighted_seconds_total", "counter", "The weighted # of seconds spent doing I/Os.", 0.001},
    {"node_disk_discards_completed_total", "counter", "The total number of discards completed successfully.", 1},
    {"node_disk_discards_merged_total", "counter", "The total number of discards merged.", 1},
    {"node_disk_discarded_sectors_total", "counter", "The total number of sectors discarded successfully.", 1},
    {"node_disk_discard_time_seconds_total", "counter", "This is the total number of seconds spent by all discards.",
     0.001},
    {"node_disk_flush_requests_total", "counter", "The total number of flush requests completed successfully", 1},
    {"node_disk_flush_requests_time_seconds_total", "counter",
     "This is the total number of seconds spent by all flush requests.", 0.001},
};

/* What node_exporter leaves out: ram0, loop0, fd0, partitions (sda1, nvme0n1p1). */
static bool is_part(const char *device)
{
    static const char *const prefixes[] = {"ram", "loop", "fd"};
    size_t digits = strlen(device);

    while (digits > 0 && strchr("0123456789", device[digits - 1]) != NULL)
        digits--;
    if (device[digits] == '\0') return false;
    for (size_t i = 0; i < ASH_COUNT(prefixes); i++)
        if (strlen(prefixes[i]) == digits && strncmp(device, prefixes[i], digits) == 0) return true;
    if (strncmp(device, "nvme", 4) == 0) return digits > 0 && device[digits - 1] == 'p';
    if (digits >= 3 && device[digits - 2] == 'd' && strchr("hsv", device[digits - 3]) != NULL)
        return digits == 3 || (digits == 4 && device[0] == 'x' && device[1] == 'v');
    return false;
}

static void parse_diskstats(char *text, struct ash_str *out)
{
    struct columns columns = {.list = disk_columns, .count = ASH_COUNT(disk_columns)};
    char *line;

    while ((line = ash_text_line(&text)) != NULL) {
        char *major = ash_text_word(&line), *minor = ash_text_word(&line), *device = ash_text_word(&line);

        if (major == NULL || minor == NULL || device == NULL || is_part(device)) continue;
        add_row(&columns, device, line);
    }
    finish_columns(&columns, out);
}

/* ---- netstat: pairs of lines, names and values ------------------------------------------------------------------- */

/* What node_exporter shows of them by default. */
static bool is_wanted(const char *protocol, const char *key)
{
    static const char *const names[] = {
        "Ip_Forwarding",
        "TcpExt_ListenOverflows",
        "TcpExt_ListenDrops",
        "TcpExt_SyncookiesFailed",
        "TcpExt_SyncookiesRecv",
        "TcpExt_SyncookiesSent",
        "TcpExt_TCPSynRetrans",
        "TcpExt_TCPTimeouts",
        "TcpExt_TCPOFOQueue",
        "TcpExt_TCPRcvQDrop",
        "Tcp_ActiveOpens",
        "Tcp_InErrs",
        "Tcp_InSegs",
        "Tcp_OutSegs",
        "Tcp_OutRsts",
        "Tcp_PassiveOpens",
        "Tcp_RetransSegs",
        "Tcp_CurrEstab",
        "Udp_InDatagrams",
        "Udp_InErrors",
        "Udp_NoPorts",
        "Udp_OutDatagrams",
        "Udp_RcvbufErrors",
        "Udp_SndbufErrors",
        "Icmp_InMsgs",
        "Icmp_OutMsgs",
        "Icmp_InErrors",
        "IpExt_InOctets",
        "IpExt_OutOctets",
        "UdpLite_InErrors",
    };
    char name[96];

    snprintf(name, sizeof(name), "%s_%s", protocol, key);
    for (size_t i = 0; i < ASH_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static void add_pairs(const char *protocol, char *keys, char *values, struct ash_str *out)
{
    for (;;) {
        char *key = ash_text_word(&keys), *value = ash_text_word(&values), name[128], help[160];

        if (key == NULL || value == NULL) return;
        if (!is_wanted(protocol, key)) continue;
        snprintf(name, sizeof(name), "node_netstat_%s_%s", protocol, key);
        snprintf(help, sizeof(help), "Statistic %s%s.", protocol, key);
        ash_exp_family(out, name, "untyped", help);
        ash_exp_value(out, name, NULL, strtod(value, NULL));
    }
}

static void parse_netstat(char *text, struct ash_str *out)
{
    char *keys, *values;

    while ((keys = ash_text_line(&text)) != NULL && (values = ash_text_line(&text)) != NULL) {
        char *protocol = ash_text_word(&keys), *same = ash_text_word(&values);
        size_t bytes = protocol != NULL ? strlen(protocol) : 0;

        if (same == NULL || bytes < 2 || strcmp(protocol, same) != 0 || protocol[bytes - 1] != ':') continue;
        protocol[bytes - 1] = '\0';
        add_pairs(protocol, keys, values, out);
    }
}

/* "TCP: inuse 5 orphan 0 mem 1": mem is in pages too, as bytes. */
static void parse_sockstat(char *text, struct ash_str *out)
{
    char *line;

    while ((line = ash_text_line(&text)) != NULL) {
        char *protocol = ash_text_word(&line), *key, *value;
        size_t bytes = protocol != NULL ? strlen(protocol) : 0;

        if (bytes < 2 || protocol[bytes - 1] != ':' ||
            strspn(protocol, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != bytes - 1)
            continue;
        protocol[bytes - 1] = '\0';
        while ((key = ash_text_word(&line)) != NULL && (value = ash_text_word(&line)) != NULL) {
            char name[128], help[160];

            if (strspn(key, "abcdefghijklmnopqrstuvwxyz_") != strlen(key)) continue;
            snprintf(name, sizeof(name), "node_sockstat_%s_%s", protocol, key);
            snprintf(help, sizeof(help), "Number of %s sockets in state %s.", protocol, key);
            ash_exp_family(out, name, "gauge", help);
            ash_exp_count(out, name, NULL, strtoull(value, NULL, 10));
        }
    }
}

const struct ash_parser ash_parsers_net[] = {
    {"/proc/net/dev", parse_net_dev},
    {"/proc/net/netstat", parse_netstat},
    {"/proc/net/snmp", parse_netstat},
    {"/proc/net/sockstat", parse_sockstat},
};
const size_t ash_parsers_net_count = ASH_COUNT(ash_parsers_net);

const struct ash_parser ash_parsers_disk[] = {{"/proc/diskstats", parse_diskstats}};
const size_t ash_parsers_disk_count = ASH_COUNT(ash_parsers_disk);

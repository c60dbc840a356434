/* A table lists the series of a part, and their names. A finding is a part's if its key names it. */
#include "observe/agent/parts.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "observe/health/scrape.h"

#define PARTS_MAX 1024

struct shown {
    const char *kind, *label; /* the part, and the label that identifies it */
    const char *metric, *name, *unit;
    bool is_total; /* counts from boot: the page shows its growth */
};

static const struct shown table[] = {
    {"GPU", "gpu", "DCGM_FI_DEV_GPU_UTIL", "use", "%", false},
    {"GPU", "gpu", "DCGM_FI_DEV_SM_CLOCK", "clock", "MHz", false},
    {"GPU", "gpu", "DCGM_FI_DEV_GPU_TEMP", "heat", "\u00b0C", false},
    {"GPU", "gpu", "DCGM_FI_DEV_POWER_USAGE", "power", "W", false},
    {"GPU", "gpu", "DCGM_FI_DEV_FB_USED", "memory", "MiB", false},
    {"GPU", "gpu", "DCGM_FI_DEV_XID_ERRORS", "last XID", "", false},
    {"GPU", "gpu", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "lost words", "", false},
    {"GPU", "gpu", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "NVLink", "MB", true},
    {"network", "device", "node_network_up", "up", "", false},
    {"network", "device", "node_network_speed_bytes", "speed", "B/s", false},
    {"network", "device", "node_network_receive_bytes_total", "received", "B", true},
    {"network", "device", "node_network_transmit_bytes_total", "sent", "B", true},
    {"network", "device", "node_network_receive_errs_total", "errors", "", false},
    {"network", "device", "node_network_carrier_down_changes_total", "link downs", "", false},
    {"RDMA", "device", "node_infiniband_port_data_received_bytes_total", "received", "B", true},
    {"RDMA", "device", "node_infiniband_port_data_transmitted_bytes_total", "sent", "B", true},
    {"RDMA", "device", "node_infiniband_link_downed_total", "link downs", "", false},
    {"RDMA", "device", "node_amazonefa_rx_bytes", "received", "B", true},
    {"RDMA", "device", "node_amazonefa_tx_bytes", "sent", "B", true},
    {"RDMA", "device", "node_amazonefa_rx_drops", "drops", "", false},
    {"RDMA", "device", "node_amazonefa_retrans_bytes", "sent again", "B", true},
    {"drive", "device", "node_disk_read_bytes_total", "read", "B", true},
    {"drive", "device", "node_disk_written_bytes_total", "written", "B", true},
    {"drive", "device", "ashlar_nvme_temperature_celsius", "heat", "\u00b0C", false},
    {"drive", "device", "ashlar_nvme_media_errors_total", "media errors", "", false},
    {"drive", "device", "ashlar_nvme_critical_warning", "warning", "", false},
    {"mount", "mountpoint", "node_filesystem_size_bytes", "size", "B", false},
    {"mount", "mountpoint", "node_filesystem_avail_bytes", "free", "B", false},
    {"mount", "mountpoint", "ashlar_mount_probe_seconds", "answers in", "s", false},
    {"mount", "mountpoint", "node_filesystem_device_error", "error", "", false},
    {"mount", "mountpoint", "node_filesystem_readonly", "read-only", "", false},
    {"rank", "rank", "ashlar_rank_step", "step", "", false},
    {"rank", "rank", "ashlar_rank_own_seconds", "own work", "s", false},
    {"rank", "rank", "ashlar_rank_slow_link", "slow link", "", false},
};

/* Does a key name this part: "... gpu 3" and a blank or the end? */
static bool names_part(const char *key, const char *label, const char *id)
{
    char wanted[320];
    size_t bytes = (size_t)snprintf(wanted, sizeof(wanted), " %s %s", label, id);

    if (bytes >= sizeof(wanted)) return false;
    for (const char *at = key; (at = strstr(at, wanted)) != NULL; at++)
        if (at[bytes] == '\0' || at[bytes] == ' ') return true;
    return false;
}

/* Does a key hold the bus address of a GPU? The kernel writes 0000:3b:00, NVML 00000000:3B:00.0. */
static bool names_address(const char *key, const char *address)
{
    const char *start = strchr(address, ':'), *end = strrchr(address, '.');
    char wanted[16];

    if (start == NULL || end == NULL || end <= start || (size_t)(end - start) >= sizeof(wanted)) return false;
    snprintf(wanted, sizeof(wanted), "%.*s", (int)(end - start), start);
    return strcasestr(key, wanted) != NULL;
}

/* Is a part the second word of a key: "link eth0 ...", "nvme nvme0 ..."? A name space (nvme0n1) is its drive's. */
static bool is_second_word(const char *key, const char *id)
{
    const char *word = key + strcspn(key, " ");
    size_t bytes;

    if (*word == '\0') return false;
    bytes = strcspn(++word, " ");
    if (bytes == 0 || strncmp(id, word, bytes) != 0) return false;
    return id[bytes] == '\0' || (strncmp(word, "nvme", 4) == 0 && id[bytes] == 'n');
}

/* The worst finding of a part. */
static const struct ash_node_finding *worst_of(const struct ash_node_state *state, const struct shown *shown,
                                               const char *id, const char *address)
{
    const struct ash_node_finding *worst = NULL;

    for (size_t i = 0; i < state->count; i++) {
        const struct ash_node_finding *finding = &state->findings[i];
        bool is_its = names_part(finding->key, shown->label, id) || is_second_word(finding->key, id) ||
                      (address[0] != '\0' && names_address(finding->key, address));

        if (finding->is_active && is_its && (worst == NULL || finding->remedy > worst->remedy)) worst = finding;
    }
    return worst;
}

static const char *status_of(const struct ash_node_finding *finding)
{
    if (finding == NULL || finding->remedy == ASH_REMEDY_NONE) return "healthy";
    return finding->remedy == ASH_REMEDY_WATCH ? "doubtful" : "drain";
}

/* The part of a name in the list, created on first use; NULL: too many, or no memory. */
static json_t *part_of(json_t *parts, const struct shown *shown, const struct ash_scrape_sample *sample,
                       const struct ash_node_state *state)
{
    const char *id = ash_scrape_label_of(sample, shown->label),
               *address = strcmp(shown->kind, "GPU") == 0 ? ash_scrape_label_of(sample, "pci_bus_id") : "";
    const struct ash_node_finding *worst;
    json_t *part;
    size_t i;

    json_array_foreach(parts, i, part) {
        if (strcmp(json_string_value(json_object_get(part, "kind")), shown->kind) == 0 &&
            strcmp(json_string_value(json_object_get(part, "name")), id) == 0)
            return part;
    }
    if (json_array_size(parts) >= PARTS_MAX) return NULL;
    worst = worst_of(state, shown, id, address);
    part = json_pack("{s:s, s:s, s:s, s:s, s:[]}", "kind", shown->kind, "name", id, "status", status_of(worst), "why",
                     worst != NULL ? worst->means : "", "counters");
    if (part != NULL && json_array_append_new(parts, part) < 0) return NULL;
    return part;
}

json_t *ash_parts_json(const char *text, size_t size_bytes, const struct ash_node_state *state)
{
    struct ash_scrape *scrape = NULL;
    json_t *parts = json_array();

    if (parts == NULL || ash_scrape_parse(text, size_bytes, "the node", &scrape, NULL) < 0) {
        json_decref(parts);
        return NULL;
    }
    for (size_t row = 0; row < ASH_COUNT(table); row++)
        for (size_t i = 0; i < ash_scrape_count(scrape); i++) {
            const struct ash_scrape_sample *sample = ash_scrape_at(scrape, i);
            json_t *part;

            if (strcmp(sample->name, table[row].metric) != 0 || !(sample->value >= 0) || isinf(sample->value))
                continue; /* the speed of a device without one is below 0 */
            part = part_of(parts, &table[row], sample, state);
            if (part != NULL)
                json_array_append_new(
                    json_object_get(part, "counters"),
                    json_pack("[s, f, s, b]", table[row].name, sample->value, table[row].unit, table[row].is_total));
        }
    ash_scrape_close(scrape);
    return parts;
}

/* Counts lines of a scrape. */
#include "observe/health/missing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* Samples of a family; "node_x{" begins each. */
static long count_samples(const char *text, const char *start)
{
    long count = 0;

    for (const char *at = text; (at = strstr(at, start)) != NULL; at++)
        count += at == text || at[-1] == '\n';
    return count;
}

size_t ash_missing_find(const char *text, const struct ash_parts_wanted *wanted,
                        struct ash_missing missing_out[ASH_MISSING_MAX])
{
    const char *line = strstr(text, "\nashlar_gpus ");
    long gpus = line != NULL ? strtol(line + 13, NULL, 10) : 0;
    long devices = count_samples(text, "node_amazonefa_tx_bytes{") +
                   count_samples(text, "node_infiniband_port_data_transmitted_bytes_total{");
    size_t count = 0;

    if (wanted->gpus >= 0 && gpus < wanted->gpus) {
        missing_out[count] = (struct ash_missing){.layer = ASH_HEALTH_GPU,
                                                  .key = "gpu missing",
                                                  .metric = "ashlar_gpus",
                                                  .means = "a GPU fell off the bus",
                                                  .action = "reboot the node; if it stays away, replace it"};
        snprintf(missing_out[count].evidence, sizeof(missing_out[count].evidence), "%ld GPUs of %lld", gpus,
                 (long long)wanted->gpus);
        count++;
    }
    if (wanted->network_devices > 0 && devices < wanted->network_devices) {
        missing_out[count] = (struct ash_missing){.layer = ASH_HEALTH_NETWORK,
                                                  .key = "network device missing",
                                                  .metric = "RDMA devices",
                                                  .means = "an EFA or InfiniBand device is gone",
                                                  .action = "reboot the node; check the instance's network interfaces"};
        snprintf(missing_out[count].evidence, sizeof(missing_out[count].evidence), "%ld network devices of %lld",
                 devices, (long long)wanted->network_devices);
        count++;
    }
    ash_assert(count <= ASH_MISSING_MAX);
    return count;
}

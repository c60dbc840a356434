/* NVML reports each event once: counts begin with the agent. */
#include "observe/collect/gpu_xids.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "observe/collect/exposition.h"

void ash_gpu_xids_init(struct ash_gpu_xids *xids, const char *address)
{
    size_t bytes = strcspn(address, "."), skip = strcspn(address, ":") == 8 ? 4 : 0;

    memset(xids, 0, sizeof(*xids));
    snprintf(xids->address, sizeof(xids->address), "%.*s", (int)(bytes - skip), address + skip);
    for (char *at = xids->address; *at != '\0'; at++)
        *at = (char)tolower((unsigned char)*at);
}

void ash_gpu_xids_add(struct ash_gpu_xids *xids, unsigned code)
{
    if (code == 0) return;
    xids->last = code;
    for (size_t i = 0; i < ASH_GPU_XIDS_MAX; i++) {
        if (xids->told[i].code != 0 && xids->told[i].code != code) continue;
        xids->told[i].code = code;
        xids->told[i].count++;
        return;
    }
}

void ash_gpu_xids_write(const struct ash_gpu_xids *xids, bool *has_head, struct ash_str *out)
{
    char labels[ASH_EXP_LABELS_BYTES], code[16];

    for (size_t i = 0; i < ASH_GPU_XIDS_MAX && xids->told[i].code != 0; i++) {
        if (!*has_head)
            ash_exp_family(out, ASH_METRIC_NVML_XIDS, "counter",
                           "XIDs that NVML has told since the agent started, by code and PCI address.");
        *has_head = true;
        snprintf(code, sizeof(code), "%u", xids->told[i].code);
        ash_exp_labels(labels, sizeof(labels), "code", code, "pci_bus_id", xids->address, (char *)NULL);
        ash_exp_count(out, ASH_METRIC_NVML_XIDS, labels, xids->told[i].count);
    }
}

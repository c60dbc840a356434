/* The flags of commands that look at one node. */
#include "cmd/node_flags.h"

#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "infra/catalog.h"

#define FIELD(name) offsetof(struct ash_node_flags, name)
static const struct ash_opt node_opts[] = {
    {.name = "root",
     .type = ASH_OPT_STRING,
     .offset = FIELD(root),
     .default_text = "",
     .help = "read /proc, /sys and /dev/kmsg below this folder: a container's view of its host, or a recorded tree"},
    {.name = "kernel_log",
     .type = ASH_OPT_STRING,
     .offset = FIELD(kernel_log),
     .help = "kernel log to read instead of /dev/kmsg: a device, or a file that may grow"},
    {.name = "nvml",
     .type = ASH_OPT_STRING,
     .offset = FIELD(nvml),
     .help = "NVIDIA's management library; default: the system's"},
    {.name = "machine",
     .type = ASH_OPT_STRING,
     .offset = FIELD(machine),
     .help = "what the node is (ashlar catalog ls): a missing GPU or network card is then a finding"},
    {.name = "gpus",
     .type = ASH_OPT_INT,
     .offset = FIELD(gpus),
     .default_text = "-1",
     .min = -1,
     .max = 64,
     .help = "GPUs that the node must have; -1: as --machine says"},
};
const struct ash_opt_table ash_node_table = {"", "the node", node_opts, ASH_COUNT(node_opts)};

int ash_node_flags_read(const struct ash_node_flags *flags, struct ash_node_marks *marks_out, struct ash_err *err)
{
    struct ash_catalog *catalog = NULL;
    const struct ash_machine *machine = NULL;
    int rc;

    *marks_out = (struct ash_node_marks){.gpus = flags->gpus};
    if (flags->machine == NULL) return 0;
    rc = ash_catalog_open(NULL, 0, &catalog, err);
    if (rc < 0) return rc;
    rc = ash_catalog_machine(catalog, flags->machine, &machine, err);
    if (rc == 0 && flags->gpus < 0) marks_out->gpus = machine->gpus;
    if (rc == 0) marks_out->network_rate = machine->net_bandwidth;
    if (rc == 0) marks_out->network_devices = machine->adapters;
    if (rc == 0) marks_out->has_efa = strncmp(machine->network, "EFA", 3) == 0;
    ash_catalog_close(catalog);
    return rc;
}

/* The flags of commands that look at one node. */
#include "cmd/node_flags.h"

#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "infra/catalog.h"

#define FIELD(name) offsetof(struct ash_node_flags, name)
static const struct ash_opt node_opts[] = {
    {"root", ASH_OPT_STRING, FIELD(root), "",
     "read /proc, /sys and /dev/kmsg below this folder: a container's view of its host, or a recorded tree", 0, 0,
     NULL},
    {"kernel_log", ASH_OPT_STRING, FIELD(kernel_log), NULL,
     "kernel log to read instead of /dev/kmsg: a device, or a file that may grow", 0, 0, NULL},
    {"nvml", ASH_OPT_STRING, FIELD(nvml), NULL, "NVIDIA's management library; default: the system's", 0, 0, NULL},
    {"machine", ASH_OPT_STRING, FIELD(machine), NULL,
     "what the node is (ashlar catalog ls): a missing GPU or network card is then a finding", 0, 0, NULL},
    {"gpus", ASH_OPT_INT, FIELD(gpus), "-1", "GPUs that the node must have; -1: as --machine says", -1, 64, NULL},
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

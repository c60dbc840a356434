/* Fuzz target: topologies and lists of hosts. An accepted one must be a tree: every host has a way to the root, and the
 * root counts them all. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "infra/topology/topology.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ash_topology *topology = NULL;
    int hosts = 0, count = 0, *listed = NULL;
    char *text;

    if (ash_topology_parse((const char *)data, size, "fuzz", &topology, NULL) < 0) return 0;
    for (int i = 0; i < topology->count; i++) {
        hosts += topology->nodes[i].is_host;
        if (!ash_topology_holds(topology, 0, i)) abort();
        if (topology->nodes[i].is_host && ash_topology_host(topology, topology->nodes[i].name) != i) abort();
    }
    if (hosts == 0 || topology->nodes[0].hosts != hosts) abort();
    text = strndup((const char *)data, size);
    if (text != NULL && ash_topology_hosts(topology, text, &listed, &count, NULL) == 0 && count > hosts) abort();
    free(listed);
    free(text);
    ash_topology_close(topology);
    return 0;
}

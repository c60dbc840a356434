/* "64xp5.48xlarge" into a cluster: how many machines of which kind, and how far NVLink reaches among them. */
#include "infra/catalog.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"

/* The first machine with this GPU: machines that are sold (DGX) come after instances in the list, so look for
 * the one whose network is InfiniBand first: that is what published runs used. */
static const struct ash_machine *machine_with(const struct ash_catalog *catalog, const struct ash_gpu *gpu)
{
    const struct ash_machine *any = NULL;

    for (size_t i = 0; i < ash_catalog_machine_count(catalog); i++) {
        const struct ash_machine *machine = ash_catalog_machine_at(catalog, i);
        if (machine->gpu != gpu) continue;
        if (strncasecmp(machine->network, "InfiniBand", 10) == 0) return machine;
        if (any == NULL || machine->gpus > any->gpus) any = machine;
    }
    return any;
}

/* count of the thing called name: machines, or GPUs in machines that hold them. */
static int resolve(const struct ash_catalog *catalog, const char *name, long count, struct ash_cluster *cluster,
                   struct ash_err *err)
{
    const struct ash_machine *machine = NULL;
    const struct ash_gpu *gpu = NULL;
    int rc = ash_catalog_machine(catalog, name, &machine, err);

    if (rc == 0) {
        cluster->machine = *machine;
        cluster->machines = (int)count;
        return 0;
    }
    if (ash_catalog_gpu(catalog, name, &gpu, NULL) < 0) return rc;
    machine = machine_with(catalog, gpu);
    if (machine == NULL)
        return ash_err_set(err, -ENOENT, "no machine of the catalog holds %s; name one with --catalog", gpu->name);
    cluster->machine = *machine;
    if (count < machine->gpus) cluster->machine.gpus = (int)count;
    if (count % cluster->machine.gpus != 0)
        return ash_err_set(err, -EINVAL, "%ld GPUs do not fill machines of %d (%s): try %ld or %ld", count,
                           machine->gpus, machine->name, count - count % machine->gpus,
                           count - count % machine->gpus + machine->gpus);
    cluster->machines = (int)(count / cluster->machine.gpus);
    return 0;
}

/* "64xp5.48xlarge": the count before the x, 1 without one; *name_out begins after it. */
static int take_count(const char *text, long *count_out, const char **name_out, struct ash_err *err)
{
    char *end = NULL;
    long count;

    *count_out = 1;
    *name_out = text;
    if (!isdigit((unsigned char)text[0]) && text[0] != '-' && text[0] != '+') return 0;
    errno = 0;
    count = strtol(text, &end, 10);
    if (errno != 0 || (*end != 'x' && *end != '*') || count < 1 || count > ASH_CLUSTER_GPUS_MAX)
        return ash_err_set(err, -EINVAL,
                           "cluster '%.80s' must be COUNTxNAME with 1 to %d machines, like 64xp5.48xlarge", text,
                           ASH_CLUSTER_GPUS_MAX);
    *count_out = count;
    *name_out = end + 1;
    return 0;
}

int ash_cluster_parse(const struct ash_catalog *catalog, const char *text, struct ash_cluster *cluster_out,
                      struct ash_err *err)
{
    struct ash_cluster cluster = {0};
    const char *name;
    long count;
    int rc = take_count(text, &count, &name, err);

    if (rc < 0) return rc;
    rc = resolve(catalog, name, count, &cluster, err);
    if (rc < 0) return rc;
    ash_assert(cluster.machine.gpus > 0);
    if (cluster.machines > ASH_CLUSTER_GPUS_MAX / cluster.machine.gpus)
        return ash_err_set(err, -ERANGE, "cluster '%.80s' has more than %d GPUs", text, ASH_CLUSTER_GPUS_MAX);
    cluster.gpus = cluster.machines * cluster.machine.gpus;
    cluster.domain_gpus = cluster.gpus < cluster.machine.domain_gpus ? cluster.gpus : cluster.machine.domain_gpus;
    if (cluster.machines > 1 && cluster.machine.net_bandwidth <= 0 && cluster.domain_gpus < cluster.gpus)
        return ash_err_set(err, -EINVAL, "the catalog does not say what joins machines of kind %s (network_gbps)",
                           cluster.machine.name);
    *cluster_out = cluster;
    return 0;
}

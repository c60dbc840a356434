/* The machines of a training row: the GPU, how many, and the network where the row states it. */
#include "plan/validate_priv.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Bits per second that "8x400G", "(3200 Gbps/node)" or "1600 Gbps" promise; 0 where nothing of the kind is there. */
static double stated_network(const char *text)
{
    const char *gbps = strcasestr(text, " Gbps");

    if (gbps != NULL) {
        const char *start = gbps;
        while (start > text && isdigit((unsigned char)start[-1]))
            start--;
        if (start < gbps) return strtod(start, NULL) * 1e9;
    }
    for (const char *x = strchr(text, 'x'); x != NULL; x = strchr(x + 1, 'x')) {
        const char *start = x;
        char *end = NULL;
        double each = strtod(x + 1, &end);

        while (start > text && isdigit((unsigned char)start[-1]))
            start--;
        if (start < x && end != x + 1 && *end == 'G') return strtod(start, NULL) * each * 1e9;
    }
    return 0;
}

static double stated_domain(const char *text)
{
    const char *word = strcasestr(text, "domain ");

    return word != NULL ? strtod(word + 7, NULL) : 0;
}

int ash_validate_cluster(const struct ash_validate_world *world, size_t index, double gpus,
                         struct ash_cluster *cluster_out, struct ash_validate_row *row)
{
    const char *system = ash_csv_field(world->csv, index, "system");
    const char *network = ash_csv_field(world->csv, index, "interconnect");
    const struct ash_machine *machine = NULL;
    struct ash_cluster cluster = {0};
    struct ash_err err = {0};
    double stated = stated_network(network), domain = stated_domain(network);
    char text[128];

    if (!(gpus >= 1 && gpus <= ASH_CLUSTER_GPUS_MAX))
        return ash_validate_refuse(row, "the row does not say how many GPUs");
    if (system[0] != '\0' && ash_catalog_machine(world->catalog, system, &machine, NULL) == 0) {
        cluster.machine = *machine;
    } else {
        snprintf(text, sizeof(text), "1x%.100s", row->gpu);
        if (ash_cluster_parse(world->catalog, text, &cluster, &err) < 0)
            return ash_validate_refuse(row, "GPU '%.60s' is not in the catalog", row->gpu);
        snprintf(text, sizeof(text), "%dx%.100s", 1048576 / 64, row->gpu); /* a full machine, whatever its size */
        ash_cluster_parse(world->catalog, text, &cluster, &err);
    }
    if (gpus < cluster.machine.gpus) cluster.machine.gpus = (int)gpus;
    cluster.machines = (int)ceil(gpus / cluster.machine.gpus);
    cluster.gpus = (int)gpus;
    if (stated > 0) cluster.machine.net_bandwidth = stated / 8;
    if (domain > 0) cluster.machine.domain_gpus = (int)domain;
    cluster.domain_gpus = cluster.machine.domain_gpus < cluster.gpus ? cluster.machine.domain_gpus : cluster.gpus;
    *cluster_out = cluster;
    return 0;
}

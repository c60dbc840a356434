/* The machines of a row: the GPU, how many, and the network where the row states it. */
#include "plan/validate/row_cluster.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define USUAL_GPUS 8
#define USUAL_GBPS 400.0 /* of network for each GPU: NDR InfiniBand */
#define USUAL_LATENCY_S 5e-6

static const char *number_before(const char *text, const char *end)
{
    while (end > text && (isdigit((unsigned char)end[-1]) || end[-1] == '.'))
        end--;
    return end;
}

/* Bits per second of a GPU's port that the generation of InfiniBand promises; of several that are named, the slowest;
 * 0 where none is. */
static double named_port(const char *text)
{
    static const struct {
        const char *name;
        double bits_s;
    } generations[] = {{"EDR", 100e9}, {"HDR", 200e9}, {"NDR", 400e9}, {"XDR", 800e9}};

    for (size_t i = 0; i < sizeof(generations) / sizeof(generations[0]); i++)
        if (strstr(text, generations[i].name) != NULL) return generations[i].bits_s;
    return 0;
}

/* Bits per second of a machine that "8x400G", "(3200 Gbps/node)", "1600 Gb/s", "400 Gbps per GPU" or "NDR" promise; 0
 * where nothing of the kind is there. */
static double stated_network(const char *text, double gpus)
{
    static const char *const units[] = {" Gbps", "Gbps", " Gb/s", "Gb/s", " Gbit/s"};
    bool each = strcasestr(text, "per gpu") != NULL || strcasestr(text, "/gpu") != NULL;

    for (const char *x = strchr(text, 'x'); x != NULL; x = strchr(x + 1, 'x')) {
        const char *start = number_before(text, x);
        char *end = NULL;
        double port = strtod(x + 1, &end);

        if (start < x && end != x + 1 && *end == 'G' && end[1] != 'B') return strtod(start, NULL) * port * 1e9;
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        const char *unit = strcasestr(text, units[i]), *start = unit != NULL ? number_before(text, unit) : NULL;

        if (unit != NULL && start < unit) return strtod(start, NULL) * 1e9 * (each ? gpus : 1);
    }
    return named_port(text) * gpus;
}

static double stated_domain(const char *text)
{
    const char *word = strcasestr(text, "domain "), *rack = strcasestr(text, "NVL");

    if (word != NULL) return strtod(word + 7, NULL);
    return rack != NULL && isdigit((unsigned char)rack[3]) ? strtod(rack + 3, NULL) : 0;
}

/* A machine that holds these GPUs as most do. */
static struct ash_machine usual_machine(const struct ash_gpu *gpu)
{
    return (struct ash_machine){.name = gpu->name,
                                .network = "network",
                                .gpu = gpu,
                                .gpus = USUAL_GPUS,
                                .domain_gpus = gpu->nvlink_bandwidth > 0 ? USUAL_GPUS : 1,
                                .net_bandwidth = USUAL_GPUS * USUAL_GBPS / 8 * 1e9,
                                .net_latency_s = USUAL_LATENCY_S};
}

static struct ash_machine machine_of(const struct ash_catalog *catalog, const struct ash_gpu *gpu, const char *system)
{
    const struct ash_machine *named = ash_catalog_machine_in(catalog, system);
    struct ash_cluster cluster = {0};
    char text[128];

    if (named != NULL && named->gpu == gpu) return *named;
    snprintf(text, sizeof(text), "%dx%.100s", 16384, gpu->name); /* a full machine, whatever its size */
    return ash_cluster_parse(catalog, text, &cluster, NULL) == 0 ? cluster.machine : usual_machine(gpu);
}

int ash_row_cluster(const struct ash_catalog *catalog, const struct ash_csv *csv, size_t row, double gpus,
                    struct ash_cluster *cluster_out, struct ash_err *err)
{
    const char *name = ash_csv_field(csv, row, "gpu"), *system = ash_csv_field(csv, row, "system");
    const char *network = ash_csv_field(csv, row, "interconnect");
    const struct ash_gpu *gpu = ash_catalog_gpu_in(catalog, name);
    struct ash_cluster cluster = {0};
    double stated, domain = stated_domain(network);

    if (!(gpus >= 1 && gpus <= ASH_CLUSTER_GPUS_MAX))
        return ash_err_set(err, -EINVAL, "the row does not say how many GPUs");
    if (gpu == NULL && name[0] == '\0') gpu = ash_catalog_gpu_in(catalog, system);
    if (gpu == NULL)
        return ash_err_set(err, -EINVAL, "GPU '%.60s' is not in the catalog (--catalog FILE adds it)", name);
    cluster.machine = machine_of(catalog, gpu, system);
    stated = stated_network(network, cluster.machine.gpus);
    if (gpus < cluster.machine.gpus) cluster.machine.gpus = (int)gpus;
    cluster.machines = (int)ceil(gpus / cluster.machine.gpus);
    cluster.gpus = (int)gpus;
    if (stated > 0) cluster.machine.net_bandwidth = stated / 8;
    if (strncasecmp(network, "EFA", 3) == 0 && strncasecmp(cluster.machine.network, "EFA", 3) != 0)
        cluster.machine.network = "EFA";
    if (domain >= 1 && domain <= ASH_CLUSTER_GPUS_MAX) cluster.machine.domain_gpus = (int)domain;
    cluster.domain_gpus = cluster.machine.domain_gpus < cluster.gpus ? cluster.machine.domain_gpus : cluster.gpus;
    *cluster_out = cluster;
    return 0;
}

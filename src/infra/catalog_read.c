/* Facts into numbers: every GPU and machine of the tree becomes a struct in base units, and what makes no sense is
 * refused by name before anything is planned with it. */
#include "infra/catalog_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"

#define TERA 1e12
#define GIGA 1e9
#define MIB 1048576.0
#define GPUS_PER_MACHINE_MAX 4096

struct field {
    const char *name;
    double min, max; /* of what the file says */
};

const json_t *ash_fact_value(const json_t *fact)
{
    const json_t *value = json_is_object(fact) ? json_object_get(fact, "value") : fact;

    return json_is_null(value) ? NULL : value;
}

double ash_fact_number(const json_t *thing, const char *field, double default_value)
{
    const json_t *value = ash_fact_value(json_object_get(thing, field));

    return json_is_number(value) ? json_number_value(value) : default_value;
}

/* The number in a field within limits, 0 where it is absent. */
static int read_number(const json_t *thing, const struct field *field, double *value_out, struct ash_err *err)
{
    const json_t *value = ash_fact_value(json_object_get(thing, field->name));
    double number = json_is_number(value) ? json_number_value(value) : 0;
    const char *name = json_string_value(json_object_get(thing, "name"));

    if (value != NULL && (!json_is_number(value) || !(number >= field->min && number <= field->max)))
        return ash_err_set(err, -EINVAL, "catalog: %.100s: %s must be a number from %g to %g", name, field->name,
                           field->min, field->max);
    *value_out = number;
    return 0;
}

static const struct field gpu_fields[] = {
    {"sms", 1, 1e5},
    {"bf16_tflops", 1e-3, 1e6},
    {"fp8_tflops", 1e-3, 1e6},
    {"fp4_tflops", 1e-3, 1e6},
    {"bf16_measured_tflops", 1e-3, 1e6},
    {"fp8_measured_tflops", 1e-3, 1e6},
    {"fp4_measured_tflops", 1e-3, 1e6},
    {"memory_mib", 1, 1e9},
    {"memory_marketed_gb", 1e-3, 1e6},
    {"memory_tb_s", 1e-4, 1e4},
    {"nvlink_gb_s", 0, 1e6},
    {"host_gb_s", 0, 1e6},
    {"watts", 1, 1e5},
};

enum {
    SMS,
    BF16,
    FP8,
    FP4,
    BF16_MEASURED,
    FP8_MEASURED,
    FP4_MEASURED,
    MEMORY,
    MARKETED,
    MEMORY_RATE,
    NVLINK,
    HOST_LINK,
    WATTS,
    GPU_FIELDS
};

_Static_assert(ASH_COUNT(gpu_fields) == GPU_FIELDS, "a name for every number");

/* The largest of the values that disagree, for a limit that must not be set too low. */
static double largest_also(const json_t *thing, const char *field)
{
    const json_t *also = json_object_get(json_object_get(thing, field), "also");
    double most = 0;

    for (size_t i = 0; i < json_array_size(also); i++) {
        double value = ash_fact_number(json_array_get(also, i), "value", 0);
        if (value > most) most = value;
    }
    return most;
}

static enum ash_generation generation_of(const char *arch)
{
    if (strncasecmp(arch, "Ampere", 6) == 0 || strcasecmp(arch, "Volta") == 0) return ASH_GENERATION_AMPERE;
    if (strcasecmp(arch, "Blackwell Ultra") == 0) return ASH_GENERATION_ULTRA;
    if (strncasecmp(arch, "Blackwell", 9) == 0) return ASH_GENERATION_BLACKWELL;
    if (strcasecmp(arch, "Hopper") == 0 || strcasecmp(arch, "Ada") == 0) return ASH_GENERATION_HOPPER;
    return ASH_GENERATION_OTHER;
}

static int read_gpu(const json_t *thing, struct ash_gpu *gpu_out, struct ash_err *err)
{
    double v[GPU_FIELDS];
    struct ash_gpu gpu = {.name = json_string_value(json_object_get(thing, "name")),
                          .arch = json_string_value(json_object_get(thing, "arch"))};

    for (size_t i = 0; i < GPU_FIELDS; i++) {
        int rc = read_number(thing, &gpu_fields[i], &v[i], err);
        if (rc < 0) return rc;
    }
    if (v[BF16] == 0 || v[MEMORY_RATE] == 0 || (v[MEMORY] == 0 && v[MARKETED] == 0))
        return ash_err_set(err, -EINVAL,
                           "catalog: GPU %.100s needs at least bf16_tflops, memory_tb_s and memory_mib (or "
                           "memory_marketed_gb)",
                           gpu.name);
    if (gpu.arch == NULL) gpu.arch = "";
    gpu.generation = generation_of(gpu.arch);
    gpu.sms = v[SMS];
    for (int i = 0; i < ASH_GPU_PRECISIONS; i++) {
        gpu.flops[i] = v[BF16 + i] * TERA;
        gpu.gemm_flops[i] = v[BF16_MEASURED + i] * TERA;
    }
    gpu.memory_bytes = v[MEMORY] > 0 ? v[MEMORY] * MIB : v[MARKETED] * GIGA;
    gpu.memory_bandwidth = v[MEMORY_RATE] * TERA;
    gpu.nvlink_bandwidth = v[NVLINK] * GIGA;
    gpu.host_bandwidth = v[HOST_LINK] * GIGA;
    gpu.watts = v[WATTS] > 0 ? v[WATTS] : largest_also(thing, "watts");
    *gpu_out = gpu;
    return 0;
}

static const struct field machine_fields[] = {
    {"gpus", 1, GPUS_PER_MACHINE_MAX},
    {"nvlink_domain", 1, GPUS_PER_MACHINE_MAX},
    {"network_adapters", 0, 1024},
    {"network_gbps", 0, 1e7},
    {"network_latency_us", 0, 1e6},
    {"memory_gib", 0, 1e7},
    {"nvme_gb", 0, 1e9},
    {"usd_hour", 0, 1e6},
    {"usd_hour_reserved", 0, 1e6},
};

enum { GPUS, DOMAIN, ADAPTERS, NETWORK, LATENCY, HOST_MEMORY, NVME, PRICE, RESERVED, MACHINE_FIELDS };

_Static_assert(ASH_COUNT(machine_fields) == MACHINE_FIELDS, "a name for every number");

static int read_machine(const struct ash_catalog *catalog, const json_t *thing, struct ash_machine *machine_out,
                        struct ash_err *err)
{
    double v[MACHINE_FIELDS];
    const char *gpu = json_string_value(json_object_get(thing, "gpu"));
    const char *network = json_string_value(ash_fact_value(json_object_get(thing, "network")));
    struct ash_machine machine = {.name = json_string_value(json_object_get(thing, "name")),
                                  .network = network != NULL ? network : "network"};
    int rc;

    for (size_t i = 0; i < MACHINE_FIELDS; i++) {
        rc = read_number(thing, &machine_fields[i], &v[i], err);
        if (rc < 0) return rc;
    }
    if (gpu == NULL || v[GPUS] == 0)
        return ash_err_set(err, -EINVAL, "catalog: machine %.100s needs gpu (a name) and gpus (how many)",
                           machine.name);
    rc = ash_catalog_gpu(catalog, gpu, &machine.gpu, err);
    if (rc < 0) return ash_err_prefix(err, rc, "catalog: machine %.100s", machine.name);
    machine.gpus = (int)v[GPUS];
    machine.domain_gpus = v[DOMAIN] > 0 ? (int)v[DOMAIN] : machine.gpu->nvlink_bandwidth > 0 ? machine.gpus : 1;
    if (strncmp(machine.network, "EFA", 3) == 0 || strncmp(machine.network, "InfiniBand", 10) == 0)
        machine.adapters = (int)v[ADAPTERS];
    machine.net_bandwidth = v[NETWORK] / 8 * GIGA;
    machine.net_latency_s = v[LATENCY] * 1e-6;
    machine.host_bytes = v[HOST_MEMORY] * MIB * 1024;
    machine.nvme_bytes = v[NVME] * GIGA;
    machine.usd_hour = v[PRICE];
    machine.usd_hour_reserved = v[RESERVED];
    *machine_out = machine;
    return 0;
}

int ash_catalog_read(struct ash_catalog *catalog, struct ash_err *err)
{
    const json_t *gpus = json_object_get(catalog->json, "gpus"), *machines = json_object_get(catalog->json, "machines");
    int rc = 0;

    catalog->gpus = calloc(json_array_size(gpus) + 1, sizeof(*catalog->gpus));
    catalog->machines = calloc(json_array_size(machines) + 1, sizeof(*catalog->machines));
    if (catalog->gpus == NULL || catalog->machines == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < json_array_size(gpus) && rc == 0; i++) {
        rc = read_gpu(json_array_get(gpus, i), &catalog->gpus[i], err);
        if (rc == 0) catalog->gpu_count++;
    }
    for (size_t i = 0; i < json_array_size(machines) && rc == 0; i++) {
        rc = read_machine(catalog, json_array_get(machines, i), &catalog->machines[i], err);
        if (rc == 0) catalog->machine_count++;
    }
    return rc;
}

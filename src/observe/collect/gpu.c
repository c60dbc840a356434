/* GPUs through NVML, under DCGM's names, types and labels. Figures that a GPU or driver lacks are absent. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "infra/device/nvml.h"
#include "observe/collect/collector.h"
#include "observe/collect/exposition.h"
#include "observe/collect/gpu_xids.h"

#define GPUS_MAX 64
#define MIB 1048576.0
#define ALL_LINKS UINT_MAX

struct gpu {
    ash_nvml_device device;
    char labels[ASH_EXP_LABELS_BYTES];
    void *samples[2]; /* of GPM; NULL: not supported */
    size_t newest;    /* the sample that was taken last; 2: none yet */
    struct ash_gpu_xids xids;
};

struct gpus {
    const struct ash_host_files *source;
    struct ash_nvml nvml;
    struct gpu list[GPUS_MAX];
    size_t count;
    void *events; /* NULL: none */
    struct ash_nvml_gpm_get *gpm;
};

/* ---- families ---------------------------------------------------------------------------------------------------- */

enum family {
    SM_CLOCK,
    MEM_CLOCK,
    MEMORY_TEMP,
    GPU_TEMP,
    POWER_USAGE,
    ENERGY,
    REPLAYS,
    GPU_UTIL,
    MEM_UTIL,
    ENC_UTIL,
    DEC_UTIL,
    XID,
    FB_FREE,
    FB_USED,
    FB_RESERVED,
    ROWS_UNCORRECTABLE,
    ROWS_CORRECTABLE,
    ROWS_FAILED,
    ROWS_PENDING,
    SBE_VOLATILE,
    DBE_VOLATILE,
    SBE_AGGREGATE,
    DBE_AGGREGATE,
    POWER_VIOLATION,
    THERMAL_VIOLATION,
    NVLINK_BANDWIDTH,
    CRC_FLIT,
    CRC_DATA,
    REPLAY,
    RECOVERY,
    LINK_WIDTH,
    LINK_WIDTH_MAX,
    LINK_GEN,
    LINK_GEN_MAX,
    THROTTLE,
    PROF_GRAPHICS,
    PROF_SM,
    PROF_OCCUPANCY,
    PROF_TENSOR,
    PROF_DRAM,
    PROF_PCIE_TX,
    PROF_PCIE_RX,
    FAMILIES
};

#define DCGM "DCGM_FI_DEV_"
#define PROF "DCGM_FI_PROF_"
static const struct {
    const char *name, *type, *help;
} families[FAMILIES] = {
    [SM_CLOCK] = {DCGM "SM_CLOCK", "gauge", "SM clock frequency (in MHz)."},
    [MEM_CLOCK] = {DCGM "MEM_CLOCK", "gauge", "Memory clock frequency (in MHz)."},
    [MEMORY_TEMP] = {DCGM "MEMORY_TEMP", "gauge", "Memory temperature (in C)."},
    [GPU_TEMP] = {DCGM "GPU_TEMP", "gauge", "GPU temperature (in C)."},
    [POWER_USAGE] = {DCGM "POWER_USAGE", "gauge", "Power draw (in W)."},
    [ENERGY] = {DCGM "TOTAL_ENERGY_CONSUMPTION", "counter", "Total energy consumption since boot (in mJ)."},
    [REPLAYS] = {DCGM "PCIE_REPLAY_COUNTER", "counter", "Total number of PCIe retries."},
    [GPU_UTIL] = {DCGM "GPU_UTIL", "gauge", "GPU utilization (in %)."},
    [MEM_UTIL] = {DCGM "MEM_COPY_UTIL", "gauge", "Memory utilization (in %)."},
    [ENC_UTIL] = {DCGM "ENC_UTIL", "gauge", "Encoder utilization (in %)."},
    [DEC_UTIL] = {DCGM "DEC_UTIL", "gauge", "Decoder utilization (in %)."},
    [XID] = {DCGM "XID_ERRORS", "gauge", "Value of the last XID error encountered."},
    [FB_FREE] = {DCGM "FB_FREE", "gauge", "Framebuffer memory free (in MiB)."},
    [FB_USED] = {DCGM "FB_USED", "gauge", "Framebuffer memory used (in MiB)."},
    [FB_RESERVED] = {DCGM "FB_RESERVED", "gauge", "Framebuffer memory reserved (in MiB)."},
    [ROWS_UNCORRECTABLE] = {DCGM "UNCORRECTABLE_REMAPPED_ROWS", "counter",
                            "Number of remapped rows for uncorrectable errors"},
    [ROWS_CORRECTABLE] = {DCGM "CORRECTABLE_REMAPPED_ROWS", "counter",
                          "Number of remapped rows for correctable errors"},
    [ROWS_FAILED] = {DCGM "ROW_REMAP_FAILURE", "gauge", "Whether remapping of rows has failed"},
    [ROWS_PENDING] = {"ashlar_gpu_row_remap_pending", "gauge",
                      "Whether rows are remapped at the next reset of the GPU."},
    [SBE_VOLATILE] = {DCGM "ECC_SBE_VOL_TOTAL", "counter", "Total number of single-bit volatile ECC errors."},
    [DBE_VOLATILE] = {DCGM "ECC_DBE_VOL_TOTAL", "counter", "Total number of double-bit volatile ECC errors."},
    [SBE_AGGREGATE] = {DCGM "ECC_SBE_AGG_TOTAL", "counter", "Total number of single-bit persistent ECC errors."},
    [DBE_AGGREGATE] = {DCGM "ECC_DBE_AGG_TOTAL", "counter", "Total number of double-bit persistent ECC errors."},
    [POWER_VIOLATION] = {DCGM "POWER_VIOLATION", "counter", "Throttling duration due to power constraints (in ns)."},
    [THERMAL_VIOLATION] = {DCGM "THERMAL_VIOLATION", "counter",
                           "Throttling duration due to thermal constraints (in ns)."},
    [NVLINK_BANDWIDTH] = {DCGM "NVLINK_BANDWIDTH_TOTAL", "counter",
                          "Total number of NVLink bandwidth counters for all lanes."},
    [CRC_FLIT] = {DCGM "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "counter",
                  "Total number of NVLink flow-control CRC errors."},
    [CRC_DATA] = {DCGM "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "counter", "Total number of NVLink data CRC errors."},
    [REPLAY] = {DCGM "NVLINK_REPLAY_ERROR_COUNT_TOTAL", "counter", "Total number of NVLink retries."},
    [RECOVERY] = {DCGM "NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "counter", "Total number of NVLink recovery errors."},
    [LINK_WIDTH] = {DCGM "PCIE_LINK_WIDTH", "gauge", "PCIe lanes in use."},
    [LINK_WIDTH_MAX] = {DCGM "PCIE_MAX_LINK_WIDTH", "gauge", "PCIe lanes that GPU and machine have."},
    [LINK_GEN] = {DCGM "PCIE_LINK_GEN", "gauge", "PCIe generation in use; an idle GPU lowers it."},
    [LINK_GEN_MAX] = {DCGM "PCIE_MAX_LINK_GEN", "gauge", "PCIe generation that GPU and machine have."},
    [THROTTLE] = {DCGM "CLOCK_THROTTLE_REASONS", "gauge", "Why clocks are low, as bits."},
    [PROF_GRAPHICS] = {PROF "GR_ENGINE_ACTIVE", "gauge", "Ratio of time the graphics engine is active."},
    [PROF_SM] = {PROF "SM_ACTIVE", "gauge", "The ratio of cycles an SM has at least 1 warp assigned."},
    [PROF_OCCUPANCY] = {PROF "SM_OCCUPANCY", "gauge", "The ratio of number of warps resident on an SM."},
    [PROF_TENSOR] = {PROF "PIPE_TENSOR_ACTIVE", "gauge", "Ratio of cycles the tensor (HMMA) pipe is active."},
    [PROF_DRAM] = {PROF "DRAM_ACTIVE", "gauge", "Ratio of cycles the device memory interface is active."},
    [PROF_PCIE_TX] =
        {PROF "PCIE_TX_BYTES", "gauge",
         "The rate of data transmitted over the PCIe bus - including both protocol headers and data payloads "
         "- in bytes per second."},
    [PROF_PCIE_RX] =
        {PROF "PCIE_RX_BYTES", "gauge",
         "The rate of data received over the PCIe bus - including both protocol headers and data payloads - "
         "in bytes per second."},
};

/* Values of one GPU; those that were not read are not set. */
struct values {
    double of[FAMILIES];
    bool has[FAMILIES];
};

static void set(struct values *values, enum family family, double value)
{
    values->of[family] = value;
    values->has[family] = true;
}

/* ---- one GPU ----------------------------------------------------------------------------------------------------- */

/* Getters of one unsigned number. */
static void read_numbers(const struct ash_nvml *nvml, ash_nvml_device device, struct values *values)
{
    const struct {
        ash_nvml_result (*get)(ash_nvml_device device, unsigned *value_out);
        enum family family;
        double scale;
    } getters[] = {{nvml->power, POWER_USAGE, 0.001},    {nvml->replays, REPLAYS, 1},
                   {nvml->link_width, LINK_WIDTH, 1},    {nvml->link_width_max, LINK_WIDTH_MAX, 1},
                   {nvml->link_generation, LINK_GEN, 1}, {nvml->link_generation_max, LINK_GEN_MAX, 1}};
    unsigned value = 0, unused = 0;

    for (size_t i = 0; i < ASH_COUNT(getters); i++)
        if (getters[i].get != NULL && getters[i].get(device, &value) == 0)
            set(values, getters[i].family, value * getters[i].scale);
    if (nvml->temperature != NULL && nvml->temperature(device, 0, &value) == 0) set(values, GPU_TEMP, value);
    if (nvml->clock != NULL && nvml->clock(device, ASH_NVML_CLOCK_SM, &value) == 0) set(values, SM_CLOCK, value);
    if (nvml->clock != NULL && nvml->clock(device, ASH_NVML_CLOCK_MEM, &value) == 0) set(values, MEM_CLOCK, value);
    if (nvml->encoder != NULL && nvml->encoder(device, &value, &unused) == 0) set(values, ENC_UTIL, value);
    if (nvml->decoder != NULL && nvml->decoder(device, &value, &unused) == 0) set(values, DEC_UTIL, value);
}

static void read_memory(const struct ash_nvml *nvml, ash_nvml_device device, struct values *values)
{
    struct ash_nvml_memory memory = {.version = ASH_NVML_MEMORY_VERSION};
    struct ash_nvml_utilization used;
    unsigned corrected, uncorrected, pending, failed;

    if (nvml->memory != NULL && nvml->memory(device, &memory) == 0) {
        set(values, FB_FREE, (double)(memory.free / 1048576));
        set(values, FB_USED, (double)(memory.used / 1048576));
        set(values, FB_RESERVED, (double)(memory.reserved / 1048576));
    }
    if (nvml->utilization != NULL && nvml->utilization(device, &used) == 0) {
        set(values, GPU_UTIL, used.gpu);
        set(values, MEM_UTIL, used.memory);
    }
    if (nvml->remapped != NULL && nvml->remapped(device, &corrected, &uncorrected, &pending, &failed) == 0) {
        set(values, ROWS_CORRECTABLE, corrected);
        set(values, ROWS_UNCORRECTABLE, uncorrected);
        set(values, ROWS_PENDING, pending);
        set(values, ROWS_FAILED, failed);
    }
}

static void read_errors(const struct ash_nvml *nvml, ash_nvml_device device, struct values *values)
{
    static const enum family ecc[2][2] = {{SBE_VOLATILE, SBE_AGGREGATE}, {DBE_VOLATILE, DBE_AGGREGATE}};
    struct ash_nvml_violation violation;
    unsigned long long count;

    for (int kind = 0; kind < 2; kind++)
        for (int is_aggregate = 0; is_aggregate < 2; is_aggregate++)
            if (nvml->ecc != NULL && nvml->ecc(device, kind, is_aggregate, &count) == 0)
                set(values, ecc[kind][is_aggregate], (double)count);
    if (nvml->violation != NULL && nvml->violation(device, ASH_NVML_VIOLATION_POWER, &violation) == 0)
        set(values, POWER_VIOLATION, (double)violation.violation_ns);
    if (nvml->violation != NULL && nvml->violation(device, ASH_NVML_VIOLATION_THERMAL, &violation) == 0)
        set(values, THERMAL_VIOLATION, (double)violation.violation_ns);
    if (nvml->energy != NULL && nvml->energy(device, &count) == 0) set(values, ENERGY, (double)count);
    if (nvml->throttle_reasons != NULL && nvml->throttle_reasons(device, &count) == 0)
        set(values, THROTTLE, (double)count);
}

static double field_value(const struct ash_nvml_field_value *field)
{
    switch (field->type) {
    case ASH_NVML_TYPE_DOUBLE:
        return field->value.d;
    case ASH_NVML_TYPE_UINT:
        return field->value.ui;
    case ASH_NVML_TYPE_ULONG:
        return (double)field->value.ul;
    case ASH_NVML_TYPE_SLONGLONG:
        return (double)field->value.sll;
    default:
        return (double)field->value.ull;
    }
}

static void read_fields(const struct ash_nvml *nvml, ash_nvml_device device, struct values *values)
{
    static const enum family by_field[] = {MEMORY_TEMP, CRC_FLIT, CRC_DATA, REPLAY, RECOVERY, FAMILIES, FAMILIES};
    struct ash_nvml_field_value fields[] = {{.field = ASH_NVML_MEMORY_TEMP},
                                            {.field = ASH_NVML_CRC_FLIT_ERRORS},
                                            {.field = ASH_NVML_CRC_DATA_ERRORS},
                                            {.field = ASH_NVML_REPLAY_ERRORS},
                                            {.field = ASH_NVML_RECOVERY_ERRORS},
                                            {.field = ASH_NVML_NVLINK_DATA_TX_KIB, .scope = ALL_LINKS},
                                            {.field = ASH_NVML_NVLINK_DATA_RX_KIB, .scope = ALL_LINKS}};
    const size_t tx = ASH_COUNT(fields) - 2, rx = ASH_COUNT(fields) - 1;

    for (size_t i = 0; i < ASH_COUNT(fields); i++)
        fields[i].result = ASH_NVML_NOT_SUPPORTED;
    if (nvml->fields == NULL || nvml->fields(device, ASH_COUNT(fields), fields) != 0) return;
    for (size_t i = 0; i < tx; i++)
        if (fields[i].result == 0) set(values, by_field[i], field_value(&fields[i]));
    if (fields[tx].result == 0 && fields[rx].result == 0)
        set(values, NVLINK_BANDWIDTH, field_value(&fields[tx]) + field_value(&fields[rx]));
}

/* Profiling from GPM: what lies between two samples. */
static void read_gpm(struct gpus *gpus, struct gpu *gpu, struct values *values)
{
    static const struct {
        unsigned metric;
        enum family family;
        double scale;
    } wanted[] = {{ASH_NVML_GPM_GRAPHICS, PROF_GRAPHICS, 0.01},   {ASH_NVML_GPM_SM, PROF_SM, 0.01},
                  {ASH_NVML_GPM_OCCUPANCY, PROF_OCCUPANCY, 0.01}, {ASH_NVML_GPM_TENSOR, PROF_TENSOR, 0.01},
                  {ASH_NVML_GPM_DRAM, PROF_DRAM, 0.01},           {ASH_NVML_GPM_PCIE_TX_MIB, PROF_PCIE_TX, MIB},
                  {ASH_NVML_GPM_PCIE_RX_MIB, PROF_PCIE_RX, MIB}};
    size_t next = gpu->newest == 0 ? 1 : 0;
    struct ash_nvml_gpm_get *get = gpus->gpm;

    if (gpu->samples[0] == NULL || gpus->nvml.gpm_sample(gpu->device, gpu->samples[next]) != 0) return;
    if (gpu->newest < 2) {
        memset(get, 0, sizeof(*get));
        get->version = 1;
        get->count = ASH_COUNT(wanted);
        get->before = gpu->samples[gpu->newest];
        get->after = gpu->samples[next];
        for (size_t i = 0; i < ASH_COUNT(wanted); i++)
            get->values[i].metric = wanted[i].metric;
        if (gpus->nvml.gpm_get(get) == 0)
            for (size_t i = 0; i < ASH_COUNT(wanted); i++)
                if (get->values[i].result == 0) set(values, wanted[i].family, get->values[i].value * wanted[i].scale);
    }
    gpu->newest = next;
}

/* XID events of NVML since the last time. */
static void read_events(struct gpus *gpus)
{
    struct ash_nvml_event event;

    for (int i = 0; i < 1000 && gpus->events != NULL && gpus->nvml.event_wait(gpus->events, &event, 0) == 0; i++)
        for (size_t g = 0; g < gpus->count; g++)
            if (gpus->list[g].device == event.device && event.type == ASH_NVML_EVENT_XID)
                ash_gpu_xids_add(&gpus->list[g].xids, (unsigned)event.data);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static void set_labels(struct gpus *gpus, struct gpu *gpu, unsigned index)
{
    char name[96] = "", uuid[96] = "", driver[96] = "", host[256] = "", number[16], device[32];
    const struct ash_nvml *nvml = &gpus->nvml;
    struct ash_nvml_pci pci = {0};
    unsigned minor = index;

    if (nvml->name != NULL) nvml->name(gpu->device, name, sizeof(name));
    if (nvml->uuid != NULL) nvml->uuid(gpu->device, uuid, sizeof(uuid));
    if (nvml->pci != NULL) nvml->pci(gpu->device, &pci);
    ash_gpu_xids_init(&gpu->xids, pci.address);
    if (nvml->driver_version != NULL) nvml->driver_version(driver, sizeof(driver));
    if (nvml->minor != NULL) nvml->minor(gpu->device, &minor);
    ash_host_name(gpus->source, host, sizeof(host));
    snprintf(number, sizeof(number), "%u", index);
    snprintf(device, sizeof(device), "nvidia%u", minor);
    ash_exp_labels(gpu->labels, sizeof(gpu->labels), "gpu", number, "UUID", uuid, "pci_bus_id", pci.address, "device",
                   device, "modelName", name, "Hostname", host, "DCGM_FI_DRIVER_VERSION", driver, (char *)NULL);
}

static void set_up_gpm(struct gpus *gpus, struct gpu *gpu)
{
    struct ash_nvml_gpm_support support = {.version = 1};
    const struct ash_nvml *nvml = &gpus->nvml;

    gpu->newest = 2;
    if (gpus->gpm == NULL || nvml->gpm_support == NULL || nvml->gpm_alloc == NULL || nvml->gpm_sample == NULL ||
        nvml->gpm_get == NULL || nvml->gpm_free == NULL)
        return;
    if (nvml->gpm_support(gpu->device, &support) != 0 || support.is_supported == 0) return;
    if (nvml->gpm_alloc(&gpu->samples[0]) == 0 && nvml->gpm_alloc(&gpu->samples[1]) != 0) {
        nvml->gpm_free(gpu->samples[0]);
        gpu->samples[0] = NULL;
    }
}

static void close_gpus(void *state)
{
    struct gpus *gpus = state;

    if (gpus == NULL) return;
    for (size_t i = 0; i < gpus->count; i++)
        for (size_t s = 0; s < 2 && gpus->list[i].samples[0] != NULL; s++)
            gpus->nvml.gpm_free(gpus->list[i].samples[s]);
    if (gpus->events != NULL) gpus->nvml.event_set_free(gpus->events);
    ash_nvml_close(&gpus->nvml);
    free(gpus->gpm);
    free(gpus);
}

static void find_gpus(struct gpus *gpus)
{
    const struct ash_nvml *nvml = &gpus->nvml;
    unsigned count = 0;

    if (nvml->count(&count) != 0) return;
    if (nvml->event_set_create != NULL && nvml->event_register != NULL && nvml->event_wait != NULL &&
        nvml->event_set_free != NULL && nvml->event_set_create(&gpus->events) != 0)
        gpus->events = NULL;
    for (unsigned i = 0; i < count && gpus->count < GPUS_MAX; i++) {
        struct gpu *gpu = &gpus->list[gpus->count];

        if (nvml->handle(i, &gpu->device) != 0) continue; /* it fell off the bus: the count shows it */
        set_labels(gpus, gpu, i);
        set_up_gpm(gpus, gpu);
        if (gpus->events != NULL) nvml->event_register(gpu->device, ASH_NVML_EVENT_XID, gpus->events);
        gpus->count++;
    }
}

static int open_gpus(const struct ash_host_files *source, void **state_out, struct ash_err *err)
{
    struct gpus *gpus = calloc(1, sizeof(*gpus));
    int rc;

    if (gpus == NULL) return ash_err_set(err, -ENOMEM, "no memory for GPUs");
    gpus->source = source;
    rc = ash_nvml_open(&gpus->nvml, source->nvml, err);
    if (rc < 0 && rc != -ENOENT) goto fail;
    if (rc == 0) {
        gpus->gpm = malloc(sizeof(*gpus->gpm));
        find_gpus(gpus);
    }
    *state_out = gpus;
    return 0;

fail:
    close_gpus(gpus);
    return rc;
}

static void read_gpu(struct gpus *gpus, struct gpu *gpu, struct values *values)
{
    read_numbers(&gpus->nvml, gpu->device, values);
    read_memory(&gpus->nvml, gpu->device, values);
    read_errors(&gpus->nvml, gpu->device, values);
    read_fields(&gpus->nvml, gpu->device, values);
    read_gpm(gpus, gpu, values);
    set(values, XID, gpu->xids.last);
}

/* The job that uses a GPU: a scheduler's prolog writes its id to a file named by the GPU's index. */
static void add_job(const struct gpus *gpus, size_t index, char *labels, size_t labels_bytes)
{
    char path[PATH_MAX], job[64], text[ASH_EXP_LABELS_BYTES];
    struct ash_host_files outside = {.root = ""};
    size_t used = strlen(labels);

    if (gpus->source->gpu_jobs == NULL) return;
    snprintf(path, sizeof(path), "%s/%zu", gpus->source->gpu_jobs, index);
    if (ash_host_line(&outside, path, job, sizeof(job)) < 0 || job[0] == '\0') return;
    ash_exp_labels(text, sizeof(text), "hpc_job", job, (char *)NULL);
    if (used + strlen(text) + 2 < labels_bytes) snprintf(labels + used, labels_bytes - used, ",%s", text);
}

static int collect_gpus(void *state, struct ash_str *out, struct ash_err *err)
{
    struct ash_str samples[FAMILIES] = {{0}};
    struct gpus *gpus = state;
    bool has_xids = false;

    (void)err;
    if (gpus->nvml.library == NULL) return 0; /* a machine without GPUs */
    read_events(gpus);
    for (size_t i = 0; i < gpus->count; i++) {
        char labels[ASH_EXP_LABELS_BYTES + 128];
        struct values values = {0};

        snprintf(labels, sizeof(labels), "%s", gpus->list[i].labels);
        add_job(gpus, i, labels, sizeof(labels));
        read_gpu(gpus, &gpus->list[i], &values);
        ash_gpu_xids_write(&gpus->list[i].xids, &has_xids, out);
        for (size_t f = 0; f < FAMILIES; f++)
            if (values.has[f]) ash_exp_value(&samples[f], families[f].name, labels, values.of[f]);
    }
    ash_exp_single(out, "ashlar_gpus", "gauge", "GPUs that the driver has.", (double)gpus->count);
    for (size_t f = 0; f < FAMILIES; f++) {
        if (samples[f].size_bytes > 0) {
            ash_exp_family(out, families[f].name, families[f].type, families[f].help);
            ash_str_add(out, samples[f].data, samples[f].size_bytes);
        }
        ash_str_fini(&samples[f]);
    }
    return 0;
}

const struct ash_collector_ops ash_collect_gpu = {
    .name = "gpu", .deadline_s = 3, .open = open_gpus, .collect = collect_gpus, .close = close_gpus};

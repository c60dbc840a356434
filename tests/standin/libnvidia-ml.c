/* A stand-in of NVIDIA's management library for machines without GPUs. ASHLAR_STANDIN_GPUS says how many there are, as
 * H200s with plausible figures; ASHLAR_STANDIN_STUCK=1 makes the power call hang, as a lost GPU does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "infra/device/nvml.h"

#define GPUS_MAX 16

struct ash_nvml_device_tag {
    unsigned index;
};

static struct ash_nvml_device_tag gpus[GPUS_MAX];
static int event_set, samples_taken, xid_told;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlSystemGetDriverVersion(char *buf, unsigned buf_bytes);
int nvmlDeviceGetCount_v2(unsigned *count_out);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, ash_nvml_device *device_out);
int nvmlDeviceGetName(ash_nvml_device device, char *buf, unsigned buf_bytes);
int nvmlDeviceGetUUID(ash_nvml_device device, char *buf, unsigned buf_bytes);
int nvmlDeviceGetPciInfo_v3(ash_nvml_device device, struct ash_nvml_pci *pci_out);
int nvmlDeviceGetMinorNumber(ash_nvml_device device, unsigned *minor_out);
int nvmlDeviceGetTemperature(ash_nvml_device device, int sensor, unsigned *celsius_out);
int nvmlDeviceGetClockInfo(ash_nvml_device device, int clock, unsigned *mhz_out);
int nvmlDeviceGetPowerUsage(ash_nvml_device device, unsigned *mw_out);
int nvmlDeviceGetTotalEnergyConsumption(ash_nvml_device device, unsigned long long *mj_out);
int nvmlDeviceGetUtilizationRates(ash_nvml_device device, struct ash_nvml_utilization *percent_out);
int nvmlDeviceGetMemoryInfo_v2(ash_nvml_device device, struct ash_nvml_memory *memory_out);
int nvmlDeviceGetRemappedRows(ash_nvml_device device, unsigned *corrected_out, unsigned *uncorrected_out,
                              unsigned *pending_out, unsigned *failed_out);
int nvmlDeviceGetTotalEccErrors(ash_nvml_device device, int is_uncorrected, int is_aggregate,
                                unsigned long long *count_out);
int nvmlDeviceGetFieldValues(ash_nvml_device device, int count, struct ash_nvml_field_value *values);
int nvmlDeviceGetNvLinkState(ash_nvml_device device, unsigned link, unsigned *is_active_out);
int nvmlDeviceGetNvLinkErrorCounter(ash_nvml_device device, unsigned link, int kind, unsigned long long *count_out);
int nvmlEventSetCreate(void **set_out);
int nvmlEventSetFree(void *set);
int nvmlDeviceRegisterEvents(ash_nvml_device device, unsigned long long types, void *set);
int nvmlEventSetWait_v2(void *set, struct ash_nvml_event *event_out, unsigned timeout_ms);
int nvmlGpmQueryDeviceSupport(ash_nvml_device device, struct ash_nvml_gpm_support *support);
int nvmlGpmSampleAlloc(void **sample_out);
int nvmlGpmSampleFree(void *sample);
int nvmlGpmSampleGet(ash_nvml_device device, void *sample);
int nvmlGpmMetricsGet(struct ash_nvml_gpm_get *get);

static unsigned setting(const char *name, unsigned fallback)
{
    const char *text = getenv(name);

    return text != NULL ? (unsigned)atoi(text) : fallback;
}

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlSystemGetDriverVersion(char *buf, unsigned buf_bytes)
{
    snprintf(buf, buf_bytes, "570.0");
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count_out)
{
    *count_out = setting("ASHLAR_STANDIN_GPUS", 8);
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, ash_nvml_device *device_out)
{
    if (index >= GPUS_MAX) return ASH_NVML_GPU_IS_LOST;
    gpus[index].index = index;
    *device_out = &gpus[index];
    return 0;
}

int nvmlDeviceGetName(ash_nvml_device device, char *buf, unsigned buf_bytes)
{
    (void)device;
    snprintf(buf, buf_bytes, "NVIDIA H200");
    return 0;
}

int nvmlDeviceGetUUID(ash_nvml_device device, char *buf, unsigned buf_bytes)
{
    snprintf(buf, buf_bytes, "GPU-0000000%u-1111-2222-3333-444444444444", device->index);
    return 0;
}

int nvmlDeviceGetPciInfo_v3(ash_nvml_device device, struct ash_nvml_pci *pci_out)
{
    memset(pci_out, 0, sizeof(*pci_out));
    snprintf(pci_out->address, sizeof(pci_out->address), "00000000:%02X:00.0", 0x3b + device->index);
    return 0;
}

int nvmlDeviceGetMinorNumber(ash_nvml_device device, unsigned *minor_out)
{
    *minor_out = device->index;
    return 0;
}

int nvmlDeviceGetTemperature(ash_nvml_device device, int sensor, unsigned *celsius_out)
{
    (void)sensor;
    *celsius_out = 50 + device->index;
    return 0;
}

int nvmlDeviceGetClockInfo(ash_nvml_device device, int clock, unsigned *mhz_out)
{
    (void)device;
    *mhz_out = clock == ASH_NVML_CLOCK_MEM ? 3201 : 1980;
    return 0;
}

int nvmlDeviceGetPowerUsage(ash_nvml_device device, unsigned *mw_out)
{
    while (setting("ASHLAR_STANDIN_STUCK", 0) != 0)
        pause();
    *mw_out = 640500 + device->index * 1000;
    return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(ash_nvml_device device, unsigned long long *mj_out)
{
    *mj_out = 123456789ull + device->index;
    return 0;
}

int nvmlDeviceGetUtilizationRates(ash_nvml_device device, struct ash_nvml_utilization *percent_out)
{
    (void)device;
    *percent_out = (struct ash_nvml_utilization){97, 41};
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(ash_nvml_device device, struct ash_nvml_memory *memory_out)
{
    (void)device;
    if (memory_out->version != ASH_NVML_MEMORY_VERSION) return 2;
    memory_out->total = 150754820096ull;
    memory_out->used = 100ull << 30;
    memory_out->reserved = 600ull << 20;
    memory_out->free = memory_out->total - memory_out->used - memory_out->reserved;
    return 0;
}

int nvmlDeviceGetRemappedRows(ash_nvml_device device, unsigned *corrected_out, unsigned *uncorrected_out,
                              unsigned *pending_out, unsigned *failed_out)
{
    (void)device;
    *corrected_out = *uncorrected_out = *pending_out = 0;
    *failed_out = setting("ASHLAR_STANDIN_REMAP_FAILURE", 0);
    return 0;
}

int nvmlDeviceGetTotalEccErrors(ash_nvml_device device, int is_uncorrected, int is_aggregate,
                                unsigned long long *count_out)
{
    (void)is_aggregate;
    *count_out = is_uncorrected ? 0 : device->index;
    return 0;
}

int nvmlDeviceGetFieldValues(ash_nvml_device device, int count, struct ash_nvml_field_value *values)
{
    for (int i = 0; i < count; i++) {
        values[i].result = 0;
        values[i].type = ASH_NVML_TYPE_ULONGLONG;
        values[i].value.ull = values[i].field == ASH_NVML_MEMORY_TEMP ? 60 + device->index : 0;
    }
    return 0;
}

/* Eighteen links; ASHLAR_STANDIN_LINK_DOWN: the GPU whose link 5 is down; ASHLAR_STANDIN_LINK_ERRORS: one that
 * replays. */
int nvmlDeviceGetNvLinkState(ash_nvml_device device, unsigned link, unsigned *is_active_out)
{
    *is_active_out = link != 5 || setting("ASHLAR_STANDIN_LINK_DOWN", GPUS_MAX) != device->index;
    return 0;
}

int nvmlDeviceGetNvLinkErrorCounter(ash_nvml_device device, unsigned link, int kind, unsigned long long *count_out)
{
    *count_out = link == 2 && kind == 0 && setting("ASHLAR_STANDIN_LINK_ERRORS", GPUS_MAX) == device->index ? 7 : 0;
    return 0;
}

int nvmlEventSetCreate(void **set_out)
{
    *set_out = &event_set;
    return 0;
}

int nvmlEventSetFree(void *set)
{
    (void)set;
    return 0;
}

int nvmlDeviceRegisterEvents(ash_nvml_device device, unsigned long long types, void *set)
{
    (void)device, (void)set;
    return types == ASH_NVML_EVENT_XID ? 0 : 2;
}

int nvmlEventSetWait_v2(void *set, struct ash_nvml_event *event_out, unsigned timeout_ms)
{
    (void)set, (void)timeout_ms;
    if (setting("ASHLAR_STANDIN_XID", 0) == 0 || xid_told) return ASH_NVML_TIMEOUT;
    xid_told = 1;
    *event_out = (struct ash_nvml_event){
        .device = &gpus[0], .type = ASH_NVML_EVENT_XID, .data = setting("ASHLAR_STANDIN_XID", 0)};
    return 0;
}

int nvmlGpmQueryDeviceSupport(ash_nvml_device device, struct ash_nvml_gpm_support *support)
{
    (void)device;
    support->is_supported = 1;
    return 0;
}

int nvmlGpmSampleAlloc(void **sample_out)
{
    *sample_out = malloc(16);
    return *sample_out != NULL ? 0 : 20;
}

int nvmlGpmSampleFree(void *sample)
{
    free(sample);
    return 0;
}

int nvmlGpmSampleGet(ash_nvml_device device, void *sample)
{
    (void)device;
    memcpy(sample, &samples_taken, sizeof(samples_taken));
    samples_taken++;
    return 0;
}

int nvmlGpmMetricsGet(struct ash_nvml_gpm_get *get)
{
    if (get->before == get->after) return 2;
    for (unsigned i = 0; i < get->count; i++)
        get->values[i].value = get->values[i].metric == ASH_NVML_GPM_TENSOR ? 62.5 : 50;
    return 0;
}

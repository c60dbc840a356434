/* nvml - the part of NVIDIA's management library that Ashlar uses, opened at run time from libnvidia-ml.so.1. The
 * declarations are our own. Functions that an older driver lacks are NULL. */
#ifndef ASH_INFRA_DEVICE_NVML_H
#define ASH_INFRA_DEVICE_NVML_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

typedef int ash_nvml_result; /* 0: success */
typedef struct ash_nvml_device_tag *ash_nvml_device;

#define ASH_NVML_NOT_SUPPORTED 3
#define ASH_NVML_GPU_IS_LOST 15
#define ASH_NVML_TIMEOUT 10

enum ash_nvml_clock { ASH_NVML_CLOCK_GRAPHICS, ASH_NVML_CLOCK_SM, ASH_NVML_CLOCK_MEM };
enum ash_nvml_field { /* NVML_FI_DEV_... */
                      ASH_NVML_CRC_FLIT_ERRORS = 38,
                      ASH_NVML_CRC_DATA_ERRORS = 45,
                      ASH_NVML_REPLAY_ERRORS = 52,
                      ASH_NVML_RECOVERY_ERRORS = 59,
                      ASH_NVML_MEMORY_TEMP = 82,
                      ASH_NVML_NVLINK_DATA_TX_KIB = 138,
                      ASH_NVML_NVLINK_DATA_RX_KIB = 139,
};
enum ash_nvml_gpm_metric { /* NVML_GPM_METRIC_... */
                           ASH_NVML_GPM_GRAPHICS = 1,
                           ASH_NVML_GPM_SM = 2,
                           ASH_NVML_GPM_OCCUPANCY = 3,
                           ASH_NVML_GPM_TENSOR = 5,
                           ASH_NVML_GPM_DRAM = 10,
                           ASH_NVML_GPM_PCIE_TX_MIB = 20,
                           ASH_NVML_GPM_PCIE_RX_MIB = 21,
};
enum { ASH_NVML_VIOLATION_POWER = 0, ASH_NVML_VIOLATION_THERMAL = 1 };
enum { ASH_NVML_LINK_ERRORS = 4 }; /* NVML_NVLINK_ERROR_DL_...: replays, recoveries, flits, data */
#define ASH_NVML_EVENT_XID 8u

struct ash_nvml_pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem_id;
    char address[32]; /* 00000000:3B:00.0 */
};
struct ash_nvml_utilization {
    unsigned gpu, memory; /* percent */
};
struct ash_nvml_memory {
    unsigned version;
    unsigned long long total, reserved, free, used; /* bytes */
};
#define ASH_NVML_MEMORY_VERSION (sizeof(struct ash_nvml_memory) | 2u << 24)
struct ash_nvml_violation {
    unsigned long long reference_us, violation_ns;
};
enum {
    ASH_NVML_TYPE_DOUBLE,
    ASH_NVML_TYPE_UINT,
    ASH_NVML_TYPE_ULONG,
    ASH_NVML_TYPE_ULONGLONG,
    ASH_NVML_TYPE_SLONGLONG
};
struct ash_nvml_field_value {
    unsigned field, scope;
    long long timestamp, latency_us;
    unsigned type;
    ash_nvml_result result;
    union {
        double d;
        unsigned ui;
        unsigned long ul;
        unsigned long long ull;
        long long sll;
    } value;
};
struct ash_nvml_event {
    ash_nvml_device device;
    unsigned long long type, data; /* data: the XID */
    unsigned gpu_instance, compute_instance;
};
struct ash_nvml_gpm_value {
    unsigned metric;
    ash_nvml_result result;
    double value;
    const char *short_name, *long_name, *unit;
};
#define ASH_NVML_GPM_VALUES 512 /* room for what any driver's header has */
struct ash_nvml_gpm_get {
    unsigned version, count;
    void *before, *after;
    struct ash_nvml_gpm_value values[ASH_NVML_GPM_VALUES];
};
struct ash_nvml_gpm_support {
    unsigned version, is_supported;
};

/* X(member, symbol, parameters) */
#define ASH_NVML_FUNCTIONS(X)                                                                                          \
    X(init, "nvmlInit_v2", (void))                                                                                     \
    X(shutdown, "nvmlShutdown", (void))                                                                                \
    X(driver_version, "nvmlSystemGetDriverVersion", (char *buf, unsigned buf_bytes))                                   \
    X(count, "nvmlDeviceGetCount_v2", (unsigned *count_out))                                                           \
    X(handle, "nvmlDeviceGetHandleByIndex_v2", (unsigned index, ash_nvml_device *device_out))                          \
    X(name, "nvmlDeviceGetName", (ash_nvml_device device, char *buf, unsigned buf_bytes))                              \
    X(uuid, "nvmlDeviceGetUUID", (ash_nvml_device device, char *buf, unsigned buf_bytes))                              \
    X(pci, "nvmlDeviceGetPciInfo_v3", (ash_nvml_device device, struct ash_nvml_pci * pci_out))                         \
    X(minor, "nvmlDeviceGetMinorNumber", (ash_nvml_device device, unsigned *minor_out))                                \
    X(temperature, "nvmlDeviceGetTemperature", (ash_nvml_device device, int sensor, unsigned *celsius_out))            \
    X(clock, "nvmlDeviceGetClockInfo", (ash_nvml_device device, int clock, unsigned *mhz_out))                         \
    X(power, "nvmlDeviceGetPowerUsage", (ash_nvml_device device, unsigned *mw_out))                                    \
    X(energy, "nvmlDeviceGetTotalEnergyConsumption", (ash_nvml_device device, unsigned long long *mj_out))             \
    X(replays, "nvmlDeviceGetPcieReplayCounter", (ash_nvml_device device, unsigned *count_out))                        \
    X(utilization, "nvmlDeviceGetUtilizationRates",                                                                    \
      (ash_nvml_device device, struct ash_nvml_utilization * percent_out))                                             \
    X(encoder, "nvmlDeviceGetEncoderUtilization", (ash_nvml_device device, unsigned *percent_out, unsigned *us_out))   \
    X(decoder, "nvmlDeviceGetDecoderUtilization", (ash_nvml_device device, unsigned *percent_out, unsigned *us_out))   \
    X(memory, "nvmlDeviceGetMemoryInfo_v2", (ash_nvml_device device, struct ash_nvml_memory * memory_out))             \
    X(remapped, "nvmlDeviceGetRemappedRows",                                                                           \
      (ash_nvml_device device, unsigned *corrected_out, unsigned *uncorrected_out, unsigned *pending_out,              \
       unsigned *failed_out))                                                                                          \
    X(ecc, "nvmlDeviceGetTotalEccErrors",                                                                              \
      (ash_nvml_device device, int is_uncorrected, int is_aggregate, unsigned long long *count_out))                   \
    X(violation, "nvmlDeviceGetViolationStatus",                                                                       \
      (ash_nvml_device device, int policy, struct ash_nvml_violation *violation_out))                                  \
    X(link_width, "nvmlDeviceGetCurrPcieLinkWidth", (ash_nvml_device device, unsigned *lanes_out))                     \
    X(link_width_max, "nvmlDeviceGetMaxPcieLinkWidth", (ash_nvml_device device, unsigned *lanes_out))                  \
    X(link_generation, "nvmlDeviceGetCurrPcieLinkGeneration", (ash_nvml_device device, unsigned *generation_out))      \
    X(link_generation_max, "nvmlDeviceGetMaxPcieLinkGeneration", (ash_nvml_device device, unsigned *generation_out))   \
    X(nvlink_state, "nvmlDeviceGetNvLinkState", (ash_nvml_device device, unsigned link, unsigned *is_active_out))      \
    X(nvlink_errors, "nvmlDeviceGetNvLinkErrorCounter",                                                                \
      (ash_nvml_device device, unsigned link, int kind, unsigned long long *count_out))                                \
    X(throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons",                                                   \
      (ash_nvml_device device, unsigned long long *bits_out))                                                          \
    X(fields, "nvmlDeviceGetFieldValues",                                                                              \
      (ash_nvml_device device, int count, struct ash_nvml_field_value *values_inout))                                  \
    X(event_set_create, "nvmlEventSetCreate", (void **set_out))                                                        \
    X(event_set_free, "nvmlEventSetFree", (void *set))                                                                 \
    X(event_register, "nvmlDeviceRegisterEvents", (ash_nvml_device device, unsigned long long types, void *set))       \
    X(event_wait, "nvmlEventSetWait_v2", (void *set, struct ash_nvml_event *event_out, unsigned timeout_ms))           \
    X(gpm_support, "nvmlGpmQueryDeviceSupport", (ash_nvml_device device, struct ash_nvml_gpm_support * support_inout)) \
    X(gpm_alloc, "nvmlGpmSampleAlloc", (void **sample_out))                                                            \
    X(gpm_free, "nvmlGpmSampleFree", (void *sample))                                                                   \
    X(gpm_sample, "nvmlGpmSampleGet", (ash_nvml_device device, void *sample))                                          \
    X(gpm_get, "nvmlGpmMetricsGet", (struct ash_nvml_gpm_get * get_inout))

struct ash_nvml {
#define ASH_NVML_MEMBER(member, symbol, parameters) ash_nvml_result(*member) parameters;
    ASH_NVML_FUNCTIONS(ASH_NVML_MEMBER)
#undef ASH_NVML_MEMBER
    void *library;
};

/* Open the library and initialise it. path NULL: where the system finds it. Returns 0, -ENOENT (there is no library:
 * no driver) or another negative errno with a sentence. The caller owns the struct. */
int ash_nvml_open(struct ash_nvml *nvml, const char *path, struct ash_err *err);
/* Shut it down. A zeroed struct is fine. */
void ash_nvml_close(struct ash_nvml *nvml);

#endif

/* Processors and memory: clocks and throttling of cores, errors that memory controllers count (EDAC). */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "observe/collect/collector.h"
#include "observe/collect/exposition.h"

#define CPUS "/sys/devices/system/cpu"
#define CONTROLLERS "/sys/devices/system/edac/mc"
#define CORES_MAX 4096
#define LOOK_NS 60000000000u /* between two looks at which cores there are */

static const struct ash_sys_file clock_files[] = {
    {"cpufreq/scaling_cur_freq", "node_cpu_scaling_frequency_hertz", "gauge",
     "Current scaled CPU thread frequency in hertz.", 1000},
};
static const struct ash_sys_file core_files[] = {
    {"thermal_throttle/core_throttle_count", "node_cpu_core_throttles_total", "counter",
     "Number of times this CPU core has been throttled.", 1},
};
static const struct ash_sys_file package_files[] = {
    {"thermal_throttle/package_throttle_count", "node_cpu_package_throttles_total", "counter",
     "Number of times this CPU package has been throttled.", 1},
};
static const struct ash_sys_file memory_files[] = {
    {"ce_count", "node_edac_correctable_errors_total", "counter", "Total correctable memory errors.", 1},
    {"ue_count", "node_edac_uncorrectable_errors_total", "counter", "Total uncorrectable memory errors.", 1},
};

struct chips {
    const struct ash_host_files *source;
    uint64_t looked_ns;                         /* 0: never */
    struct ash_devices clocks, cores, packages; /* each core and package once, by its first thread */
};

static void forget(struct chips *chips)
{
    ash_devices_fini(&chips->clocks);
    ash_devices_fini(&chips->cores);
    ash_devices_fini(&chips->packages);
}

/* Is there one with these labels already? */
static bool has_labels(const struct ash_devices *devices, const char *labels)
{
    for (size_t i = devices->labels.count; i-- > 0;)
        if (strcmp(devices->labels.items[i], labels) == 0) return true;
    return false;
}

static bool has_file(const struct ash_host_files *source, const char *folder, const char *file)
{
    char path[PATH_MAX + 64];
    double value;

    snprintf(path, sizeof(path), "%s/%s", folder, file);
    return ash_host_number(source, path, &value) == 0;
}

static void add_core(struct chips *chips, const char *folder)
{
    char path[PATH_MAX + 64], core[32], package[32], labels[ASH_EXP_LABELS_BYTES];

    snprintf(path, sizeof(path), "%s/topology/core_id", folder);
    if (ash_host_line(chips->source, path, core, sizeof(core)) < 0) return;
    snprintf(path, sizeof(path), "%s/topology/physical_package_id", folder);
    if (ash_host_line(chips->source, path, package, sizeof(package)) < 0) return;
    ash_exp_labels(labels, sizeof(labels), "core", core, "package", package, (char *)NULL);
    if (!has_labels(&chips->cores, labels)) ash_devices_add(&chips->cores, folder, labels);
    ash_exp_labels(labels, sizeof(labels), "package", package, (char *)NULL);
    if (!has_labels(&chips->packages, labels)) ash_devices_add(&chips->packages, folder, labels);
}

/* Which cores there are changes seldom, and there may be hundreds. */
static void look(struct chips *chips)
{
    struct ash_names names = {0};
    char folder[PATH_MAX], labels[64];

    forget(chips);
    ash_names_list(chips->source, CPUS, &names);
    for (size_t i = 0; i < names.count && i < CORES_MAX; i++) {
        const char *number = names.items[i] + 3;

        if (strncmp(names.items[i], "cpu", 3) != 0 || strspn(number, "0123456789") != strlen(number) || *number == '\0')
            continue;
        snprintf(folder, sizeof(folder), CPUS "/%s", names.items[i]);
        snprintf(labels, sizeof(labels), "cpu=\"%.20s\"", number);
        if (has_file(chips->source, folder, clock_files[0].file)) ash_devices_add(&chips->clocks, folder, labels);
        if (has_file(chips->source, folder, core_files[0].file)) add_core(chips, folder);
    }
    chips->clocks.keeps = chips->cores.keeps = true;
    ash_names_fini(&names);
    chips->looked_ns = ash_clock_ns();
}

static void add_memory(const struct ash_host_files *source, struct ash_str *out)
{
    struct ash_devices devices = {0};
    struct ash_names names = {0};
    char folder[PATH_MAX], labels[ASH_EXP_LABELS_BYTES];

    ash_names_list(source, CONTROLLERS, &names);
    for (size_t i = 0; i < names.count; i++) {
        if (strncmp(names.items[i], "mc", 2) != 0) continue;
        snprintf(folder, sizeof(folder), CONTROLLERS "/%s", names.items[i]);
        ash_exp_labels(labels, sizeof(labels), "controller", names.items[i] + 2, (char *)NULL);
        ash_devices_add(&devices, folder, labels);
    }
    ash_collect_files(source, memory_files, ASH_COUNT(memory_files), &devices, out);
    ash_names_fini(&names);
    ash_devices_fini(&devices);
}

static int open_chips(const struct ash_host_files *source, void **state_out, struct ash_err *err)
{
    struct chips *chips = calloc(1, sizeof(*chips));

    if (chips == NULL) return ash_err_set(err, -ENOMEM, "no memory for processors");
    chips->source = source;
    *state_out = chips;
    return 0;
}

static int collect_chips(void *state, struct ash_str *out, struct ash_err *err)
{
    struct chips *chips = state;

    (void)err;
    if (chips->looked_ns == 0 || ash_clock_ns() - chips->looked_ns >= LOOK_NS) look(chips);
    ash_collect_files(chips->source, clock_files, ASH_COUNT(clock_files), &chips->clocks, out);
    ash_collect_files(chips->source, core_files, ASH_COUNT(core_files), &chips->cores, out);
    ash_collect_files(chips->source, package_files, ASH_COUNT(package_files), &chips->packages, out);
    add_memory(chips->source, out);
    return 0;
}

static void close_chips(void *state)
{
    if (state == NULL) return;
    forget(state);
    free(state);
}

const struct ash_collector_ops ash_collect_chips = {
    .name = "chips", .deadline_s = 1, .open = open_chips, .collect = collect_chips, .close = close_chips};

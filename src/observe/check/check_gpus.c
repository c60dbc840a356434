/* GPUs, and their requirements of the machine: rows of memory, lanes, clocks, kernel modules, the fabric manager. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "infra/device/nvml.h"
#include "observe/check/check.h"
#include "observe/collect/fabric_manager.h"

/* Bits of the reasons why a clock is low. */
#define HELD_BY_BRAKE 0x80ull
#define HELD_BY_HARDWARE (0x8ull | 0x40ull | HELD_BY_BRAKE)
#define HELD_BY_HEAT (0x20ull | 0x40ull)

static void check_rows(const struct ash_nvml *nvml, ash_nvml_device device, unsigned index,
                       struct ash_check_report *report)
{
    unsigned corrected, uncorrected, pending, failed, width = 0, width_max = 0;
    unsigned long long errors = 0;

    if (nvml->remapped != NULL && nvml->remapped(device, &corrected, &uncorrected, &pending, &failed) == 0 &&
        (pending != 0 || failed != 0))
        ash_check_add(report, "GPU memory rows", failed != 0 ? ASH_GRADE_BAD : ASH_GRADE_WARN,
                      "no remap pending or failed", "GPU %u: %s", index,
                      failed != 0 ? "a remap failed: replace it" : "a remap waits for a reset");
    if (nvml->ecc != NULL && nvml->ecc(device, 1, 0, &errors) == 0 && errors > 0)
        ash_check_add(report, "GPU memory errors", ASH_GRADE_BAD, "0", "GPU %u: %llu that could not be corrected",
                      index, errors);
    if (nvml->link_width != NULL && nvml->link_width_max != NULL && nvml->link_width(device, &width) == 0 &&
        nvml->link_width_max(device, &width_max) == 0 && width < width_max)
        ash_check_add(report, "GPU link", ASH_GRADE_WARN, "all lanes", "GPU %u: %u of %u PCIe lanes", index, width,
                      width_max);
}

/* Throttled by the hardware. */
static void check_clock(const struct ash_nvml *nvml, ash_nvml_device device, unsigned index,
                        struct ash_check_report *report)
{
    unsigned long long reasons = 0;
    unsigned mhz = 0;

    if (nvml->throttle_reasons == NULL || nvml->throttle_reasons(device, &reasons) != 0) return;
    if ((reasons & (HELD_BY_HARDWARE | HELD_BY_HEAT)) == 0) return;
    if (nvml->clock != NULL) nvml->clock(device, ASH_NVML_CLOCK_SM, &mhz);
    ash_check_add(report, "GPU clocks", (reasons & HELD_BY_HARDWARE) != 0 ? ASH_GRADE_BAD : ASH_GRADE_WARN,
                  "not held down", "GPU %u: %u MHz, held down by %s", index, mhz,
                  (reasons & HELD_BY_BRAKE) != 0  ? "its power supply"
                  : (reasons & HELD_BY_HEAT) != 0 ? "heat"
                                                  : "the hardware");
}

/* ---- the driver's surroundings ----------------------------------------------------------------------------------- */

static bool has_module(const char *modules, const char *name)
{
    size_t bytes = strlen(name);

    for (const char *at = modules; (at = strstr(at, name)) != NULL; at += bytes)
        if ((at == modules || at[-1] == '\n') && at[bytes] == ' ') return true;
    return false;
}

/* What GPUs and network cards of this node need of the kernel. */
static void check_modules(const struct ash_check_opts *opts, bool has_gpus, struct ash_check_report *report)
{
    const struct {
        const char *name;
        bool is_needed;
    } wanted[] = {{"nvidia", has_gpus}, {"nvidia_uvm", has_gpus}, {"efa", opts->network_devices > 0 && opts->has_efa}};
    struct ash_str text = {0};
    char found[128] = "";
    size_t used = 0;

    if (ash_host_read(&opts->source, "/proc/modules", &text) < 0 || text.data == NULL) {
        ash_check_add(report, "kernel modules", ASH_GRADE_SKIPPED, "", "/proc/modules cannot be read");
        ash_str_fini(&text);
        return;
    }
    for (size_t i = 0; i < ASH_COUNT(wanted); i++) {
        if (!wanted[i].is_needed) continue;
        ash_assert(used < sizeof(found)); /* three short names */
        if (has_module(text.data, wanted[i].name))
            used += (size_t)snprintf(found + used, sizeof(found) - used, "%s%s", used > 0 ? ", " : "", wanted[i].name);
        else
            ash_check_add(report, "kernel modules", ASH_GRADE_BAD, "", "%s is not loaded", wanted[i].name);
    }
    if (used > 0) ash_check_add(report, "kernel modules", ASH_GRADE_GOOD, "", "%s", found);
    ash_str_fini(&text);
}

static void check_fabric_manager(const struct ash_check_opts *opts, struct ash_check_report *report)
{
    switch (ash_fabric_manager_look(&opts->source)) {
    case ASH_FABRIC_MANAGER_UP:
        ash_check_add(report, "fabric manager", ASH_GRADE_GOOD, "", "runs");
        break;
    case ASH_FABRIC_MANAGER_DOWN:
        ash_check_add(report, "fabric manager", ASH_GRADE_BAD, "runs", "does not run, and there are NVSwitches");
        break;
    case ASH_FABRIC_MANAGER_UNSEEN:
        ash_check_add(report, "fabric manager", ASH_GRADE_SKIPPED, "", "the host's processes cannot be seen from here");
        break;
    default:
        ash_check_add(report, "fabric manager", ASH_GRADE_SKIPPED, "", "no NVSwitches here");
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* Count them and look at each. Returns how many answer. */
static unsigned look_at_gpus(const struct ash_check_opts *opts, struct ash_check_report *report)
{
    struct ash_nvml nvml;
    struct ash_err err = {0};
    unsigned count = 0, answering = 0;
    char driver[96] = "", wanted[32] = "";
    ash_nvml_device device;

    if (ash_nvml_open(&nvml, opts->source.nvml, &err) < 0) {
        ash_check_add(report, "GPUs", opts->gpus > 0 ? ASH_GRADE_BAD : ASH_GRADE_SKIPPED, "", "%s", err.text);
        return 0;
    }
    nvml.count(&count);
    for (unsigned i = 0; i < count; i++) {
        if (nvml.handle(i, &device) != 0) continue;
        answering++;
        check_rows(&nvml, device, i, report);
        check_clock(&nvml, device, i, report);
    }
    if (opts->gpus >= 0) snprintf(wanted, sizeof(wanted), "%lld", (long long)opts->gpus);
    ash_check_add(report, "GPUs", opts->gpus >= 0 && (int64_t)answering != opts->gpus ? ASH_GRADE_BAD : ASH_GRADE_GOOD,
                  wanted, "%u that answer", answering);
    if (nvml.driver_version != NULL && nvml.driver_version(driver, sizeof(driver)) == 0)
        ash_check_add(report, "GPU driver", ASH_GRADE_GOOD, "", "%s", driver);
    ash_nvml_close(&nvml);
    return answering;
}

void ash_check_gpus(const struct ash_check_opts *opts, struct ash_check_report *report)
{
    bool has_gpus = look_at_gpus(opts, report) > 0 || opts->gpus > 0;

    check_modules(opts, has_gpus, report);
    check_fabric_manager(opts, report);
}

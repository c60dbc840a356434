/* Links of GPUs and network cards: NVLink by the driver's library, PCIe and ports of RDMA devices by /sys. A link that
 * is down or narrow makes everything slow, and no job reports it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "infra/device/nvml.h"
#include "observe/check/check.h"
#include "observe/collect/collector.h"

#define LINKS_MAX 18 /* of a GPU */
#define GPUS_MAX 64
#define RATE_SHARE 0.9 /* of the catalog's rate for the machine */

/* ---- NVLink ------------------------------------------------------------------------------------------------------ */

struct gpu_links {
    unsigned index, links, active, down; /* down: the first that is */
    unsigned long long errors[ASH_NVML_LINK_ERRORS];
};

static void read_links(const struct ash_nvml *nvml, ash_nvml_device device, struct gpu_links *found)
{
    for (unsigned link = 0; link < LINKS_MAX; link++) {
        unsigned is_active = 0;

        if (nvml->nvlink_state(device, link, &is_active) != 0) continue;
        if (is_active == 0 && found->links == found->active) found->down = link;
        found->links++;
        found->active += is_active != 0;
        for (int kind = 0; is_active != 0 && kind < ASH_NVML_LINK_ERRORS; kind++) {
            unsigned long long count = 0;

            if (nvml->nvlink_errors != NULL && nvml->nvlink_errors(device, link, kind, &count) == 0)
                found->errors[kind] += count;
        }
    }
}

/* A GPU without any active link is not joined: a card on its own, or one that lost all while the others have theirs. */
static void judge_links(const struct gpu_links *gpu, unsigned most, struct ash_check_report *report)
{
    static const char *const names[ASH_NVML_LINK_ERRORS] = {"replays", "recoveries", "damaged flits", "damaged data"};

    ash_assert(gpu->active <= gpu->links && gpu->links <= LINKS_MAX);
    if (gpu->active < most)
        ash_check_add(report, "NVLink", ASH_GRADE_BAD, "all links up", "GPU %u: %u of %u links up, link %u is down",
                      gpu->index, gpu->active, most > gpu->links ? most : gpu->links, gpu->down);
    for (int kind = 0; kind < ASH_NVML_LINK_ERRORS; kind++)
        if (gpu->errors[kind] > 0)
            ash_check_add(report, "NVLink errors", ASH_GRADE_WARN, "0 since the driver was loaded", "GPU %u: %llu %s",
                          gpu->index, gpu->errors[kind], names[kind]);
}

static void check_nvlink(const struct ash_check_opts *opts, struct ash_check_report *report)
{
    struct gpu_links gpus[GPUS_MAX] = {{0}};
    unsigned count = 0, answering = 0, most = 0, whole = 0;
    struct ash_err err = {0};
    struct ash_nvml nvml;
    ash_nvml_device device;

    if (ash_nvml_open(&nvml, opts->source.nvml, &err) < 0) return; /* the GPUs' own check has reported it */
    nvml.count(&count);
    for (unsigned i = 0; i < count && answering < GPUS_MAX && nvml.nvlink_state != NULL; i++) {
        struct gpu_links *gpu = &gpus[answering];

        if (nvml.handle(i, &device) != 0) continue;
        gpu->index = i;
        read_links(&nvml, device, gpu);
        most = gpu->active > 0 && gpu->links > most ? gpu->links : most;
        answering++;
    }
    ash_nvml_close(&nvml);
    if (most == 0) {
        ash_check_add(report, "NVLink", ASH_GRADE_SKIPPED, "", "no GPU has a link that is up");
        return;
    }
    for (unsigned i = 0; i < answering; i++) {
        judge_links(&gpus[i], most, report);
        whole += gpus[i].active == most;
    }
    if (whole == answering)
        ash_check_add(report, "NVLink", ASH_GRADE_GOOD, "", "%u GPUs, %u links up on each", answering, most);
}

/* ---- RDMA devices ------------------------------------------------------------------------------------------------ */

/* "8.0 GT/s PCIe" and "100 Gb/sec (4X EDR)" begin with their number; 0: no such file. */
static double leading_number(const struct ash_host_files *source, const char *device, const char *file)
{
    char path[PATH_MAX], line[96];

    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/%s", device, file);
    return ash_host_line(source, path, line, sizeof(line)) == 0 ? strtod(line, NULL) : 0;
}

static void check_pcie(const struct ash_host_files *source, const char *device, struct ash_check_report *report)
{
    double lanes = leading_number(source, device, "device/current_link_width"),
           lanes_max = leading_number(source, device, "device/max_link_width"),
           speed = leading_number(source, device, "device/current_link_speed"),
           speed_max = leading_number(source, device, "device/max_link_speed");

    if (lanes > 0 && lanes < lanes_max)
        ash_check_add(report, "network card link", ASH_GRADE_BAD, "all lanes", "%.40s: %.0f of %.0f PCIe lanes", device,
                      lanes, lanes_max);
    if (speed > 0 && speed < speed_max)
        ash_check_add(report, "network card link", ASH_GRADE_BAD, "full speed", "%.40s: %.4g of %.4g GT/s", device,
                      speed, speed_max);
}

/* The rate of a device's first port in Gbit/s; 0: unknown. A port that is not up is a finding. */
static double check_port(const struct ash_host_files *source, const char *device, struct ash_check_report *report)
{
    double state = leading_number(source, device, "ports/1/state");

    if (state > 0 && state < 4)
        ash_check_add(report, "network card", ASH_GRADE_BAD, "4: ACTIVE", "%.40s: its port is in state %.0f", device,
                      state);
    return leading_number(source, device, "ports/1/rate");
}

static void check_rdma(const struct ash_check_opts *opts, struct ash_check_report *report)
{
    struct ash_names names = {0};
    size_t before = report->count;
    double sum = 0, least = 0;
    char wanted[64] = "";

    ash_names_list(&opts->source, "/sys/class/infiniband", &names);
    for (size_t i = 0; i < names.count; i++) {
        double rate = check_port(&opts->source, names.items[i], report);

        check_pcie(&opts->source, names.items[i], report);
        sum += rate;
        least = i == 0 || rate < least ? rate : least;
    }
    if (opts->network_rate > 0) snprintf(wanted, sizeof(wanted), "%.4g Gbit/s", opts->network_rate * 8e-9);
    if (names.count == 0)
        ash_check_add(report, "network cards", ASH_GRADE_SKIPPED, wanted, "no RDMA device here: not judged");
    else if (sum > 0 && sum * 1e9 / 8 < RATE_SHARE * opts->network_rate)
        ash_check_add(report, "network cards", ASH_GRADE_BAD, wanted,
                      "%zu devices, %.4g Gbit/s together, the least %.4g", names.count, sum, least);
    else if (report->count == before)
        ash_check_add(report, "network cards", ASH_GRADE_GOOD, wanted,
                      "%zu devices with all lanes, %.4g Gbit/s together", names.count, sum);
    ash_names_fini(&names);
}

void ash_check_links(const struct ash_check_opts *opts, struct ash_check_report *report)
{
    check_nvlink(opts, report);
    check_rdma(opts, report);
}

/* parts: what of a GPU's needs is here, piece by piece, for people who wonder why it is not used. */
#include "compute/cuda/backend.h"

#include <stdio.h>
#include <string.h>
#include "compute/cuda/host/backend_priv.h"
#include "compute/cuda/images.h"
#include "infra/device/nvml.h"

static const char *find_nvml(void)
{
    struct ash_nvml nvml;

    if (ash_nvml_open(&nvml, NULL, NULL) < 0) return "no";
    ash_nvml_close(&nvml);
    return "yes";
}

/* Do the kernels load, and is the library there? */
static void try_kernels(struct ash_cuda_parts *parts)
{
    struct ash_cuda_backend *backend = NULL;
    struct ash_err err = {0};

    if (ash_cuda_backend_open(0, &backend, &err) < 0) {
        snprintf(parts->kernels, sizeof(parts->kernels), "no (%s)", err.text);
        return;
    }
    snprintf(parts->library, sizeof(parts->library), "%s", backend->library != NULL ? "yes" : "no");
    ash_cuda_backend_close(backend);
}

void ash_cuda_backend_find_parts(struct ash_cuda_parts *parts_out)
{
    struct ash_cuda_parts parts = {.driver = "no", .device = "no", .library = "no"};
    struct ash_cuda_facts facts;
    struct ash_err err = {0};
    bool has_device = ash_cuda_look(0, &facts, &err) == 0;

    if (ash_cuda_backend_built())
        snprintf(parts.kernels, sizeof(parts.kernels), "for %s", ash_cuda_archs);
    else
        snprintf(parts.kernels, sizeof(parts.kernels), "no (neither nvcc 12.3 nor ASHLAR_FATBIN in the build)");
    snprintf(parts.nvml, sizeof(parts.nvml), "%s", find_nvml());
    if (has_device) {
        snprintf(parts.driver, sizeof(parts.driver), "%d.%d", facts.driver_version / 1000,
                 facts.driver_version % 1000 / 10);
        snprintf(parts.device, sizeof(parts.device), "%s (%.1f GiB, compute capability %d.%d)", facts.name,
                 (double)facts.memory_bytes / 0x1p30, facts.major, facts.minor);
        if (ash_cuda_backend_built()) try_kernels(&parts);
    } else {
        if (strstr(err.text, "not installed") == NULL)
            snprintf(parts.device, sizeof(parts.device), "no (%s)", err.text);
    }
    *parts_out = parts;
}

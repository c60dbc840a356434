/* Shares of the datasheet's rates that a sound GPU reaches. Published marks are those of Azure's node health checks. */
#include "probe/marks.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "infra/catalog.h"

#define MEMORY_SHARE 0.7  /* an H200 copies with 0.82 of it */
#define HOST_SHARE 0.8    /* of the usable rate; published marks are 0.84 and 0.96 */
#define NVLINK_SHARE 0.7  /* published marks are 0.74 and 0.79 */
#define THROUGH_SHARE 0.3 /* of the host link, which a copy without NVLink crosses twice */

static const struct {
    const char *gpu; /* how its name begins */
    double pair, host;
} published[] = {{"H100", 335e9, 48e9}, {"A100", 238e9, 21e9}};

static void fill(const struct ash_gpu *gpu, const struct ash_machine *machine, struct ash_gpu_marks *marks)
{
    bool has_links = gpu->nvlink_bandwidth > 0 && (machine == NULL || machine->domain_gpus > 1);
    double way = has_links ? gpu->nvlink_bandwidth : gpu->host_bandwidth;
    char pair_known[32] = "", host_known[32] = "";

    marks->memory = MEMORY_SHARE * gpu->memory_bandwidth;
    marks->host = HOST_SHARE * gpu->host_bandwidth;
    marks->pair = (has_links ? NVLINK_SHARE : THROUGH_SHARE) * way;
    marks->is_certain = machine != NULL;
    for (size_t i = 0; i < ASH_COUNT(published); i++) {
        if (strncmp(gpu->name, published[i].gpu, strlen(published[i].gpu)) != 0) continue;
        if (has_links) snprintf(pair_known, sizeof(pair_known), "; Azure: %.0f", published[i].pair * 1e-9);
        snprintf(host_known, sizeof(host_known), "; Azure: %.0f", published[i].host * 1e-9);
    }
    if (marks->pair > 0)
        snprintf(marks->pair_text, sizeof(marks->pair_text), "%.4g GB/s, of %s's %.4g%s", marks->pair * 1e-9,
                 has_links ? "NVLink" : "PCIe", way * 1e-9, pair_known);
    if (marks->memory > 0 && marks->host > 0)
        snprintf(marks->rates_text, sizeof(marks->rates_text), "%.4g GB/s of %.4g; %.4g GB/s of %.4g%s",
                 marks->memory * 1e-9, gpu->memory_bandwidth * 1e-9, marks->host * 1e-9, gpu->host_bandwidth * 1e-9,
                 host_known);
}

void ash_gpu_marks_find(const char *gpu, const char *machine, struct ash_gpu_marks *marks_out)
{
    const struct ash_machine *known = NULL;
    const struct ash_gpu *found = NULL;
    struct ash_catalog *catalog = NULL;
    struct ash_err err = {0};

    *marks_out = (struct ash_gpu_marks){0};
    if (ash_catalog_open(NULL, 0, &catalog, &err) < 0) return;
    if (machine != NULL && ash_catalog_machine(catalog, machine, &known, &err) < 0) known = NULL;
    found = known != NULL ? known->gpu : ash_catalog_gpu_in(catalog, gpu);
    if (found != NULL) fill(found, known, marks_out);
    ash_catalog_close(catalog);
}

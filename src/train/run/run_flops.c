/* Operations that a run has done, against what its devices could do: their quotient is the MFU. */
#include "record/metrics.h"
#include "compute/backends/backends.h"
#include "infra/catalog.h"
#include "train/run/run_priv.h"

#define DEVICE_BYTES 256

ASH_COUNTER(flops_metric, "ashlar_train_flops_total",
            "Operations of the model's forward and backward passes, of all ranks, without recomputation.");
ASH_GAUGE(peak_metric, "ashlar_train_peak_flops", "Operations per second that the devices of all ranks can do.");

/* Of a GPU in the catalog, its datasheet's for the run's precision; 0: unknown. */
static double find_peak(const struct ash_run *run)
{
    const struct ash_gpu *gpu = NULL;
    struct ash_catalog *catalog = NULL;
    char device[DEVICE_BYTES];
    double peak = 0;

    if (run->facts.exec->cuda == NULL || run->job->train.precision == ASH_JOB_FP32) return 0;
    ash_backend_describe(run->facts.exec, device, sizeof(device));
    if (ash_catalog_open(NULL, 0, &catalog, NULL) == 0) gpu = ash_catalog_gpu_in(catalog, device);
    if (gpu != NULL) peak = gpu->flops[run->job->train.precision == ASH_JOB_FP8 ? ASH_GPU_FP8 : ASH_GPU_BF16];
    ash_catalog_close(catalog);
    return peak;
}

void ash_run_count_flops(struct ash_run *run, const struct ash_step *step)
{
    const struct ash_group *world = run->facts.mesh->world; /* without spares */

    if (!run->progress.has_peak)
        run->progress.peak_flops = run->opts->peak_flops > 0 ? run->opts->peak_flops : find_peak(run);
    run->progress.has_peak = true;
    ash_metric_add(&flops_metric, (double)step->tokens * run->facts.token_flops);
    if (run->progress.peak_flops > 0)
        ash_metric_set(&peak_metric, run->progress.peak_flops * (double)(world != NULL ? ash_group_size(world) : 1));
}

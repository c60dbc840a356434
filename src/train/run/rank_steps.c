/* One record and a few counters for each step, on every rank. */
#include "train/run/rank_steps.h"

#include <math.h>
#include <string.h>

#include "base/str.h"
#include "compute/ops.h"
#include "record/metrics.h"
#include "record/step_ring.h"

ASH_GAUGE(rank_step_metric, "ashlar_rank_step", "The last step that this rank finished.");
ASH_GAUGE(rank_own_metric, "ashlar_rank_own_seconds", "This rank's own work in its last step: computing and data.");
ASH_GAUGE(rank_grains_metric, "ashlar_rank_grains", "Grains that this rank computed in its last step.");
#define PART_HELP "Time of this rank's steps, by part: own work (compute), data, exposed communication, idle stages."
#define PART(part)                                                                                                     \
    {                                                                                                                  \
        .name = "ashlar_rank_part_seconds_total", .help = PART_HELP, .type = ASH_METRIC_COUNTER,                       \
        .labels = "part=\"" part "\""                                                                                  \
    }
static struct ash_metric part_metrics[] = {[ASH_METER_DATA] = PART("data"),
                                           [ASH_METER_COMM] = PART("comm"),
                                           [ASH_METER_IDLE] = PART("idle"),
                                           [ASH_METER_COMPUTE] = PART("compute")};
ASH_GAUGE(kernels_family, "ashlar_kernels_forced",
          "1 where a setting forces slower kernels than the best that this rank's processor has.");
static struct ash_metric other_metric = PART("other"); /* between steps: validation, saving, reports */

/* Warn of a CPU path that a setting has chosen and that is not the best one. */
static void tell_kernels(const struct ash_run *run)
{
    const char *const *names = ash_exec_backends();
    const char *taken = ash_trainer_exec(run->trainer)->ops->name; /* a joining rank has no facts of the run yet */
    struct ash_str labels = {0};
    bool is_known = false;

    for (size_t i = 0; names[i] != NULL; i++)
        is_known = is_known || strcmp(names[i], taken) == 0;
    if (ash_metric_add_label(&labels, "kernels", taken) == 0)
        ash_metric_set(ash_metric_with(&kernels_family, labels.data), is_known && strcmp(taken, names[0]) != 0);
    ash_str_fini(&labels);
}

void ash_rank_steps_open(struct ash_run *run)
{
    struct ash_ring_opts opts = {.dir = run->opts->pages,
                                 .kind = ASH_STEP_RING_KIND,
                                 .labels = run->opts->labels != NULL ? run->opts->labels : "",
                                 .record_bytes = sizeof(struct ash_step_record),
                                 .capacity = ASH_STEP_RING_CAPACITY};
    struct ash_err err = {0};

    tell_kernels(run);
    if (opts.dir == NULL || opts.dir[0] == '\0') return;
    if (ash_ring_open(&opts, &run->progress.rank_steps, &err) < 0)
        ash_run_warn(run, "%s; steps are not recorded", err.text);
}

void ash_rank_steps_add(struct ash_run *run, const struct ash_step *step, uint64_t start_ns)
{
    uint64_t after_ns = run->progress.last_end_ns != 0 ? start_ns - run->progress.last_end_ns : 0;
    struct ash_step_record record = {
        .step = step->step, .start_ns = start_ns, .after_ns = after_ns, .tokens = step->tokens, .grains = step->grains};

    if (run->facts.mesh != NULL) {
        record.mesh = ash_step_pack(run->facts.mesh->size);
        record.place = ash_step_pack(run->facts.mesh->at);
    }
    run->progress.last_end_ns = ash_clock_ns();
    ash_metric_set(&rank_step_metric, (double)step->step);
    ash_metric_set(&rank_grains_metric, (double)step->grains);
    ash_metric_set(&rank_own_metric,
                   (double)(step->meter.ns[ASH_METER_COMPUTE] + step->meter.ns[ASH_METER_DATA]) * 1e-9);
    for (int kind = 0; kind < ASH_METER_KINDS; kind++) {
        record.ns[kind] = step->meter.ns[kind];
        ash_metric_add(&part_metrics[kind], (double)step->meter.ns[kind] * 1e-9);
    }
    ash_metric_add(&other_metric, (double)after_ns * 1e-9);
    if (run->progress.rank_steps != NULL) ash_ring_add(run->progress.rank_steps, &record);
}

double ash_rank_steps_own(const struct ash_run *run, uint64_t start_ns)
{
    const struct ash_meter *meter = &run->progress.last.meter;
    size_t ranks = run->facts.mesh != NULL ? ash_mesh_data_size(run->facts.mesh) : 1;
    double own_ns =
        (double)(ash_clock_ns() - start_ns) - (double)(meter->ns[ASH_METER_COMM] + meter->ns[ASH_METER_IDLE]);

    return ash_slow_even(fmax(own_ns, 0) * 1e-9, run->progress.last.grains, (size_t)run->job->train.grains, ranks);
}

void ash_rank_steps_close(struct ash_run *run, bool keeps)
{
    ash_ring_close(run->progress.rank_steps, keeps);
    run->progress.rank_steps = NULL;
}

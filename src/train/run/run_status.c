/* run: DIR/run.json, the run's status. */
#include "train/run/run_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/number.h"
#include "base/opts.h"
#include "train/run/control.h"

/* How many ranks there can be: what `ashlar launch` starts, or this process alone. 0: not known. */
static int64_t most_ranks(const struct ash_run *run)
{
    const char *text = ash_env_get(ASH_RUN_MOST_RANKS);
    int64_t most = 0;

    if (run->group == NULL) return 1;
    if (text == NULL || ash_number_parse_whole(text, &most) < 0 || most < 0) return 0;
    return most;
}

void ash_run_write_status(struct ash_run *run, const char *state)
{
    struct ash_group *mesh = ash_trainer_group(run->trainer);
    struct ash_run_status status = {.process = getpid(),
                                    .steps = run->job->train.steps,
                                    .ranks = (int64_t)ash_group_size(run->group),
                                    .mesh_ranks = (int64_t)ash_group_size(mesh),
                                    .wanted_ranks = run->elastic.wanted_ranks,
                                    .resizes = run->elastic.resizes,
                                    .is_uncopied = run->saves.is_uncopied,
                                    .epoch = ash_group_epoch(run->group),
                                    .min_ranks = run->job->recover.min_ranks,
                                    .most_ranks = most_ranks(run)};
    struct ash_err err = {0};

    if (!run->is_leader || !run->files.has_log) return;
    snprintf(status.state, sizeof(status.state), "%s", state);
    ash_mesh_describe(run->facts.mesh, status.mesh, sizeof(status.mesh));
    snprintf(status.run, sizeof(status.run), "%016" PRIx64, run->saves.places.run);
    gethostname(status.host, sizeof(status.host) - 1);
    if (ash_run_status_write(run->opts->dir, &status, &err) < 0 && !run->files.report_failing)
        ash_run_warn(run, "the run's status was not written, training continues: %s", err.text);
}

void ash_run_read_run(struct ash_run *run)
{
    struct ash_run_status status;

    if (run->saves.places.run == 0 && ash_run_status_read(run->opts->dir, &status, NULL) == 0)
        run->saves.places.run = strtoull(status.run, NULL, 16);
}

void ash_run_read_status(struct ash_run *run, struct ash_elastic_event *event)
{
    struct ash_run_status status;

    event->wanted_ranks = run->elastic.wanted_ranks;
    event->resizes = run->elastic.resizes;
    if (ash_run_status_read(run->opts->dir, &status, NULL) < 0) return;
    event->wanted_ranks = status.wanted_ranks;
    event->resizes = status.resizes;
}

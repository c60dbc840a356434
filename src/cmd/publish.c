/* A job's processes publish themselves; what fails here is no reason to stop. */
#include "cmd/publish.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/opts.h"
#include "base/str.h"
#include "observe/ranks/run_id.h"
#include "record/flight.h"
#include "record/metrics_page.h"
#include "record/ring_file.h"
#include "record/serve_ring.h"
#include "record/step_ring.h"

/* The job's id: the scheduler's, or ours. */
static void add_job(const struct ash_launch_env *env, struct ash_str *labels)
{
    const char *job = ash_env_get("SLURM_JOB_ID");
    char text[32];

    snprintf(text, sizeof(text), "%016llx", (unsigned long long)env->job);
    ash_metric_add_label(labels, "job", job != NULL ? job : env->job != 0 ? text : "none");
}

const char *ash_publish_labels(const struct ash_launch_env *env, const char *run, char *buf, size_t buf_bytes)
{
    const char *name =
        run != NULL && strrchr(run, '/') != NULL && strrchr(run, '/')[1] != '\0' ? strrchr(run, '/') + 1 : run;
    struct ash_str labels = {0};
    char rank[32], id[ASH_RUN_ID_BYTES];

    snprintf(rank, sizeof(rank), "%zu", env->rank);
    add_job(env, &labels);
    ash_metric_add_label(&labels, "rank", rank);
    if (name != NULL) ash_metric_add_label(&labels, "run", name);
    if (name != NULL) ash_metric_add_label(&labels, ASH_RUN_ID_LABEL, ash_run_id(run, id));
    snprintf(buf, buf_bytes, "%s", labels.data != NULL && labels.size_bytes < buf_bytes ? labels.data : "");
    ash_str_fini(&labels);
    return buf;
}

static void sweep(const char *dir)
{
    static const char *const kinds[] = {ASH_METRICS_PAGE_KIND,
                                        ASH_FLIGHT_KIND,
                                        ASH_STEP_RING_KIND,
                                        ASH_REQUEST_RING_KIND,
                                        ASH_PASS_RING_KIND,
                                        ASH_PIECE_RING_KIND,
                                        NULL};

    ash_ring_sweep(dir, kinds);
}

void ash_publish_start(const char *dir, const char *labels)
{
    struct ash_err err = {0};

    if (dir == NULL || dir[0] == '\0') return;
    sweep(dir);
    if (ash_metrics_page_publish(dir, labels, &err) < 0 || ash_flight_start(dir, labels, &err) < 0)
        ash_log(ASH_LOG_WARN, "%s; this process has no metrics", err.text);
}

struct ash_recorder *ash_publish_server(const char *dir, const char *labels)
{
    struct ash_recorder *recorder = NULL;
    struct ash_err err = {0};

    if (dir == NULL || dir[0] == '\0') return NULL;
    sweep(dir);
    if (ash_metrics_page_publish(dir, labels, &err) < 0 || ash_recorder_open(dir, labels, &recorder, &err) < 0)
        ash_log(ASH_LOG_WARN, "%s; this server has no metrics and records", err.text);
    return recorder;
}

void ash_publish_stop(bool is_failed)
{
    ash_metrics_page_withdraw();
    ash_flight_stop(is_failed);
}

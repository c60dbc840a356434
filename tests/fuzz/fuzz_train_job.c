/* Fuzz target: training jobs. An accepted one must print and read back as the same job and describe a model that is
 * either taken or refused with a sentence; no number may overflow. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "train/job/job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void check_round_trip(const struct ash_job *job)
{
    struct ash_job again;
    struct ash_opts *opts = NULL;
    char *yaml = NULL;

    if (ash_job_print(job, &yaml, NULL) < 0) return;
    ash_assert(ash_job_parse(yaml, strlen(yaml), "printed", &again, &opts, NULL) == 0);
    ash_assert(ash_job_compare(job, &again, NULL) == 0);
    ash_opts_close(opts);
    free(yaml);
}

static void check_model(const struct ash_job *job)
{
    struct ash_model_config config;
    struct ash_err err = {0};
    json_t *json = NULL;

    if (ash_job_config(&job->model, job->model.vocab > 0 ? (size_t)job->model.vocab : 100, 1, &json, NULL) < 0) return;
    if (ash_model_config_parse(json, &config, &err) == 0)
        ash_model_config_fini(&config);
    else
        ash_assert(err.text[0] != '\0');
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct ash_job job;
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    int rc = ash_job_parse((const char *)data, size_bytes, "fuzz.yaml", &job, &opts, &err);

    ash_assert(rc == 0 || (err.code == rc && err.text[0] != '\0'));
    if (rc == 0) {
        struct ash_lr_schedule schedule = ash_job_get_schedule(&job);
        ash_assert(ash_lr_schedule_at(&schedule, schedule.steps / 2) >= 0.0);
        check_round_trip(&job);
        if (job.model.from == NULL) check_model(&job);
    }
    ash_opts_close(opts);
    return 0;
}

/* job: a job as YAML text and back, so that a run's folder records its exact settings. */
#include "train/job/job.h"

#include <errno.h>
#include <stdlib.h>

int ash_job_print(const struct ash_job *job, char **yaml_out, struct ash_err *err)
{
    struct ash_job copy;
    struct ash_opt_binding bindings[ASH_JOB_SECTIONS];
    struct ash_opts *opts = NULL;
    char *text = NULL;
    size_t size_bytes = 0;
    FILE *stream;
    int rc;

    ash_job_bind(&copy, bindings);
    rc = ash_opts_open(bindings, ASH_JOB_SECTIONS, &opts, err);
    if (rc < 0) return rc;
    copy = *job;
    stream = open_memstream(&text, &size_bytes);
    if (stream != NULL) {
        ash_opts_print_yaml(opts, stream);
        rc = ferror(stream);
        rc |= fclose(stream);
    }
    ash_opts_close(opts);
    if (stream == NULL || rc != 0) {
        free(text);
        return ash_err_set(err, -ENOMEM, "out of memory while writing the job down");
    }
    *yaml_out = text;
    return 0;
}

int ash_job_parse(const char *yaml, size_t size_bytes, const char *name, struct ash_job *job_out,
                  struct ash_opts **opts_out, struct ash_err *err)
{
    struct ash_opt_binding bindings[ASH_JOB_SECTIONS];
    struct ash_opts *opts = NULL;
    int rc;

    ash_job_bind(job_out, bindings);
    rc = ash_opts_open(bindings, ASH_JOB_SECTIONS, &opts, err);
    if (rc < 0) return rc;
    rc = ash_opts_parse_yaml(opts, yaml, size_bytes, name, err);
    if (rc == 0) rc = ash_job_resolve(job_out, err);
    if (rc < 0) {
        ash_opts_close(opts);
        return rc;
    }
    *opts_out = opts;
    return 0;
}

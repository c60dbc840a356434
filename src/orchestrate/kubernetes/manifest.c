/* The objects of a job, in order: the job file, the service by which pods find each other, the job. */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "orchestrate/kubernetes/manifest_priv.h"

const char *const ash_kube_kind_names[ASH_KUBE_KINDS + 1] = {
    "job",      "jobset",     "volcano",     "trainjob",        "pytorchjob",
    "hyperpod", "deployment", "statefulset", "leaderworkerset", NULL};
const char *const ash_kube_scheduler_names[ASH_KUBE_SCHEDULERS + 1] = {"default", "kueue", "volcano", "kai", NULL};

static json_t *job_file(const struct ash_kube_job *job)
{
    json_t *object = ash_kube_object(job, "v1", "ConfigMap", json_null());

    json_object_del(object, "spec");
    json_object_set_new(object, "data", json_pack("{ss}", "job.yaml", job->job_text));
    return object;
}

/* The job itself, and what its kind needs with it. */
static int add_kind(const struct ash_kube_job *job, json_t *objects, struct ash_err *err)
{
    json_t *(*const kinds[])(const struct ash_kube_job *, struct ash_err *) = {
        [ASH_KUBE_JOB] = ash_kube_plain_job,          [ASH_KUBE_JOBSET] = ash_kube_jobset,
        [ASH_KUBE_VOLCANO] = ash_kube_volcano_job,    [ASH_KUBE_TRAINJOB] = ash_kube_train_job,
        [ASH_KUBE_PYTORCHJOB] = ash_kube_pytorch_job, [ASH_KUBE_HYPERPOD] = ash_kube_hyperpod_job,
        [ASH_KUBE_DEPLOYMENT] = ash_kube_deployment,  [ASH_KUBE_STATEFULSET] = ash_kube_stateful_set,
        [ASH_KUBE_LWS] = ash_kube_leader_worker_set};
    json_t *object;

    ash_assert((size_t)job->kind < ASH_COUNT(kinds));
    if (job->kind == ASH_KUBE_TRAINJOB) {
        object = ash_kube_training_runtime(job, err);
        if (object == NULL) return -EINVAL;
        json_array_append_new(objects, object);
    }
    if (ash_kube_has_pod_group(job)) {
        object = ash_kube_pod_group(job, err);
        if (object == NULL) return -EINVAL;
        json_array_append_new(objects, object);
    }
    object = kinds[job->kind](job, err);
    if (object == NULL) return -EINVAL;
    json_array_append_new(objects, object);
    if (ash_kube_is_server(job->kind)) ash_kube_add_scaling(job, objects);
    return 0;
}

static int check(const struct ash_kube_job *job, struct ash_err *err)
{
    const struct ash_spec *spec = job->submission->spec;
    bool is_served = strcmp(spec->command, "serve") == 0;
    struct ash_kube_group group;

    if (spec->image == NULL || spec->image[0] == '\0')
        return ash_err_set(err, -EINVAL,
                           "job.image is missing: pods run a container image (deploy/image/rootfs.sh makes one)");
    if (spec->out == NULL && !is_served)
        return ash_err_set(err, -EINVAL,
                           "job.out is missing: pods keep nothing: give a folder on a mount (job.mounts) or s3://");
    if (is_served != ash_kube_is_server(job->kind))
        return ash_err_set(err, -EINVAL, "--kind %s does not fit job.command %s: %s", ash_kube_kind_names[job->kind],
                           spec->command,
                           is_served ? "serve is a deployment, statefulset or leaderworkerset"
                                     : "deployment, statefulset and leaderworkerset are for serve");
    if (job->kind == ASH_KUBE_VOLCANO && job->scheduler != ASH_KUBE_DEFAULT && job->scheduler != ASH_KUBE_BY_VOLCANO)
        return ash_err_set(err, -EINVAL, "--kind volcano is scheduled by Volcano, not by %s",
                           ash_kube_scheduler_names[job->scheduler]);
    if (is_served && ash_kube_read_group(job, &group, err) < 0) return -EINVAL;
    return ash_kube_check_placing(job, err);
}

int ash_kube_manifests(const struct ash_kube_job *job, json_t **objects_out, struct ash_err *err)
{
    json_t *objects;
    int rc = check(job, err);

    if (rc < 0) return rc;
    objects = json_array();
    if (objects == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the manifests");
    if (ash_kube_is_server(job->kind)) {
        ash_kube_add_fronts(job, objects);
    } else {
        json_array_append_new(objects, job_file(job));
        json_array_append_new(objects, ash_kube_service(job));
    }
    rc = add_kind(job, objects, err);
    if (rc < 0) {
        json_decref(objects);
        return rc;
    }
    *objects_out = objects;
    return 0;
}

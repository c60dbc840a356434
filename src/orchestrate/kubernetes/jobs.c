/* Jobs on a Kubernetes cluster. A job is found by its name, whatever kind it is. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "orchestrate/job/jobs.h"
#include "orchestrate/kubernetes/client.h"
#include "orchestrate/kubernetes/config.h"
#include "orchestrate/kubernetes/jobs_priv.h"
#include "orchestrate/kubernetes/manifest_priv.h"
#include "orchestrate/kubernetes/status.h"
#include "orchestrate/kubernetes/usage.h"

#define SELECTOR "labelSelector=app.kubernetes.io%%2Fname%%3Dashlar" /* for printf */
#define JOB_FILE_MAX ((size_t)1 << 20)

static bool is_here(void)
{
    struct ash_kube_config config;
    bool is_known = ash_kube_config_find(&config, NULL) == 0;

    if (is_known) ash_kube_config_free(&config);
    return is_known;
}

/* ---- submitting -------------------------------------------------------------------------------------------------- */

static int find_name(const char *flag, const char *const *names, const char *name, int *index_out, struct ash_err *err)
{
    *index_out = 0;
    if (name == NULL) return 0;
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], name) == 0) {
            *index_out = i;
            return 0;
        }
    return ash_err_set(err, -EINVAL, "--%s %.60s: there is %s, %s, %s ...", flag, name, names[0], names[1], names[2]);
}

static int make_manifests(const struct ash_submission *submission, json_t **objects_out, struct ash_err *err)
{
    struct ash_submission inside = *submission;
    struct ash_kube_job job = {.submission = &inside};
    char *text = NULL;
    size_t size = 0;
    int kind, scheduler, rc = find_name("kind", ash_kube_kind_names, submission->kind, &kind, err);

    if (rc == 0) rc = find_name("scheduler", ash_kube_scheduler_names, submission->scheduler, &scheduler, err);
    if (rc == 0) rc = ash_file_read(submission->job_file, JOB_FILE_MAX, &text, &size, err);
    if (rc < 0) return rc;
    if (submission->kind == NULL && strcmp(submission->spec->command, "serve") == 0) kind = ASH_KUBE_DEPLOYMENT;
    if (submission->spec->out != NULL) inside.out = submission->spec->out; /* a path of the pods, as it is written */
    if (!submission->is_program_given) inside.program = "/usr/bin/ashlar"; /* where the image has it */
    job.kind = (enum ash_kube_kind)kind;
    job.scheduler = (enum ash_kube_scheduler)scheduler;
    job.job_text = text;
    rc = ash_kube_manifests(&job, objects_out, err);
    free(text);
    return rc;
}

static int print(const struct ash_submission *submission, struct ash_str *text_out, struct ash_err *err)
{
    json_t *objects = NULL;
    int rc = make_manifests(submission, &objects, err);

    if (rc == 0) rc = ash_kube_add_yaml(objects, text_out);
    json_decref(objects);
    return rc;
}

/* Path of the objects of a kind in the job's namespace. */
static void objects_path(const struct ash_kube_client *client, const struct ash_kube_resource *resource,
                         const json_t *object, char path[ASH_KUBE_PATH_BYTES])
{
    const char *space = json_string_value(json_object_get(json_object_get(object, "metadata"), "namespace"));

    snprintf(path, ASH_KUBE_PATH_BYTES, "%s/namespaces/%s/%s", resource->api,
             space != NULL ? space : ash_kube_space_of(client), resource->plural);
}

static int create(struct ash_kube_client *client, const json_t *object, struct ash_err *err)
{
    const char *kind = json_string_value(json_object_get(object, "kind"));
    const struct ash_kube_resource *resource =
        ash_kube_resource_of(kind, json_string_value(json_object_get(object, "apiVersion")));
    char path[ASH_KUBE_PATH_BYTES];
    int rc;

    ash_assert(resource != NULL);
    objects_path(client, resource, object, path);
    rc = ash_kube_client_call(client, "POST", path, object, NULL, err);
    if (rc == -EEXIST)
        return ash_err_set(err, rc, "there is a %s called %s already: give another job.name, or `ashlar jobs stop` it",
                           kind, json_string_value(json_object_get(json_object_get(object, "metadata"), "name")));
    if (rc == -ENOENT)
        return ash_err_set(err, rc, "this cluster has no %s (%s): it is not installed there, or --kind is another one",
                           kind, resource->api);
    return rc < 0 ? ash_err_prefix(err, rc, "%s", kind) : 0;
}

/* Remove the objects created before a failure, newest first. */
static void undo(struct ash_kube_client *client, const json_t *objects, size_t count)
{
    while (count-- > 0) {
        const json_t *object = json_array_get(objects, count);
        const struct ash_kube_resource *resource =
            ash_kube_resource_of(json_string_value(json_object_get(object, "kind")),
                                 json_string_value(json_object_get(object, "apiVersion")));
        char path[ASH_KUBE_PATH_BYTES], full[ASH_KUBE_PATH_BYTES + 128];

        ash_assert(resource != NULL); /* it was created */
        objects_path(client, resource, object, path);
        snprintf(full, sizeof(full), "%s/%s", path,
                 json_string_value(json_object_get(json_object_get(object, "metadata"), "name")));
        (void)ash_kube_client_call(client, "DELETE", full, NULL, NULL, NULL); /* the first error is what matters */
    }
}

static int submit(const struct ash_submission *submission, char id_out[ASH_JOBS_ID_BYTES], struct ash_err *err)
{
    struct ash_kube_client *client = NULL;
    json_t *objects = NULL;
    size_t done = 0;
    int rc = make_manifests(submission, &objects, err);

    if (rc == 0) rc = ash_kube_client_open(&client, err);
    for (; rc == 0 && done < json_array_size(objects); done++)
        rc = create(client, json_array_get(objects, done), err);
    if (rc < 0 && done > 0) undo(client, objects, done - 1);
    if (rc == 0) snprintf(id_out, ASH_JOBS_ID_BYTES, "%s", submission->spec->name);
    ash_kube_client_close(client);
    json_decref(objects);
    return rc;
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static int list_kind(struct ash_kube_client *client, const struct ash_kube_resource *resource,
                     struct ash_jobs_list *list, struct ash_err *err)
{
    char path[ASH_KUBE_PATH_BYTES];
    json_t *answer = NULL;
    const json_t *items;
    int rc;

    snprintf(path, sizeof(path), "%s/namespaces/%s/%s?" SELECTOR, resource->api, ash_kube_space_of(client),
             resource->plural);
    rc = ash_kube_client_call(client, "GET", path, NULL, &answer, err);
    if (rc == -ENOENT) return 0; /* the cluster has no such kind */
    if (rc < 0) return rc;
    items = json_object_get(answer, "items");
    for (size_t i = 0; i < json_array_size(items) && rc == 0; i++) {
        struct ash_jobs_entry entry;

        ash_kube_read_job(json_array_get(items, i), ash_clock_wall_s(), &entry);
        rc = ash_jobs_add(list, &entry);
    }
    json_decref(answer);
    return rc;
}

/* All kinds that this user may list; one at least. */
static int list_kinds(struct ash_kube_client *client, struct ash_jobs_list *list, struct ash_err *err)
{
    size_t refused = 0;
    int rc = 0;

    for (size_t i = 0; i < ASH_KUBE_RESOURCES && (rc == 0 || rc == -EACCES); i++) {
        rc = list_kind(client, &ash_kube_resources[i], list, err);
        refused += rc == -EACCES;
    }
    return rc == -EACCES && refused < ASH_KUBE_RESOURCES ? 0 : rc;
}

static int list(const char *id, struct ash_jobs_list *list_out, struct ash_err *err)
{
    struct ash_kube_client *client = NULL;
    const struct ash_kube_resource *resource = NULL;
    json_t *object = NULL;
    int rc = ash_kube_client_open(&client, err);

    if (rc == 0 && id != NULL) {
        struct ash_jobs_entry entry;

        rc = ash_kube_find_job(client, id, &object, &resource, err);
        if (rc == 0) {
            ash_kube_read_job(object, ash_clock_wall_s(), &entry);
            rc = ash_jobs_add(list_out, &entry);
        }
        json_decref(object);
    }
    if (rc == 0 && id == NULL) rc = list_kinds(client, list_out, err);
    ash_kube_client_close(client);
    return rc;
}

static int show(const char *id, struct ash_str *text_out, struct ash_err *err)
{
    struct ash_kube_client *client = NULL;
    const struct ash_kube_resource *resource = NULL;
    json_t *object = NULL, *one = NULL;
    int rc = ash_kube_client_open(&client, err);

    if (rc == 0) rc = ash_kube_find_job(client, id, &object, &resource, err);
    if (rc == 0) {
        json_object_del(json_object_get(object, "metadata"), "managedFields"); /* noise for readers */
        one = json_pack("[O]", object);
        rc = ash_kube_add_yaml(one, text_out);
    }
    json_decref(one);
    json_decref(object);
    ash_kube_client_close(client);
    return rc;
}

/* Items of a list, or NULL where the cluster has none such. The caller owns *answer_out. */
static const json_t *items_at(struct ash_kube_client *client, const char *path, json_t **answer_out)
{
    if (ash_kube_client_call(client, "GET", path, NULL, answer_out, NULL) < 0) return NULL;
    return json_object_get(*answer_out, "items");
}

static void pods_path(const struct ash_kube_client *client, const char *id, char path[ASH_KUBE_PATH_BYTES])
{
    snprintf(path, ASH_KUBE_PATH_BYTES, "/api/v1/namespaces/%s/pods?labelSelector=app.kubernetes.io%%2Finstance%%3D%s",
             ash_kube_space_of(client), id);
}

static int why(const char *id, struct ash_str *text_out, struct ash_err *err)
{
    struct ash_kube_client *client = NULL;
    const struct ash_kube_resource *resource = NULL;
    json_t *object = NULL, *workloads = NULL, *pods = NULL, *events = NULL;
    struct ash_jobs_entry entry;
    struct ash_kube_evidence evidence = {.job = &entry};
    char path[ASH_KUBE_PATH_BYTES];
    int rc = ash_kube_client_open(&client, err);

    if (rc == 0) rc = ash_kube_find_job(client, id, &object, &resource, err);
    if (rc == 0) {
        ash_kube_read_job(object, ash_clock_wall_s(), &entry);
        snprintf(path, sizeof(path), "/apis/kueue.x-k8s.io/v1beta1/namespaces/%s/workloads", ash_kube_space_of(client));
        evidence.workloads = items_at(client, path, &workloads);
        pods_path(client, id, path);
        evidence.pods = items_at(client, path, &pods);
        snprintf(path, sizeof(path), "/api/v1/namespaces/%s/events", ash_kube_space_of(client));
        evidence.events = items_at(client, path, &events);
        rc = ash_kube_explain(&evidence, text_out, err);
    }
    json_decref(object);
    json_decref(workloads);
    json_decref(pods);
    json_decref(events);
    ash_kube_client_close(client);
    return rc;
}

/* The first pod has the terminal's output, as the first rank has it on a machine. */
static int output(const char *id, struct ash_str *text_out, struct ash_err *err)
{
    struct ash_kube_client *client = NULL;
    json_t *answer = NULL;
    const json_t *pods;
    const char *first = NULL;
    char path[ASH_KUBE_PATH_BYTES];
    int rc = ash_kube_client_open(&client, err);

    if (rc < 0) return rc;
    pods_path(client, id, path);
    pods = items_at(client, path, &answer);
    for (size_t i = 0; i < json_array_size(pods); i++) {
        const char *name =
            json_string_value(json_object_get(json_object_get(json_array_get(pods, i), "metadata"), "name"));

        if (name != NULL && (first == NULL || strcmp(name, first) < 0)) first = name;
    }
    if (first == NULL) {
        rc = ash_err_set(err, -ENOENT, "job %.60s has no pods yet: `ashlar jobs why %.60s` says the reason", id, id);
    } else {
        snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s/log", ash_kube_space_of(client), first);
        rc = ash_kube_client_text(client, path, text_out, err);
    }
    json_decref(answer);
    ash_kube_client_close(client);
    return rc;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

/* The job called id, and the path of its object. */
static int find_path(struct ash_kube_client *client, const char *id, char path[ASH_KUBE_PATH_BYTES],
                     const struct ash_kube_resource **resource_out, struct ash_err *err)
{
    json_t *object = NULL;
    int rc = ash_kube_find_job(client, id, &object, resource_out, err);

    json_decref(object);
    if (rc == 0)
        snprintf(path, ASH_KUBE_PATH_BYTES, "%s/namespaces/%s/%s/%s", (*resource_out)->api, ash_kube_space_of(client),
                 (*resource_out)->plural, id);
    return rc;
}

/* Objects that are created with a job of a kind and named after it. */
static const struct {
    const char *of; /* NULL: any */
    const char *api, *plural, *suffix;
} companions[] = {
    {NULL, "/api/v1", "services", ""},
    {NULL, "/api/v1", "configmaps", ""},
    {"StatefulSet", "/api/v1", "services", ASH_KUBE_PODS_SUFFIX},
    {"Deployment", "/api/v1", "services", ASH_KUBE_PODS_SUFFIX},
    {"LeaderWorkerSet", "/api/v1", "services", ASH_KUBE_PODS_SUFFIX},
    {"Deployment", "/apis/autoscaling/v2", "horizontalpodautoscalers", ""},
    {"StatefulSet", "/apis/autoscaling/v2", "horizontalpodautoscalers", ""},
    {"LeaderWorkerSet", "/apis/autoscaling/v2", "horizontalpodautoscalers", ""},
    {"Deployment", "/apis/policy/v1", "poddisruptionbudgets", ""},
    {"StatefulSet", "/apis/policy/v1", "poddisruptionbudgets", ""},
    {"LeaderWorkerSet", "/apis/policy/v1", "poddisruptionbudgets", ""},
    {"Job", "/apis/scheduling.volcano.sh/v1beta1", "podgroups", ""},
    {"JobSet", "/apis/scheduling.volcano.sh/v1beta1", "podgroups", ""},
    {"HyperPodPyTorchJob", "/apis/scheduling.volcano.sh/v1beta1", "podgroups", ""},
    {"TrainJob", "/apis/trainer.kubeflow.org/v1alpha1", "trainingruntimes", ""},
};

/* Its pods get SIGTERM and the grace of job.notice; objects created with it go too. Missing objects are skipped, and so
 * are objects that we may not delete and this job may not have. */
static int stop(const char *id, struct ash_err *err)
{
    struct ash_kube_client *client = NULL;
    const struct ash_kube_resource *resource = NULL;
    json_t *body = json_pack("{ss}", "propagationPolicy", "Background");
    char path[ASH_KUBE_PATH_BYTES];
    int rc = body == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : ash_kube_client_open(&client, err);

    if (rc == 0) rc = find_path(client, id, path, &resource, err);
    if (rc == 0) rc = ash_kube_client_call(client, "DELETE", path, body, NULL, err);
    for (size_t i = 0; i < ASH_COUNT(companions) && rc == 0; i++) {
        if (companions[i].of != NULL && strcmp(companions[i].of, resource->kind) != 0) continue;
        snprintf(path, sizeof(path), "%s/namespaces/%s/%s/%s%s", companions[i].api, ash_kube_space_of(client),
                 companions[i].plural, id, companions[i].suffix);
        rc = ash_kube_client_call(client, "DELETE", path, NULL, NULL, err);
        if (rc == -ENOENT || (rc == -EACCES && companions[i].of != NULL)) rc = 0;
    }
    json_decref(body);
    ash_kube_client_close(client);
    return rc;
}

static int suspend(const char *id, bool wanted, struct ash_err *err)
{
    struct ash_kube_client *client = NULL;
    const struct ash_kube_resource *resource = NULL;
    json_t *body = NULL;
    char path[ASH_KUBE_PATH_BYTES];
    int rc = ash_kube_client_open(&client, err);

    if (rc == 0) rc = find_path(client, id, path, &resource, err);
    if (rc == 0 && resource->hold == ASH_KUBE_NEVER_HELD)
        rc = ash_err_set(err, -ENOTSUP, "%.60s is a %s of %s, which cannot be held: `ashlar jobs stop` it", id,
                         resource->kind, resource->api + strlen("/apis/"));
    if (rc == 0) {
        body = resource->hold == ASH_KUBE_HELD_BY_SPEC
                   ? json_pack("{s{sb}}", "spec", "suspend", wanted)
                   : json_pack("{s{s{sb}}}", "spec", "runPolicy", "suspend", wanted);
        rc = body == NULL ? ash_err_set(err, -ENOMEM, "out of memory")
                          : ash_kube_client_call(client, "PATCH", path, body, NULL, err);
    }
    json_decref(body);
    ash_kube_client_close(client);
    return rc;
}

static int hold(const char *id, struct ash_err *err)
{
    return suspend(id, true, err);
}

static int release(const char *id, struct ash_err *err)
{
    return suspend(id, false, err);
}

const struct ash_jobs_ops ash_jobs_kubernetes = {.name = "kubernetes",
                                                 .is_here = is_here,
                                                 .print = print,
                                                 .submit = submit,
                                                 .list = list,
                                                 .show = show,
                                                 .why = why,
                                                 .output = output,
                                                 .follow_open = ash_kube_follow_open,
                                                 .follow_next = ash_kube_follow_next,
                                                 .follow_close = ash_kube_follow_close,
                                                 .stop = stop,
                                                 .hold = hold,
                                                 .release = release,
                                                 .usage = ash_kube_usage,
                                                 .use_namespace = ash_kube_use_namespace};

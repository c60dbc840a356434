/* Conditions, phases and events, in the words that jobs have on every back end. */
#include "orchestrate/kubernetes/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"

const struct ash_kube_resource ash_kube_resources[ASH_KUBE_RESOURCES] = {
    {"Job", "/apis/batch/v1", "jobs", ASH_KUBE_HELD_BY_SPEC},
    {"JobSet", "/apis/jobset.x-k8s.io/v1alpha2", "jobsets", ASH_KUBE_HELD_BY_SPEC},
    {"Job", "/apis/batch.volcano.sh/v1alpha1", "jobs", ASH_KUBE_NEVER_HELD},
    {"TrainJob", "/apis/trainer.kubeflow.org/v1alpha1", "trainjobs", ASH_KUBE_HELD_BY_SPEC},
    {"PyTorchJob", "/apis/kubeflow.org/v1", "pytorchjobs", ASH_KUBE_HELD_BY_RUN_POLICY},
    {"HyperPodPyTorchJob", "/apis/sagemaker.amazonaws.com/v1", "hyperpodpytorchjobs", ASH_KUBE_HELD_BY_RUN_POLICY},
    {"Deployment", "/apis/apps/v1", "deployments", ASH_KUBE_NEVER_HELD},
    {"StatefulSet", "/apis/apps/v1", "statefulsets", ASH_KUBE_NEVER_HELD},
    {"LeaderWorkerSet", "/apis/leaderworkerset.x-k8s.io/v1", "leaderworkersets", ASH_KUBE_NEVER_HELD},
};

/* Objects that are created with jobs. */
static const struct ash_kube_resource others[] = {
    {"ConfigMap", "/api/v1", "configmaps", ASH_KUBE_NEVER_HELD},
    {"Service", "/api/v1", "services", ASH_KUBE_NEVER_HELD},
    {"HorizontalPodAutoscaler", "/apis/autoscaling/v2", "horizontalpodautoscalers", ASH_KUBE_NEVER_HELD},
    {"PodDisruptionBudget", "/apis/policy/v1", "poddisruptionbudgets", ASH_KUBE_NEVER_HELD},
    {"PodGroup", "/apis/scheduling.volcano.sh/v1beta1", "podgroups", ASH_KUBE_NEVER_HELD},
    {"TrainingRuntime", "/apis/trainer.kubeflow.org/v1alpha1", "trainingruntimes", ASH_KUBE_NEVER_HELD},
};

/* "/apis/batch/v1" is the path of "batch/v1"; "/api/v1" of "v1". */
static bool is_of_version(const struct ash_kube_resource *resource, const char *api_version)
{
    const char *tail = strncmp(resource->api, "/apis/", 6) == 0 ? resource->api + 6 : resource->api + 5;

    return strcmp(tail, api_version) == 0;
}

const struct ash_kube_resource *ash_kube_resource_of(const char *kind, const char *api_version)
{
    for (size_t i = 0; i < ASH_COUNT(others); i++)
        if (strcmp(others[i].kind, kind) == 0 && is_of_version(&others[i], api_version)) return &others[i];
    for (size_t i = 0; i < ASH_KUBE_RESOURCES; i++)
        if (strcmp(ash_kube_resources[i].kind, kind) == 0 && is_of_version(&ash_kube_resources[i], api_version))
            return &ash_kube_resources[i];
    return NULL;
}

/* ---- phases ------------------------------------------------------------------------------------------------------ */

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "";
}

static double seconds_of(const char *time)
{
    struct tm when = {0};

    return strptime(time, "%Y-%m-%dT%H:%M:%SZ", &when) != NULL ? (double)timegm(&when) : -1;
}

/* The condition of that type, if it is true. */
static const json_t *true_condition(const json_t *status, const char *type)
{
    const json_t *conditions = json_object_get(status, "conditions");

    for (size_t i = 0; i < json_array_size(conditions); i++) {
        const json_t *condition = json_array_get(conditions, i);

        if (strcmp(text_at(condition, "type"), type) == 0 && strcmp(text_at(condition, "status"), "True") == 0)
            return condition;
    }
    return NULL;
}

/* Complete comes when all pods have ended, which a pod of a lost node does not until the node is removed. */
static const struct {
    const char *type;
    enum ash_jobs_phase phase;
} condition_phases[] = {
    {"Complete", ASH_JOBS_DONE},     {"Completed", ASH_JOBS_DONE},          {"Succeeded", ASH_JOBS_DONE},
    {"Failed", ASH_JOBS_FAILED},     {"SuccessCriteriaMet", ASH_JOBS_DONE}, {"FailureTarget", ASH_JOBS_FAILED},
    {"Suspended", ASH_JOBS_WAITING}, {"Running", ASH_JOBS_RUNNING},
};

static void read_conditions(const json_t *status, struct ash_jobs_entry *entry)
{
    for (size_t i = 0; i < ASH_COUNT(condition_phases); i++) {
        const json_t *condition = true_condition(status, condition_phases[i].type);

        if (condition == NULL) continue;
        entry->phase = condition_phases[i].phase;
        if (entry->phase != ASH_JOBS_DONE)
            snprintf(entry->reason, sizeof(entry->reason), "%.100s%s%.390s", text_at(condition, "reason"),
                     text_at(condition, "message")[0] != '\0' ? ": " : "", text_at(condition, "message"));
        return;
    }
}

/* Volcano has one phase. */
static void read_state(const json_t *status, struct ash_jobs_entry *entry)
{
    static const struct {
        const char *phase;
        enum ash_jobs_phase is;
    } phases[] = {{"Running", ASH_JOBS_RUNNING},     {"Completing", ASH_JOBS_RUNNING}, {"Restarting", ASH_JOBS_RUNNING},
                  {"Completed", ASH_JOBS_DONE},      {"Failed", ASH_JOBS_FAILED},      {"Terminated", ASH_JOBS_FAILED},
                  {"Terminating", ASH_JOBS_RUNNING}, {"Aborting", ASH_JOBS_STOPPED},   {"Aborted", ASH_JOBS_STOPPED}};
    const json_t *state = json_object_get(status, "state");

    for (size_t i = 0; i < ASH_COUNT(phases); i++)
        if (strcmp(text_at(state, "phase"), phases[i].phase) == 0) entry->phase = phases[i].is;
    snprintf(entry->reason, sizeof(entry->reason), "%.300s", text_at(state, "reason"));
}

static size_t node_count(const json_t *spec)
{
    static const char *const keys[] = {"completions", "parallelism", "replicas"};
    size_t count = 0;

    for (size_t i = 0; i < ASH_COUNT(keys) && count == 0; i++)
        count = (size_t)json_integer_value(json_object_get(spec, keys[i]));
    if (count == 0) count = (size_t)json_integer_value(json_object_get(json_object_get(spec, "trainer"), "numNodes"));
    if (count == 0)
        count = (size_t)json_integer_value(
            json_object_get(json_array_get(json_object_get(spec, "replicatedJobs"), 0), "replicas"));
    if (count == 0)
        count =
            (size_t)json_integer_value(json_object_get(json_array_get(json_object_get(spec, "tasks"), 0), "replicas"));
    if (count == 0)
        count = (size_t)json_integer_value(
            json_object_get(json_array_get(json_object_get(spec, "replicaSpecs"), 0), "replicas"));
    return count;
}

/* Do pods run? Job counts those that wait for a node as active, so `ready` comes first; JobSet and TrainJob have a list
 * of their Jobs. */
static bool has_running(const json_t *status)
{
    static const char *const lists[] = {"replicatedJobsStatus", "jobsStatus"};
    const json_t *ready = json_object_get(status, "ready");

    for (size_t i = 0; i < ASH_COUNT(lists); i++) {
        const json_t *jobs = json_object_get(status, lists[i]);

        for (size_t j = 0; j < json_array_size(jobs); j++)
            if (json_integer_value(json_object_get(json_array_get(jobs, j), "ready")) > 0) return true;
    }
    return json_integer_value(ready != NULL ? ready : json_object_get(status, "active")) > 0;
}

/* A server has replicas, some of them ready. Also when all are: there is more to come. */
static void read_replicas(const json_t *status, struct ash_jobs_entry *entry)
{
    json_int_t ready = json_integer_value(json_object_get(status, "readyReplicas"));

    if (ready > 0) entry->phase = ASH_JOBS_RUNNING;
    snprintf(entry->reason, sizeof(entry->reason), "%lld of %zu ready", (long long)ready, entry->nodes);
}

void ash_kube_read_job(const json_t *object, double now, struct ash_jobs_entry *entry_out)
{
    const json_t *metadata = json_object_get(object, "metadata"), *status = json_object_get(object, "status");
    double created = seconds_of(text_at(metadata, "creationTimestamp"));

    *entry_out = (struct ash_jobs_entry){.code = -1, .phase = ASH_JOBS_WAITING};
    snprintf(entry_out->id, sizeof(entry_out->id), "%.*s", ASH_JOBS_ID_BYTES - 1, text_at(metadata, "name"));
    snprintf(entry_out->name, sizeof(entry_out->name), "%.*s", ASH_JOBS_ID_BYTES - 1, text_at(metadata, "name"));
    entry_out->nodes = node_count(json_object_get(object, "spec"));
    entry_out->age_s = created >= 0 ? now - created : -1;
    if (has_running(status)) entry_out->phase = ASH_JOBS_RUNNING;
    read_conditions(status, entry_out);
    if (json_object_get(json_object_get(object, "spec"), "replicas") != NULL) read_replicas(status, entry_out);
    if (json_is_object(json_object_get(status, "state"))) read_state(status, entry_out);
    if (entry_out->phase == ASH_JOBS_DONE) entry_out->code = 0;
}

/* ---- watches ----------------------------------------------------------------------------------------------------- */

int ash_kube_read_event(const json_t *json, struct ash_kube_event *event_out)
{
    static const struct {
        const char *type;
        enum ash_kube_change change;
    } types[] = {{"ADDED", ASH_KUBE_CHANGED},
                 {"MODIFIED", ASH_KUBE_CHANGED},
                 {"DELETED", ASH_KUBE_GONE},
                 {"BOOKMARK", ASH_KUBE_BOOKMARK}};
    const json_t *object = json_object_get(json, "object");
    const char *type = text_at(json, "type");

    if (!json_is_object(object)) return -EIO;
    *event_out = (struct ash_kube_event){.object = object};
    event_out->version = json_string_value(json_object_get(json_object_get(object, "metadata"), "resourceVersion"));
    for (size_t i = 0; i < ASH_COUNT(types); i++)
        if (strcmp(type, types[i].type) == 0) {
            event_out->change = types[i].change;
            return 0;
        }
    event_out->change = ASH_KUBE_TOO_OLD;
    event_out->version = NULL;
    return strcmp(type, "ERROR") == 0 && json_integer_value(json_object_get(object, "code")) == 410 ? 0 : -EIO;
}

/* ashlar serve on Kubernetes: replicas behind a service. They get SIGTERM after they have left the load balancer, and
 * are scaled up when requests wait. A server is one process of one pod, in all three kinds. */
#include <stdio.h>

#include "orchestrate/kubernetes/manifest_priv.h"

#define FRONT_PORT 80
#define NAME_BYTES (ASH_SPEC_NAME_MAX + 16)
#define WAITING_METRIC "vllm:num_requests_waiting"

/* ---- kinds ------------------------------------------------------------------------------------------------------- */

/* Of an object that is named after the job's: "NAME-pods". */
static json_t *renamed(json_t *object, const char *name)
{
    json_object_set_new(json_object_get(object, "metadata"), "name", json_string(name));
    return object;
}

static void pods_name(const struct ash_kube_job *job, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%s" ASH_KUBE_PODS_SUFFIX, job->submission->spec->name);
}

json_t *ash_kube_deployment(const struct ash_kube_job *job, struct ash_err *err)
{
    json_t *template = ash_kube_pod_template(job, &(struct ash_kube_place){0}, err), *spec;

    if (template == NULL) return NULL;
    spec = json_pack("{sI s{so} s{s{si si}} so}", "replicas", (json_int_t)job->submission->spec->min_nodes, "selector",
                     "matchLabels", ash_kube_labels(job), "strategy", "rollingUpdate", "maxUnavailable", 0, "maxSurge",
                     1, "template", template);
    return ash_kube_object(job, "apps/v1", "Deployment", spec);
}

/* Servers do not wait for each other, so they come up together. */
json_t *ash_kube_stateful_set(const struct ash_kube_job *job, struct ash_err *err)
{
    json_t *template = ash_kube_pod_template(job, &(struct ash_kube_place){0}, err), *spec;
    char name[NAME_BYTES];

    if (template == NULL) return NULL;
    pods_name(job, name);
    spec = json_pack("{sI ss ss s{so} so}", "replicas", (json_int_t)job->submission->spec->min_nodes, "serviceName",
                     name, "podManagementPolicy", "Parallel", "selector", "matchLabels", ash_kube_labels(job),
                     "template", template);
    return ash_kube_object(job, "apps/v1", "StatefulSet", spec);
}

/* A group is a leader alone. Each has a private subdomain: the shared one would have the name of our service. */
json_t *ash_kube_leader_worker_set(const struct ash_kube_job *job, struct ash_err *err)
{
    json_t *template = ash_kube_pod_template(job, &(struct ash_kube_place){0}, err), *spec;

    if (template == NULL) return NULL;
    spec = json_pack("{sI s{si ss so} s{ss s{si si}} s{ss}}", "replicas", (json_int_t)job->submission->spec->min_nodes,
                     "leaderWorkerTemplate", "size", 1, "restartPolicy", "RecreateGroupOnPodRestart", "workerTemplate",
                     template, "rolloutStrategy", "type", "RollingUpdate", "rollingUpdateConfiguration",
                     "maxUnavailable", 0, "maxSurge", 1, "networkConfig", "subdomainPolicy", "UniquePerReplica");
    return ash_kube_object(job, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec);
}

/* ---- objects beside them ----------------------------------------------------------------------------------------- */

void ash_kube_add_fronts(const struct ash_kube_job *job, json_t *objects)
{
    json_t *spec = json_pack("{so s[{ss si ss}]}", "selector", ash_kube_labels(job), "ports", "name", "http", "port",
                             FRONT_PORT, "targetPort", "http");
    char name[NAME_BYTES];

    json_array_append_new(objects, ash_kube_object(job, "v1", "Service", spec));
    if (job->kind != ASH_KUBE_STATEFULSET) return;
    pods_name(job, name);
    spec = json_pack("{ss sb so s[{ss si}]}", "clusterIP", "None", "publishNotReadyAddresses", 1, "selector",
                     ash_kube_labels(job), "ports", "name", "http", "port", ash_kube_server_port(job));
    json_array_append_new(objects, renamed(ash_kube_object(job, "v1", "Service", spec), name));
}

static json_t *autoscaler(const struct ash_kube_job *job)
{
    const struct ash_spec *ask = job->submission->spec;
    json_t *target = json_pack("{ss ss ss}", "apiVersion",
                               job->kind == ASH_KUBE_LWS ? "leaderworkerset.x-k8s.io/v1" : "apps/v1", "kind",
                               job->kind == ASH_KUBE_LWS           ? "LeaderWorkerSet"
                               : job->kind == ASH_KUBE_STATEFULSET ? "StatefulSet"
                                                                   : "Deployment",
                               "name", ask->name);
    json_t *metric = json_pack("{ss s{s{ss} s{ss ss}}}", "type", "Pods", "pods", "metric", "name", WAITING_METRIC,
                               "target", "type", "AverageValue", "averageValue", "4");
    json_t *slowly = json_pack("{si s[{ss si si}]}", "stabilizationWindowSeconds", 300, "policies", "type", "Pods",
                               "value", 1, "periodSeconds", 60);
    json_t *spec =
        json_pack("{so sI sI s[o] s{so}}", "scaleTargetRef", target, "minReplicas", (json_int_t)ask->min_nodes,
                  "maxReplicas", (json_int_t)ask->nodes, "metrics", metric, "behavior", "scaleDown", slowly);

    return ash_kube_object(job, "autoscaling/v2", "HorizontalPodAutoscaler", spec);
}

void ash_kube_add_scaling(const struct ash_kube_job *job, json_t *objects)
{
    const struct ash_spec *ask = job->submission->spec;

    if (ask->nodes > 1)
        json_array_append_new(objects, ash_kube_object(job, "policy/v1", "PodDisruptionBudget",
                                                       json_pack("{si s{so}}", "maxUnavailable", 1, "selector",
                                                                 "matchLabels", ash_kube_labels(job))));
    if (ask->min_nodes < ask->nodes) json_array_append_new(objects, autoscaler(job));
}

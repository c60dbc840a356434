/* ashlar serve on Kubernetes: replicas behind a service. They get SIGTERM after they have left the load balancer, and
 * are scaled up when requests wait or caches are full. A replica is a pod or a group of them (server_group.c). */
#include <stdio.h>

#include "orchestrate/kubernetes/manifest_priv.h"

#define FRONT_PORT 80
#define NAME_BYTES (ASH_SPEC_NAME_MAX + 16)
#define WAITING_METRIC "vllm:num_requests_waiting"
#define CACHE_METRIC "vllm:kv_cache_usage_perc" /* 0 to 1 */
#define LEADER_LABEL "leaderworkerset.sigs.k8s.io/worker-index"

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

/* Each group has a private subdomain: the shared one would have the name of our service. */
json_t *ash_kube_leader_worker_set(const struct ash_kube_job *job, struct ash_err *err)
{
    struct ash_kube_place leader = {0}, worker = {0};
    struct ash_kube_group group;
    json_t *template, *spec, *pods;

    if (ash_kube_read_group(job, &group, err) < 0) return NULL;
    if (group.pods > 1) leader = ash_kube_group_place(false);
    if (group.pods > 1) worker = ash_kube_group_place(true);
    template = ash_kube_pod_template(job, &worker, err);
    if (template == NULL) return NULL;
    pods = json_pack("{sI ss so}", "size", (json_int_t)group.pods, "restartPolicy", "RecreateGroupOnPodRestart",
                     "workerTemplate", template);
    if (group.pods > 1) json_object_set_new(pods, "leaderTemplate", ash_kube_pod_template(job, &leader, err));
    spec = json_pack("{sI so s{ss s{si si}} s{ss}}", "replicas", (json_int_t)job->submission->spec->min_nodes,
                     "leaderWorkerTemplate", pods, "rolloutStrategy", "type", "RollingUpdate",
                     "rollingUpdateConfiguration", "maxUnavailable", 0, "maxSurge", 1, "networkConfig",
                     "subdomainPolicy", "UniquePerReplica");
    return ash_kube_object(job, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec);
}

/* ---- objects beside them ----------------------------------------------------------------------------------------- */

/* The pods that answer: of a group the leader. */
static json_t *answering(const struct ash_kube_job *job)
{
    json_t *labels = ash_kube_labels(job);

    if (job->kind == ASH_KUBE_LWS) json_object_set_new(labels, LEADER_LABEL, json_string("0"));
    return labels;
}

/* One address for all, and a name with the address of each: by it a router finds them, and the pods of a StatefulSet
 * have theirs before they are ready. */
void ash_kube_add_fronts(const struct ash_kube_job *job, json_t *objects)
{
    json_t *spec = json_pack("{so s[{ss si ss}]}", "selector", answering(job), "ports", "name", "http", "port",
                             FRONT_PORT, "targetPort", "http");
    char name[NAME_BYTES];

    json_array_append_new(objects, ash_kube_object(job, "v1", "Service", spec));
    pods_name(job, name);
    spec = json_pack("{ss so s[{ss si}]}", "clusterIP", "None", "selector", answering(job), "ports", "name", "http",
                     "port", ash_kube_server_port(job));
    if (job->kind == ASH_KUBE_STATEFULSET) json_object_set_new(spec, "publishNotReadyAddresses", json_true());
    json_array_append_new(objects, renamed(ash_kube_object(job, "v1", "Service", spec), name));
}

/* Scale up if the mean over the pods is above it. */
static json_t *pod_metric(const char *name, const char *above)
{
    return json_pack("{ss s{s{ss} s{ss ss}}}", "type", "Pods", "pods", "metric", "name", name, "target", "type",
                     "AverageValue", "averageValue", above);
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
    json_t *slowly = json_pack("{si s[{ss si si}]}", "stabilizationWindowSeconds", 300, "policies", "type", "Pods",
                               "value", 1, "periodSeconds", 60);
    json_t *spec =
        json_pack("{so sI sI s[oo] s{so}}", "scaleTargetRef", target, "minReplicas", (json_int_t)ask->min_nodes,
                  "maxReplicas", (json_int_t)ask->nodes, "metrics", pod_metric(WAITING_METRIC, "4"),
                  pod_metric(CACHE_METRIC, "800m"), "behavior", "scaleDown", slowly);

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

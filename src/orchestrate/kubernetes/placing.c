/* Nodes for pods: excluded ones, and levels of the network if the scheduler has no setting for them. Settings that a
 * scheduler lacks are refused: a dropped setting would look like one in force. */
#include <errno.h>
#include <string.h>

#include "orchestrate/kubernetes/manifest_priv.h"

static bool has_level(const struct ash_spec *spec)
{
    return spec->topology.required != NULL || spec->topology.preferred != NULL;
}

bool ash_kube_has_pod_group(const struct ash_kube_job *job)
{
    return job->scheduler == ASH_KUBE_BY_VOLCANO &&
           (job->kind == ASH_KUBE_JOB || job->kind == ASH_KUBE_JOBSET || job->kind == ASH_KUBE_HYPERPOD);
}

static int check_topology(const struct ash_kube_job *job, struct ash_err *err)
{
    const struct ash_spec *spec = job->submission->spec;
    const char *kind = ash_kube_kind_names[job->kind];

    if (!has_level(spec) || job->kind == ASH_KUBE_VOLCANO) return 0;
    if (job->scheduler == ASH_KUBE_DEFAULT && ash_kube_is_server(job->kind))
        return ash_err_set(err, -EINVAL, "job.topology: replicas of a server are placed by --scheduler kueue or kai");
    if (job->scheduler == ASH_KUBE_DEFAULT && spec->topology.group > 0)
        return ash_err_set(err, -EINVAL,
                           "job.topology.group: Kubernetes' own scheduler knows no groups of pods: give --scheduler "
                           "kueue, or --kind volcano");
    if (job->scheduler != ASH_KUBE_BY_VOLCANO) return 0;
    if (!ash_kube_has_pod_group(job) || spec->topology.group > 0)
        return ash_err_set(err, -EINVAL, "job.topology%s: Volcano places a %s without it: give --kind volcano",
                           spec->topology.group > 0 ? ".group" : "", kind);
    return 0;
}

int ash_kube_check_placing(const struct ash_kube_job *job, struct ash_err *err)
{
    const struct ash_spec *spec = job->submission->spec;

    if (spec->elastic.max > 0)
        return ash_err_set(err, -EINVAL, "job.elastic is for Slurm: pods of a job are not given away one by one");
    for (size_t i = 0; i < spec->exclude.count; i++)
        if (strpbrk(spec->exclude.items[i], "[],* ") != NULL)
            return ash_err_set(err, -EINVAL, "job.exclude has '%.100s': name every node (as kubectl get nodes does)",
                               spec->exclude.items[i]);
    if (spec->queue != NULL && spec->queue[0] != '\0' && job->scheduler == ASH_KUBE_DEFAULT &&
        job->kind != ASH_KUBE_VOLCANO)
        return ash_err_set(err, -EINVAL,
                           "job.queue is '%.60s', and Kubernetes' own scheduler has no queues: give --scheduler kueue, "
                           "volcano or kai, or job.queue= for none",
                           spec->queue);
    return check_topology(job, err);
}

/* Nodes by the label that every kubelet sets. */
static json_t *excluding(const struct ash_opt_list *nodes)
{
    json_t *names = json_array();

    for (size_t i = 0; i < nodes->count; i++)
        json_array_append_new(names, json_string(nodes->items[i]));
    return json_pack("{s{s[{s[{ss ss so}]}]}}", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms",
                     "matchExpressions", "key", "kubernetes.io/hostname", "operator", "NotIn", "values", names);
}

/* The pods of a job near each other: a level is a label of nodes. */
static json_t *together(const struct ash_kube_job *job)
{
    const struct ash_spec_topology *topology = &job->submission->spec->topology;
    json_t *affinity = json_object();

    if (topology->required != NULL)
        json_object_set_new(affinity, "requiredDuringSchedulingIgnoredDuringExecution",
                            json_pack("[{s{so} ss}]", "labelSelector", "matchLabels", ash_kube_labels(job),
                                      "topologyKey", topology->required));
    if (topology->preferred != NULL)
        json_object_set_new(affinity, "preferredDuringSchedulingIgnoredDuringExecution",
                            json_pack("[{si s{s{so} ss}}]", "weight", 100, "podAffinityTerm", "labelSelector",
                                      "matchLabels", ash_kube_labels(job), "topologyKey", topology->preferred));
    return affinity;
}

json_t *ash_kube_affinity(const struct ash_kube_job *job)
{
    const struct ash_spec *spec = job->submission->spec;
    json_t *affinity = json_object();

    if (spec->exclude.count > 0) json_object_set_new(affinity, "nodeAffinity", excluding(&spec->exclude));
    if (job->scheduler == ASH_KUBE_DEFAULT && job->kind != ASH_KUBE_VOLCANO && has_level(spec))
        json_object_set_new(affinity, "podAffinity", together(job));
    if (json_object_size(affinity) > 0) return affinity;
    json_decref(affinity);
    return NULL;
}

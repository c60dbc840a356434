/* What all objects of a job have: names, labels, queues; and the service that its pods are found by. */
#include <stdio.h>
#include <string.h>

#include "orchestrate/kubernetes/manifest_priv.h"

#define INSTANCE_LABEL "app.kubernetes.io/instance"

bool ash_kube_is_server(enum ash_kube_kind kind)
{
    return kind == ASH_KUBE_DEPLOYMENT || kind == ASH_KUBE_STATEFULSET || kind == ASH_KUBE_LWS;
}

json_t *ash_kube_labels(const struct ash_kube_job *job)
{
    return json_pack("{ss ss}", "app.kubernetes.io/name", "ashlar", INSTANCE_LABEL, job->submission->spec->name);
}

void ash_kube_add_queue(const struct ash_kube_job *job, json_t *labels)
{
    const struct ash_spec *spec = job->submission->spec;

    if (job->scheduler == ASH_KUBE_KUEUE && spec->queue != NULL)
        json_object_set_new(labels, "kueue.x-k8s.io/queue-name", json_string(spec->queue));
    if (job->scheduler == ASH_KUBE_KUEUE && spec->priority != NULL)
        json_object_set_new(labels, "kueue.x-k8s.io/priority-class", json_string(spec->priority));
    if (job->scheduler == ASH_KUBE_KAI && spec->queue != NULL)
        json_object_set_new(labels, "kai.scheduler/queue", json_string(spec->queue));
}

/* KAI reads topology from the job, Kueue from the pods. */
static void add_kai_topology(const struct ash_kube_job *job, json_t *metadata)
{
    const struct ash_spec_topology *topology = &job->submission->spec->topology;
    json_t *notes;

    if (job->scheduler != ASH_KUBE_KAI || (topology->required == NULL && topology->preferred == NULL)) return;
    notes = json_pack("{ss}", "kai.scheduler/topology", "cluster-topology");
    if (topology->required != NULL)
        json_object_set_new(notes, "kai.scheduler/topology-required-placement", json_string(topology->required));
    if (topology->preferred != NULL)
        json_object_set_new(notes, "kai.scheduler/topology-preferred-placement", json_string(topology->preferred));
    json_object_set_new(metadata, "annotations", notes);
}

json_t *ash_kube_object(const struct ash_kube_job *job, const char *api_version, const char *kind, json_t *spec)
{
    json_t *labels = ash_kube_labels(job);
    json_t *metadata = json_pack("{ss so}", "name", job->submission->spec->name, "labels", labels);

    if (strcmp(api_version, "v1") != 0) { /* services and job files are not queued */
        ash_kube_add_queue(job, labels);
        add_kai_topology(job, metadata);
    }
    if (job->submission->spec->kube_namespace != NULL)
        json_object_set_new(metadata, "namespace", json_string(job->submission->spec->kube_namespace));
    return json_pack("{ss ss so so}", "apiVersion", api_version, "kind", kind, "metadata", metadata, "spec", spec);
}

json_t *ash_kube_service(const struct ash_kube_job *job)
{
    json_t *ports = json_pack("[{ss si}]", "name", "ranks", "port", ASH_KUBE_PORT);
    json_t *spec = json_pack("{ss sb so so}", "clusterIP", "None", "publishNotReadyAddresses", 1, "selector",
                             ash_kube_labels(job), "ports", ports);

    return ash_kube_object(job, "v1", "Service", spec);
}

/* manifest_priv - pieces that the kinds of jobs share. Functions that return json_t give the reference to the caller,
 * or NULL without memory; building continues with NULL, and the end result is an error. */
#ifndef ASH_ORCHESTRATE_KUBERNETES_MANIFEST_PRIV_H
#define ASH_ORCHESTRATE_KUBERNETES_MANIFEST_PRIV_H

#include <jansson.h>
#include <stdbool.h>
#include "orchestrate/kubernetes/manifest.h"

#define ASH_KUBE_TASK "node" /* name of the replicas: one per node */
#define ASH_KUBE_EXIT_BAD_SETTINGS 2
#define ASH_KUBE_EXIT_SAVED 75
#define ASH_KUBE_PORT 29500
#define ASH_KUBE_PODS_SUFFIX "-pods" /* of the service by which the pods of a StatefulSet have names */

/* How a server's ranks (--tp, --ep, --pp) are spread over the pods of a replica. */
struct ash_kube_group {
    size_t ranks, pods; /* pods 1: the server starts its ranks itself */
};

/* Where a pod finds its number and the first pod. */
struct ash_kube_place {
    const char *node_rank;  /* word for --node-rank */
    const char *rank_field; /* NODE_RANK from this field of the pod; NULL: the number comes otherwise */
    const char *master;     /* HOST:PORT */
    bool is_worker;         /* a pod of a server's ranks after the first pod: it has no port, and no probes */
};

/* {"apiVersion", "kind", "metadata": {name, namespace, labels}, "spec"}; takes spec. */
json_t *ash_kube_object(const struct ash_kube_job *job, const char *api_version, const char *kind, json_t *spec);
/* A pod template: {"metadata", "spec"}. */
json_t *ash_kube_pod_template(const struct ash_kube_job *job, const struct ash_kube_place *place, struct ash_err *err);
/* placing.c: -EINVAL if the job asks for a placement that its scheduler lacks. */
int ash_kube_check_placing(const struct ash_kube_job *job, struct ash_err *err);
/* placing.c: a pod's affinity for job.exclude and job.topology; NULL: none. */
json_t *ash_kube_affinity(const struct ash_kube_job *job);
/* placing.c: does a PodGroup of Volcano go with the job? */
bool ash_kube_has_pod_group(const struct ash_kube_job *job);
/* Add labels for the scheduler's queue of the job. */
void ash_kube_add_queue(const struct ash_kube_job *job, json_t *labels);
/* Labels that select the pods of the job. */
json_t *ash_kube_labels(const struct ash_kube_job *job);
/* The headless service by which pods find each other. */
json_t *ash_kube_service(const struct ash_kube_job *job);

/* The job itself, per kind; NULL with err on failure. */
json_t *ash_kube_plain_job(const struct ash_kube_job *job, struct ash_err *err);
/* JobSet: one Job per node, so that a failure restarts one. */
json_t *ash_kube_jobset(const struct ash_kube_job *job, struct ash_err *err);
/* Volcano. */
json_t *ash_kube_volcano_job(const struct ash_kube_job *job, struct ash_err *err);
/* A TrainingRuntime of the job's own, for a TrainJob that names it. */
json_t *ash_kube_training_runtime(const struct ash_kube_job *job, struct ash_err *err);
/* Kubeflow Trainer. */
json_t *ash_kube_train_job(const struct ash_kube_job *job, struct ash_err *err);
/* Kubeflow training operator. */
json_t *ash_kube_pytorch_job(const struct ash_kube_job *job, struct ash_err *err);
/* HyperPod. */
json_t *ash_kube_hyperpod_job(const struct ash_kube_job *job, struct ash_err *err);
/* ashlar serve: replicas behind a service. */
json_t *ash_kube_deployment(const struct ash_kube_job *job, struct ash_err *err);
/* The same with names that stay. */
json_t *ash_kube_stateful_set(const struct ash_kube_job *job, struct ash_err *err);
/* The same as groups: a leader, which serves, and workers with the other ranks. */
json_t *ash_kube_leader_worker_set(const struct ash_kube_job *job, struct ash_err *err);
/* Is it a kind of server? */
bool ash_kube_is_server(enum ash_kube_kind kind);
/* A server's arguments that the cluster decides: its address, and the time to drain. */
void ash_kube_add_server_words(const struct ash_kube_job *job, json_t *args);
/* Its port: the default, or the last --port. */
int ash_kube_server_port(const struct ash_kube_job *job);
/* server_group.c: how the ranks of a replica are spread. Returns 0 or -EINVAL naming the settings that do not fit. */
int ash_kube_read_group(const struct ash_kube_job *job, struct ash_kube_group *group_out, struct ash_err *err);
/* server_group.c: where the pods of a group find their number and the first one. */
struct ash_kube_place ash_kube_group_place(bool is_worker);
/* server_group.c: the words of a pod of several that share a server, before those of `ashlar serve`. */
void ash_kube_add_group_words(const struct ash_kube_job *job, const struct ash_kube_place *place, json_t *args);
/* Its port, its probes, and its preStop hook. */
void ash_kube_add_probes(const struct ash_kube_job *job, json_t *container);
/* Append a server's services to objects. */
void ash_kube_add_fronts(const struct ash_kube_job *job, json_t *objects);
/* Append its disruption budget and its autoscaler on queued requests to objects. */
void ash_kube_add_scaling(const struct ash_kube_job *job, json_t *objects);
/* Volcano's gang for pods of other kinds. */
json_t *ash_kube_pod_group(const struct ash_kube_job *job, struct ash_err *err);

#endif

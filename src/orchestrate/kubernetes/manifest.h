/* manifest - a job as objects of Kubernetes. One pod per node, the supervisor as its first process; the remaining pods
 * stay when one is lost: only that pod is recreated. */
#ifndef ASH_ORCHESTRATE_KUBERNETES_MANIFEST_H
#define ASH_ORCHESTRATE_KUBERNETES_MANIFEST_H

#include <jansson.h>
#include "ashlar/err.h"
#include "base/str.h"
#include "orchestrate/job/submission.h"

enum ash_kube_kind {
    ASH_KUBE_JOB,         /* Indexed Job of Kubernetes itself */
    ASH_KUBE_JOBSET,      /* JobSet */
    ASH_KUBE_VOLCANO,     /* Volcano's Job */
    ASH_KUBE_TRAINJOB,    /* Kubeflow Trainer 2 */
    ASH_KUBE_PYTORCHJOB,  /* Kubeflow training operator */
    ASH_KUBE_HYPERPOD,    /* HyperPodPyTorchJob */
    ASH_KUBE_DEPLOYMENT,  /* ashlar serve: replicas that are alike */
    ASH_KUBE_STATEFULSET, /* ashlar serve: replicas with names that stay */
    ASH_KUBE_LWS,         /* ashlar serve: LeaderWorkerSet */
    ASH_KUBE_KINDS
};

enum ash_kube_scheduler { ASH_KUBE_DEFAULT, ASH_KUBE_KUEUE, ASH_KUBE_BY_VOLCANO, ASH_KUBE_KAI, ASH_KUBE_SCHEDULERS };

extern const char *const ash_kube_kind_names[ASH_KUBE_KINDS + 1];           /* NULL-terminated, for options */
extern const char *const ash_kube_scheduler_names[ASH_KUBE_SCHEDULERS + 1]; /* likewise */

struct ash_kube_job {
    const struct ash_submission *submission; /* its program and job file are those of the pods */
    enum ash_kube_kind kind;
    enum ash_kube_scheduler scheduler;
    const char *job_text; /* contents of the job file, which travel as a ConfigMap */
};

#define ASH_KUBE_JOB_FILE "/etc/ashlar/job.yaml" /* where pods see it */

/* The objects in the order in which to create them, the job last. The caller owns *objects_out (json_decref). Returns 0
 * or a negative errno: -EINVAL names the setting that this kind needs or cannot express. */
int ash_kube_manifests(const struct ash_kube_job *job, json_t **objects_out, struct ash_err *err);

/* Append objects as YAML documents, as kubectl reads them. Returns 0 or -ENOMEM. */
int ash_kube_add_yaml(const json_t *objects, struct ash_str *text_out);

#endif

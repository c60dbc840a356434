/* status - a job's status from Kubernetes objects, as text. No requests are made here. */
#ifndef ASH_ORCHESTRATE_KUBERNETES_STATUS_H
#define ASH_ORCHESTRATE_KUBERNETES_STATUS_H

#include <jansson.h>
#include "ashlar/err.h"
#include "base/str.h"
#include "orchestrate/job/jobs.h"

/* The field that keeps a job from starting: spec.suspend, spec.runPolicy.suspend, or none. */
enum ash_kube_hold { ASH_KUBE_NEVER_HELD, ASH_KUBE_HELD_BY_SPEC, ASH_KUBE_HELD_BY_RUN_POLICY };

/* A kind of object that a job or a server can be. */
struct ash_kube_resource {
    const char *kind, *api, *plural; /* "Job", "/apis/batch/v1", "jobs" */
    enum ash_kube_hold hold;
};

#define ASH_KUBE_RESOURCES 9
extern const struct ash_kube_resource ash_kube_resources[ASH_KUBE_RESOURCES]; /* kinds of jobs and servers */
/* The resource path of a kind: of jobs and the objects created with them. NULL: not one of ours. */
const struct ash_kube_resource *ash_kube_resource_of(const char *kind, const char *api_version);

/* A job's entry from its object. now is seconds since 1970. */
void ash_kube_read_job(const json_t *object, double now, struct ash_jobs_entry *entry_out);

enum ash_kube_change {
    ASH_KUBE_CHANGED, /* it is new, or another than before */
    ASH_KUBE_GONE,
    ASH_KUBE_BOOKMARK, /* nothing happened, up to this version */
    ASH_KUBE_TOO_OLD,  /* the watch's resourceVersion has expired: list again */
};

/* A line of a watch. object and version (NULL: none) belong to the JSON that it was read from. */
struct ash_kube_event {
    enum ash_kube_change change;
    const json_t *object;
    const char *version;
};

/* Read one. Returns 0, or -EIO if it is none, or has an error other than "too old". */
int ash_kube_read_event(const json_t *json, struct ash_kube_event *event_out);

/* Evidence of why a job waits. */
struct ash_kube_evidence {
    const struct ash_jobs_entry *job;
    const json_t *workloads; /* items of Kueue's workloads; NULL: no Kueue */
    const json_t *pods;      /* items */
    const json_t *events;    /* items, of the namespace */
};

/* Append, in sentences, the reasons of waiting and their sources. Returns 0 or -ENOMEM. */
int ash_kube_explain(const struct ash_kube_evidence *evidence, struct ash_str *text_out, struct ash_err *err);

#endif

/* status - what Kubernetes' objects say of a job, read and put into words. Nothing is asked of a cluster here. */
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
/* Where objects of a kind are created: of jobs and of what goes with them. NULL: not one of ours. */
const struct ash_kube_resource *ash_kube_resource_of(const char *kind, const char *api_version);

/* A job's entry from its object. now is seconds since 1970. */
void ash_kube_read_job(const json_t *object, double now, struct ash_jobs_entry *entry_out);

enum ash_kube_change {
    ASH_KUBE_CHANGED, /* it is new, or another than before */
    ASH_KUBE_GONE,
    ASH_KUBE_BOOKMARK, /* nothing happened, up to this version */
    ASH_KUBE_TOO_OLD,  /* the server has forgotten what the watch began with: list again */
};

/* A line of a watch. object and version (NULL: none) belong to the JSON that it was read from. */
struct ash_kube_event {
    enum ash_kube_change change;
    const json_t *object;
    const char *version;
};

/* Read one. Returns 0, or -EIO where it is none, or tells of an error other than that it is too old. */
int ash_kube_read_event(const json_t *json, struct ash_kube_event *event_out);

/* What a job waits for. */
struct ash_kube_evidence {
    const struct ash_jobs_entry *job;
    const json_t *workloads; /* items of Kueue's workloads; NULL: no Kueue */
    const json_t *pods;      /* items */
    const json_t *events;    /* items, of the namespace */
};

/* Append, in sentences, what the job waits for and who says so. Returns 0 or -ENOMEM. */
int ash_kube_explain(const struct ash_kube_evidence *evidence, struct ash_str *text_out, struct ash_err *err);

#endif

/* Why a job waits, in sentences: from the status of Kueue, the scheduler, nodes and controllers. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "orchestrate/kubernetes/manifest_priv.h"
#include "orchestrate/kubernetes/status.h"

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "";
}

/* Does Kueue's workload belong to the job? It has the job's name in its own, or is owned by it. */
static bool is_workload_of(const json_t *workload, const char *name)
{
    const json_t *owners = json_object_get(json_object_get(workload, "metadata"), "ownerReferences");

    for (size_t i = 0; i < json_array_size(owners); i++)
        if (strcmp(text_at(json_array_get(owners, i), "name"), name) == 0) return true;
    return false;
}

/* Kueue: which quota it waits for, in Kueue's words. */
static int add_workloads(const struct ash_kube_evidence *evidence, struct ash_str *text)
{
    static const char *const types[] = {"QuotaReserved", "Admitted", "PodsReady", "Evicted", "Preempted"};
    int rc = 0;

    for (size_t i = 0; i < json_array_size(evidence->workloads); i++) {
        const json_t *workload = json_array_get(evidence->workloads, i);
        const json_t *conditions = json_object_get(json_object_get(workload, "status"), "conditions");

        if (!is_workload_of(workload, evidence->job->name)) continue;
        rc = ash_str_addf(text, "Kueue: queue %s\n", text_at(json_object_get(workload, "spec"), "queueName"));
        for (size_t c = 0; c < json_array_size(conditions) && rc == 0; c++) {
            const json_t *condition = json_array_get(conditions, c);

            for (size_t t = 0; t < ASH_COUNT(types) && rc == 0; t++)
                if (strcmp(text_at(condition, "type"), types[t]) == 0)
                    rc = ash_str_addf(text, "  %s is %s: %s\n", types[t], text_at(condition, "status"),
                                      text_at(condition, "message"));
        }
    }
    return rc;
}

/* The scheduler's message on an unschedulable pod; NULL: it has a node. */
static const char *unplaced(const json_t *pod)
{
    const json_t *conditions = json_object_get(json_object_get(pod, "status"), "conditions");
    const char *said = "";

    if (text_at(json_object_get(pod, "spec"), "nodeName")[0] != '\0') return NULL;
    for (size_t i = 0; i < json_array_size(conditions); i++) {
        const json_t *condition = json_array_get(conditions, i);

        if (strcmp(text_at(condition, "type"), "PodScheduled") == 0 &&
            strcmp(text_at(condition, "status"), "False") == 0)
            said = text_at(condition, "message");
    }
    return said;
}

/* Why a container of a scheduled pod waits (its image, after a crash); NULL: it does not. */
static const json_t *not_started(const json_t *pod)
{
    const json_t *containers = json_object_get(json_object_get(pod, "status"), "containerStatuses");

    for (size_t i = 0; i < json_array_size(containers); i++) {
        const json_t *waiting = json_object_get(json_object_get(json_array_get(containers, i), "state"), "waiting");

        if (text_at(waiting, "reason")[0] != '\0') return waiting;
    }
    return NULL;
}

/* Pods that no node takes, and those that their node does not start; equal sentences once. */
static int add_pods(const struct ash_kube_evidence *evidence, struct ash_str *text)
{
    size_t waiting = 0, starting = 0, count = json_array_size(evidence->pods);
    const char *said = "";
    const json_t *why = NULL;
    int rc = 0;

    for (size_t i = 0; i < count; i++) {
        const json_t *pod = json_array_get(evidence->pods, i), *found = not_started(pod);
        const char *phase = text_at(json_object_get(pod, "status"), "phase"), *sentence = unplaced(pod);

        if (strcmp(phase, "Pending") == 0 && sentence != NULL) {
            waiting++;
            if (sentence[0] != '\0') said = sentence;
        } else if (found != NULL) {
            starting++;
            why = found;
        }
    }
    if (waiting > 0)
        rc =
            ash_str_addf(text, "%zu of %zu pods have no node%s%s\n", waiting, count, said[0] != '\0' ? ": " : "", said);
    if (starting > 0 && rc == 0)
        rc = ash_str_addf(text, "%zu of %zu pods are not started by their node: %s%s%s\n", starting, count,
                          text_at(why, "reason"), text_at(why, "message")[0] != '\0' ? ": " : "",
                          text_at(why, "message"));
    return rc;
}

#define EVENTS_MAX 5

/* Is it about the job, one of its pods, or what controllers make between the two? Another job's name may begin like
 * this one's. */
static bool is_event_of(const struct ash_kube_evidence *evidence, const json_t *event)
{
    const json_t *about = json_object_get(event, "involvedObject");
    const char *name = text_at(about, "name"), *job = evidence->job->name;
    size_t length = strlen(job);

    if (strcmp(name, job) == 0) return true;
    for (size_t i = 0; i < json_array_size(evidence->pods); i++)
        if (strcmp(text_at(json_object_get(json_array_get(evidence->pods, i), "metadata"), "name"), name) == 0)
            return true;
    if (strncmp(name, job, length) != 0 || name[length] != '-') return false;
    if (strcmp(text_at(about, "kind"), "ReplicaSet") == 0) return strchr(name + length + 1, '-') == NULL;
    return strncmp(name + length + 1, ASH_KUBE_TASK "-", strlen(ASH_KUBE_TASK "-")) == 0;
}

/* When it was last seen, as text that sorts by time. */
static const char *time_of(const json_t *event)
{
    static const char *const keys[] = {"lastTimestamp", "eventTime"};

    for (size_t i = 0; i < ASH_COUNT(keys); i++)
        if (text_at(event, keys[i])[0] != '\0') return text_at(event, keys[i]);
    return text_at(json_object_get(event, "metadata"), "creationTimestamp");
}

/* The newest warnings, the newest first. A list comes in the order of names. */
static int add_events(const struct ash_kube_evidence *evidence, struct ash_str *text)
{
    const json_t *newest[EVENTS_MAX] = {NULL};
    size_t kept = 0;
    int rc = 0;

    for (size_t i = 0; i < json_array_size(evidence->events); i++) {
        const json_t *event = json_array_get(evidence->events, i);
        size_t at;

        if (strcmp(text_at(event, "type"), "Warning") != 0 || !is_event_of(evidence, event)) continue;
        for (at = kept; at > 0 && strcmp(time_of(newest[at - 1]), time_of(event)) < 0; at--)
            if (at < EVENTS_MAX) newest[at] = newest[at - 1];
        if (at < EVENTS_MAX) newest[at] = event;
        if (kept < EVENTS_MAX) kept++;
    }
    ash_assert(kept <= EVENTS_MAX);
    for (size_t i = 0; i < kept && rc == 0; i++)
        rc = ash_str_addf(text, "%s %s: %s: %s\n", text_at(json_object_get(newest[i], "involvedObject"), "kind"),
                          text_at(json_object_get(newest[i], "involvedObject"), "name"), text_at(newest[i], "reason"),
                          text_at(newest[i], "message"));
    return rc;
}

int ash_kube_explain(const struct ash_kube_evidence *evidence, struct ash_str *text_out, struct ash_err *err)
{
    const struct ash_jobs_entry *job = evidence->job;
    int rc = ash_str_addf(text_out, "job %s is %s%s%s\n", job->id, ash_jobs_phase_name(job->phase),
                          job->reason[0] != '\0' ? ": " : "", job->reason);

    if (rc == 0) rc = add_workloads(evidence, text_out);
    if (rc == 0) rc = add_pods(evidence, text_out);
    if (rc == 0) rc = add_events(evidence, text_out);
    return rc < 0 ? ash_err_set(err, rc, "out of memory") : 0;
}

/* A pod is a node of a job, from its start to the end of its last container. */
#include "orchestrate/kubernetes/usage.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "orchestrate/kubernetes/jobs_priv.h"

#define SELECTOR "labelSelector=app.kubernetes.io%2Fname%3Dashlar"

static double moment_of(const json_t *time)
{
    struct tm when = {0};
    const char *text = json_string_value(time);

    return text != NULL && strptime(text, "%Y-%m-%dT%H:%M:%SZ", &when) != NULL ? (double)timegm(&when) : 0.0;
}

static bool has_ended(const json_t *status)
{
    const char *phase = json_string_value(json_object_get(status, "phase"));

    return phase != NULL && (strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0);
}

/* The end of its last container; of a pod whose node was lost, the last change of its conditions. */
static double end_of(const json_t *status)
{
    const json_t *item;
    double end_s = 0.0, changed_s = 0.0;
    size_t i;

    json_array_foreach(json_object_get(status, "containerStatuses"), i, item)
        end_s = fmax(end_s, moment_of(json_object_get(json_object_get(json_object_get(item, "state"), "terminated"),
                                                      "finishedAt")));
    json_array_foreach(json_object_get(status, "conditions"), i, item)
        changed_s = fmax(changed_s, moment_of(json_object_get(item, "lastTransitionTime")));
    return end_s > 0.0 ? end_s : changed_s;
}

static double gpus_of(const json_t *spec)
{
    const json_t *item;
    double gpus = 0.0;
    size_t i;

    json_array_foreach(json_object_get(spec, "containers"), i, item) {
        const json_t *count =
            json_object_get(json_object_get(json_object_get(item, "resources"), "limits"), "nvidia.com/gpu");

        if (json_is_string(count))
            gpus += fmax(strtod(json_string_value(count), NULL), 0.0);
        else
            gpus += fmax(json_number_value(count), 0.0);
    }
    return isfinite(gpus) ? gpus : 0.0;
}

static char *text_of(const json_t *object, const char *key)
{
    return (char *)json_string_value(json_object_get(object, key)); /* borrowed, and copied */
}

int ash_kube_read_usage(const json_t *pods, double from_s, double to_s, struct ash_usage_list *list_out)
{
    const json_t *pod;
    size_t i;
    int rc = 0;

    json_array_foreach(pods, i, pod) {
        const json_t *metadata = json_object_get(pod, "metadata"), *status = json_object_get(pod, "status");
        const json_t *labels = json_object_get(metadata, "labels"), *notes = json_object_get(metadata, "annotations");
        const char *price = text_of(notes, ASH_KUBE_NOTE_PRICE);
        struct ash_usage_entry entry = {.id = text_of(labels, "app.kubernetes.io/instance"),
                                        .user = text_of(notes, ASH_KUBE_NOTE_USER),
                                        .team = text_of(notes, ASH_KUBE_NOTE_TEAM),
                                        .out = text_of(notes, ASH_KUBE_NOTE_OUT),
                                        .start_s = moment_of(json_object_get(status, "startTime")),
                                        .end_s = has_ended(status) ? end_of(status) : to_s,
                                        .nodes = 1.0,
                                        .gpus = gpus_of(json_object_get(pod, "spec"))};

        entry.name = entry.id;
        if (entry.team == NULL) entry.team = text_of(metadata, "namespace");
        if (price != NULL) entry.price = strtod(price, NULL);
        if (!isfinite(entry.price) || entry.price < 0.0) entry.price = 0.0;
        if (rc == 0 && entry.id != NULL && entry.start_s > 0.0) rc = ash_usage_add(list_out, &entry, from_s, to_s);
    }
    return rc;
}

int ash_kube_usage(double from_s, double to_s, struct ash_usage_list *list_out, struct ash_err *err)
{
    struct ash_kube_client *client = NULL;
    char path[ASH_KUBE_PATH_BYTES];
    json_t *answer = NULL;
    int rc = ash_kube_client_open(&client, err);

    if (rc == 0) {
        snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods?%s", ash_kube_space_of(client), SELECTOR);
        rc = ash_kube_client_call(client, "GET", path, NULL, &answer, err);
    }
    if (rc == 0 && ash_kube_read_usage(json_object_get(answer, "items"), from_s, to_s, list_out) < 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory for what jobs have used");
    json_decref(answer);
    ash_kube_client_close(client);
    return rc;
}

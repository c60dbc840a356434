/* The pod of ashlar serve: its words, its probes, and the time that it has to end. */
#include <math.h>
#include <stdio.h>

#include "orchestrate/kubernetes/manifest_priv.h"

#define SERVE_PORT 8000
#define UNHEARD_S 5.0 /* until load balancers have dropped a pod that is leaving */
#define SPARE_S 5.0   /* between the end of draining and being killed */

/* job.notice is the grace of a pod. Of a short one a quarter each is left for the two waits around draining. */
static int unheard_s(const struct ash_kube_job *job)
{
    return (int)fmin(UNHEARD_S, floor(job->submission->spec->notice_s / 4));
}

static int drain_s(const struct ash_kube_job *job)
{
    double notice_s = job->submission->spec->notice_s;

    return (int)(notice_s - unheard_s(job) - fmin(SPARE_S, ceil(notice_s / 4)));
}

void ash_kube_add_server_words(const struct ash_kube_job *job, json_t *args)
{
    char drain[48];

    snprintf(drain, sizeof(drain), "shutdown_timeout=%d", drain_s(job));
    json_array_append_new(args, json_string("serve"));
    json_array_append_new(args, json_string("host=0.0.0.0"));
    json_array_append_new(args, json_string(drain));
}

int ash_kube_server_port(const struct ash_kube_job *job)
{
    int port = SERVE_PORT;

    for (size_t i = 0; i < job->submission->setting_count; i++)
        sscanf(job->submission->settings[i], "port=%d", &port);
    return port;
}

/* It is live while it steps, ready once it has its weights, and may take half an hour to read them. */
void ash_kube_add_probes(const struct ash_kube_job *job, json_t *container)
{
    json_object_set_new(container, "ports",
                        json_pack("[{ss si}]", "name", "http", "containerPort", ash_kube_server_port(job)));
    json_object_set_new(container, "readinessProbe",
                        json_pack("{s{ss ss} si}", "httpGet", "path", "/ready", "port", "http", "periodSeconds", 5));
    json_object_set_new(container, "livenessProbe",
                        json_pack("{s{ss ss} si si}", "httpGet", "path", "/health", "port", "http", "periodSeconds", 10,
                                  "failureThreshold", 6));
    json_object_set_new(container, "startupProbe",
                        json_pack("{s{ss ss} si si}", "httpGet", "path", "/health", "port", "http", "periodSeconds", 5,
                                  "failureThreshold", 360));
    if (unheard_s(job) > 0)
        json_object_set_new(container, "lifecycle",
                            json_pack("{s{s{si}}}", "preStop", "sleep", "seconds", unheard_s(job)));
}

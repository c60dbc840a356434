/* Shared by the files for jobs on Kubernetes. */
#ifndef ASH_ORCHESTRATE_KUBERNETES_JOBS_PRIV_H
#define ASH_ORCHESTRATE_KUBERNETES_JOBS_PRIV_H

#include "orchestrate/job/jobs.h"
#include "orchestrate/kubernetes/client.h"
#include "orchestrate/kubernetes/status.h"

#define ASH_KUBE_PATH_BYTES 1024

/* As the table of jobs has it: calls go to this namespace from now on (borrowed). -EINVAL if it cannot be one. */
int ash_kube_use_namespace(const char *space, struct ash_err *err);
/* The namespace of calls: the chosen one, else the client's. Borrowed. */
const char *ash_kube_space_of(const struct ash_kube_client *client);
/* The object of a job, of whichever kind, and its kind (static). The caller owns *object_out. -ENOENT: there is none,
 * else as ash_kube_client_call. */
int ash_kube_find_job(struct ash_kube_client *client, const char *id, json_t **object_out,
                      const struct ash_kube_resource **resource_out, struct ash_err *err);

/* As the table of jobs has it: begin to follow a job. */
int ash_kube_follow_open(const char *id, void **follow_out, struct ash_err *err);
/* Wait for its next change. */
int ash_kube_follow_next(void *follow, int limit_ms, struct ash_jobs_entry *entry_out, struct ash_err *err);
/* End it; NULL is nothing. */
void ash_kube_follow_close(void *follow);

#endif

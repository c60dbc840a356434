/* client - the API of a Kubernetes cluster: credentials (kubeconfig or the service account of a pod), and requests that
 * are retried within a budget. */
#ifndef ASH_ORCHESTRATE_KUBERNETES_CLIENT_H
#define ASH_ORCHESTRATE_KUBERNETES_CLIENT_H

#include <jansson.h>
#include "ashlar/err.h"
#include "base/str.h"

struct ash_kube_client; /* one cluster; one thread at a time */

/* Find the cluster: KUBECONFIG, ~/.kube/config, or inside a pod its service account. -ENOENT if there is none. */
int ash_kube_client_open(struct ash_kube_client **client_out, struct ash_err *err);
/* NULL is nothing. */
void ash_kube_client_close(struct ash_kube_client *client);
/* The namespace that requests are about where none is named. Borrowed. */
const char *ash_kube_client_namespace(const struct ash_kube_client *client);

/* One request. path begins with "/api"; body NULL: none. *answer_out (may be NULL; the caller's, json_decref) is the
 * JSON of the answer. Connections that fail, 429 and 5xx are retried for half a minute, honouring Retry-After.
 * Returns 0, -ENOENT (404), -EEXIST (409), -EACCES (401, 403), -EINVAL (400, 422: the server's sentence), -EIO. */
int ash_kube_client_call(struct ash_kube_client *client, const char *method, const char *path, const json_t *body,
                         json_t **answer_out, struct ash_err *err);
/* The same for an answer that is text (logs); appended to text_out. */
int ash_kube_client_text(struct ash_kube_client *client, const char *path, struct ash_str *text_out,
                         struct ash_err *err);

#endif

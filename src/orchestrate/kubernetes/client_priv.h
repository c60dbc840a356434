/* Shared by the client and its watches: one cluster, credentials, handles of libcurl. */
#ifndef ASH_ORCHESTRATE_KUBERNETES_CLIENT_PRIV_H
#define ASH_ORCHESTRATE_KUBERNETES_CLIENT_PRIV_H

#include "http/curl.h"
#include "orchestrate/kubernetes/client.h"
#include "orchestrate/kubernetes/config.h"

struct ash_kube_client {
    struct ash_kube_config config;
    const struct ash_curl *curl;
    CURL *easy; /* keeps its connection */
};

/* The answer of one attempt. */
struct ash_kube_answer {
    struct ash_str text;
    CURLcode code;
    long status;
    long retry_after_s;
};

/* Point a handle at path, with our identity. headers_inout: lines of this request; the caller frees them after it.
 * Returns 0 or -ENOMEM. */
int ash_kube_client_aim(const struct ash_kube_client *client, CURL *easy, const char *path,
                        struct curl_slist **headers_inout, struct ash_err *err);
/* What an answer means: 0, or as ash_kube_client_call, with the server's sentence. */
int ash_kube_client_judge(const struct ash_kube_client *client, const struct ash_kube_answer *answer,
                          struct ash_err *err);
/* May the same request (one that changes nothing) work a moment later? */
bool ash_kube_client_may_retry(const struct ash_kube_answer *answer);

#endif

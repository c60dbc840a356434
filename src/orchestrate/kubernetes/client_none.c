/* Without libcurl at build time: manifests can be written, not sent. */
#include <errno.h>

#include "orchestrate/kubernetes/client.h"
#include "orchestrate/kubernetes/watch.h"

int ash_kube_client_open(struct ash_kube_client **client_out, struct ash_err *err)
{
    (void)client_out;
    return ash_err_set(err, -ENOTSUP,
                       "this build has no libcurl: print manifests with --dry-run and give them to kubectl");
}

void ash_kube_client_close(struct ash_kube_client *client)
{
    (void)client;
}

const char *ash_kube_client_namespace(const struct ash_kube_client *client)
{
    (void)client;
    return "default";
}

int ash_kube_client_call(struct ash_kube_client *client, const char *method, const char *path, const json_t *body,
                         json_t **answer_out, struct ash_err *err)
{
    (void)client, (void)method, (void)path, (void)body, (void)answer_out;
    return ash_err_set(err, -ENOTSUP, "this build has no libcurl");
}

int ash_kube_client_text(struct ash_kube_client *client, const char *path, struct ash_str *text_out,
                         struct ash_err *err)
{
    (void)client, (void)path, (void)text_out;
    return ash_err_set(err, -ENOTSUP, "this build has no libcurl");
}

int ash_kube_watch_open(struct ash_kube_client *client, const struct ash_kube_watch_opts *opts,
                        struct ash_kube_watch **watch_out, struct ash_err *err)
{
    (void)client, (void)opts, (void)watch_out;
    return ash_err_set(err, -ENOTSUP, "this build has no libcurl");
}

int ash_kube_watch_poll(struct ash_kube_watch *watch, int limit_ms, struct ash_err *err)
{
    (void)watch, (void)limit_ms;
    return ash_err_set(err, -ENOTSUP, "this build has no libcurl");
}

void ash_kube_watch_close(struct ash_kube_watch *watch)
{
    (void)watch;
}

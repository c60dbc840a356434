/* Following a job: a watch on its object, without polling. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "orchestrate/kubernetes/jobs_priv.h"
#include "orchestrate/kubernetes/watch.h"

/* A job that is watched. */
struct follow {
    struct ash_kube_client *client;
    struct ash_kube_watch *watch;
    struct ash_jobs_entry entry;
    bool is_gone;
};

static void on_seen(void *ctx, const json_t *object, bool is_gone)
{
    struct follow *follow = ctx;

    follow->is_gone = is_gone;
    if (!is_gone) ash_kube_read_job(object, ash_clock_wall_s(), &follow->entry);
}

void ash_kube_follow_close(void *follow_opened)
{
    struct follow *follow = follow_opened;

    if (follow == NULL) return;
    ash_kube_watch_close(follow->watch);
    ash_kube_client_close(follow->client);
    free(follow);
}

int ash_kube_follow_open(const char *id, void **follow_out, struct ash_err *err)
{
    struct follow *follow = calloc(1, sizeof(*follow));
    const struct ash_kube_resource *resource = NULL;
    json_t *object = NULL;
    char path[ASH_KUBE_PATH_BYTES], query[ASH_KUBE_PATH_BYTES];
    int rc = follow == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : ash_kube_client_open(&follow->client, err);

    if (rc == 0) rc = ash_kube_find_job(follow->client, id, &object, &resource, err);
    json_decref(object);
    if (rc == 0) {
        snprintf(path, sizeof(path), "%s/namespaces/%s/%s", resource->api, ash_kube_space_of(follow->client),
                 resource->plural);
        snprintf(query, sizeof(query), "fieldSelector=metadata.name%%3D%s", id);
        rc = ash_kube_watch_open(
            follow->client, &(struct ash_kube_watch_opts){.path = path, .query = query, .seen = on_seen, .ctx = follow},
            &follow->watch, err);
    }
    if (rc < 0) {
        ash_kube_follow_close(follow);
        return rc;
    }
    *follow_out = follow;
    return 0;
}

int ash_kube_follow_next(void *follow_opened, int limit_ms, struct ash_jobs_entry *entry_out, struct ash_err *err)
{
    struct follow *follow = follow_opened;
    int rc = ash_kube_watch_poll(follow->watch, limit_ms, err);

    if (rc < 0) return rc;
    if (follow->is_gone) return ash_err_set(err, -ENOENT, "job %s was deleted", follow->entry.id);
    *entry_out = follow->entry;
    return rc > 0;
}

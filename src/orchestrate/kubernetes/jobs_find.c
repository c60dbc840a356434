/* The namespace of calls, and a job in it by its name. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "orchestrate/kubernetes/jobs_priv.h"
#include "orchestrate/kubernetes/manifest_priv.h"

#define SPACE_MAX 63 /* letters of a namespace */

static const char *space_asked; /* by the user; NULL: the context's. One thread */

int ash_kube_use_namespace(const char *space, struct ash_err *err)
{
    size_t length = strlen(space);

    if (length == 0 || length > SPACE_MAX || strspn(space, "abcdefghijklmnopqrstuvwxyz0123456789-") != length)
        return ash_err_set(err, -EINVAL, "'%.70s' is no namespace: it has small letters, digits and '-'", space);
    space_asked = space;
    return 0;
}

const char *ash_kube_space_of(const struct ash_kube_client *client)
{
    return space_asked != NULL ? space_asked : ash_kube_client_namespace(client);
}

int ash_kube_find_job(struct ash_kube_client *client, const char *id, json_t **object_out,
                      const struct ash_kube_resource **resource_out, struct ash_err *err)
{
    size_t refused = 0;
    int rc = 0;

    for (size_t i = 0; i < ASH_KUBE_RESOURCES; i++) {
        char path[ASH_KUBE_PATH_BYTES];

        if (strchr(id, '/') != NULL || strlen(id) > ASH_SPEC_NAME_MAX) break;
        snprintf(path, sizeof(path), "%s/namespaces/%s/%s/%s", ash_kube_resources[i].api, ash_kube_space_of(client),
                 ash_kube_resources[i].plural, id);
        rc = ash_kube_client_call(client, "GET", path, NULL, object_out, err);
        *resource_out = &ash_kube_resources[i];
        if (rc != -ENOENT && rc != -EACCES) return rc;
        refused += rc == -EACCES;
    }
    if (refused == ASH_KUBE_RESOURCES) return rc;
    return ash_err_set(err, -ENOENT, "there is no job '%.60s' in namespace %s", id, ash_kube_space_of(client));
}

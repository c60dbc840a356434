/* Lists of a node (taints, conditions) are replaced whole by a merge patch, so they are read first, and the patch names
 * the version that was read: another writer in between makes the server refuse it, and it is done again. */
#include "orchestrate/kubernetes/node.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "orchestrate/kubernetes/client.h"

#define TRIES 5
#define PAGE 500

/* ---- how many are out -------------------------------------------------------------------------------------------- */

static bool is_out(const json_t *node)
{
    static const char *const keys[] = {ASH_KUBE_NODE_TAINT, "node.kubernetes.io/unschedulable",
                                       "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"};
    const json_t *taints = json_object_get(json_object_get(node, "spec"), "taints"), *taint;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)taints, i, taint) {
        const char *key = json_string_value(json_object_get(taint, "key"));

        for (size_t k = 0; key != NULL && k < sizeof(keys) / sizeof(keys[0]); k++)
            if (strcmp(key, keys[k]) == 0) return true;
    }
    return false;
}

/* Of one page of the list. */
static void count_page(const json_t *answer, const char *own, size_t *nodes, size_t *out)
{
    const json_t *items = json_object_get(answer, "items"), *node;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)items, i, node) {
        const char *name = json_string_value(json_object_get(json_object_get(node, "metadata"), "name"));

        *nodes += 1;
        *out += name != NULL && strcmp(name, own) != 0 && is_out(node);
    }
}

static int check_budget(struct ash_kube_client *client, const char *own, double share_max, struct ash_err *err)
{
    size_t nodes = 0, out = 0;
    char path[2048], next[1024] = "";
    int rc = 0;

    do {
        json_t *answer = NULL;
        const char *more;

        snprintf(path, sizeof(path), "/api/v1/nodes?limit=%d%s%s", PAGE, next[0] != '\0' ? "&continue=" : "", next);
        rc = ash_kube_client_call(client, "GET", path, NULL, &answer, err);
        if (rc == 0) count_page(answer, own, &nodes, &out);
        more = json_string_value(json_object_get(json_object_get(answer, "metadata"), "continue"));
        snprintf(next, sizeof(next), "%s", more != NULL ? more : "");
        json_decref(answer);
    } while (rc == 0 && next[0] != '\0');
    if (rc < 0 || nodes == 0 || (double)(out + 1) <= share_max * (double)nodes) return rc;
    return ash_err_set(err, -EBUSY, "%zu of %zu nodes are out already, and %.3g of all may be: node %s stays", out,
                       nodes, share_max, own);
}

/* ---- marks ------------------------------------------------------------------------------------------------------- */

/* A copy of a list without the entry whose `key` is `value`. */
static json_t *list_without(const json_t *list, const char *key, const char *value)
{
    json_t *copy = json_array(), *entry;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)list, i, entry) {
        const char *text = json_string_value(json_object_get(entry, key));

        if (text == NULL || strcmp(text, value) != 0) json_array_append(copy, entry);
    }
    return copy;
}

static json_t *version_of(const json_t *node)
{
    return json_incref(json_object_get(json_object_get(node, "metadata"), "resourceVersion"));
}

/* Taint, label and annotation. */
static json_t *spec_patch(const json_t *node, const struct ash_kube_node_mark *mark)
{
    json_t *taints = list_without(json_object_get(json_object_get(node, "spec"), "taints"), "key", ASH_KUBE_NODE_TAINT);

    if (mark->fate != NULL)
        json_array_append_new(taints, json_pack("{s:s, s:s, s:s}", "key", ASH_KUBE_NODE_TAINT, "value", mark->fate,
                                                "effect", "NoSchedule"));
    return json_pack("{s:{s:o?, s:{s:s}, s:{s:s}}, s:{s:o}}", "metadata", "resourceVersion", version_of(node), "labels",
                     ASH_KUBE_NODE_LABEL, mark->health, "annotations", "ashlar.dev/reason", mark->reason, "spec",
                     "taints", taints);
}

static json_t *status_patch(const json_t *node, const struct ash_kube_node_mark *mark)
{
    json_t *conditions =
        list_without(json_object_get(json_object_get(node, "status"), "conditions"), "type", ASH_KUBE_NODE_CONDITION);
    time_t now = time(NULL);
    char when[32] = "", reason[32];
    struct tm parts;

    if (gmtime_r(&now, &parts) != NULL) strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &parts);
    snprintf(reason, sizeof(reason), "Needs%s",
             mark->fate == NULL                  ? "Nothing"
             : strcmp(mark->fate, "reset") == 0  ? "Reset"
             : strcmp(mark->fate, "reboot") == 0 ? "Reboot"
                                                 : "Replacement");
    json_array_append_new(conditions,
                          json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "type", ASH_KUBE_NODE_CONDITION, "status",
                                    mark->fate == NULL ? "True" : "False", "reason", reason, "message", mark->reason,
                                    "lastTransitionTime", when, "lastHeartbeatTime", when));
    return json_pack("{s:{s:o?}, s:{s:o}}", "metadata", "resourceVersion", version_of(node), "status", "conditions",
                     conditions);
}

typedef json_t *patch_fn(const json_t *node, const struct ash_kube_node_mark *mark);

/* Read the node, patch it, and again where somebody else wrote meanwhile. */
static int patch_node(struct ash_kube_client *client, const char *name, const char *below, patch_fn *make,
                      const struct ash_kube_node_mark *mark, struct ash_err *err)
{
    char path[512], target[600];
    int rc = -EEXIST;

    snprintf(path, sizeof(path), "/api/v1/nodes/%.253s", name);
    snprintf(target, sizeof(target), "%s%s", path, below);
    for (int i = 0; rc == -EEXIST && i < TRIES; i++) {
        json_t *node = NULL, *patch = NULL;

        rc = ash_kube_client_call(client, "GET", path, NULL, &node, err);
        if (rc == 0) patch = make(node, mark);
        if (rc == 0 && patch == NULL) rc = ash_err_set(err, -ENOMEM, "no memory for a patch");
        if (rc == 0) rc = ash_kube_client_call(client, "PATCH", target, patch, NULL, err);
        json_decref(node);
        json_decref(patch);
    }
    return rc;
}

int ash_kube_node_set(const char *node, const struct ash_kube_node_mark *mark, struct ash_err *err)
{
    struct ash_kube_client *client = NULL;
    int rc = ash_kube_client_open(&client, err);

    if (rc == 0 && mark->fate != NULL) rc = check_budget(client, node, mark->share_max, err);
    if (rc == 0 && mark->fate != NULL && mark->before != NULL) mark->before(mark->ctx);
    if (rc == 0) rc = patch_node(client, node, "", spec_patch, mark, err);
    if (rc == 0) rc = patch_node(client, node, "/status", status_patch, mark, err);
    ash_kube_client_close(client);
    return rc;
}

/* Lists of a node (taints, conditions) are replaced whole by a merge patch, so they are read first, and the patch names
 * the version that was read: another writer in between makes the server refuse it, and it is done again. */
#include "orchestrate/kubernetes/node.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "orchestrate/budget/drains.h"
#include "orchestrate/kubernetes/client.h"

#define TRIES 5
#define PAGE 500
#define TIME_FORMAT "%Y-%m-%dT%H:%M:%SZ"

/* ---- how many are out -------------------------------------------------------------------------------------------- */

static bool has_taint(const json_t *node, const char *wanted)
{
    const json_t *taints = json_object_get(json_object_get(node, "spec"), "taints"), *taint;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)taints, i, taint) {
        const char *key = json_string_value(json_object_get(taint, "key"));

        if (key != NULL && strcmp(key, wanted) == 0) return true;
    }
    return false;
}

static bool is_out(const json_t *node)
{
    return has_taint(node, ASH_KUBE_NODE_TAINT) || has_taint(node, "node.kubernetes.io/unschedulable") ||
           has_taint(node, "node.kubernetes.io/not-ready") || has_taint(node, "node.kubernetes.io/unreachable");
}

static const char *drained_at(const json_t *node)
{
    return json_string_value(
        json_object_get(json_object_get(json_object_get(node, "metadata"), "annotations"), ASH_KUBE_NODE_DRAINED));
}

/* Was it taken out in the last hour? It may be back. */
static bool is_recent(const json_t *node)
{
    const char *text = drained_at(node);
    struct tm parts = {0};

    return text != NULL && strptime(text, TIME_FORMAT, &parts) != NULL &&
           difftime(time(NULL), timegm(&parts)) < ASH_DRAINS_HOUR_S;
}

struct tally {
    size_t nodes, out, hour; /* the last two without the node itself */
};

/* Of one page of the list. */
static void count_page(const json_t *answer, const char *own, struct tally *tally)
{
    const json_t *items = json_object_get(answer, "items"), *node;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)items, i, node) {
        const char *name = json_string_value(json_object_get(json_object_get(node, "metadata"), "name"));

        tally->nodes++;
        if (name == NULL || strcmp(name, own) == 0) continue;
        tally->out += is_out(node);
        tally->hour += is_recent(node);
    }
}

static int check_budget(struct ash_kube_client *client, const char *own, double share_max, struct ash_err *err)
{
    struct tally tally = {0};
    char path[2048], next[1024] = "";
    int rc = 0;

    do {
        json_t *answer = NULL;
        const char *more;

        snprintf(path, sizeof(path), "/api/v1/nodes?limit=%d%s%s", PAGE, next[0] != '\0' ? "&continue=" : "", next);
        rc = ash_kube_client_call(client, "GET", path, NULL, &answer, err);
        if (rc == 0) count_page(answer, own, &tally);
        more = json_string_value(json_object_get(json_object_get(answer, "metadata"), "continue"));
        snprintf(next, sizeof(next), "%s", more != NULL ? more : "");
        json_decref(answer);
    } while (rc == 0 && next[0] != '\0');
    if (rc < 0 || tally.nodes == 0) return rc;
    if ((double)(tally.out + 1) > share_max * (double)tally.nodes)
        return ash_drains_refuse(tally.out, tally.nodes, "are out already", share_max, own, err);
    if ((double)(tally.hour + 1) > share_max * (double)tally.nodes)
        return ash_drains_refuse(tally.hour, tally.nodes, "were taken out in the last hour", share_max, own, err);
    return 0;
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

static void write_now(char *text, size_t text_bytes)
{
    time_t now = time(NULL);
    struct tm parts;

    text[0] = '\0';
    if (gmtime_r(&now, &parts) != NULL) strftime(text, text_bytes, TIME_FORMAT, &parts);
}

/* Why, and since when: a node that is out already keeps its time. */
static json_t *annotations_of(const json_t *node, const struct ash_kube_node_mark *mark)
{
    json_t *annotations = json_pack("{s:s}", "ashlar.dev/reason", mark->reason);
    char now[32];

    write_now(now, sizeof(now));
    if (mark->fate != NULL && !(has_taint(node, ASH_KUBE_NODE_TAINT) && drained_at(node) != NULL))
        json_object_set_new(annotations, ASH_KUBE_NODE_DRAINED, json_string(now));
    return annotations;
}

/* Taint, label and annotations. */
static json_t *spec_patch(const json_t *node, const struct ash_kube_node_mark *mark)
{
    json_t *taints = list_without(json_object_get(json_object_get(node, "spec"), "taints"), "key", ASH_KUBE_NODE_TAINT);

    if (mark->fate != NULL)
        json_array_append_new(taints, json_pack("{s:s, s:s, s:s}", "key", ASH_KUBE_NODE_TAINT, "value", mark->fate,
                                                "effect", "NoSchedule"));
    return json_pack("{s:{s:o?, s:{s:s}, s:o}, s:{s:o}}", "metadata", "resourceVersion", version_of(node), "labels",
                     ASH_KUBE_NODE_LABEL, mark->health, "annotations", annotations_of(node, mark), "spec", "taints",
                     taints);
}

static json_t *status_patch(const json_t *node, const struct ash_kube_node_mark *mark)
{
    json_t *conditions =
        list_without(json_object_get(json_object_get(node, "status"), "conditions"), "type", ASH_KUBE_NODE_CONDITION);
    char when[32], reason[32];

    write_now(when, sizeof(when));
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

/* Read the node and patch it; retry on a concurrent write. */
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

/* ashlar policy on Kueue: objects that the API has, compared with those of the policy. */
#include "cmd/policy_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/yaml.h"
#include "infra/topology/topology.h"
#include "orchestrate/kubernetes/client.h"
#include "queue/policy/export.h"

#define PATH_BYTES 512
#define BETWEEN "---\n"

/* In the order in which they can be made. The policy's topology and flavor are the cluster's, not a team's. */
static const struct {
    const char *kind, *plural;
} kinds[] = {{"WorkloadPriorityClass", "workloadpriorityclasses"},
             {"Cohort", "cohorts"},
             {"ClusterQueue", "clusterqueues"},
             {"LocalQueue", "localqueues"}};

/* ---- objects of a policy ----------------------------------------------------------------------------------------- */

static int export_text(const struct ash_policy_conf *conf, struct ash_str *text, struct ash_err *err)
{
    static const char tree[] = "SwitchName=all Nodes=node1\n";
    struct ash_topology *topology = NULL;
    int rc = ash_topology_parse(tree, strlen(tree), "tree", &topology, err);

    if (rc == 0) rc = ash_policy_export(conf, topology, ASH_POLICY_KUEUE, text);
    ash_topology_close(topology);
    return rc;
}

/* Objects of one kind among the documents of a text. */
static int add_objects(const char *text, const char *kind, json_t *objects, struct ash_err *err)
{
    int rc = 0;

    for (const char *next = text; next != NULL && rc == 0;) {
        const char *end = strstr(next, "\n" BETWEEN);
        size_t size = end != NULL ? (size_t)(end + 1 - next) : strlen(next);
        json_t *object = NULL;
        const char *found;

        rc = ash_yaml_parse(next, size, "policy", &object, err);
        found = json_string_value(json_object_get(object, "kind"));
        if (rc == 0 && found != NULL && strcmp(found, kind) == 0) json_array_append(objects, object);
        json_decref(object);
        next = end != NULL ? end + strlen("\n" BETWEEN) : NULL;
    }
    return rc;
}

static int list_objects(const struct ash_policy_conf *conf, json_t **objects_out, struct ash_err *err)
{
    struct ash_str text = {0};
    json_t *objects = json_array();
    int rc = export_text(conf, &text, err);

    for (size_t k = 0; k < ASH_COUNT(kinds) && rc == 0; k++)
        rc = add_objects(text.data, kinds[k].kind, objects, err);
    ash_str_fini(&text);
    if (rc < 0)
        json_decref(objects);
    else
        *objects_out = objects;
    return rc;
}

/* ---- comparison -------------------------------------------------------------------------------------------------- */

/* "64", "2000Gi", "500m": its value. NAN: it is none. */
static double quantity(const char *text)
{
    static const struct {
        const char *suffix;
        double scale;
    } units[] = {{"", 1},     {"m", 1e-3},    {"k", 1e3},        {"M", 1e6},           {"G", 1e9},
                 {"T", 1e12}, {"Ki", 1024.0}, {"Mi", 1048576.0}, {"Gi", 1073741824.0}, {"Ti", 1099511627776.0}};
    char *end = NULL;
    double value = strtod(text, &end);

    for (size_t i = 0; i < ASH_COUNT(units) && end != text; i++)
        if (strcmp(end, units[i].suffix) == 0) return value * units[i].scale;
    return NAN;
}

static bool is_same_text(const char *a, const char *b)
{
    return strcmp(a, b) == 0 || quantity(a) == quantity(b);
}

/* Is all of wanted in live? The server adds defaults, and writes quantities its own way. */
static bool is_within(const json_t *wanted, const json_t *live)
{
    const char *key;
    json_t *value;
    size_t i;

    if (json_is_object(wanted)) {
        json_object_foreach((json_t *)wanted, key, value)
            if (!is_within(value, json_object_get(live, key))) return false;
        return json_is_object(live) || json_object_size(wanted) == 0;
    }
    if (json_is_array(wanted)) {
        if (!json_is_array(live) || json_array_size(live) != json_array_size(wanted)) return false;
        json_array_foreach(wanted, i, value)
            if (!is_within(value, json_array_get(live, i))) return false;
        return true;
    }
    if (json_is_number(wanted)) return json_is_number(live) && json_number_value(wanted) == json_number_value(live);
    if (json_is_string(wanted))
        return json_is_string(live) && is_same_text(json_string_value(wanted), json_string_value(live));
    return json_equal(wanted, live) != 0;
}

/* The path of its kind, with its name after it if it has one. */
static void path_of(const json_t *object, bool has_name, char path[PATH_BYTES])
{
    const json_t *metadata = json_object_get(object, "metadata");
    const char *kind = json_string_value(json_object_get(object, "kind"));
    const char *space = json_string_value(json_object_get(metadata, "namespace"));
    const char *plural = "";

    for (size_t k = 0; k < ASH_COUNT(kinds); k++)
        if (strcmp(kinds[k].kind, kind) == 0) plural = kinds[k].plural;
    snprintf(path, PATH_BYTES, "/apis/%s%s%s/%s%s%s", json_string_value(json_object_get(object, "apiVersion")),
             space != NULL ? "/namespaces/" : "", space != NULL ? space : "", plural, has_name ? "/" : "",
             has_name ? json_string_value(json_object_get(metadata, "name")) : "");
}

/* A request for an object that is not as wanted. Its spec becomes the policy's; labels and such stay. */
static int compare_object(struct ash_kube_client *client, json_t *wanted, json_t *changes, struct ash_err *err)
{
    json_t *live = NULL;
    char path[PATH_BYTES];
    int rc;

    path_of(wanted, true, path);
    rc = ash_kube_client_call(client, "GET", path, NULL, &live, err);
    if (rc == -ENOENT) {
        path_of(wanted, false, path);
        json_array_append_new(changes, json_pack("{ss ss sO}", "method", "POST", "path", path, "body", wanted));
        return 0;
    }
    if (rc == 0 && !is_within(wanted, live)) {
        json_object_del(live, "status");
        if (json_object_get(wanted, "spec") != NULL)
            json_object_set(live, "spec", json_object_get(wanted, "spec"));
        else
            json_object_set(live, "value", json_object_get(wanted, "value"));
        json_array_append_new(changes, json_pack("{ss ss sO}", "method", "PUT", "path", path, "body", live));
    }
    json_decref(live);
    return rc;
}

static int compare(const struct ash_policy_conf *conf, json_t **changes_out, struct ash_err *err)
{
    struct ash_kube_client *client = NULL;
    json_t *objects = NULL, *changes = json_array(), *object;
    size_t i;
    int rc = list_objects(conf, &objects, err);

    if (rc == 0) rc = ash_kube_client_open(&client, err);
    json_array_foreach(objects, i, object)
        if (rc == 0) rc = compare_object(client, object, changes, err);
    ash_kube_client_close(client);
    json_decref(objects);
    if (rc < 0)
        json_decref(changes);
    else
        *changes_out = changes;
    return rc;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static int describe(const json_t *change, struct ash_str *text)
{
    const json_t *body = json_object_get(change, "body");
    bool is_new = strcmp(json_string_value(json_object_get(change, "method")), "POST") == 0;

    return ash_str_addf(text, "%s %s %s\n", is_new ? "add" : "change", json_string_value(json_object_get(body, "kind")),
                        json_string_value(json_object_get(json_object_get(body, "metadata"), "name")));
}

static int show(const struct ash_policy_conf *conf, struct ash_str *text, struct ash_err *err)
{
    int rc = export_text(conf, text, err);

    return rc < 0 && err->code == 0 ? ash_err_set(err, rc, "out of memory") : rc;
}

static int run(const json_t *change, struct ash_err *err)
{
    struct ash_kube_client *client = NULL;
    int rc = ash_kube_client_open(&client, err);

    if (rc == 0)
        rc = ash_kube_client_call(client, json_string_value(json_object_get(change, "method")),
                                  json_string_value(json_object_get(change, "path")), json_object_get(change, "body"),
                                  NULL, err);
    ash_kube_client_close(client);
    return rc;
}

const struct ash_policy_site_ops ash_policy_kueue_site = {show, compare, describe, run};

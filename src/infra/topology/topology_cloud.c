/* What clouds say in JSON: EC2's instance topology, the labels of Kubernetes nodes, HyperPod's resource config. Each
 * becomes a path of domains per host. */
#include "infra/topology/topology_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"

/* A path that grows by one domain at a time. */
struct path {
    char text[ASH_TOPOLOGY_NAME_MAX + 1];
    size_t length;
};

/* Append a domain; one without a name, or with a slash in it, is -EINVAL. */
static int extend(struct path *path, const char *name, const char *host, struct ash_err *err)
{
    if (name == NULL || *name == '\0' || path->length + strlen(name) + 1 > ASH_TOPOLOGY_NAME_MAX)
        return ash_err_set(err, -EINVAL, "the network nodes of %.80s are not a list of short names", host);
    if (path->length > 0) path->text[path->length++] = '/';
    memcpy(path->text + path->length, name, strlen(name) + 1);
    path->length += strlen(name);
    return 0;
}

/* ---- EC2 --------------------------------------------------------------------------------------------------------- */

static int extend_layers(struct path *path, const json_t *layers, const char *host, struct ash_err *err)
{
    const json_t *layer;
    size_t i;

    json_array_foreach(layers, i, layer) {
        int rc = extend(path, json_string_value(layer), host, err);

        if (rc < 0) return rc;
    }
    return 0;
}

static int read_instance(struct ash_topology *topology, const json_t *instance, struct ash_err *err)
{
    const json_t *layers = json_object_get(instance, "NetworkNodes");
    const char *id = json_string_value(json_object_get(instance, "InstanceId"));
    struct path path = {0};
    int rc;

    if (id == NULL || json_array_size(layers) == 0)
        return ash_err_set(err, -EINVAL, "every instance needs an InstanceId and a list of NetworkNodes");
    rc = extend_layers(&path, layers, id, err);
    return rc < 0 ? rc : ash_topology_hang_path(topology, id, path.text, err);
}

static int read_ec2(struct ash_topology *topology, const json_t *instances, struct ash_err *err)
{
    const json_t *instance;
    size_t i;

    if (!json_is_array(instances))
        return ash_err_set(err, -EINVAL,
                           "no list of Instances: is it what `aws ec2 describe-instance-topology` "
                           "prints? " ASH_TOPOLOGY_FORMATS);
    json_array_foreach(instances, i, instance) {
        int rc = read_instance(topology, instance, err);

        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- Kubernetes -------------------------------------------------------------------------------------------------- */

/* Labels that name a domain, from the widest to the narrowest. */
static const char *const label_keys[] = {
    "topology.kubernetes.io/region",         "topology.kubernetes.io/zone",
    "topology.k8s.aws/network-node-layer-1", "topology.k8s.aws/network-node-layer-2",
    "topology.k8s.aws/network-node-layer-3", "topology.k8s.aws/network-node-layer-4",
    "cloud.google.com/gce-topology-block",   "cloud.google.com/gce-topology-subblock",
    "cloud.provider.com/topology-block",     "cloud.provider.com/topology-rack",
    "topology.kubernetes.io/block",          "topology.kubernetes.io/rack",
    "topology.k8s.aws/ultraserver-id",       "nvidia.com/gpu.clique",
};

static int read_kube_node(struct ash_topology *topology, const json_t *node, struct ash_err *err)
{
    const json_t *meta = json_object_get(node, "metadata"), *labels = json_object_get(meta, "labels");
    const char *name = json_string_value(json_object_get(meta, "name"));
    struct path path = {0};
    int rc = 0;

    if (name == NULL) return ash_err_set(err, -EINVAL, "a node has no metadata.name");
    for (size_t i = 0; i < ASH_COUNT(label_keys) && rc == 0; i++) {
        const char *value = json_string_value(json_object_get(labels, label_keys[i]));

        if (value != NULL) rc = extend(&path, value, name, err);
    }
    if (rc == 0 && path.length == 0) rc = extend(&path, "no labels", name, err);
    return rc < 0 ? rc : ash_topology_hang_path(topology, name, path.text, err);
}

static int read_kube(struct ash_topology *topology, const json_t *items, struct ash_err *err)
{
    const json_t *node;
    size_t i;

    json_array_foreach(items, i, node) {
        const char *kind = json_string_value(json_object_get(node, "kind"));
        int rc;

        if (kind != NULL && strcmp(kind, "Node") != 0)
            return ash_err_set(err, -EINVAL, "item %zu is a %.40s, not a Node: print `kubectl get nodes -o json`",
                               i + 1, kind);
        rc = read_kube_node(topology, node, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- HyperPod ---------------------------------------------------------------------------------------------------- */

/* Instances are known to Slurm by their address: 10.1.2.3 is ip-10-1-2-3. */
static const char *hyperpod_name(const json_t *instance, char *buf, size_t buf_bytes)
{
    const char *address = json_string_value(json_object_get(instance, "CustomerIpAddress"));

    if (address == NULL) return json_string_value(json_object_get(instance, "InstanceId"));
    snprintf(buf, buf_bytes, "ip-%.60s", address);
    for (char *at = buf; *at != '\0'; at++)
        if (*at == '.' || *at == ':') *at = '-';
    return buf;
}

/* Network nodes stand in the instance, or in its Topology; without them the instance group is the domain. */
static int read_hyperpod_instance(struct ash_topology *topology, const char *group, const json_t *instance,
                                  struct ash_err *err)
{
    const json_t *layers = json_object_get(instance, "NetworkNodes");
    const json_t *inner = json_object_get(instance, "Topology");
    struct path path = {0};
    char buf[80];
    const char *name = hyperpod_name(instance, buf, sizeof(buf)), *rack;
    int rc;

    if (name == NULL) return ash_err_set(err, -EINVAL, "an instance of %.80s has no address and no InstanceId", group);
    if (layers == NULL) layers = json_object_get(inner, "NetworkNodes");
    rc = json_array_size(layers) > 0 ? extend_layers(&path, layers, name, err) : extend(&path, group, name, err);
    rack = json_string_value(json_object_get(instance, "UltraServerId"));
    if (rack == NULL) rack = json_string_value(json_object_get(inner, "UltraServerId"));
    if (rc == 0 && rack != NULL) rc = extend(&path, rack, name, err);
    return rc < 0 ? rc : ash_topology_hang_path(topology, name, path.text, err);
}

static int read_hyperpod(struct ash_topology *topology, const json_t *groups, struct ash_err *err)
{
    const json_t *group, *instance;
    size_t i, k;

    json_array_foreach(groups, i, group) {
        const char *name = json_string_value(json_object_get(group, "Name"));

        if (name == NULL) name = json_string_value(json_object_get(group, "InstanceGroupName"));
        if (name == NULL) return ash_err_set(err, -EINVAL, "instance group %zu has no Name", i + 1);
        json_array_foreach(json_object_get(group, "Instances"), k, instance) {
            int rc = read_hyperpod_instance(topology, name, instance, err);

            if (rc < 0) return rc;
        }
    }
    return 0;
}

int ash_topology_read_json(struct ash_topology *topology, const char *text, struct ash_err *err)
{
    json_t *json = NULL;
    struct ash_err cause = {0};
    const json_t *groups, *items;
    int rc = ash_json_parse(text, strlen(text), "topology", &json, &cause);

    if (rc < 0) return ash_err_set(err, rc, "%.200s; " ASH_TOPOLOGY_FORMATS, cause.text);
    groups = json_object_get(json, "InstanceGroups");
    items = json_object_get(json, "items");
    if (json_is_array(groups))
        rc = read_hyperpod(topology, groups, err);
    else if (json_is_array(items))
        rc = read_kube(topology, items, err);
    else
        rc = read_ec2(topology, json_is_array(json) ? json : json_object_get(json, "Instances"), err);
    json_decref(json);
    return rc;
}

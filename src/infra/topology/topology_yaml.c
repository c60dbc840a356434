/* Slurm's topology.yaml: a list of topologies by name, each a tree of switches, blocks, or flat. */
#include "infra/topology/topology_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/yaml.h"

static int read_switches(struct ash_topology *topology, const json_t *tree, struct ash_err *err)
{
    const json_t *list = NULL, *item;
    size_t i;
    int rc = ash_json_array(tree, "switches", &list, err);

    json_array_foreach(list, i, item) {
        const char *name = NULL, *children = NULL, *nodes = NULL;
        int parent;

        rc = ash_json_string(item, "switch", &name, err);
        if (rc >= 0) rc = ash_json_string(item, "children", &children, err);
        if (rc >= 0) rc = ash_json_string(item, "nodes", &nodes, err);
        if (rc >= 0 && name == NULL) rc = ash_err_set(err, -EINVAL, "switch %zu has no `switch:` name", i + 1);
        if (rc < 0) return rc;
        parent = ash_topology_add(topology, name, false, err);
        rc = parent < 0 ? parent : 0;
        if (rc == 0 && nodes != NULL) rc = ash_topology_hang_list(topology, nodes, true, parent, err);
        if (rc == 0 && children != NULL) rc = ash_topology_hang_list(topology, children, false, parent, err);
        if (rc < 0) return ash_err_prefix(err, rc, "switch '%.80s'", name);
    }
    return rc < 0 ? rc : 0;
}

static int read_sizes(const json_t *block, struct ash_topology_blocks *blocks, struct ash_err *err)
{
    const json_t *list = NULL, *item;
    size_t i;
    int rc = ash_json_array(block, "block_sizes", &list, err);

    if (rc < 0) return rc;
    json_array_foreach(list, i, item) {
        json_int_t size = json_integer_value(item);

        if (size < 1 || size > ASH_TOPOLOGY_NODES_MAX || blocks->size_count >= ASH_TOPOLOGY_HEIGHT_MAX)
            return ash_err_set(err, -EINVAL, "block_sizes holds at most %d numbers of nodes", ASH_TOPOLOGY_HEIGHT_MAX);
        blocks->sizes[blocks->size_count++] = (int)size;
    }
    return 0;
}

static int read_block(struct ash_topology *topology, const json_t *item, struct ash_topology_blocks *blocks,
                      struct ash_err *err)
{
    const char *name = NULL, *nodes = NULL;
    int rc = ash_json_string(item, "block", &name, err), parent;

    if (rc >= 0) rc = ash_json_string(item, "nodes", &nodes, err);
    if (rc < 0) return rc;
    if (name == NULL || nodes == NULL) return ash_err_set(err, -EINVAL, "a block needs `block:` and `nodes:`");
    parent = ash_topology_add(topology, name, false, err);
    if (parent < 0) return parent;
    rc = ash_topology_add_block(blocks, parent, err);
    if (rc == 0) rc = ash_topology_hang_list(topology, nodes, true, parent, err);
    return rc < 0 ? ash_err_prefix(err, rc, "block '%.80s'", name) : 0;
}

static int read_blocks(struct ash_topology *topology, const json_t *block, struct ash_err *err)
{
    struct ash_topology_blocks blocks = {0};
    const json_t *list = NULL, *item;
    size_t i;
    int rc = read_sizes(block, &blocks, err);

    if (rc >= 0) rc = ash_json_array(block, "blocks", &list, err);
    json_array_foreach(list, i, item) {
        if (rc >= 0) rc = read_block(topology, item, &blocks, err);
    }
    if (rc >= 0) rc = ash_topology_join_blocks(topology, &blocks, err);
    free(blocks.nodes);
    return rc;
}

/* The topology that counts: the default of the cluster, or the first that has a tree or blocks. */
static const json_t *choose_topology(const json_t *list)
{
    const json_t *item, *found = NULL;
    size_t i;

    json_array_foreach(list, i, item) {
        bool has_tree = json_object_get(item, "tree") != NULL || json_object_get(item, "block") != NULL;

        if (has_tree && json_is_true(json_object_get(item, "cluster_default"))) return item;
        if (has_tree && found == NULL) found = item;
    }
    return found;
}

int ash_topology_read_yaml(struct ash_topology *topology, const char *text, struct ash_err *err)
{
    json_t *json = NULL;
    const json_t *chosen, *tree = NULL, *block = NULL;
    int rc = ash_yaml_parse(text, strlen(text), "topology", &json, err);

    if (rc < 0) return rc;
    chosen = choose_topology(json);
    if (chosen == NULL)
        rc = ash_err_set(err, -EINVAL, "no topology has `tree:` or `block:`; " ASH_TOPOLOGY_FORMATS);
    else
        rc = ash_json_object(chosen, "tree", &tree, err);
    if (rc >= 0 && chosen != NULL) rc = ash_json_object(chosen, "block", &block, err);
    if (rc >= 0 && tree != NULL) rc = read_switches(topology, tree, err);
    if (rc >= 0 && block != NULL) rc = read_blocks(topology, block, err);
    json_decref(json);
    return rc < 0 ? rc : 0;
}

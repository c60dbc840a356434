/* The tree itself: nodes by name, heights and counts once all is read, and the questions that placement asks of it. */
#include "infra/topology/topology_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "infra/topology/hostlist.h"

#define SLOTS_MIN 64

/* ---- nodes by name ----------------------------------------------------------------------------------------------- */

/* The slot of that name: its own, or the empty one where it would go. */
static size_t slot_of(const struct ash_topology *topology, const char *name, bool is_host)
{
    size_t at = (size_t)ash_hash_mix(ash_hash_str(name) + is_host) & (topology->slot_count - 1);

    for (;; at = (at + 1) & (topology->slot_count - 1)) {
        const struct ash_topology_node *node = &topology->nodes[topology->slots[at]];

        if (topology->slots[at] == 0 || (node->is_host == is_host && strcmp(node->name, name) == 0)) return at;
    }
}

/* Room for twice as many nodes, and slots that are at most half full. */
static int grow(struct ash_topology *topology)
{
    size_t count = topology->slot_count == 0 ? SLOTS_MIN : 2 * topology->slot_count;
    struct ash_topology_node *nodes = realloc(topology->nodes, count / 2 * sizeof(*nodes));
    int *slots = calloc(count, sizeof(*slots));

    if (nodes != NULL) topology->nodes = nodes;
    if (nodes == NULL || slots == NULL) {
        free(slots);
        return -ENOMEM;
    }
    free(topology->slots);
    topology->slots = slots;
    topology->slot_count = count;
    for (int i = 1; i < topology->count; i++)
        topology->slots[slot_of(topology, nodes[i].name, nodes[i].is_host)] = i;
    return 0;
}

int ash_topology_add(struct ash_topology *topology, const char *name, bool is_host, struct ash_err *err)
{
    struct ash_topology_node node = {.parent = -1, .is_host = is_host};
    size_t slot;

    if (name[0] == '\0' || strlen(name) > ASH_TOPOLOGY_NAME_MAX)
        return ash_err_set(err, -EINVAL, "a %s needs a name of at most %d bytes", is_host ? "host" : "domain",
                           ASH_TOPOLOGY_NAME_MAX);
    slot = slot_of(topology, name, is_host);
    if (topology->slots[slot] != 0) return topology->slots[slot];
    if (topology->count >= ASH_TOPOLOGY_NODES_MAX)
        return ash_err_set(err, -EINVAL, "more than %d hosts and domains", ASH_TOPOLOGY_NODES_MAX);
    if ((size_t)topology->count >= topology->slot_count / 2) {
        if (grow(topology) < 0) return ash_err_set(err, -ENOMEM, "out of memory");
        slot = slot_of(topology, name, is_host);
    }
    node.name = strdup(name);
    if (node.name == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    topology->nodes[topology->count] = node;
    topology->slots[slot] = topology->count;
    return topology->count++;
}

int ash_topology_hang(struct ash_topology *topology, int child, int parent, struct ash_err *err)
{
    struct ash_topology_node *node = &topology->nodes[child];

    if (node->parent >= 0 && node->parent != parent)
        return ash_err_set(err, -EINVAL, "%s '%s' hangs below '%s' and below '%s': a tree has one way up",
                           node->is_host ? "host" : "domain", node->name, topology->nodes[node->parent].name,
                           topology->nodes[parent].name);
    node->parent = parent;
    return 0;
}

/* ---- once all is read -------------------------------------------------------------------------------------------- */

/* Tell every node above i of it. More steps than layers are allowed is a loop, or as good as one. */
static int climb(struct ash_topology *topology, int i, struct ash_err *err)
{
    struct ash_topology_node *nodes = topology->nodes;
    int height = nodes[i].is_host ? 0 : 1;

    for (int at = i; at >= 0; at = nodes[at].parent, height++) {
        if (height > ASH_TOPOLOGY_HEIGHT_MAX)
            return ash_err_set(err, -EINVAL, "'%s' has more than %d layers above it, or hangs below itself",
                               nodes[i].name, ASH_TOPOLOGY_HEIGHT_MAX);
        if (nodes[at].height < height) nodes[at].height = height;
        nodes[at].hosts += nodes[i].is_host;
    }
    return 0;
}

int ash_topology_settle(struct ash_topology *topology, struct ash_err *err)
{
    for (int i = 1; i < topology->count; i++)
        if (topology->nodes[i].parent < 0) topology->nodes[i].parent = 0;
    for (int i = 1; i < topology->count; i++) {
        int rc = climb(topology, i, err);

        if (rc < 0) return rc;
    }
    if (topology->nodes[0].hosts == 0) return ash_err_set(err, -EINVAL, "no hosts: " ASH_TOPOLOGY_FORMATS);
    return 0;
}

struct ash_topology *ash_topology_make_empty(void)
{
    struct ash_topology *topology = calloc(1, sizeof(*topology));

    if (topology == NULL) return NULL;
    if (grow(topology) == 0) {
        topology->nodes[0] = (struct ash_topology_node){.parent = -1, .name = strdup("the whole cluster")};
        topology->count = 1;
    }
    if (topology->count == 1 && topology->nodes[0].name != NULL) return topology;
    ash_topology_close(topology);
    return NULL;
}

void ash_topology_close(struct ash_topology *topology)
{
    if (topology == NULL) return;
    for (int i = 0; i < topology->count; i++)
        free(topology->nodes[i].name);
    free(topology->nodes);
    free(topology->slots);
    free(topology);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

int ash_topology_host(const struct ash_topology *topology, const char *name)
{
    int index = topology->slots[slot_of(topology, name, true)];

    return index > 0 ? index : -1;
}

bool ash_topology_holds(const struct ash_topology *topology, int domain, int node)
{
    while (node >= 0 && node != domain)
        node = topology->nodes[node].parent;
    return node >= 0;
}

int ash_topology_meet(const struct ash_topology *topology, int a, int b)
{
    while (!ash_topology_holds(topology, a, b))
        a = topology->nodes[a].parent;
    return a;
}

int ash_topology_hops(const struct ash_topology *topology, int a, int b)
{
    int meet = ash_topology_meet(topology, a, b), hops = -1;

    if (a == b) return 0;
    for (; a != meet; a = topology->nodes[a].parent)
        hops++;
    for (; b != meet; b = topology->nodes[b].parent)
        hops++;
    return hops;
}

/* ---- lists of hosts ---------------------------------------------------------------------------------------------- */

struct pick {
    const struct ash_topology *topology;
    int *hosts, count;
    bool *taken; /* by index of node */
};

static int pick_host(void *ctx, const char *name, struct ash_err *err)
{
    struct pick *pick = ctx;
    int host = ash_topology_host(pick->topology, name);

    if (host < 0) return ash_err_set(err, -ENOENT, "host '%s' is not in the topology", name);
    if (pick->taken[host]) return ash_err_set(err, -EINVAL, "host '%s' is named twice", name);
    pick->taken[host] = true;
    pick->hosts[pick->count++] = host;
    return 0;
}

int ash_topology_hosts(const struct ash_topology *topology, const char *text, int **hosts_out, int *count_out,
                       struct ash_err *err)
{
    size_t nodes = (size_t)topology->count;
    struct pick pick = {.topology = topology};
    int rc;

    pick.hosts = calloc(nodes, sizeof(*pick.hosts));
    pick.taken = calloc(nodes, sizeof(*pick.taken));
    if (pick.hosts == NULL || pick.taken == NULL)
        rc = ash_err_set(err, -ENOMEM, "out of memory");
    else
        rc = ash_hostlist_each(text, pick_host, &pick, err);
    if (rc == 0 && pick.count == 0) rc = ash_err_set(err, -EINVAL, "no hosts are named");
    free(pick.taken);
    if (rc < 0) {
        free(pick.hosts);
        return rc;
    }
    *hosts_out = pick.hosts;
    *count_out = pick.count;
    return 0;
}

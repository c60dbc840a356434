/* node_map - how the ranks of a group lie on nodes. Nodes are numbered in the order of their first ranks, and the ranks
 * of a node in the order of their numbers. */
#ifndef ASH_BASE_NODE_MAP_H
#define ASH_BASE_NODE_MAP_H

#include <stddef.h>
#include <stdint.h>
#include "base/assert.h"

/* Caller's storage. For ranks 0 1 2 3 4 on nodes a b a b b: node 0 1 0 1 1, place 0 0 1 1 2, ranks 0 2 1 3 4, first
 * 0 2 5. */
struct ash_node_map {
    size_t size;        /* ranks */
    size_t nodes;       /* at least 1 */
    size_t least, most; /* ranks on the smallest node, and on the largest */
    uint32_t *node;     /* [size] of each rank: its node */
    uint32_t *place;    /* [size] of each rank: its number among those of its node */
    uint32_t *ranks;    /* [size] all ranks, node by node */
    uint32_t *first;    /* [nodes + 1] of each node: where its ranks begin in `ranks` */
};

/* label_of[r] says where rank r of size (not 0) is: ranks of equal labels are on one node. NULL: each rank is on a node
 * of its own. Returns 0 or -ENOMEM; on error the map is zeroed. */
int ash_node_map_init(struct ash_node_map *map, size_t size, const uint32_t *label_of);
/* Free its arrays; a zeroed map is a no-op. */
void ash_node_map_fini(struct ash_node_map *map);

/* How many ranks are on a node. */
static inline size_t ash_node_map_ranks_on(const struct ash_node_map *map, size_t node)
{
    ash_assert(node < map->nodes);
    return map->first[node + 1] - map->first[node];
}

/* The rank in that place of a node. */
static inline size_t ash_node_map_rank_at(const struct ash_node_map *map, size_t node, size_t place)
{
    ash_assert(node < map->nodes && place < map->first[node + 1] - map->first[node]);
    return map->ranks[map->first[node] + place];
}

#endif

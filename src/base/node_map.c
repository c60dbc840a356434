/* A node map in one block of memory: nodes are found rank by rank, then the ranks are sorted by node. */
#include "base/node_map.h"

#include <errno.h>
#include <stdlib.h>

#include "base/math.h"

/* Number the nodes as they come; ranks[n] is the first rank of node n meanwhile. */
static void number_nodes(struct ash_node_map *map, const uint32_t *label_of)
{
    for (size_t r = 0; r < map->size; r++) {
        size_t n = label_of != NULL ? 0 : map->nodes;

        while (n < map->nodes && label_of[map->ranks[n]] != label_of[r])
            n++;
        if (n == map->nodes) map->ranks[map->nodes++] = (uint32_t)r;
        map->node[r] = (uint32_t)n;
    }
}

/* Count the ranks of each node, and put them in their order. */
static void sort_ranks(struct ash_node_map *map)
{
    for (size_t r = 0; r < map->size; r++)
        map->place[r] = map->first[map->node[r] + 1]++;
    map->least = map->size;
    for (size_t n = 0; n < map->nodes; n++) {
        map->least = ash_min(map->least, map->first[n + 1]);
        map->most = ash_max(map->most, map->first[n + 1]);
        map->first[n + 1] += map->first[n];
    }
    for (size_t r = 0; r < map->size; r++)
        map->ranks[map->first[map->node[r]] + map->place[r]] = (uint32_t)r;
}

int ash_node_map_init(struct ash_node_map *map, size_t size, const uint32_t *label_of)
{
    uint32_t *memory = calloc(4 * size + 1, sizeof(*memory));

    ash_assert(size > 0);
    *map = (struct ash_node_map){0};
    if (memory == NULL) return -ENOMEM;
    map->size = size;
    map->node = memory;
    map->place = memory + size;
    map->ranks = memory + 2 * size;
    map->first = memory + 3 * size;
    number_nodes(map, label_of);
    sort_ranks(map);
    return 0;
}

void ash_node_map_fini(struct ash_node_map *map)
{
    free(map->node);
    *map = (struct ash_node_map){0};
}

/* Where a waiting job would fit: the smallest domain with room, the fullest of them (what is left over stays whole for
 * others), and the domain that is worth waiting for. */
#include "plan/place/place.h"

#include <errno.h>
#include <stdlib.h>

/* Children of every node as lists, and how many hosts below each may be taken. */
struct stock {
    const struct ash_topology *topology;
    int *room;  /* by node */
    int *child; /* the first of each node; 0: none */
    int *next;  /* sibling; 0: none */
};

static void close_stock(struct stock *stock)
{
    free(stock->room);
    free(stock->child);
    free(stock->next);
}

static void take_stock(struct stock *stock, const int *free_hosts, int free_count)
{
    const struct ash_topology_node *nodes = stock->topology->nodes;

    for (int node = stock->topology->count - 1; node > 0; node--) {
        stock->next[node] = stock->child[nodes[node].parent];
        stock->child[nodes[node].parent] = node;
        if (free_hosts == NULL) stock->room[node] = nodes[node].hosts;
    }
    if (free_hosts == NULL) stock->room[0] = nodes[0].hosts;
    for (int i = 0; i < free_count && free_hosts != NULL; i++)
        for (int node = free_hosts[i]; node >= 0; node = nodes[node].parent)
            stock->room[node]++;
}

static int open_stock(const struct ash_topology *topology, const int *free_hosts, int free_count, struct stock *stock)
{
    size_t count = (size_t)topology->count;

    *stock = (struct stock){.topology = topology,
                            .room = calloc(count, sizeof(int)),
                            .child = calloc(count, sizeof(int)),
                            .next = calloc(count, sizeof(int))};
    if (stock->room == NULL || stock->child == NULL || stock->next == NULL) return -ENOMEM;
    take_stock(stock, free_hosts, free_count);
    return 0;
}

/* ---- finding a domain -------------------------------------------------------------------------------------------- */

static bool is_better_now(const struct stock *stock, int a, int b)
{
    const struct ash_topology_node *nodes = stock->topology->nodes;

    if (nodes[a].height != nodes[b].height) return nodes[a].height < nodes[b].height;
    return stock->room[a] < stock->room[b];
}

static bool is_better_later(const struct stock *stock, int a, int b)
{
    const struct ash_topology_node *nodes = stock->topology->nodes;

    if (nodes[a].height != nodes[b].height) return nodes[a].height < nodes[b].height;
    return stock->room[a] > stock->room[b];
}

int ash_placement_find(const struct ash_topology *topology, const int *free_hosts, int free_count, int wanted,
                       struct ash_placement_domain *now_out, struct ash_placement_domain *best_out)
{
    struct ash_placement_domain now = {.domain = -1}, best = {.domain = -1};
    struct stock stock;
    int rc = open_stock(topology, free_hosts, free_count, &stock);

    for (int node = 0; node < topology->count && rc == 0; node++) {
        bool fits = stock.room[node] >= wanted, large = topology->nodes[node].hosts >= wanted;

        if (fits && (now.domain < 0 || is_better_now(&stock, node, now.domain))) now.domain = node;
        if (large && (best.domain < 0 || is_better_later(&stock, node, best.domain))) best.domain = node;
    }
    if (rc == 0) {
        if (best.domain >= 0 && stock.room[best.domain] < wanted) best.missing = wanted - stock.room[best.domain];
        *now_out = now;
        *best_out = best.missing > 0 ? best : now.domain >= 0 ? now : best;
    }
    close_stock(&stock);
    return rc;
}

/* ---- choosing hosts ---------------------------------------------------------------------------------------------- */

struct part {
    int node, room;
};

static int by_room(const void *a, const void *b)
{
    const struct part *x = a, *y = b;

    if (x->room != y->room) return x->room > y->room ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

static int list_parts(const struct stock *stock, int domain, struct part **parts_out)
{
    int count = 0, at = 0;
    struct part *parts;

    for (int node = stock->child[domain]; node != 0; node = stock->next[node])
        count++;
    parts = calloc((size_t)count + 1, sizeof(*parts));
    if (parts == NULL) return -ENOMEM;
    for (int node = stock->child[domain]; node != 0; node = stock->next[node])
        parts[at++] = (struct part){node, stock->room[node]};
    qsort(parts, (size_t)count, sizeof(*parts), by_room);
    *parts_out = parts;
    return count;
}

/* wanted hosts below node, which has room for them, appended to hosts_out. At most as deep as the tree is high. */
static int fill(const struct stock *stock, int node, int wanted, int **hosts_out)
{
    struct part *parts = NULL;
    int count, rc = 0;

    if (stock->topology->nodes[node].is_host) {
        *(*hosts_out)++ = node;
        return 0;
    }
    count = list_parts(stock, node, &parts);
    if (count < 0) return count;
    for (int i = 0; i < count && wanted > 0 && rc == 0; i++) {
        int last = i, taken;

        while (last + 1 < count && parts[last + 1].room >= wanted)
            last++; /* the fullest that still holds all the rest */
        while (last > i && parts[last - 1].room == parts[last].room)
            last--; /* the first of equals */
        taken = parts[last].room < wanted ? parts[last].room : wanted;
        rc = fill(stock, parts[last].node, taken, hosts_out);
        wanted -= taken;
    }
    free(parts);
    return rc;
}

int ash_placement_choose(const struct ash_topology *topology, int domain, const int *free_hosts, int free_count,
                         int wanted, int *hosts_out)
{
    struct stock stock;
    int rc = open_stock(topology, free_hosts, free_count, &stock);

    if (rc == 0) rc = fill(&stock, domain, wanted, &hosts_out);
    close_stock(&stock);
    return rc;
}

/* Free room per domain: for every number of units an array over domains, those of one height side by side, so that the
 * search for the fullest domain that fits reads one row from left to right. */
#include "infra/topology/room.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "base/assert.h"

struct ash_room {
    const struct ash_topology *topology;
    int units_max, domain_count;
    int *row;                                         /* of every node: its place among domains; -1: a host */
    int *domains;                                     /* nodes, by height and then index */
    int first_of_height[ASH_TOPOLOGY_HEIGHT_MAX + 2]; /* into domains */
    int *at_least;                                    /* [units - 1][row of domain]: hosts with that many free */
    int *children, *first_child; /* of the domain in row r: children[first_child[r]..first_child[r+1]) */
    int *units;                  /* of every node that is a host */
};

static int *counts_of(const struct ash_room *room, int units)
{
    return room->at_least + (size_t)(units - 1) * (size_t)room->domain_count;
}

static int height_of(const struct ash_room *room, int node)
{
    return room->topology->nodes[node].height;
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

static void sort_domains(struct ash_room *room)
{
    const struct ash_topology *topology = room->topology;
    int at = 0;

    for (int height = 0; height <= ASH_TOPOLOGY_HEIGHT_MAX; height++) {
        room->first_of_height[height] = at;
        for (int node = 0; node < topology->count; node++) {
            if (topology->nodes[node].is_host || topology->nodes[node].height != height) continue;
            room->row[node] = at;
            room->domains[at++] = node;
        }
    }
    room->first_of_height[ASH_TOPOLOGY_HEIGHT_MAX + 1] = at;
}

static void list_children(struct ash_room *room)
{
    const struct ash_topology_node *nodes = room->topology->nodes;

    for (int node = 1; node < room->topology->count; node++)
        room->first_child[room->row[nodes[node].parent] + 1]++;
    for (int row = 0; row < room->domain_count; row++)
        room->first_child[row + 1] += room->first_child[row];
    for (int node = room->topology->count - 1; node > 0; node--) /* each list is filled from its end */
        room->children[--room->first_child[room->row[nodes[node].parent] + 1]] = node;
    /* every start has moved down by its own list: the start of row r is now at r + 1 */
    for (int row = 0; row < room->domain_count; row++)
        room->first_child[row] = room->first_child[row + 1];
    room->first_child[room->domain_count] = room->topology->count - 1;
}

int ash_room_open(const struct ash_topology *topology, int units_max, struct ash_room **room_out)
{
    struct ash_room *room = calloc(1, sizeof(*room));
    size_t nodes = (size_t)topology->count, domains;

    ash_assert(units_max >= 1 && units_max <= ASH_ROOM_UNITS_MAX);
    if (room == NULL) return -ENOMEM;
    *room = (struct ash_room){.topology = topology, .units_max = units_max};
    for (size_t i = 0; i < nodes; i++)
        room->domain_count += !topology->nodes[i].is_host;
    domains = (size_t)room->domain_count;
    room->row = malloc(nodes * sizeof(int));
    room->units = calloc(nodes, sizeof(int));
    room->children = calloc(nodes, sizeof(int));
    room->domains = calloc(domains, sizeof(int));
    room->first_child = calloc(domains + 1, sizeof(int));
    room->at_least = calloc(domains * (size_t)units_max, sizeof(int));
    if (room->row == NULL || room->units == NULL || room->children == NULL || room->domains == NULL ||
        room->first_child == NULL || room->at_least == NULL) {
        ash_room_close(room);
        return -ENOMEM;
    }
    for (size_t i = 0; i < nodes; i++)
        room->row[i] = -1;
    sort_domains(room);
    list_children(room);
    *room_out = room;
    return 0;
}

void ash_room_close(struct ash_room *room)
{
    if (room == NULL) return;
    free(room->row);
    free(room->units);
    free(room->children);
    free(room->domains);
    free(room->first_child);
    free(room->at_least);
    free(room);
}

/* ---- events and looks -------------------------------------------------------------------------------------------- */

void ash_room_set(struct ash_room *room, int host, int units)
{
    const struct ash_topology_node *nodes = room->topology->nodes;
    int before = room->units[host], low = units < before ? units : before, high = units < before ? before : units;
    int step = units > before ? 1 : -1;

    ash_assert(nodes[host].is_host && units >= 0 && units <= room->units_max);
    room->units[host] = units;
    for (int node = nodes[host].parent; node >= 0 && low < high; node = nodes[node].parent)
        for (int least = low + 1; least <= high; least++)
            counts_of(room, least)[room->row[node]] += step;
}

int ash_room_units(const struct ash_room *room, int host)
{
    ash_assert(host >= 0);
    return room->units[host];
}

int ash_room_hosts(const struct ash_room *room, int node, int units)
{
    ash_assert(node >= 0);
    ash_assert(units > 0);
    return room->row[node] < 0 ? room->units[node] >= units : counts_of(room, units)[room->row[node]];
}

const int *ash_room_domains(const struct ash_room *room, int height, int *count_out)
{
    ash_assert(height >= 0);
    *count_out = room->first_of_height[height + 1] - room->first_of_height[height];
    return room->domains + room->first_of_height[height];
}

const int *ash_room_children(const struct ash_room *room, int domain, int *count_out)
{
    int row = room->row[domain];

    *count_out = room->first_child[row + 1] - room->first_child[row];
    return room->children + room->first_child[row];
}

/* ---- one domain, one host ---------------------------------------------------------------------------------------- */

int ash_room_fullest(const struct ash_room *room, int within, int height, int units, int wanted)
{
    const int *counts = counts_of(room, units);
    int best = -1, best_count = INT_MAX;

    for (int row = room->first_of_height[height]; row < room->first_of_height[height + 1]; row++) {
        if (counts[row] < wanted || counts[row] >= best_count) continue;
        if (within != 0 && !ash_topology_holds(room->topology, within, room->domains[row])) continue;
        best = row;
        best_count = counts[row];
    }
    return best < 0 ? -1 : room->domains[best];
}

/* The child with the fewest hosts of that many units, of those that have one with exactly that many. */
static int tightest_child(const struct ash_room *room, int domain, int units)
{
    int count, best = -1, best_hosts = INT_MAX;
    const int *children = ash_room_children(room, domain, &count);

    for (int i = 0; i < count; i++) {
        int hosts = ash_room_hosts(room, children[i], units);
        int more = units < room->units_max ? ash_room_hosts(room, children[i], units + 1) : 0;

        if (hosts == more || hosts >= best_hosts) continue;
        best = children[i];
        best_hosts = hosts;
    }
    return best;
}

int ash_room_tightest(const struct ash_room *room, int within, int units)
{
    int exact = units, node = within;

    if (ash_room_hosts(room, within, units) == 0) return -1;
    while (exact < room->units_max && ash_room_hosts(room, within, exact) == ash_room_hosts(room, within, exact + 1))
        exact++;
    while (!room->topology->nodes[node].is_host)
        node = tightest_child(room, node, exact);
    return node;
}

/* ---- several hosts ----------------------------------------------------------------------------------------------- */

struct part {
    int node, room;
};

static int by_room(const void *a, const void *b)
{
    const struct part *x = a, *y = b;

    if (x->room != y->room) return x->room > y->room ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* The parts right below a domain that have room, the roomiest first. Their number or -ENOMEM. */
static int list_parts(const struct ash_room *room, int domain, int units, struct part **parts_out)
{
    int count, at = 0;
    const int *children = ash_room_children(room, domain, &count);
    struct part *parts = malloc(((size_t)count + 1) * sizeof(*parts));

    if (parts == NULL) return -ENOMEM;
    for (int i = 0; i < count; i++) {
        int hosts = ash_room_hosts(room, children[i], units);

        if (hosts > 0) parts[at++] = (struct part){children[i], hosts};
    }
    qsort(parts, (size_t)at, sizeof(*parts), by_room);
    *parts_out = parts;
    return at;
}

/* Of parts[from..count), which are sorted: the fullest that still holds all of wanted, the first of equals; else the
 * roomiest, which is the first. */
static int pick_part(const struct part *parts, int from, int count, int wanted)
{
    int last = from;

    while (last + 1 < count && parts[last + 1].room >= wanted)
        last++;
    while (last > from && parts[last - 1].room == parts[last].room)
        last--;
    return last;
}

/* wanted hosts below node, which has room for them, appended to hosts_out. At most as deep as the tree is high. */
static int fill(const struct ash_room *room, int node, int units, int wanted, int **hosts_out)
{
    struct part *parts = NULL;
    int count, rc = 0;

    if (room->topology->nodes[node].is_host) {
        *(*hosts_out)++ = node;
        return 0;
    }
    count = list_parts(room, node, units, &parts);
    if (count < 0) return count;
    for (int i = 0; i < count && wanted > 0 && rc == 0; i++) {
        int last = pick_part(parts, i, count, wanted), taken = parts[last].room < wanted ? parts[last].room : wanted;

        rc = fill(room, parts[last].node, units, taken, hosts_out);
        wanted -= taken;
    }
    free(parts);
    return rc;
}

int ash_room_choose(const struct ash_room *room, int domain, int units, int wanted, int *hosts_out)
{
    return fill(room, domain, units, wanted, &hosts_out);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

int ash_room_group_count(const struct ash_room *room, int domain, int height, int units, int size)
{
    const int *counts = counts_of(room, units);
    int groups = 0;

    ash_assert(size > 0);
    ash_assert(height >= 0);
    if (height_of(room, domain) <= height) return ash_room_hosts(room, domain, units) / size;
    for (int row = room->first_of_height[height]; row < room->first_of_height[height + 1]; row++)
        if (counts[row] >= size && ash_topology_holds(room->topology, domain, room->domains[row]))
            groups += counts[row] / size;
    return groups;
}

/* The domains of that height below domain that hold a group, with their groups, the roomiest first. */
static int list_group_parts(const struct ash_room *room, int domain, int height, int units, int size,
                            struct part **parts_out)
{
    int count, at = 0;
    const int *domains = ash_room_domains(room, height, &count);
    struct part *parts = malloc(((size_t)count + 1) * sizeof(*parts));

    if (parts == NULL) return -ENOMEM;
    if (height_of(room, domain) <= height)
        parts[at++] = (struct part){domain, ash_room_hosts(room, domain, units) / size};
    for (int i = 0; i < count && height_of(room, domain) > height; i++) {
        int groups = ash_room_hosts(room, domains[i], units) / size;

        if (groups > 0 && ash_topology_holds(room->topology, domain, domains[i]))
            parts[at++] = (struct part){domains[i], groups};
    }
    qsort(parts, (size_t)at, sizeof(*parts), by_room);
    *parts_out = parts;
    return at;
}

int ash_room_choose_groups(const struct ash_room *room, int domain, const struct ash_room_groups *groups,
                           int *hosts_out)
{
    struct part *parts = NULL;
    int count = list_group_parts(room, domain, groups->height, groups->units, groups->size, &parts), rc = 0;
    int wanted = groups->count;

    if (count < 0) return count;
    for (int i = 0; i < count && wanted > 0 && rc == 0; i++) {
        int last = pick_part(parts, i, count, wanted), taken = parts[last].room < wanted ? parts[last].room : wanted;

        rc = fill(room, parts[last].node, groups->units, taken * groups->size, &hosts_out);
        wanted -= taken;
    }
    free(parts);
    return rc;
}

/* ---- whole hosts ------------------------------------------------------------------------------------------------- */

static bool is_better(const struct ash_room *room, int a, int b, bool wants_fullest)
{
    int hosts_a = ash_room_hosts(room, a, 1), hosts_b = ash_room_hosts(room, b, 1);

    if (height_of(room, a) != height_of(room, b)) return height_of(room, a) < height_of(room, b);
    return wants_fullest ? hosts_a < hosts_b : hosts_a > hosts_b;
}

void ash_room_find(const struct ash_room *room, int wanted, struct ash_room_domain *now_out,
                   struct ash_room_domain *best_out)
{
    struct ash_room_domain now = {.domain = -1}, best = {.domain = -1};

    for (int node = 0; node < room->topology->count; node++) {
        bool fits = ash_room_hosts(room, node, 1) >= wanted, is_large = room->topology->nodes[node].hosts >= wanted;

        if (fits && (now.domain < 0 || is_better(room, node, now.domain, true))) now.domain = node;
        if (is_large && (best.domain < 0 || is_better(room, node, best.domain, false))) best.domain = node;
    }
    if (best.domain >= 0 && ash_room_hosts(room, best.domain, 1) < wanted)
        best.missing = wanted - ash_room_hosts(room, best.domain, 1);
    *now_out = now;
    *best_out = best.missing > 0 ? best : now.domain >= 0 ? now : best;
}

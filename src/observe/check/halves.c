/* From pairs to groups to the quarters of a slow group. Positions are places in the list of nodes that are not slow. */
#include "observe/check/halves.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/math.h"
#include "observe/check/cluster.h"

#define MEETINGS 3    /* of every node: a slow one is slow in most of them */
#define LEVELS_MAX 64 /* sizes of groups: powers of two */
#define PEERS_MIN 3   /* groups of a size that have a median */
#define TASKS_MAX 512 /* of one size: where more is slow than this, single links are no answer */

/* Nodes that follow each other in the list. */
struct run {
    size_t first, count;
};

/* A slow link is suspected between two runs, neither of which is slow by itself. */
struct task {
    struct run a, b;
};

struct task_list {
    struct task *tasks; /* [TASKS_MAX] */
    size_t count;
};

/* A group of two runs that is measured for a task. */
struct probe {
    struct task task;
    size_t group; /* in this round; SIZE_MAX: it is not in it */
    double rate;  /* negative: not yet known */
};

struct search {
    struct ash_halves *halves;
    size_t *nodes; /* [nodes_count] that are not slow */
    size_t node_count;
    bool *is_out;   /* [node_count]: an end of a slow link that was found */
    size_t *places; /* [count] for the ops: groups or partners */
    double *rates;  /* [count] of groups */
    struct probe *probes;
    double usual[LEVELS_MAX]; /* rate of groups by the logarithm of their size */
    struct task_list now, next, pairs;
};

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

size_t ash_halves_partner(size_t node, size_t round, size_t seats)
{
    size_t last = seats - 1;

    ash_assert(seats >= 2 && seats % 2 == 0 && node < seats);
    if (node == last) return round * (seats / 2) % last;
    if (2 * node % last == round % last) return last;
    return (round + last - node) % last;
}

static int meet(struct search *search, struct ash_err *err)
{
    struct ash_halves *halves = search->halves;
    size_t seats = halves->count + halves->count % 2;
    int rc = 0;

    for (size_t round = 0; round + 1 < seats && round < MEETINGS && rc == 0; round++) {
        for (size_t i = 0; i < halves->count; i++) {
            size_t other = ash_halves_partner(i, round, seats);

            search->places[i] = other < halves->count ? other : SIZE_MAX;
        }
        rc = halves->ops->pairs(halves->ctx, search->places, err);
        halves->rounds++;
    }
    return rc;
}

/* Of two that have a slow link one is left out: the link would hide what else is slow. */
static void leave_out_end(struct search *search, size_t a, size_t b)
{
    const struct ash_halves *halves = search->halves;
    double there = halves->rates[search->nodes[a] * halves->count + search->nodes[b]],
           back = halves->rates[search->nodes[b] * halves->count + search->nodes[a]],
           limit = halves->slow_share * search->usual[1];

    if (search->is_out[a] || search->is_out[b]) return;
    search->is_out[a] = (there > 0 && there < limit) || (back > 0 && back < limit);
}

/* Nodes that are slow to most of their partners are found: they would only hide other slow ones. So would links. */
static int leave_out_slow(struct search *search, struct ash_err *err)
{
    const struct ash_halves *halves = search->halves;
    double usual;

    if (ash_cluster_median(halves->rates, halves->count * halves->count, &usual) < 0)
        return ash_err_set(err, -ENOMEM, "no memory for the links of %zu nodes", halves->count);
    search->usual[1] = usual;
    for (size_t i = 0; i < halves->count; i++)
        if (!ash_cluster_is_slow_node(halves->rates, halves->count, i, halves->slow_share * usual))
            search->nodes[search->node_count++] = i;
    for (size_t a = 0; a < search->node_count; a++)
        for (size_t b = a + 1; b < search->node_count; b++)
            leave_out_end(search, a, b);
    return 0;
}

/* Groups of two, of neighbours in the list, are pairs. */
static int meet_neighbours(struct search *search, struct ash_err *err)
{
    struct ash_halves *halves = search->halves;
    int rc;

    for (size_t i = 0; i < halves->count; i++)
        search->places[i] = SIZE_MAX;
    for (size_t i = 0; i + 1 < search->node_count; i += 2) {
        search->places[search->nodes[i]] = search->nodes[i + 1];
        search->places[search->nodes[i + 1]] = search->nodes[i];
    }
    rc = halves->ops->pairs(halves->ctx, search->places, err);
    halves->rounds++;
    for (size_t i = 0; i + 1 < search->node_count && rc == 0; i += 2)
        leave_out_end(search, i, i + 1);
    return rc;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static size_t level_of(size_t size)
{
    size_t level = 0;

    while ((size_t)1 << level < size)
        level++;
    return level;
}

static void begin_round(struct search *search)
{
    for (size_t i = 0; i < search->halves->count; i++)
        search->places[i] = SIZE_MAX;
}

static void place(struct search *search, struct run run, size_t group)
{
    ash_assert(run.first + run.count <= search->node_count);
    for (size_t i = run.first; i < run.first + run.count; i++)
        if (!search->is_out[i]) search->places[search->nodes[i]] = group;
}

static int measure_groups(struct search *search, size_t groups, struct ash_err *err)
{
    struct ash_halves *halves = search->halves;

    halves->rounds++;
    return halves->ops->groups(halves->ctx, search->places, groups, search->rates, err);
}

static bool is_slow(const struct search *search, double rate, size_t size)
{
    return rate < search->halves->slow_share * search->usual[level_of(size)];
}

static void add_task(struct task_list *list, struct task task)
{
    if (list->count < TASKS_MAX) list->tasks[list->count++] = task;
}

/* All groups of `size`, but for a last one that has no second half: it was measured before. Few groups have no median:
 * they should be as fast as those of half their size. */
static int measure_level(struct search *search, size_t size, struct ash_err *err)
{
    size_t half = size / 2, groups = ash_div_up(search->node_count, size), level = level_of(size);
    int rc;

    if (search->node_count - (groups - 1) * size <= half) groups--;
    begin_round(search);
    for (size_t g = 0; g < groups; g++)
        place(search, (struct run){g * size, ash_min(size, search->node_count - g * size)}, g);
    rc = measure_groups(search, groups, err);
    if (rc < 0) return rc;
    ash_assert(level > 0 && level < ASH_COUNT(search->usual));
    search->usual[level] = search->usual[level - 1];
    if (groups >= PEERS_MIN && ash_cluster_median(search->rates, groups, &search->usual[level]) < 0)
        return ash_err_set(err, -ENOMEM, "no memory for %zu groups", groups);
    search->now.count = 0;
    for (size_t g = 0; g < groups; g++)
        if (is_slow(search, search->rates[g], size))
            add_task(&search->now,
                     (struct task){{g * size, half},
                                   {g * size + half, ash_min(half, search->node_count - g * size - half)}});
    return 0;
}

/* ---- quarters ---------------------------------------------------------------------------------------------------- */

/* The parts of a run: its halves, or itself if it is a node. Returns how many. */
static size_t part(struct run run, struct run *parts)
{
    size_t left = ash_div_up(run.count, 2);

    parts[0] = (struct run){run.first, left};
    parts[1] = (struct run){run.first + left, run.count - left};
    return run.count > 1 ? 2 : 1;
}

static bool is_free(const struct search *search, struct run run)
{
    ash_assert(run.first + run.count <= search->node_count);
    for (size_t i = 0; i < run.count; i++)
        if (search->places[search->nodes[run.first + i]] != SIZE_MAX) return false;
    return true;
}

/* Measure probes, in each round as many as have no node in common. */
static int measure_probes(struct search *search, size_t count, struct ash_err *err)
{
    size_t left = count;
    int rc = 0;

    ash_assert(count <= 4 * TASKS_MAX);
    for (size_t i = 0; i < count; i++)
        search->probes[i].rate = -1;
    while (left > 0 && rc == 0) {
        size_t groups = 0;

        begin_round(search);
        for (size_t i = 0; i < count; i++) {
            struct probe *probe = &search->probes[i];

            probe->group = SIZE_MAX;
            if (probe->rate >= 0 || !is_free(search, probe->task.a) || !is_free(search, probe->task.b)) continue;
            probe->group = groups++;
            place(search, probe->task.a, probe->group);
            place(search, probe->task.b, probe->group);
        }
        ash_assert(groups > 0); /* the first probe that is left is always free: the loop ends */
        rc = measure_groups(search, groups, err);
        for (size_t i = 0; i < count && rc == 0; i++) {
            if (search->probes[i].group == SIZE_MAX) continue;
            search->probes[i].rate = search->rates[search->probes[i].group];
            left--;
        }
    }
    return rc;
}

/* Evaluate a task's probes, from `at` on: slow ones stay suspects. All of four slow: the halves are far from each other
 * as a whole. */
static void judge_probes(struct search *search, size_t at, size_t count)
{
    size_t slow = 0;

    ash_assert(at + count <= 4 * TASKS_MAX);
    for (size_t i = at; i < at + count; i++)
        slow +=
            is_slow(search, search->probes[i].rate, search->probes[i].task.a.count + search->probes[i].task.b.count);
    search->halves->uneven += slow == 4;
    for (size_t i = at; i < at + count && slow < 4; i++)
        if (is_slow(search, search->probes[i].rate, search->probes[i].task.a.count + search->probes[i].task.b.count))
            add_task(&search->next, search->probes[i].task);
}

/* A task as probes of its quarters; of at most two nodes on each side the pairs are measured instead. Returns how many
 * probes. */
static size_t divide(struct search *search, const struct task *task, size_t at)
{
    struct run a[2], b[2];
    size_t a_count = part(task->a, a), b_count = part(task->b, b), count = 0;
    bool is_last = task->a.count <= 2 && task->b.count <= 2;

    ash_assert(at + 4 <= 4 * TASKS_MAX);
    for (size_t i = 0; i < a_count; i++)
        for (size_t k = 0; k < b_count; k++) {
            if (is_last && (search->is_out[a[i].first] || search->is_out[b[k].first])) continue;
            if (is_last)
                add_task(&search->pairs, (struct task){a[i], b[k]});
            else
                search->probes[at + count++].task = (struct task){a[i], b[k]};
        }
    return count;
}

static int search_quarters(struct search *search, struct ash_err *err)
{
    int rc = 0;

    while (search->now.count > 0 && rc == 0) {
        size_t counts[TASKS_MAX], count = 0, at = 0;
        struct task_list swapped = search->now;

        for (size_t i = 0; i < search->now.count; i++)
            count += counts[i] = divide(search, &search->now.tasks[i], count);
        rc = count > 0 ? measure_probes(search, count, err) : 0;
        search->next.count = 0;
        for (size_t i = 0; i < search->now.count && rc == 0; at += counts[i++])
            judge_probes(search, at, counts[i]);
        search->now = search->next;
        search->next = swapped;
    }
    return rc;
}

/* The pairs that are left, in each round as many as have no node in common. */
static int measure_pairs(struct search *search, struct ash_err *err)
{
    struct ash_halves *halves = search->halves;
    int rc = 0;

    while (search->pairs.count > 0 && rc == 0) {
        size_t kept = 0, met = 0;

        begin_round(search);
        for (size_t i = 0; i < search->pairs.count; i++) {
            struct task pair = search->pairs.tasks[i];

            if (is_free(search, pair.a) && is_free(search, pair.b)) {
                search->places[search->nodes[pair.a.first]] = search->nodes[pair.b.first];
                search->places[search->nodes[pair.b.first]] = search->nodes[pair.a.first];
                search->next.tasks[met++] = pair;
            } else {
                search->pairs.tasks[kept++] = pair;
            }
        }
        ash_assert(met > 0); /* the first pair is always free: the list gets shorter */
        search->pairs.count = kept;
        rc = halves->ops->pairs(halves->ctx, search->places, err);
        halves->rounds++;
        for (size_t i = 0; i < met && rc == 0; i++)
            leave_out_end(search, search->next.tasks[i].a.first, search->next.tasks[i].b.first);
    }
    return rc;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static int run_levels(struct search *search, struct ash_err *err)
{
    const struct ash_halves *halves = search->halves;
    int rc = meet(search, err);

    if (rc == 0) rc = leave_out_slow(search, err);
    if (rc == 0 && halves->count > MEETINGS + 1) rc = meet_neighbours(search, err);
    for (size_t size = 4; rc == 0 && halves->count > MEETINGS + 1 && size / 2 < search->node_count; size *= 2) {
        rc = measure_level(search, size, err);
        if (rc == 0) rc = search_quarters(search, err);
        if (rc == 0) rc = measure_pairs(search, err);
    }
    return rc;
}

int ash_halves_run(struct ash_halves *halves, struct ash_err *err)
{
    struct search search = {.halves = halves};
    struct task *tasks = malloc((3 * TASKS_MAX) * sizeof(*tasks));
    int rc;

    search.nodes = malloc((halves->count + 1) * sizeof(*search.nodes));
    search.places = malloc((halves->count + 1) * sizeof(*search.places));
    search.rates = malloc((halves->count + 1) * sizeof(*search.rates));
    search.is_out = calloc(halves->count + 1, sizeof(*search.is_out));
    search.probes = malloc(4 * TASKS_MAX * sizeof(*search.probes));
    halves->rounds = halves->uneven = 0;
    if (search.nodes == NULL || search.is_out == NULL || search.places == NULL || search.rates == NULL ||
        search.probes == NULL || tasks == NULL) {
        rc = ash_err_set(err, -ENOMEM, "no memory for the links of %zu nodes", halves->count);
    } else {
        search.now.tasks = tasks;
        search.next.tasks = tasks + TASKS_MAX;
        search.pairs.tasks = tasks + 2 * TASKS_MAX;
        rc = run_levels(&search, err);
    }
    free(search.nodes);
    free(search.is_out);
    free(search.places);
    free(search.rates);
    free(search.probes);
    free(tasks);
    return rc;
}

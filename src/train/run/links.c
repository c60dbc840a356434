/* links: a message and its receipt between the first ranks of neighbouring nodes, in turns, so that no rank serves two
 * at once: nodes of even place send, then those of odd place, then the last of an odd number to the first. */
#include "train/run/links.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"

#define USUAL_STEPS 8
#define FIRST_STEPS 2   /* that are not like the others */
#define WAIT_TIMES 3.0  /* longer than usual */
#define WAIT_EXCESS 0.1 /* seconds a step */
#define LONG_STEPS 5
#define STANDS_OUT 4   /* times the others */
#define LEAST_US 20000 /* shorter ones may be the machine's scheduler */
#define TRIES 3
#define TURNS 3

bool ash_wait_watch_add(struct ash_wait_watch *watch, double wait_s)
{
    ash_assert(wait_s >= 0);
    watch->steps++;
    if (watch->steps <= FIRST_STEPS) return false;
    if (watch->steps <= FIRST_STEPS + USUAL_STEPS) {
        watch->usual += (wait_s - watch->usual) / (double)(watch->steps - FIRST_STEPS);
        return false;
    }
    if (wait_s < WAIT_TIMES * watch->usual || wait_s - watch->usual < WAIT_EXCESS)
        watch->long_steps = 0;
    else
        watch->long_steps++;
    return watch->long_steps >= LONG_STEPS;
}

static int compare_times(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

    return (left > right) - (left < right);
}

size_t ash_links_find_slow(const int64_t *times_us, size_t count, int64_t *rest_out)
{
    int64_t *others = malloc(count * sizeof(*others)), rest;
    size_t slowest = 0;

    if (others == NULL || count < 2) {
        free(others);
        return SIZE_MAX;
    }
    for (size_t i = 1; i < count; i++)
        if (times_us[i] > times_us[slowest]) slowest = i;
    memcpy(others, times_us, count * sizeof(*others));
    others[slowest] = others[count - 1];
    qsort(others, count - 1, sizeof(*others), compare_times);
    rest = others[(count - 1) / 2];
    free(others);
    if (times_us[slowest] < LEAST_US || times_us[slowest] < STANDS_OUT * rest) return SIZE_MAX;
    *rest_out = rest;
    return slowest;
}

/* The nodes of a group and this rank's part among them. */
struct ring {
    size_t *firsts; /* [count]: the first rank of each node */
    size_t count;
    size_t own; /* the node whose first rank this is; SIZE_MAX: of none */
    char *message;
    int64_t *times_us; /* [count]: of this node's link to the next; 0 elsewhere */
};

static void close_ring(struct ring *ring)
{
    free(ring->firsts);
    free(ring->message);
    free(ring->times_us);
}

static int open_ring(struct ring *ring, const struct ash_group *group, struct ash_err *err)
{
    size_t ranks = ash_group_size(group);

    *ring = (struct ring){.firsts = calloc(ranks, sizeof(size_t)),
                          .times_us = calloc(ranks, sizeof(int64_t)),
                          .message = calloc(1, ASH_LINK_MESSAGE_BYTES),
                          .own = SIZE_MAX};
    if (ring->firsts == NULL || ring->times_us == NULL || ring->message == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory to time links");
    for (size_t r = 0; r < ranks; r++) {
        bool is_known = false;

        for (size_t i = 0; i < ring->count && !is_known; i++)
            is_known =
                ash_group_get_member(group, r).node_index == ash_group_get_member(group, ring->firsts[i]).node_index;
        if (is_known) continue;
        if (r == ash_group_rank(group)) ring->own = ring->count;
        ring->firsts[ring->count++] = r;
    }
    return 0;
}

/* In which turn a node sends. */
static size_t turn_of(const struct ring *ring, size_t node)
{
    if (ring->count % 2 == 1 && node + 1 == ring->count) return 2;
    return node % 2;
}

static int send_one(struct ring *ring, struct ash_group *group, struct ash_err *err)
{
    size_t to = ring->firsts[(ring->own + 1) % ring->count];
    uint64_t start_ns = ash_clock_ns();
    int64_t took_us, *best_us = &ring->times_us[ring->own];
    uint64_t receipt = 0;
    int rc = ash_group_send(group, to, ring->message, ASH_LINK_MESSAGE_BYTES, err);

    if (rc == 0) rc = ash_group_recv(group, to, &receipt, sizeof(receipt), err);
    took_us = 1 + (int64_t)((ash_clock_ns() - start_ns) / 1000);
    if (*best_us == 0 || took_us < *best_us) *best_us = took_us;
    return rc;
}

static int serve_one(struct ring *ring, struct ash_group *group, struct ash_err *err)
{
    size_t from = ring->firsts[(ring->own + ring->count - 1) % ring->count];
    uint64_t receipt = 1;
    int rc = ash_group_recv(group, from, ring->message, ASH_LINK_MESSAGE_BYTES, err);

    return rc < 0 ? rc : ash_group_send(group, from, &receipt, sizeof(receipt), err);
}

static int take_turn(struct ring *ring, struct ash_group *group, size_t turn, struct ash_err *err)
{
    int rc = ash_group_barrier(group, err);

    if (rc < 0 || ring->own == SIZE_MAX) return rc;
    if (turn_of(ring, ring->own) == turn) return send_one(ring, group, err);
    if (turn_of(ring, (ring->own + ring->count - 1) % ring->count) == turn) return serve_one(ring, group, err);
    return 0;
}

int ash_links_probe(struct ash_group *group, struct ash_slow_link *link_out, struct ash_err *err)
{
    struct ring ring;
    int64_t rest_us = 0;
    size_t slow = SIZE_MAX;
    int rc = open_ring(&ring, group, err);

    for (size_t turn = 0; rc == 0 && turn < TRIES * TURNS && ring.count > 1; turn++)
        rc = take_turn(&ring, group, turn % TURNS, err);
    if (rc == 0 && ring.count > 1)
        rc = ash_group_all_reduce(group, ring.times_us, ring.times_us, ring.count, ASH_COLL_I64, ASH_COLL_SUM, err);
    if (rc == 0) slow = ash_links_find_slow(ring.times_us, ring.count, &rest_us);
    if (rc == 0 && slow != SIZE_MAX) {
        *link_out = (struct ash_slow_link){.from = ring.firsts[slow],
                                           .to = ring.firsts[(slow + 1) % ring.count],
                                           .took_s = (double)ring.times_us[slow] * 1e-6,
                                           .rest_s = (double)rest_us * 1e-6};
        rc = 1;
    }
    close_ring(&ring);
    return rc;
}

/* Splitting a group: all its ranks exchange color, key and control block; those of one color form a part. Where the
 * group spans nodes, a second exchange has the mailbox addresses of the parts. */
#include "collective/group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "collective/group_priv.h"

/* What each rank contributes to a split. */
struct seat {
    int64_t color, key;
    uint32_t rank; /* in the group that is split */
    struct ash_segment_key control;
};

/* qsort: by key, then by rank. */
static int by_key(const void *a, const void *b)
{
    const struct seat *x = a, *y = b;

    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : 1;
}

/* Of all seats, those of this color, in their order. Returns how many. */
static size_t choose_seats(struct seat *seats, size_t count, int64_t color)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++)
        if (seats[i].color == color) seats[kept++] = seats[i];
    qsort(seats, kept, sizeof(*seats), by_key);
    return kept;
}

/* The part of group that these seats make. Takes over local on success. */
static int open_part(struct ash_group *group, const struct seat *seats, size_t count, struct ash_local *local,
                     struct ash_group **part_out, struct ash_err *err)
{
    struct ash_group_members members;
    int rc = ash_group_members_init(&members, count, err);

    if (rc < 0) return rc;
    for (size_t i = 0; i < count; i++) {
        if (seats[i].rank == group->rank) members.rank = i;
        members.ranks[i] = group->members[seats[i].rank];
        members.keys[i] = seats[i].control;
    }
    rc = ash_group_open_members(group->root, &members, local, part_out, err);
    ash_group_members_fini(&members);
    if (rc == 0) ash_group_root_add(group->root, *part_out);
    return rc;
}

/* The rank in group of a rank of one of its parts. */
static size_t rank_in(const struct ash_group *group, const struct ash_group *part, size_t rank)
{
    size_t r = 0;

    while (group->members[r] != part->members[rank]) {
        r++;
        ash_assert(r < group->size);
    }
    return r;
}

/* All ranks of group exchange the addresses of the mailboxes of their parts; part may be NULL. */
static int connect_part(struct ash_group *group, struct ash_group *part, struct ash_err *err)
{
    struct ash_net_address mine, *all = calloc(group->size, sizeof(*all)), *part_of = calloc(group->size, sizeof(*all));
    struct ash_net_mailboxes mailboxes = {{NULL}};
    bool wide = part != NULL && part->nodes.nodes > 1;
    int rc = all != NULL && part_of != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for a split");

    if (rc < 0) goto out;
    memset(&mine, 0, sizeof(mine));
    if (wide) {
        rc = ash_net_mailboxes_open(group->root->progress, part->rank, part->size, part->members, &mailboxes, &mine,
                                    err);
        if (rc < 0) goto out;
    }
    rc = ash_group_all_gather(group, &mine, all, sizeof(mine), err);
    if (rc < 0 || !wide) goto out;
    for (size_t r = 0; r < part->size; r++)
        part_of[r] = all[rank_in(group, part, r)];
    rc = ash_group_connect_net(part, &mailboxes, part_of, err);
    memset(&mailboxes, 0, sizeof(mailboxes)); /* taken over */

out:
    ash_net_mailboxes_close(&mailboxes);
    free(part_of);
    free(all);
    return rc;
}

int ash_group_split(struct ash_group *group, int64_t color, int64_t key, struct ash_group **group_out,
                    struct ash_err *err)
{
    struct seat mine = {.color = color, .key = key, .rank = (uint32_t)group->rank}, *seats = NULL;
    struct ash_local *local = NULL;
    struct ash_group *part = NULL;
    int rc = ash_group_open_local(&group->root->opts, &local, err);

    if (rc < 0) return rc;
    mine.control = ash_local_key(local);
    seats = calloc(group->size, sizeof(*seats));
    rc = seats != NULL ? ash_group_all_gather(group, &mine, seats, sizeof(mine), err)
                       : ash_err_set(err, -ENOMEM, "out of memory for a split");
    if (rc == 0 && color >= 0) rc = open_part(group, seats, choose_seats(seats, group->size, color), local, &part, err);
    free(seats);
    if (part == NULL) ash_local_close(local);
    if (rc == 0 && group->net != NULL) rc = connect_part(group, part, err);
    if (rc == 0) rc = ash_group_barrier(group, err); /* no control block may be freed before all ranks have mapped it */
    if (rc < 0) {
        ash_group_close(part);
        return rc;
    }
    *group_out = part;
    return 0;
}

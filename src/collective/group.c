/* Groups: who belongs to one, and which communicator its calls use. */
#include "collective/group.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/cores.h"
#include "collective/call_priv.h"
#include "collective/group_priv.h"

static const char *const algorithm_names[] = {"auto", "hierarchical", "flat", NULL};

#define GROUP(field) offsetof(struct ash_group_opts, field)
static const struct ash_opt group_opts[] = {
    {"join_timeout", ASH_OPT_DOUBLE, GROUP(join_timeout), "120", "seconds for all ranks to join", 0.1, 86400, NULL},
    {"silent_timeout", ASH_OPT_DOUBLE, GROUP(silent_timeout), "3",
     "seconds without a heartbeat after which a rank counts as lost", 0.5, 86400, NULL},
    {"call_timeout", ASH_OPT_DOUBLE, GROUP(call_timeout), "1800",
     "seconds that a living rank may be late for a collective", 0.1, 1e6, NULL},
    {"stop_grace", ASH_OPT_DOUBLE, GROUP(stop_grace), "10",
     "seconds that a wait for other ranks continues after SIGTERM or Ctrl-C, beyond the longest wait so far; a second "
     "signal ends it at once",
     0, 1e6, NULL},
    {"staged", ASH_OPT_BOOL, GROUP(staged), "false",
     "values in GPU memory go through host memory on their way to other ranks, also where these could read them", 0, 0,
     NULL},
    {"node", ASH_OPT_STRING, GROUP(node), NULL,
     "failure domain of this process; default: Slurm's name of the node, or the host's name", 0, 0, NULL},
    {"algorithm", ASH_OPT_CHOICE, GROUP(algorithm), "auto",
     "between nodes: hierarchical (inside a node first, then each byte crosses once) or flat (every rank with every "
     "other); auto: the cheaper one by the cost model; equal on all ranks",
     0, 0, algorithm_names},
    {"job_dir", ASH_OPT_STRING, GROUP(job_dir), NULL,
     "folder that all ranks of a job share, and no other job: its key, who is there and which epoch runs; `ashlar "
     "launch` makes one",
     0, 0, NULL},
    {"cost", ASH_OPT_STRING, GROUP(cost), NULL,
     "file with this machine's cost model, as `ashlar bench collective --tune` writes it; the first rank's counts", 0,
     0, NULL},
};

const struct ash_opt_table ash_group_table = {"group", "how ranks join and wait for each other", group_opts,
                                              sizeof(group_opts) / sizeof(group_opts[0])};

static struct ash_wait_limits limits_of(const struct ash_group_opts *opts)
{
    return (struct ash_wait_limits){.timeout_ns = (uint64_t)(opts->call_timeout * 1e9),
                                    .stop_grace_ns = (uint64_t)(opts->stop_grace * 1e9)};
}

int ash_group_open_local(const struct ash_group_opts *opts, struct ash_local **local_out, struct ash_err *err)
{
    const struct ash_wait_limits limits = limits_of(opts);

    return ash_local_open(&limits, local_out, err);
}

/* ---- members ----------------------------------------------------------------------------------------------------- */

static const struct ash_member_info *info_of(const struct ash_group *group, size_t rank)
{
    ash_assert(rank < group->size && group->members[rank] < group->root->size);
    return &group->root->infos[group->members[rank]];
}

/* Who shares memory with whom. */
static int find_nodes(struct ash_group *group)
{
    uint32_t *labels = calloc(group->size, sizeof(*labels)); /* the first rank of the same node */
    int rc;

    if (labels == NULL) return -ENOMEM;
    for (size_t r = 0; r < group->size; r++)
        while (!ash_group_same_node(group->root, group->members[labels[r]], group->members[r]))
            labels[r]++;
    rc = ash_node_map_init(&group->nodes, group->size, labels);
    free(labels);
    return rc;
}

/* A group without communicators. */
static int make_group(struct ash_group_root *root, const struct ash_group_members *members,
                      struct ash_group **group_out, struct ash_err *err)
{
    struct ash_group *group = calloc(1, sizeof(*group));

    ash_assert(members->rank < members->size && members->size <= root->size);
    if (group == NULL) goto fail;
    group->root = root;
    group->rank = members->rank;
    group->size = members->size;
    group->members = calloc(members->size, sizeof(*group->members));
    if (group->members == NULL) goto fail;
    memcpy(group->members, members->ranks, members->size * sizeof(*members->ranks));
    if (find_nodes(group) < 0) goto fail;
    *group_out = group;
    return 0;

fail:
    ash_group_close(group);
    return ash_err_set(err, -ENOMEM, "out of memory for a group of %zu ranks", members->size);
}

/* Of the first `count` ranks of the root, those on this host. */
static size_t ranks_here(const struct ash_group_root *root, size_t count)
{
    size_t here = 0;

    ash_assert(count <= root->size);
    for (size_t r = 0; r < count; r++)
        here += strcmp(root->infos[r].watch.host, root->infos[root->rank].watch.host) == 0;
    return here;
}

size_t ash_group_here(const struct ash_group *group)
{
    return group != NULL ? ranks_here(group->root, group->root->size) : 1;
}

size_t ash_group_local_rank(const struct ash_group *group)
{
    return group != NULL ? ranks_here(group->root, group->root->rank) : 0;
}

/* Are there more processes on this host than cores? */
static bool oversubscribed(const struct ash_group_root *root)
{
    return ranks_here(root, root->size) > (size_t)ash_cores_usable();
}

/* Map the control blocks of the members on this node; keys[r] is that of rank r. */
static int connect_node(struct ash_group *group, const struct ash_segment_key *keys, struct ash_err *err)
{
    const struct ash_node_map *nodes = &group->nodes;
    size_t node = nodes->node[group->rank], count = ash_node_map_ranks_on(nodes, node);
    struct ash_segment_key *here = calloc(count, sizeof(*here));
    uint32_t *labels = calloc(count, sizeof(*labels));
    int rc = -ENOMEM;

    if (here == NULL || labels == NULL) goto out;
    for (size_t i = 0; i < count; i++) {
        size_t r = ash_node_map_rank_at(nodes, node, i);

        labels[i] = group->members[r];
        here[i] = keys[r];
    }
    rc = ash_local_connect(group->local, nodes->place[group->rank], count, oversubscribed(group->root), here, labels,
                           err);
    if (rc < 0) goto out;
    ash_local_set_cost(group->local, &group->root->infos[0].cost);
    group->ops = &ash_local_ops;
    group->comm = group->local;

out:
    free(labels);
    free(here);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory for a group of %zu ranks", group->size) : rc;
}

int ash_group_connect_net(struct ash_group *group, const struct ash_net_mailboxes *mailboxes,
                          const struct ash_net_address *addresses, struct ash_err *err)
{
    struct ash_net_opts opts = {.progress = group->root->progress,
                                .mailboxes = *mailboxes,
                                .addresses = addresses,
                                .local = group->local,
                                .rank = group->rank,
                                .size = group->size,
                                .members = group->members,
                                .nodes = &group->nodes,
                                .algorithm = (enum ash_net_algorithm)group->root->opts.algorithm,
                                .cost = group->root->infos[0].cost,
                                .limits = limits_of(&group->root->opts)};
    int rc = ash_net_open(&opts, &group->net, err);

    if (rc < 0) return rc;
    group->ops = &ash_net_ops;
    group->comm = group->net;
    return 0;
}

int ash_group_members_init(struct ash_group_members *members, size_t size, struct ash_err *err)
{
    ash_assert(size > 0);
    *members = (struct ash_group_members){
        .size = size, .ranks = calloc(size, sizeof(*members->ranks)), .keys = calloc(size, sizeof(*members->keys))};
    if (members->ranks != NULL && members->keys != NULL) return 0;
    ash_group_members_fini(members);
    return ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", size);
}

void ash_group_members_fini(struct ash_group_members *members)
{
    free(members->ranks);
    free(members->keys);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

int ash_group_open_members(struct ash_group_root *root, const struct ash_group_members *members,
                           struct ash_local *local, struct ash_group **group_out, struct ash_err *err)
{
    struct ash_group *group = NULL;
    int rc = make_group(root, members, &group, err);

    if (rc < 0) return rc;
    group->local = local;
    rc = connect_node(group, members->keys, err);
    if (rc < 0) {
        group->local = NULL;
        ash_group_close(group);
        return rc;
    }
    ash_group_set_name(group, "group");
    *group_out = group;
    return 0;
}

/* The group of all ranks, after the rendezvous. Takes over local, and root on success. */
static int open_all(struct ash_group_root *root, struct ash_local *local, struct ash_group **group_out,
                    struct ash_err *err)
{
    struct ash_group_members members;
    int rc = ash_group_members_init(&members, root->size, err);

    if (rc < 0) goto fail;
    members.rank = root->rank;
    for (size_t r = 0; r < root->size; r++) {
        members.ranks[r] = (uint32_t)r;
        members.keys[r] = root->infos[r].control;
    }
    rc = ash_group_open_members(root, &members, local, group_out, err);
    ash_group_members_fini(&members);
    if (rc < 0) goto fail;
    (*group_out)->owns_root = true;
    ash_group_set_name(*group_out, "world");
    return 0;

fail:
    ash_local_close(local);
    return rc;
}

/* All members have mapped the control blocks: none may be freed before. This is part of joining, which may take its
 * time; calls may be given less. */
static int meet_node(const struct ash_group_root *root, struct ash_local *local, struct ash_err *err)
{
    const struct ash_wait_limits limits = limits_of(&root->opts);
    struct ash_wait_limits joining = limits;
    uint64_t join_ns = (uint64_t)(root->opts.join_timeout * 1e9);
    int rc;

    if (join_ns > joining.timeout_ns) joining.timeout_ns = join_ns;
    ash_local_set_limits(local, joining);
    rc = ash_local_barrier(local, err);
    ash_local_set_limits(local, limits);
    return rc;
}

/* The group of a root, after the rendezvous. Takes over local, and root on success. */
static int open_root(struct ash_group_root *root, struct ash_local *local, struct ash_group **group_out,
                     struct ash_err *err)
{
    struct ash_group *group = NULL;
    int rc = open_all(root, local, &group, err);

    if (rc < 0) return rc;
    ash_group_root_add(root, group);
    rc = meet_node(root, group->local, err);
    if (rc == 0 && root->addresses != NULL) {
        rc = ash_group_connect_net(group, &root->mailboxes, root->addresses, err);
        memset(&root->mailboxes, 0, sizeof(root->mailboxes));
    }
    if (rc < 0) {
        group->owns_root = false;
        ash_group_close(group);
        return rc;
    }
    *group_out = group;
    return 0;
}

int ash_group_open(const struct ash_launch_env *env, const struct ash_group_opts *opts, struct ash_group **group_out,
                   struct ash_err *err)
{
    struct ash_group_root *root = NULL;
    struct ash_local *local = NULL;
    int rc = ash_group_open_local(opts, &local, err);

    if (rc < 0) return rc;
    rc = ash_group_root_open(env, opts, local, &root, err);
    if (rc < 0) {
        ash_local_close(local);
        return rc;
    }
    rc = open_root(root, local, group_out, err);
    if (rc < 0) ash_group_root_close(root);
    return rc;
}

/* One try: the view change, then the groups of the new view. */
static int reform_once(struct ash_group_root *old, const struct ash_epoch_opts *opts, struct ash_group_root **root_out,
                       struct ash_group **group_out, struct ash_err *err)
{
    struct ash_local *local = NULL;
    int rc = ash_group_open_local(&old->opts, &local, err);

    *root_out = NULL;
    if (rc == 0) rc = ash_group_root_reform(old, opts, local, root_out, err);
    if (rc < 0 || *root_out == NULL || (*root_out)->gives_up) {
        ash_local_close(local);
        return rc < 0 || *root_out == NULL ? rc : -EAGAIN;
    }
    return open_root(*root_out, local, group_out, err);
}

int ash_epoch_reform(struct ash_group *lost, const struct ash_epoch_opts *opts, struct ash_group **group_out,
                     struct ash_err *err)
{
    struct ash_group_root *old = lost->root;
    int rc;

    ash_assert(lost->owns_root);
    *group_out = NULL;
    ash_group_root_lose(old, SIZE_MAX, -ECONNRESET, ASH_GROUP_FORMED_AGAIN); /* unless it is lost already */
    lost->owns_root = false;
    ash_group_close(lost);
    if (old->membership == NULL) {
        ash_group_root_close(old);
        return ash_err_set(err, -ENOTSUP, "a process without a launcher has no peers to form a group with");
    }
    for (;;) { /* ranks may be lost before the new group stands: then again */
        struct ash_group_root *root = NULL;

        rc = reform_once(old, opts, &root, group_out, err);
        ash_group_root_close(old);
        if (rc == 0 || root == NULL) return rc;
        old = root;
        if (rc == -ESRCH) /* its memory says that a process is gone, before its connections do */
            ash_group_root_lose(root, SIZE_MAX, -ECONNRESET, "a rank was lost before the new group stood");
        if (!atomic_load(&root->gives_up)) break;
    }
    ash_group_root_close(old);
    return rc;
}

uint32_t ash_group_epoch(const struct ash_group *group)
{
    return group != NULL ? group->root->epoch : 0;
}

/* An error that came through the memory of this node may reach other nodes only through this rank, which leaves. */
static void pass_error_on(struct ash_group *group)
{
    struct ash_err err = {0};
    int rc = group->root != NULL && group->local != NULL ? ash_local_check(group->local, &err) : 0;

    if (rc < 0) ash_group_propagate(group, ash_local_failed_rank(group->local), rc, err.text);
}

void ash_group_close(struct ash_group *group)
{
    if (group == NULL) return;
    pass_error_on(group);
    ash_call_queues_close(group->queues);
    ash_group_messages_fini(group);
    ash_group_device_fini(group);
    ash_net_close(group->net);
    if (group->root != NULL) ash_group_root_remove(group->root, group);
    if (group->owns_root) ash_group_root_close(group->root);
    ash_local_close(group->local);
    ash_node_map_fini(&group->nodes);
    free(group->members);
    free(group);
}

size_t ash_group_rank(const struct ash_group *group)
{
    return group != NULL ? group->rank : 0;
}

size_t ash_group_size(const struct ash_group *group)
{
    return group != NULL ? group->size : 1;
}

size_t ash_group_nodes(const struct ash_group *group)
{
    return group != NULL ? group->nodes.nodes : 1;
}

struct ash_group_member ash_group_get_member(const struct ash_group *group, size_t rank)
{
    const struct ash_member_info *info;

    ash_assert(rank < group->size);
    info = info_of(group, rank);
    return (struct ash_group_member){.rank = group->members[rank],
                                     .host = info->watch.host,
                                     .node = info->node,
                                     .node_index = group->nodes.node[rank],
                                     .pid = info->watch.pid};
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

void ash_group_propagate(struct ash_group *group, size_t failed_rank, int code, const char *why)
{
    ash_group_root_lose(group->root, failed_rank, code, why);
    if (group->root->membership != NULL) ash_membership_abort(group->root->membership, failed_rank, code, why);
}

void ash_group_abort(struct ash_group *group, const char *why)
{
    if (group != NULL) ash_group_propagate(group, group->root->rank, -ECONNRESET, why);
}

int ash_group_fail(struct ash_group *group, int code, size_t failed_rank, const char *why, struct ash_err *err)
{
    struct ash_err first = {0};

    code = ash_local_fail(group->local, code, failed_rank, why, &first);
    ash_group_propagate(group, ash_local_failed_rank(group->local), code, first.text);
    return ash_err_set(err, code, "%s", first.text);
}

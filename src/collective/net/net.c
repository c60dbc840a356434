/* A group over several nodes: who is where, the memory of a node, and the frame of every call: comparing, waiting,
 * failing. The late rank is named rightly because waits of different kinds end one after the other: first those for a
 * rank of the same node that has not made the call, then those for a message, last those for a rank of the same node
 * that has made the call (it waits itself). */
#include "collective/net/net_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define GRACE_NS 500000000ull /* between the ends of the kinds of waits */
#define NEWS_NS 1500000000ull /* the watch knows better the state of a rank that the network has lost */
#define CLOSE_NS 1000000000ull
#define CONTROL_BYTES ((size_t)256)

/* ---- who is where ------------------------------------------------------------------------------------------------ */

static int make_view(struct ash_net_view *view, size_t rank, size_t size, const uint32_t *node_of,
                     const struct ash_shares *even)
{
    int rc = ash_node_map_init(&view->map, size, node_of);

    ash_assert(rank < size);
    ash_assert(size <= ASH_SHARES_RANKS_MAX);
    if (rc < 0) return rc;
    view->node = view->map.node[rank];
    view->here = view->map.place[rank];
    view->is_alone = ash_net_ranks_on(view, view->node) == 1;
    ash_reduce_plan_init(&view->even, even, size, view->map.node);
    return 0;
}

/* ---- failing ----------------------------------------------------------------------------------------------------- */

int ash_net_fail(struct ash_net *net, int code, size_t failed_rank, const char *why)
{
    ash_assert(code < 0 && failed_rank < net->opts.size);
    return ash_local_fail(net->opts.local, code, net->opts.members[failed_rank], why, net->err);
}

/* The rank that has sent least in this call holds up the others. */
static size_t slowest_rank(const struct ash_net *net, size_t rank)
{
    bool own = rank == net->opts.rank; /* it waits for the receiver of its message */
    uint64_t least = own ? UINT64_MAX : ash_mailbox_arrived(net->mailbox, rank) - net->arrived[rank];

    ash_assert(rank < net->opts.size);
    if (!own && net->view != &net->flat) return rank; /* the others need not send anything */
    for (size_t r = 0; r < net->opts.size; r++) {
        uint64_t sent = ash_mailbox_arrived(net->mailbox, r) - net->arrived[r];

        if (r == net->opts.rank || net->silent[r] || sent >= least) continue;
        least = sent;
        rank = r;
    }
    return rank;
}

/* A rank that should make this call has left. */
static int fail_left(struct ash_net *net, size_t rank)
{
    char why[ASH_ERR_TEXT_BYTES], call[96];

    ash_assert(rank < net->opts.size);
    snprintf(why, sizeof(why), "call %llu: rank %u makes %s while rank %u has left the group",
             (unsigned long long)net->call.number, net->opts.members[net->opts.rank],
             ash_coll_call_text(&net->call, call, sizeof(call)), net->opts.members[rank]);
    return ash_net_fail(net, -EPROTO, rank, why);
}

/* Has any rank left before it made this call? Errors may have reached the others only through it. */
static int check_left(struct ash_net *net)
{
    for (size_t r = 0; r < net->opts.size; r++) {
        const uint8_t *data = r != net->opts.rank ? ash_mailbox_peek(net->mailbox, r) : NULL;
        const struct ash_net_head *head = (const void *)data;

        if (head != NULL && head->call.kind == ASH_CALL_NONE && head->call.number <= net->call.number)
            return fail_left(net, r);
    }
    return 0;
}

/* What waits ask (mailbox.h). */
static int on_timeout(void *ctx, size_t rank, uint64_t waited_ns, int gone)
{
    struct ash_net *net = ctx;
    struct ash_wait_limits limits;
    char why[ASH_ERR_TEXT_BYTES], call[96];
    int rc = ash_local_check(net->opts.local, net->err);

    ash_assert(rank < net->opts.size);
    if (rc < 0) return rc;
    if (net->leaving) return gone < 0 || waited_ns > CLOSE_NS ? -ETIMEDOUT : 0;
    rc = check_left(net);
    if (rc < 0) return rc;
    if (gone < 0 && waited_ns > NEWS_NS) {
        snprintf(why, sizeof(why), "call %llu: rank %u %s", (unsigned long long)net->call.number,
                 net->opts.members[rank],
                 gone == -ESHUTDOWN || gone == -EPIPE ? "has left the group while others still make calls"
                                                      : "cannot be reached any more: the network has lost it");
        return ash_net_fail(net, -ECONNRESET, rank, why);
    }
    limits = ash_wait_limits_later(net->opts.limits, GRACE_NS);
    rc = ash_wait_limits_check(&limits, waited_ns);
    if (rc == 0) return 0;
    rank = slowest_rank(net, rank);
    snprintf(why, sizeof(why), "call %llu: rank %u %s %.1f s in %s for rank %u, which %s",
             (unsigned long long)net->call.number, net->opts.members[net->opts.rank], ash_wait_limits_text(rc),
             (double)waited_ns * 1e-9, ash_coll_call_text(&net->call, call, sizeof(call)), net->opts.members[rank],
             ash_mailbox_arrived(net->mailbox, rank) == net->arrived[rank] ? "has not made this call"
                                                                           : "has stopped in the middle of it");
    return ash_net_fail(net, rc, rank, why);
}

/* Is it sent in the way of the present call? In an all-to-all each node goes its own (pairs.c). */
static bool same_algorithm(const struct ash_net *net, const struct ash_net_head *head)
{
    return net->call.kind == ASH_CALL_ALL_TO_ALL || head->is_flat == (uint64_t)(net->view == &net->flat);
}

static bool same_call(const struct ash_coll_call *a, const struct ash_coll_call *b)
{
    return a->number == b->number && a->kind == b->kind && a->dtype == b->dtype && a->op == b->op &&
           a->root == b->root && a->size_bytes == b->size_bytes;
}

static int mismatch(struct ash_net *net, size_t rank, const struct ash_net_head *head)
{
    char why[ASH_ERR_TEXT_BYTES], ours[96], theirs[96];

    ash_assert(rank < net->opts.size);
    if (head->call.kind == ASH_CALL_NONE) return fail_left(net, rank);
    snprintf(why, sizeof(why), "rank %u makes call %llu, %s, while rank %u makes call %llu, %s: %s",
             net->opts.members[net->opts.rank], (unsigned long long)net->call.number,
             ash_coll_call_text(&net->call, ours, sizeof(ours)), net->opts.members[rank],
             (unsigned long long)head->call.number, ash_coll_call_text(&head->call, theirs, sizeof(theirs)),
             same_call(&head->call, &net->call) ? "group.algorithm differs between them"
                                                : "all ranks must make the same calls");
    return ash_net_fail(net, -EPROTO, rank, why);
}

/* ---- the frame of a call ----------------------------------------------------------------------------------------- */

static struct ash_cost_shape shape_of(const struct ash_net *net, size_t pieces)
{
    const struct ash_node_map *map = &net->placed.map;

    return (struct ash_cost_shape){.ranks = map->size, .nodes = map->nodes, .here = map->most, .pieces = pieces};
}

bool ash_net_flat(const struct ash_net *net, enum ash_call_kind kind, size_t size_bytes)
{
    static const enum ash_cost_collective calls[] = {[ASH_CALL_ALL_REDUCE] = ASH_COST_ALL_REDUCE,
                                                     [ASH_CALL_REDUCE_SCATTER] = ASH_COST_REDUCE_SCATTER,
                                                     [ASH_CALL_ALL_GATHER] = ASH_COST_ALL_GATHER,
                                                     [ASH_CALL_BROADCAST] = ASH_COST_BROADCAST,
                                                     [ASH_CALL_ALL_TO_ALL] = ASH_COST_ALL_TO_ALL};
    struct ash_cost_shape shape = shape_of(net, net->placed.even.most);
    enum ash_cost_inter_node algorithm;

    if (net->opts.algorithm != ASH_NET_AUTO) return net->opts.algorithm == ASH_NET_FLAT;
    if (kind == ASH_CALL_BARRIER || size_bytes == 0) return false;
    algorithm = ash_cost_choose_inter_node(&net->opts.cost, calls[kind], &shape, size_bytes);
    return algorithm == ASH_COST_FLAT || algorithm == ASH_COST_FLAT_TWO_SHOT;
}

bool ash_net_whole(const struct ash_net *net, size_t pieces, size_t size_bytes)
{
    struct ash_cost_shape shape = shape_of(net, pieces);
    bool flat = net->view == &net->flat;
    const enum ash_cost_inter_node algorithms[] = {flat ? ASH_COST_FLAT : ASH_COST_HIERARCHICAL,
                                                   flat ? ASH_COST_FLAT_TWO_SHOT : ASH_COST_HIERARCHICAL_TWO_SHOT};
    double seconds[2];

    for (size_t i = 0; i < 2; i++)
        seconds[i] =
            ash_cost_inter_node_seconds(&net->opts.cost, ASH_COST_ALL_REDUCE, algorithms[i], &shape, size_bytes);
    return seconds[0] <= seconds[1];
}

int ash_net_begin(struct ash_net *net, struct ash_coll_call call, size_t size_bytes, struct ash_err *err)
{
    int rc;

    ash_assert(!net->leaving);
    net->err = err;
    rc = ash_local_check(net->opts.local, err);
    if (rc < 0) return rc;
    call.number = net->call.number + 1;
    net->call = call;
    net->view = ash_net_flat(net, call.kind, size_bytes) ? &net->flat : &net->placed;
    memset(net->silent, 0, sizeof(net->silent));
    for (size_t r = 0; r < net->opts.size; r++)
        net->arrived[r] = ash_mailbox_arrived(net->mailbox, r);
    if (net->placed.is_alone) return 0;
    ash_local_set_limits(net->opts.local, net->opts.limits);
    rc = ash_local_compare(net->opts.local, call, err);
    ash_local_set_limits(net->opts.local, ash_wait_limits_later(net->opts.limits, 2 * GRACE_NS));
    return rc;
}

int ash_net_node_barrier(struct ash_net *net)
{
    return ash_local_barrier(net->opts.local, net->err);
}

int ash_net_buffer(struct ash_net *net, uint64_t pair_bytes, size_t *buffer_out, uint8_t **body_out)
{
    struct ash_net_head head = {.call = net->call, .is_flat = net->view == &net->flat, .pair_bytes = pair_bytes};
    uint8_t *data;
    int rc = ash_mailbox_buffer(net->mailbox, &(struct ash_mailbox_wait){on_timeout, net}, buffer_out, &data);

    if (rc < 0) return rc;
    memcpy(data, &head, sizeof(head));
    *body_out = data + ASH_MAILBOX_HEAD_BYTES;
    return 0;
}

int ash_net_send(struct ash_net *net, size_t buffer, size_t rank, size_t body_bytes)
{
    ash_assert(rank < net->opts.size && rank != net->opts.rank && body_bytes <= ASH_MAILBOX_BODY_BYTES);
    return ash_mailbox_send(net->mailbox, buffer, rank, ASH_MAILBOX_HEAD_BYTES + body_bytes,
                            &(struct ash_mailbox_wait){on_timeout, net});
}

int ash_net_receive(struct ash_net *net, size_t rank, const struct ash_net_head **head_out, const uint8_t **body_out)
{
    const struct ash_net_head *head;
    const uint8_t *data;
    int rc = ash_mailbox_receive(net->mailbox, rank, 0, &(struct ash_mailbox_wait){on_timeout, net}, &data);

    if (rc < 0) return rc;
    head = (const struct ash_net_head *)(const void *)data;
    if (!same_call(&head->call, &net->call) || !same_algorithm(net, head)) return mismatch(net, rank, head);
    if (head_out != NULL) *head_out = head;
    *body_out = data + ASH_MAILBOX_HEAD_BYTES;
    return 0;
}

int ash_net_release(struct ash_net *net, size_t rank)
{
    return ash_mailbox_release(net->mailbox, rank, &(struct ash_mailbox_wait){on_timeout, net});
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Map the arenas of this node's other ranks. */
static int map_shared(struct ash_net *net, struct ash_err *err)
{
    const struct ash_net_view *view = &net->placed;
    size_t count = ash_net_ranks_on(view, view->node);
    struct ash_segment_key key, *keys = calloc(count, sizeof(*keys));
    int rc = keys != NULL ? ash_segment_get_key(&net->own_shared, &key) : -ENOMEM;

    if (rc < 0) ash_err_set(err, rc, "shared memory of a node cannot be described: %s", strerror(-rc));
    if (rc == 0) rc = ash_local_all_gather(net->opts.local, &key, keys, sizeof(key), err);
    for (size_t i = 0; i < count && rc == 0; i++) {
        if (i != view->here) rc = ash_segment_map(&net->peer_shared[i], &keys[i], err);
        net->shared[i] = i == view->here ? net->own_shared.data : net->peer_shared[i].data;
    }
    free(keys);
    return rc;
}

static int set_up(struct ash_net *net, const struct ash_net_opts *opts)
{
    int rc;

    ash_tree_of(&net->even.tree, opts->size);
    for (size_t r = 0; r <= opts->size; r++)
        net->even.first[r] = (uint32_t)r;
    rc = make_view(&net->placed, opts->rank, opts->size, opts->nodes->node, &net->even);
    return rc < 0 ? rc : make_view(&net->flat, opts->rank, opts->size, NULL, &net->even);
}

int ash_net_mailboxes_open(struct ash_progress *progress, size_t rank, size_t size, const uint32_t *members,
                           struct ash_net_mailboxes *mailboxes, struct ash_net_address *address_out,
                           struct ash_err *err)
{
    static const struct {
        size_t slot_bytes, slots, credit_batch;
    } kinds[ASH_NET_MAILBOXES] = {{ASH_MAILBOX_SLOT_BYTES, ASH_MAILBOX_SLOTS, 2},
                                  {ASH_MAILBOX_HEAD_BYTES + ASH_NET_MESSAGE_BYTES, ASH_MAILBOX_SLOTS, 1},
                                  {CONTROL_BYTES, ASH_NET_CONTROL_SLOTS, 1},
                                  {CONTROL_BYTES, ASH_NET_CONTROL_SLOTS, 1}};
    int rc = 0;

    ash_assert(rank < size);
    memset(mailboxes, 0, sizeof(*mailboxes));
    for (size_t i = 0; i < ASH_NET_MAILBOXES && rc == 0; i++) {
        const struct ash_mailbox_opts opts = {.progress = progress,
                                              .rank = rank,
                                              .size = size,
                                              .members = members,
                                              .slot_bytes = kinds[i].slot_bytes,
                                              .slots = kinds[i].slots,
                                              .credit_batch = kinds[i].credit_batch};

        rc = ash_mailbox_open(&opts, &mailboxes->mailboxes[i], err);
        if (rc == 0) ash_mailbox_get_address(mailboxes->mailboxes[i], &address_out->mailboxes[i]);
    }
    if (rc < 0) ash_net_mailboxes_close(mailboxes);
    return rc;
}

void ash_net_mailboxes_close(struct ash_net_mailboxes *mailboxes)
{
    for (size_t i = 0; i < ASH_NET_MAILBOXES; i++)
        ash_mailbox_close(mailboxes->mailboxes[i]);
    memset(mailboxes, 0, sizeof(*mailboxes));
}

static int connect_mailboxes(struct ash_net *net, const struct ash_net_address *addresses, struct ash_err *err)
{
    struct ash_mailbox_address *mailboxes = calloc(net->opts.size, sizeof(*mailboxes));
    int rc =
        mailboxes != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for a group of %zu ranks", net->opts.size);

    for (size_t i = 0; i < ASH_NET_MAILBOXES && rc == 0; i++) {
        for (size_t r = 0; r < net->opts.size; r++)
            mailboxes[r] = addresses[r].mailboxes[i];
        rc = ash_mailbox_connect(net->mailboxes.mailboxes[i], mailboxes, err);
    }
    free(mailboxes);
    return rc;
}

int ash_net_open(const struct ash_net_opts *opts, struct ash_net **net_out, struct ash_err *err)
{
    struct ash_net *net = calloc(1, sizeof(*net));
    struct ash_net_mailboxes mailboxes = opts->mailboxes;
    int rc = 0;

    ash_assert(opts->rank < opts->size && opts->nodes->size == opts->size && opts->nodes->nodes > 1);
    if (net == NULL) {
        ash_net_mailboxes_close(&mailboxes);
        return ash_err_set(err, -ENOMEM, "out of memory for a group of %zu ranks", opts->size);
    }
    pthread_mutex_init(&net->control_lock, NULL);
    net->opts = *opts;
    net->mailboxes = mailboxes;
    net->mailbox = mailboxes.mailboxes[ASH_NET_CALLS];
    net->own = malloc(2 * ASH_MAILBOX_SLOT_BYTES);
    if (opts->size > ASH_SHARES_RANKS_MAX)
        rc = ash_err_set(err, -EINVAL, "a group of %zu ranks over several nodes: at most %d are possible", opts->size,
                         ASH_SHARES_RANKS_MAX);
    else if (net->own == NULL || set_up(net, opts) < 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory for a group of %zu ranks", opts->size);
    if (rc < 0) goto fail;
    rc = ash_segment_create(&net->own_shared, sizeof(struct ash_net_shared), "ashlar-net", err);
    if (rc < 0) goto fail;
    rc = map_shared(net, err);
    if (rc < 0) goto fail;
    rc = connect_mailboxes(net, opts->addresses, err);
    if (rc < 0) goto fail;
    net->connected = true;
    rc = ash_net_barrier(net, err); /* no memory may be freed before all ranks have mapped it */
    if (rc < 0) goto fail;
    *net_out = net;
    return 0;

fail:
    ash_net_close(net);
    return rc;
}

/* Exchange farewells with all ranks, so that the last messages are not lost with this endpoint. */
static void leave(struct ash_net *net)
{
    const uint8_t *received;
    uint8_t *body;
    size_t buffer;
    int rc;

    net->leaving = true;
    net->err = NULL;
    net->view = &net->flat;
    net->call = (struct ash_coll_call){.number = net->call.number + 1};
    rc = ash_net_buffer(net, 0, &buffer, &body);
    for (size_t i = 1; i < net->opts.size && rc == 0; i++)
        rc = ash_net_send(net, buffer, (net->opts.rank + i) % net->opts.size, 0);
    for (size_t i = 1; i < net->opts.size && rc == 0; i++)
        rc = ash_mailbox_receive(net->mailbox, (net->opts.rank + i) % net->opts.size, 0,
                                 &(struct ash_mailbox_wait){on_timeout, net}, &received);
}

void ash_net_close(struct ash_net *net)
{
    if (net == NULL) return;
    if (ash_local_check(net->opts.local, NULL) < 0)
        for (size_t i = 0; i < ASH_NET_MAILBOXES; i++)
            ash_mailbox_fail(net->mailboxes.mailboxes[i]);
    else if (net->connected)
        leave(net);
    ash_net_mailboxes_close(&net->mailboxes);
    for (size_t i = 0; i < ASH_LOCAL_RANKS_MAX; i++)
        ash_segment_fini(&net->peer_shared[i]);
    ash_segment_fini(&net->own_shared);
    pthread_mutex_destroy(&net->control_lock);
    ash_node_map_fini(&net->placed.map);
    ash_node_map_fini(&net->flat.map);
    free(net->own);
    free(net);
}

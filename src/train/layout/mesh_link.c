/* mesh: what a pass asks of an axis, over the axis's group and channels between its ranks. */
#include "train/layout/mesh_priv.h"

#include <stdlib.h>

#include "base/assert.h"
#include "collective/call.h"
#include "collective/host/window.h"

static int gather_parts(void *ctx, float *data, const size_t *counts, struct ash_err *err)
{
    struct ash_mesh_link *link = ctx;
    size_t size = ash_group_size(link->group), rank = ash_group_rank(link->group);
    bool equal = true;

    for (size_t r = 1; r < size; r++)
        equal = equal && counts[r] == counts[0];
    if (equal) return ash_group_all_gather(link->group, data + rank * counts[0], data, counts[0] * sizeof(float), err);
    for (size_t r = 0; r < size; data += counts[r++]) {
        int rc = ash_group_broadcast(link->group, data, counts[r] * sizeof(float), r, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* An exchange that has been started: floats as bytes, to each rank and from each. */
struct started {
    struct ash_call *call;
    size_t bytes[];
};

static int plan_parts(const struct ash_mesh_link *link, const size_t *send, const size_t *recv,
                      struct started **started_out, struct ash_err *err)
{
    size_t size = ash_group_size(link->group);
    struct started *started = calloc(1, sizeof(*started) + 2 * size * sizeof(*started->bytes));

    if (started == NULL) return ash_err_set(err, -ENOMEM, "out of memory for an exchange of %zu ranks", size);
    for (size_t r = 0; r < size; r++) {
        started->bytes[r] = send[r] * sizeof(float);
        started->bytes[size + r] = recv[r] * sizeof(float);
    }
    *started_out = started;
    return 0;
}

static int exchange_parts(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                          struct ash_err *err)
{
    struct ash_mesh_link *link = ctx;
    size_t size = ash_group_size(link->group);
    struct started *made = NULL;
    int rc = plan_parts(link, send, recv, &made, err);

    if (rc == 0) rc = ash_group_all_to_all(link->group, in, made->bytes, out, made->bytes + size, err);
    free(made);
    return rc;
}

static int exchange_start(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                          void **started_out, struct ash_err *err)
{
    struct ash_mesh_link *link = ctx;
    size_t size = ash_group_size(link->group);
    struct started *started = NULL;
    int rc = plan_parts(link, send, recv, &started, err);

    if (rc < 0) return rc;
    rc = ash_group_all_to_all_start(link->group, in, started->bytes, out, started->bytes + size, &started->call, err);
    if (rc < 0)
        free(started);
    else
        *started_out = started;
    return rc;
}

static int spread(void *ctx, size_t root, float *data, size_t count, struct ash_err *err)
{
    struct ash_mesh_link *link = ctx;

    return ash_group_broadcast(link->group, data, count * sizeof(float), root, err);
}

static int send_message(void *ctx, size_t to, const float *data, size_t count, struct ash_err *err)
{
    struct ash_mesh_link *link = ctx;
    int rc = 0;

    if (link->to[to] == NULL)
        rc = ash_channel_open(link->group, ash_group_rank(link->group), to, link->slot_bytes, ASH_AXIS_PENDING,
                              &link->to[to], err);
    return rc < 0 ? rc : ash_channel_send(link->to[to], data, count * sizeof(float), err);
}

static int take_message(void *ctx, size_t from, float *data, size_t count, struct ash_err *err)
{
    struct ash_mesh_link *link = ctx;
    int rc = 0;

    if (link->from[from] == NULL)
        rc = ash_channel_open(link->group, from, ash_group_rank(link->group), link->slot_bytes, ASH_AXIS_PENDING,
                              &link->from[from], err);
    return rc < 0 ? rc : ash_channel_recv(link->from[from], data, count * sizeof(float), err);
}

/* ---- memory that all see: the first rank's window ---------------------------------------------------------------- */

static int open_common(void *ctx, size_t count, struct ash_shared_floats *common_out, struct ash_err *err)
{
    struct ash_mesh_link *link = ctx;
    struct ash_window *window = NULL;
    int rc = ash_group_window_open(link->group, count * sizeof(float), &window, err);

    if (rc < 0) return rc;
    if (ash_group_rank(link->group) == 0) ash_window_fill(window);
    *common_out = (struct ash_shared_floats){ash_window_data_of(window, 0), window};
    return 0;
}

static void close_common(void *ctx, struct ash_shared_floats *common)
{
    (void)ctx;
    ash_window_close(common->handle);
    *common = (struct ash_shared_floats){0};
}

static void say(void *ctx, const struct ash_shared_floats *common, size_t counter, uint64_t value)
{
    (void)ctx;
    ash_window_signal(common->handle, counter, value);
}

/* ---- the same, on the clock -------------------------------------------------------------------------------------- */

static int end(struct ash_mesh_link *link, int rc)
{
    ash_meter_end(link->meter, ASH_METER_COMM);
    return rc;
}

static struct ash_mesh_link *begin(void *ctx)
{
    struct ash_mesh_link *link = ctx;

    ash_meter_begin(link->meter);
    return link;
}

static int gather(void *ctx, float *data, const size_t *counts, struct ash_err *err)
{
    struct ash_mesh_link *link = begin(ctx);

    return end(link, gather_parts(ctx, data, counts, err));
}

static int exchange(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv, struct ash_err *err)
{
    struct ash_mesh_link *link = begin(ctx);

    return end(link, exchange_parts(ctx, in, send, out, recv, err));
}

static int exchange_wait(void *ctx, void *started, struct ash_err *err)
{
    struct ash_mesh_link *link = begin(ctx);
    int rc = ash_call_wait(((struct started *)started)->call, err);

    free(started);
    return end(link, rc);
}

static int broadcast(void *ctx, size_t root, float *data, size_t count, struct ash_err *err)
{
    struct ash_mesh_link *link = begin(ctx);

    return end(link, spread(ctx, root, data, count, err));
}

static int send(void *ctx, size_t to, const float *data, size_t count, struct ash_err *err)
{
    struct ash_mesh_link *link = begin(ctx);

    return end(link, send_message(ctx, to, data, count, err));
}

static int recv(void *ctx, size_t from, float *data, size_t count, struct ash_err *err)
{
    struct ash_mesh_link *link = begin(ctx);

    return end(link, take_message(ctx, from, data, count, err));
}

static int wait(void *ctx, const struct ash_shared_floats *common, size_t rank, size_t counter, uint64_t value,
                struct ash_err *err)
{
    struct ash_mesh_link *link = begin(ctx);

    return end(link, ash_group_window_wait(link->group, common->handle, rank, counter, value, err));
}

static const struct ash_axis_ops link_ops = {.all_gather = gather,
                                             .all_to_all = exchange,
                                             .all_to_all_start = exchange_start,
                                             .all_to_all_wait = exchange_wait,
                                             .broadcast = broadcast,
                                             .send = send,
                                             .recv = recv,
                                             .shared_open = open_common,
                                             .shared_close = close_common,
                                             .signal = say,
                                             .wait = wait};

int ash_mesh_link_open(struct ash_mesh_link *link, struct ash_group *group, struct ash_meter *meter,
                       struct ash_err *err)
{
    size_t size = ash_group_size(group);

    *link = (struct ash_mesh_link){.group = group,
                                   .meter = meter,
                                   .to = calloc(size, sizeof(struct ash_channel *)),
                                   .from = calloc(size, sizeof(struct ash_channel *))};
    return link->to != NULL && link->from != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", size);
}

void ash_mesh_link_close(struct ash_mesh_link *link)
{
    for (size_t r = 0; link->group != NULL && r < ash_group_size(link->group); r++) {
        if (link->to != NULL) ash_channel_close(link->to[r]);
        if (link->from != NULL) ash_channel_close(link->from[r]);
    }
    free(link->to);
    free(link->from);
    *link = (struct ash_mesh_link){0};
}

static struct ash_axis axis_of(struct ash_mesh_link *link)
{
    return (struct ash_axis){.rank = ash_group_rank(link->group),
                             .size = ash_group_size(link->group),
                             .ops = &link_ops,
                             .ctx = link,
                             .same_node = ash_group_nodes(link->group) == 1};
}

struct ash_axis ash_mesh_tp_cp_axis(struct ash_mesh *mesh)
{
    return mesh->tp_cp != NULL ? axis_of(&mesh->tp_cp_link) : (struct ash_axis){.size = 1};
}

struct ash_axis ash_mesh_pass_axis(struct ash_mesh *mesh, enum ash_mesh_axis axis, size_t message_floats)
{
    struct ash_mesh_link *link = &mesh->links[axis];
    struct ash_axis all;

    ash_assert(axis <= ASH_MESH_EP);
    if (mesh->groups[axis] == NULL) return (struct ash_axis){.size = 1};
    link->slot_bytes = message_floats * sizeof(float);
    if (axis != ASH_MESH_EP || mesh->ep_nodes == NULL) return axis_of(link);
    mesh->ep_link.slot_bytes = link->slot_bytes;
    mesh->ep_axis = axis_of(&mesh->ep_link);
    all = axis_of(link);
    all.node_of = mesh->ep_nodes;
    all.node_ranks = &mesh->ep_axis;
    return all;
}

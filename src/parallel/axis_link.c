/* What a pass asks of an axis, over a group of ranks and the channels between them. */
#include "parallel/axis_link.h"

#include <errno.h>
#include <stdlib.h>
#include "base/assert.h"
#include "collective/call.h"
#include "collective/channel.h"
#include "collective/host/window.h"

static int all_gather_parts(void *ctx, float *data, const size_t *counts, struct ash_err *err)
{
    struct ash_axis_link *link = ctx;
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

static int start_parts(const struct ash_axis_link *link, const size_t *send, const size_t *recv,
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

static int all_to_all_parts(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                            struct ash_err *err)
{
    struct ash_axis_link *link = ctx;
    size_t size = ash_group_size(link->group);
    struct started *made = NULL;
    int rc = start_parts(link, send, recv, &made, err);

    if (rc == 0) rc = ash_group_all_to_all(link->group, in, made->bytes, out, made->bytes + size, err);
    free(made);
    return rc;
}

static int all_to_all_start(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                            void **started_out, struct ash_err *err)
{
    struct ash_axis_link *link = ctx;
    size_t size = ash_group_size(link->group);
    struct started *started = NULL;
    int rc = start_parts(link, send, recv, &started, err);

    if (rc < 0) return rc;
    rc = ash_group_all_to_all_start(link->group, in, started->bytes, out, started->bytes + size, &started->call, err);
    if (rc < 0)
        free(started);
    else
        *started_out = started;
    return rc;
}

static int broadcast_data(void *ctx, size_t root, float *data, size_t count, struct ash_err *err)
{
    struct ash_axis_link *link = ctx;

    ash_assert(root < ash_group_size(link->group));
    return ash_group_broadcast(link->group, data, count * sizeof(float), root, err);
}

static int send_message(void *ctx, size_t to, const float *data, size_t count, struct ash_err *err)
{
    struct ash_axis_link *link = ctx;
    int rc = 0;

    ash_assert(to < ash_group_size(link->group));
    if (link->to[to] == NULL)
        rc = ash_channel_open(link->group, ash_group_rank(link->group), to, link->slot_bytes, ASH_AXIS_PENDING,
                              &link->to[to], err);
    return rc < 0 ? rc : ash_channel_send(link->to[to], data, count * sizeof(float), err);
}

static int recv_message(void *ctx, size_t from, float *data, size_t count, struct ash_err *err)
{
    struct ash_axis_link *link = ctx;
    int rc = 0;

    ash_assert(from < ash_group_size(link->group));
    if (link->from[from] == NULL)
        rc = ash_channel_open(link->group, from, ash_group_rank(link->group), link->slot_bytes, ASH_AXIS_PENDING,
                              &link->from[from], err);
    return rc < 0 ? rc : ash_channel_recv(link->from[from], data, count * sizeof(float), err);
}

/* ---- shared memory: the first rank's window ---------------------------------------------------------------------- */

static int shared_open(void *ctx, size_t count, struct ash_shared_floats *shared_out, struct ash_err *err)
{
    struct ash_axis_link *link = ctx;
    struct ash_window *window = NULL;
    int rc = ash_group_window_open(link->group, count * sizeof(float), &window, err);

    if (rc < 0) return rc;
    if (ash_group_rank(link->group) == 0) ash_window_fill(window);
    *shared_out = (struct ash_shared_floats){ash_window_data_of(window, 0), window};
    return 0;
}

static void shared_close(void *ctx, struct ash_shared_floats *shared)
{
    (void)ctx;
    ash_window_close(shared->handle);
    *shared = (struct ash_shared_floats){0};
}

static void signal_value(void *ctx, const struct ash_shared_floats *shared, size_t counter, uint64_t value)
{
    (void)ctx;
    ash_window_signal(shared->handle, counter, value);
}

/* ---- the same, timed --------------------------------------------------------------------------------------------- */

static int end(struct ash_axis_link *link, int rc)
{
    ash_meter_end(link->meter, ASH_METER_COMM);
    return rc;
}

static struct ash_axis_link *begin(void *ctx)
{
    struct ash_axis_link *link = ctx;

    ash_meter_begin(link->meter);
    return link;
}

static int all_gather(void *ctx, float *data, const size_t *counts, struct ash_err *err)
{
    struct ash_axis_link *link = begin(ctx);

    return end(link, all_gather_parts(ctx, data, counts, err));
}

static int all_to_all(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                      struct ash_err *err)
{
    struct ash_axis_link *link = begin(ctx);

    return end(link, all_to_all_parts(ctx, in, send, out, recv, err));
}

static int all_to_all_wait(void *ctx, void *started, struct ash_err *err)
{
    struct ash_axis_link *link = begin(ctx);
    int rc = ash_call_wait(((struct started *)started)->call, err);

    free(started);
    return end(link, rc);
}

static int broadcast(void *ctx, size_t root, float *data, size_t count, struct ash_err *err)
{
    struct ash_axis_link *link = begin(ctx);

    return end(link, broadcast_data(ctx, root, data, count, err));
}

static int send(void *ctx, size_t to, const float *data, size_t count, struct ash_err *err)
{
    struct ash_axis_link *link = begin(ctx);

    return end(link, send_message(ctx, to, data, count, err));
}

static int recv(void *ctx, size_t from, float *data, size_t count, struct ash_err *err)
{
    struct ash_axis_link *link = begin(ctx);

    return end(link, recv_message(ctx, from, data, count, err));
}

static int wait(void *ctx, const struct ash_shared_floats *shared, size_t rank, size_t counter, uint64_t value,
                struct ash_err *err)
{
    struct ash_axis_link *link = begin(ctx);

    ash_assert(rank < ash_group_size(link->group));
    return end(link, ash_group_window_wait(link->group, shared->handle, rank, counter, value, err));
}

static const struct ash_axis_ops link_ops = {.all_gather = all_gather,
                                             .all_to_all = all_to_all,
                                             .all_to_all_start = all_to_all_start,
                                             .all_to_all_wait = all_to_all_wait,
                                             .broadcast = broadcast,
                                             .send = send,
                                             .recv = recv,
                                             .shared_open = shared_open,
                                             .shared_close = shared_close,
                                             .signal = signal_value,
                                             .wait = wait};

int ash_axis_link_open(struct ash_axis_link *link, struct ash_group *group, struct ash_meter *meter,
                       struct ash_err *err)
{
    size_t size = ash_group_size(group);

    *link = (struct ash_axis_link){.group = group,
                                   .meter = meter,
                                   .to = calloc(size, sizeof(struct ash_channel *)),
                                   .from = calloc(size, sizeof(struct ash_channel *))};
    return link->to != NULL && link->from != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", size);
}

void ash_axis_link_close(struct ash_axis_link *link)
{
    for (size_t r = 0; link->group != NULL && r < ash_group_size(link->group); r++) {
        if (link->to != NULL) ash_channel_close(link->to[r]);
        if (link->from != NULL) ash_channel_close(link->from[r]);
    }
    free(link->to);
    free(link->from);
    *link = (struct ash_axis_link){0};
}

struct ash_axis ash_axis_link_axis(struct ash_axis_link *link, size_t message_floats)
{
    ash_assert(link->group != NULL);
    if (message_floats > 0) link->slot_bytes = message_floats * sizeof(float);
    return (struct ash_axis){.rank = ash_group_rank(link->group),
                             .size = ash_group_size(link->group),
                             .ops = &link_ops,
                             .ctx = link,
                             .same_node = ash_group_shares_memory(link->group)};
}

/* worker: from a message with tasks to one with answers. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/socket.h"
#include "post/rl/rl_priv.h"
#include "post/rl/worker.h"

#define TAKE_S 0.5      /* between two looks at a transfer */
#define SHORTEST_S 0.05 /* between two messages that it is at work */

int ash_worker_send(struct ash_worker *worker)
{
    int rc = worker->out.rc;

    if (rc == 0)
        rc = ash_socket_send(worker->fd, worker->out.data, worker->out.size_bytes,
                             ash_deadline_in(ASH_WORKER_MESSAGE_S));
    ash_str_clear(&worker->out);
    worker->sent_ns = ash_clock_ns();
    return rc;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Wait for a take to end. Returns its status. */
static int await_take(struct ash_worker *worker)
{
    for (;;) {
        struct ash_port_event events[4];
        size_t count = ash_port_wait(worker->port, events, 4, TAKE_S);

        for (size_t i = 0; i < count; i++)
            if (events[i].kind == ASH_PORT_DONE)
                return events[i].status;
            else if (events[i].kind == ASH_PORT_LOST)
                return -ECONNRESET;
    }
}

/* Have the weights of work. Returns 1, 0 if others are there instead, or a negative errno: the desk is lost. */
static int take_weights(struct ash_worker *worker, const struct ash_wire_work *work)
{
    uint64_t start_ns = ash_clock_ns(), serial = 0;
    const void *values;
    size_t size;
    int rc;

    if (worker->serial == work->serial) return 1;
    if (work->slot >= worker->slot_count) return -EBADMSG;
    do {
        rc = ash_port_take(worker->port, worker->slots[work->slot], worker->memory, work->serial);
        if (rc == 0) rc = await_take(worker);
    } while (rc == -EAGAIN);
    if (rc < 0) return rc == -ENODATA ? 0 : rc;
    values = ash_port_version(worker->memory, &size, &serial);
    if (serial != work->serial) return 0;
    if (values == NULL || size != ash_model_weight_count(worker->model) * sizeof(float)) return -EBADMSG;
    ash_publish_load(values, worker->model);
    worker->serial = serial;
    worker->salt++;
    worker->times.transfer += (double)(ash_clock_ns() - start_ns) * 1e-9;
    return 1;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* A task that is being drawn. */
struct drawing {
    struct ash_wire_task task;
    struct ash_prompt prompt; /* borrows the task's ids */
    struct ash_answer_row row;
    struct ash_asked *asked;
};

static int open_drawing(struct ash_worker *worker, struct drawing *drawing)
{
    struct ash_policy_run *rl = worker->rl;
    struct ash_sampler_opts sampler = ash_sampler_defaults();
    const struct ash_wire_task *task = &drawing->task;

    if (task->more > rl->shape.max_tokens) return -EBADMSG;
    sampler.temperature = rl->job->rollout.temperature;
    sampler.top_k = (size_t)rl->job->rollout.top_k;
    sampler.top_p = rl->job->rollout.top_p;
    sampler.seed = task->seed;
    drawing->prompt.ids = (struct ash_ids){.data = (int32_t *)(uintptr_t)task->ids, .count = task->count};
    drawing->row.ids = calloc(rl->shape.max_tokens, sizeof(*drawing->row.ids));
    drawing->row.logps = calloc(rl->shape.max_tokens, sizeof(*drawing->row.logps));
    if (rl->shape.has_kept) drawing->row.kept.ends = calloc(rl->shape.max_tokens, sizeof(*drawing->row.kept.ends));
    if (drawing->row.ids == NULL || drawing->row.logps == NULL ||
        (rl->shape.has_kept && drawing->row.kept.ends == NULL))
        return -ENOMEM;
    drawing->asked = ash_rl_ask(rl, &drawing->prompt, &drawing->row, &sampler, worker->salt);
    if (drawing->asked == NULL) return -ENOMEM;
    drawing->asked->request.max_tokens = task->more;
    return 0;
}

static void close_drawing(struct drawing *drawing)
{
    ash_rl_unask(drawing->asked);
    free(drawing->row.ids);
    free(drawing->row.logps);
    free(drawing->row.kept.ids);
    free(drawing->row.kept.ends);
}

/* Run to the end, and say now and then that it is at work. */
static int step_all(struct ash_worker *worker, int rc, struct ash_err *err)
{
    double pulse_s = fmax(worker->rl->job->rollout.silence / 4, SHORTEST_S);

    while (rc == 0 && ash_core_step(worker->rl->sampler.core) > 0) {
        if ((double)(ash_clock_ns() - worker->sent_ns) * 1e-9 < pulse_s) continue;
        if (ash_wire_add_text(&worker->out, ASH_WIRE_PULSE, NULL) == 0) rc = ash_worker_send(worker);
        if (rc < 0) rc = ash_err_set(err, -ECONNRESET, "the desk is lost");
    }
    return ash_core_finish(worker->rl->sampler.core, rc, err);
}

static int add_answer(struct ash_worker *worker, const struct drawing *drawing)
{
    const struct ash_answer_row *row = &drawing->row;
    struct ash_wire_answer answer = {.order = drawing->task.order,
                                     .group = drawing->task.group,
                                     .answer = drawing->task.answer,
                                     .has_ended = row->has_ended,
                                     .count = (uint32_t)row->count,
                                     .ids = row->ids,
                                     .logps = row->logps};
    int32_t *ends;
    int rc;

    if (row->kept.ends == NULL || row->kept.count == 0) return ash_wire_add_answer(&worker->out, &answer);
    ends = calloc(row->count + 1, sizeof(*ends));
    if (ends == NULL) return -ENOMEM;
    for (size_t t = 0; t < row->count; t++)
        ends[t] = (int32_t)row->kept.ends[t];
    answer.kept_count = (uint32_t)row->kept.count;
    answer.kept_ends = ends;
    answer.kept = row->kept.ids;
    rc = ash_wire_add_answer(&worker->out, &answer);
    free(ends);
    return rc;
}

/* Draw all tasks, and append their answers to the message. */
static int draw(struct ash_worker *worker, struct drawing *drawings, size_t count, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = open_drawing(worker, &drawings[i]);
        if (rc == 0) rc = ash_core_submit(worker->rl->sampler.core, &drawings[i].asked->request, err);
    }
    rc = step_all(worker, rc, err);
    return rc;
}

static int read_tasks(struct ash_wire_reader *body, struct drawing **drawings_out, size_t *count_out)
{
    struct ash_wire_reader counted = *body;
    struct ash_wire_task task;
    size_t count = 0;
    int rc;

    while ((rc = ash_wire_next_task(&counted, &task)) > 0)
        count++;
    if (rc < 0) return rc;
    *drawings_out = calloc(count + 1, sizeof(**drawings_out));
    if (*drawings_out == NULL) return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        (void)ash_wire_next_task(body, &(*drawings_out)[i].task);
    *count_out = count;
    return 0;
}

int ash_worker_draw(struct ash_worker *worker, size_t size_bytes, struct ash_err *err)
{
    struct ash_wire_reader body = {worker->body, size_bytes, 0};
    struct drawing *drawings = NULL;
    struct ash_wire_work asked;
    uint64_t start_ns;
    size_t count = 0;
    ssize_t begun = 0;
    int rc = ash_wire_read(&body, &asked, sizeof(asked)), has = 0;

    worker->times.waiting += (double)(ash_clock_ns() - worker->sent_ns) * 1e-9;
    if (rc == 0) rc = read_tasks(&body, &drawings, &count);
    if (rc == 0) rc = has = take_weights(worker, &asked);
    start_ns = ash_clock_ns();
    if (rc > 0) rc = draw(worker, drawings, count, err);
    worker->times.sampling += (double)(ash_clock_ns() - start_ns) * 1e-9;
    if (rc == 0) begun = ash_wire_begin(&worker->out, ASH_WIRE_ANSWERS);
    if (begun < 0) rc = (int)begun;
    if (rc == 0) rc = ash_str_add(&worker->out, &worker->times, sizeof(worker->times));
    for (size_t i = 0; rc == 0 && has > 0 && i < count; i++)
        rc = add_answer(worker, &drawings[i]);
    for (size_t i = 0; i < count; i++)
        close_drawing(&drawings[i]);
    free(drawings);
    if (rc < 0) return rc;
    ash_wire_end(&worker->out, (size_t)begun);
    worker->times = (struct ash_wire_times){0};
    return ash_worker_send(worker);
}

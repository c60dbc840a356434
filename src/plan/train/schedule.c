/* What each rank of a pipeline does in which order: 1F1B and its interleaved form (Narayanan et al. 2021, arXiv
 * 2104.04473), ZB-H1 (Qi et al. 2023, arXiv 2401.10241), DualPipe (DeepSeek-V3, arXiv 2412.19437). */
#include "plan/train/pipeline_priv.h"

/* A list that is being written, and the length of each line so far. */
struct order {
    const struct ash_plan_pipeline *p;
    struct ash_plan_task *pieces;
    int count;
    int forwards[2], backwards[2]; /* DualPipe, by line */
    int weights;                   /* whose gradients are owed: index of the first piece that may owe some */
};

const char *ash_plan_pipeline_refuses(enum ash_plan_schedule schedule, int stages, int chunks, int micro_batches)
{
    if (stages < 1 || chunks < 1 || micro_batches < 1) return "a pipeline has stages, chunks and micro-batches";
    if (schedule == ASH_PLAN_1F1B) return NULL;
    if (stages < 2) return "zb-h1 and dualpipe are schedules of a pipeline: they need pp of 2 or more";
    if (chunks > 1) return "zb-h1 and dualpipe have one chunk per rank: leave vpp at 1";
    if (schedule == ASH_PLAN_ZB_H1) return NULL;
    if (stages % 2 != 0) return "dualpipe feeds micro-batches from both ends: it needs an even pp";
    if (micro_batches % 2 != 0 || micro_batches < 2 * stages)
        return "dualpipe needs an even number of micro-batches, at least 2 * pp: a larger batch, or fewer replicas";
    return NULL;
}

size_t ash_plan_pipeline_events(const struct ash_plan_pipeline *pipeline)
{
    size_t passes = pipeline->schedule == ASH_PLAN_1F1B ? 2 : 3;

    return passes * (size_t)pipeline->chunks * (size_t)pipeline->micro_batches;
}

static void add(struct order *order, enum ash_plan_task_kind kind, int line, int micro)
{
    order->pieces[order->count++] = (struct ash_plan_task){.kind = kind, .line = line, .micro = micro};
}

/* ---- 1F1B -------------------------------------------------------------------------------------------------------- */

static int at_most(int count, int limit)
{
    return count < limit ? count : limit;
}

/* Forwards that a rank does before its first backward. */
static int warm_up(const struct ash_plan_pipeline *p, int stage)
{
    int later = p->stages - stage - 1; /* stages after this one */

    return at_most(p->chunks == 1 ? later : later * 2 + (p->chunks - 1) * p->stages, p->chunks * p->micro_batches);
}

/* The index-th forward (or backward) of any rank: chunk by chunk in groups of `stages` micro-batches. */
static void add_nth(struct order *order, enum ash_plan_task_kind kind, int index)
{
    const struct ash_plan_pipeline *p = order->p;
    int group = index / (p->stages * p->chunks), first = group * p->stages;
    int width = at_most(p->micro_batches - first, p->stages);
    int within = index - first * p->chunks, chunk = within / width;

    add(order, kind, kind == ASH_PLAN_TASK_FORWARD ? chunk : p->chunks - 1 - chunk, first + within % width);
}

static void order_1f1b(struct order *order, int stage)
{
    int total = order->p->chunks * order->p->micro_batches, warm = warm_up(order->p, stage);

    for (int i = 0; i < warm; i++)
        add_nth(order, ASH_PLAN_TASK_FORWARD, i);
    for (int i = 0; i < total; i++) {
        if (warm + i < total) add_nth(order, ASH_PLAN_TASK_FORWARD, warm + i);
        add_nth(order, ASH_PLAN_TASK_BACKWARD, i);
    }
}

/* ---- ZB-H1 ------------------------------------------------------------------------------------------------------- */

/* As 1F1B, but gradients of weights lag by as many micro-batches as the rank has fewer in flight than the first
 * one: the memory is the first rank's, and the last ranks fill the end with what they owe. */
static void order_zb_h1(struct order *order, int stage)
{
    int total = order->p->micro_batches, warm = warm_up(order->p, stage), weights = 0;

    for (int i = 0; i < warm; i++)
        add(order, ASH_PLAN_TASK_FORWARD, 0, i);
    for (int i = 0; i < total; i++) {
        if (warm + i < total) add(order, ASH_PLAN_TASK_FORWARD, 0, warm + i);
        add(order, ASH_PLAN_TASK_INPUT, 0, i);
        if (i >= stage) add(order, ASH_PLAN_TASK_WEIGHT, 0, weights++);
    }
    while (weights < total)
        add(order, ASH_PLAN_TASK_WEIGHT, 0, weights++);
}

/* ---- DualPipe ---------------------------------------------------------------------------------------------------- */

static void add_forward(struct order *order, int line)
{
    add(order, ASH_PLAN_TASK_FORWARD, line, order->forwards[line]++);
}

static void add_backward(struct order *order, int line, bool split)
{
    add(order, split ? ASH_PLAN_TASK_INPUT : ASH_PLAN_TASK_BACKWARD, line, order->backwards[line]++);
}

/* A forward pass of one direction overlapping a backward pass of the other. */
static void add_pair(struct order *order, int forward_line)
{
    add_forward(order, forward_line);
    order->pieces[order->count - 1].joined = true;
    add_backward(order, 1 - forward_line, false);
}

/* The gradients of weights that have been owed the longest. */
static void add_weight(struct order *order)
{
    while (order->pieces[order->weights].kind != ASH_PLAN_TASK_INPUT)
        order->weights++;
    add(order, ASH_PLAN_TASK_WEIGHT, order->pieces[order->weights].line, order->pieces[order->weights].micro);
    order->weights++;
}

/* The ramp: forwards of the near end, then of both, then backward passes of the far end, which nothing overlaps yet. */
static void order_dual_begin(struct order *order, int near, int depth, int to_middle)
{
    for (int i = 0; i < 2 * to_middle; i++)
        add_forward(order, near);
    for (int i = 0; i <= depth; i++) {
        add_forward(order, near);
        add_forward(order, 1 - near);
    }
    for (int i = 0; i < to_middle; i++) {
        add_backward(order, 1 - near, true);
        add_weight(order);
        add_forward(order, 1 - near);
    }
}

/* Forwards run out from the far end first; late backwards leave gradients of weights to fill the gaps. */
static void order_dual_end(struct order *order, int near, int depth, int to_middle)
{
    bool split = false;

    for (int i = 0; i < to_middle; i++) {
        add_backward(order, 1 - near, false);
        add_pair(order, 1 - near);
    }
    for (int i = 0; i <= depth; i++) {
        if (i == (depth + 1) / 2 && depth % 2 == 1) split = true;
        add_backward(order, 1 - near, split);
        if (i == (depth + 1) / 2 && depth % 2 == 0) split = true;
        add_backward(order, near, split);
    }
    for (int i = 0; i < to_middle; i++) {
        add_weight(order);
        add_backward(order, near, true);
    }
    for (int i = 0; i <= depth; i++)
        add_weight(order);
}

/* depth counts ranks from the nearer end; the first line comes in at rank 0, the second at the last. */
static void order_dualpipe(struct order *order, int stage)
{
    const struct ash_plan_pipeline *p = order->p;
    int near = stage < p->stages / 2 ? 0 : 1, depth = near == 0 ? stage : p->stages - 1 - stage;
    int to_middle = p->stages / 2 - 1 - depth;
    int rounds = p->micro_batches / 2 - p->stages + depth + 1;

    order_dual_begin(order, near, depth, to_middle);
    for (int i = 0; i < rounds; i++) {
        if (i == 0 && to_middle == 0) { /* side by side they would make the next rank wait longer */
            add_forward(order, near);
            add_backward(order, 1 - near, false);
        } else {
            add_pair(order, near);
        }
        add_pair(order, 1 - near);
    }
    order_dual_end(order, near, depth, to_middle);
}

int ash_plan_pipeline_order(const struct ash_plan_pipeline *pipeline, int stage, struct ash_plan_task *pieces_out)
{
    static void (*const orders[ASH_PLAN_SCHEDULES])(struct order *, int) = {order_1f1b, order_zb_h1, order_dualpipe};
    struct order order = {.p = pipeline, .pieces = pieces_out};

    orders[pipeline->schedule](&order, stage);
    return order.count;
}

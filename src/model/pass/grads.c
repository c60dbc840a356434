/* Where a pass adds up gradients, and how several processes take turns at it. A weight gradient is one chain over
 * tokens; where tokens are dealt out (along cp in order of position, and between the blocks of a layer along tp too),
 * the chain goes through the ranks in the order of their tokens: each waits for the sum of the rank before it, adds its
 * own tokens and passes the sum on. So no cut changes a bit. Ranks along cp that share memory have one sum, so there
 * is only the turn to pass on; and of most matrices each makes a part over everyone's tokens (grads_parts.c). */
#include "model/pass/pass_priv.h"

/* Of a matrix's turns; a small one has one. */
#define TURN_PIECES 4
#define TURN_MIN ((size_t)1 << 9) /* elements */

/* Is the sum the same memory on all ranks of the axis? */
static bool stays(const struct ash_pass *pass, const struct ash_axis *axis)
{
    return axis == &pass->cp && pass->shares_sums;
}

static void take_turn(struct ash_pass *pass, const struct ash_axis *axis, float *sum, size_t count)
{
    if (stays(pass, axis)) pass->common.turns_begun++;
    if (axis->rank == 0) return;
    if (stays(pass, axis))
        ash_share_wait_tokens(pass, axis->rank - 1, ASH_SHARE_TURNS, pass->common.turns_begun);
    else
        ash_share_recv(pass, axis, axis->rank - 1, sum, count);
}

static void end_turn(struct ash_pass *pass, const struct ash_axis *axis, float *sum, size_t count)
{
    if (stays(pass, axis))
        ash_share_say(pass, ASH_SHARE_TURNS, ++pass->common.turns);
    else if (axis->rank + 1 < axis->size)
        ash_share_send(pass, axis, axis->rank + 1, sum, count);
}

/* A gradient's sum: of the batch at hand, or of another rank's that experts here serve. */
struct sum {
    float *data; /* NULL: none is wanted */
    size_t count;
};

static struct sum sum_of(const struct ash_pass *pass, int32_t param)
{
    const struct ash_model *model = pass->model;
    const struct ash_served *served = pass->serving;
    bool apart = param == ASH_TIED_HEAD;

    if (param == ASH_NO_PARAM) return (struct sum){0};
    if (served != NULL && served->sums != NULL)
        return (struct sum){served->sums + model->params[param].expert_offset, model->params[param].count};
    if (pass->grads == NULL) return (struct sum){0};
    return (struct sum){pass->grads + (apart ? model->tied_grad_offset : model->params[param].grad_offset),
                        apart ? model->vocab.count * model->config.hidden : model->params[param].count};
}

bool ash_grad_is_first(struct ash_pass *pass, int32_t param)
{
    bool tied = param == ASH_TIED_HEAD, *begun = &pass->begun[tied ? pass->model->param_count : (size_t)param];
    bool starts = pass->batch->starts && !*begun && (tied || ash_param_starts(&pass->model->params[param]));

    *begun = true;
    return starts;
}

bool ash_grad_starts(struct ash_pass *pass, int32_t param)
{
    return ash_grad_is_first(pass, param) && pass->cp.rank == 0;
}

static void complete(struct ash_pass *pass, int32_t param)
{
    struct sum sum = sum_of(pass, param);

    if (ash_grad_starts(pass, param)) ash_exec_zero(pass->exec, sum.data, sum.count * sizeof(float));
}

void ash_grad_complete(struct ash_pass *pass, int layer)
{
    const struct ash_model *model = pass->model;

    if (pass->grads == NULL || !pass->batch->starts) return;
    for (int32_t i = 0; i < (int32_t)model->param_count; i++)
        if (model->params[i].layer == layer) complete(pass, i);
    if (layer < 0 && model->config.tied && model->slice.embed && model->slice.head) complete(pass, ASH_TIED_HEAD);
}

float *ash_grad_sum(struct ash_pass *pass, int32_t param)
{
    return sum_of(pass, param).data;
}

float *ash_grad_begin(struct ash_pass *pass, int32_t param, enum ash_grad_rows rows)
{
    struct sum sum = sum_of(pass, param);

    if (sum.data == NULL) return NULL;
    take_turn(pass, &pass->cp, sum.data, sum.count);
    if (rows == ASH_GRAD_STREAM) take_turn(pass, &pass->tp, sum.data, sum.count);
    return sum.data;
}

/* The end of the turn along cp; before it that along tp comes round: all have copies of the parameter. Alone along cp
 * nobody needs it at once, and no rank waits here for the last. */
static void end_rounds(struct ash_pass *pass, int32_t param, enum ash_grad_rows rows)
{
    struct sum sum = sum_of(pass, param);
    bool shared = rows == ASH_GRAD_STREAM && pass->tp.size > 1;

    if (sum.data == NULL) return;
    if (shared && pass->cp.size == 1)
        pass->late[pass->late_count++] = param;
    else if (shared)
        ash_share_broadcast(pass, &pass->tp, pass->tp.size - 1, sum.data, sum.count);
    end_turn(pass, &pass->cp, sum.data, sum.count);
}

void ash_grad_settle(struct ash_pass *pass)
{
    for (size_t i = 0; i < pass->late_count; i++) {
        struct sum sum = sum_of(pass, pass->late[i]);

        ash_share_broadcast(pass, &pass->tp, pass->tp.size - 1, sum.data, sum.count);
    }
    pass->late_count = 0;
}

void ash_grad_end_both(struct ash_pass *pass, int32_t one, int32_t other, enum ash_grad_rows rows)
{
    struct sum first = sum_of(pass, one), second = sum_of(pass, other);

    if (rows == ASH_GRAD_STREAM && first.data != NULL) end_turn(pass, &pass->tp, first.data, first.count);
    if (rows == ASH_GRAD_STREAM && second.data != NULL) end_turn(pass, &pass->tp, second.data, second.count);
    end_rounds(pass, one, rows);
    end_rounds(pass, other, rows);
}

void ash_grad_end(struct ash_pass *pass, int32_t param, enum ash_grad_rows rows)
{
    ash_grad_end_both(pass, param, ASH_NO_PARAM, rows);
}

/* ---- between batches --------------------------------------------------------------------------------------------- */

static void hand_over(struct ash_pass *pass, int32_t param)
{
    struct sum sum = sum_of(pass, param);

    if (pass->cp.rank == 0)
        ash_share_recv(pass, &pass->cp, pass->cp.size - 1, sum.data, sum.count);
    else if (pass->cp.rank + 1 == pass->cp.size)
        ash_share_send(pass, &pass->cp, 0, sum.data, sum.count);
}

/* All sums at once and at the end: a rank that sent each as soon as it was done would wait for room while the other
 * waits for it in the next batch's attention. */
void ash_grad_hand_over(struct ash_pass *pass)
{
    const struct ash_model *model = pass->model;
    bool own = pass->grads != NULL && pass->batch->goes_on, apart = pass->exchange.served[pass->ep.rank].sums != NULL;

    if (pass->cp.size == 1) return;
    if (pass->shares_sums) {
        ash_parts_take(pass, 0);
        ash_share_meet_heads(pass);
        return;
    }
    for (int32_t i = 0; own && i < (int32_t)model->param_count; i++)
        if (model->params[i].trained && !(apart && model->params[i].expert)) hand_over(pass, i);
    if (own && model->config.tied && model->slice.embed && ash_pass_ends(pass)) hand_over(pass, ASH_TIED_HEAD);
    for (size_t r = 0; r < pass->ep.size; r++) {
        const struct ash_served *served = &pass->exchange.served[r];
        if (!served->filled || !served->goes_on || served->sums == NULL) continue;
        pass->serving = served;
        for (int32_t i = 0; i < (int32_t)model->param_count; i++)
            if (model->params[i].expert) hand_over(pass, i);
    }
    pass->serving = NULL;
}

/* ---- linear layers ----------------------------------------------------------------------------------------------- */

/* Turns at a matrix, a few rows of it at a time: the next rank begins with them while this one does the others. Without
 * io there is nothing to add. */
static void take_turns(struct ash_pass *pass, int32_t param_sum, int32_t weight, const struct ash_linear_io *io)
{
    struct sum sum = sum_of(pass, param_sum);
    const struct ash_param *param = &pass->model->params[weight];
    size_t pieces = pass->cp.size == 1 || sum.count < TURN_MIN ? 1 : TURN_PIECES, rows = param->dims[0];
    size_t step = (rows + pieces - 1) / pieces;
    bool start =
        sum.data != NULL && io != NULL && io->rows > 0 && pass->serving == NULL && ash_grad_starts(pass, param_sum);

    for (size_t first = 0; sum.data != NULL && first < rows; first += step) {
        struct ash_range part = {first, rows - first < step ? rows - first : step};
        float *piece = sum.data + first * param->dims[1];
        take_turn(pass, &pass->cp, piece, part.count * param->dims[1]);
        if (io != NULL) ash_linear_weight_grad_part(pass->model, pass->exec, weight, io, part, start, sum.data);
        end_turn(pass, &pass->cp, piece, part.count * param->dims[1]);
    }
}

void ash_pass_linear_skip(struct ash_pass *pass, int32_t weight)
{
    take_turns(pass, weight, weight, NULL);
}

void ash_pass_weight_backward(struct ash_pass *pass, int32_t sum, int32_t weight, const struct ash_linear_io *io)
{
    if (io->among_all)
        ash_parts_give(pass, sum, weight, ASH_NO_PARAM, io);
    else
        take_turns(pass, sum, weight, io);
}

/* While the first rank of cp adds to the weight's gradient, the others, who cannot yet, see to dx. */
void ash_pass_linear_backward(struct ash_pass *pass, int32_t weight, int32_t bias, const struct ash_linear_io *io)
{
    bool waits = pass->cp.rank > 0;
    float *dbias;

    if (io->among_all) {
        ash_parts_give(pass, weight, weight, bias, io);
        if (io->dx != NULL) ash_linear_input_grad(pass->model, pass->exec, weight, io);
        return;
    }
    if (io->dx != NULL && waits) ash_linear_input_grad(pass->model, pass->exec, weight, io);
    take_turns(pass, weight, weight, io);
    dbias = ash_grad_begin(pass, bias, ASH_GRAD_ALL);
    if (dbias != NULL) ash_linear_bias_grad(pass->model, pass->exec, weight, io, dbias);
    ash_grad_end(pass, bias, ASH_GRAD_ALL);
    if (io->dx != NULL && !waits) ash_linear_input_grad(pass->model, pass->exec, weight, io);
}

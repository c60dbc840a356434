/* Cross-entropy in plain C: the loss of a row of logits and, in place, its gradient. */
#include "compute/ref/ref_priv.h"

#include "compute/lanes.h"
#include "compute/mathf.h"

#define LOSS_MIN_ROWS 1

struct loss {
    float *logits;
    size_t vocab;
    const int32_t *targets;
    float scale;
    float *loss;
};

static float cross_entropy_row(const struct loss *op, float *x, int32_t target)
{
    float lanes[ASH_LANES] = {0}, max = -INFINITY, sum, loss;

    for (size_t v = 0; v < op->vocab; v++)
        max = x[v] > max ? x[v] : max;
    for (size_t v = 0; v < op->vocab; v++)
        lanes[v % ASH_LANES] = lanes[v % ASH_LANES] + ash_expf(x[v] - max);
    sum = ash_lanes_fold(lanes);
    loss = ash_logf(sum) - (x[target] - max);
    if (op->scale == 0.0f) return loss;
    for (size_t v = 0; v < op->vocab; v++)
        x[v] = ash_expf(x[v] - max) * (op->scale / sum);
    x[target] = x[target] - op->scale;
    return loss;
}

static void cross_entropy_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct loss *op = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        float *x = &op->logits[r * op->vocab];

        if (op->targets[r] >= 0) {
            op->loss[r] = cross_entropy_row(op, x, op->targets[r]);
            continue;
        }
        op->loss[r] = 0.0f;
        for (size_t v = 0; v < op->vocab && op->scale != 0.0f; v++)
            x[v] = 0.0f;
    }
}

static void cross_entropy(struct ash_exec *exec, float *logits, size_t rows, size_t vocab, const int32_t *targets,
                          float scale, float *loss)
{
    struct loss op = {.logits = logits, .vocab = vocab, .targets = targets, .scale = scale, .loss = loss};

    ash_workers_run(exec->workers, rows, LOSS_MIN_ROWS, cross_entropy_rows, &op);
}

const struct ash_loss_ops ash_ref_loss = {.cross_entropy = cross_entropy};

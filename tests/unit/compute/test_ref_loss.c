/* Losses of bf16 models as ref-wgmma computes them, against formulas in double: E times the factor is the gradient, as
 * exactly as bf16 has E; rows far from the target's logit; what is stored as bf16 is what is stored as float32. */
#include "unit/compute/ref_check.h"

#include "base/math.h"
#include "base/bf16.h"

enum { ROWS = 6, COLS_MAX = 5000 };

/* Of a row of logits, in double: the loss, and the gradient of scale * it. */
static double loss_in_double(const float *x, size_t cols, size_t target, double sharpness, double scale, double *grad)
{
    double max = -INFINITY, sum = 0.0;

    for (size_t v = 0; v < cols; v++)
        max = fmax(max, sharpness * (double)x[v]);
    for (size_t v = 0; v < cols; v++)
        sum += exp(sharpness * (double)x[v] - max);
    for (size_t v = 0; v < cols; v++)
        grad[v] = scale * sharpness * (exp(sharpness * (double)x[v] - max) / sum - (v == target));
    return log(sum) - (sharpness * (double)x[target] - max);
}

/* Logits of a kind: near each other; the target's far below the others, or far above; some left out of the row. */
static void draw_row(float *x, size_t cols, size_t target, size_t kind, uint64_t stream)
{
    fill(x, cols, stream, 3.0f);
    if (kind == 1) x[target] -= 300.0f;
    if (kind == 2) x[target] += 300.0f;
    for (size_t v = 0; v < cols && kind == 3; v++)
        if (v % 3 == 0 && v != target) x[v] = -INFINITY;
}

struct losses {
    size_t cols;
    float kept[ROWS * COLS_MAX], x[ROWS * COLS_MAX], again[ROWS * COLS_MAX];
    _Alignas(16) uint16_t rounded[ROWS * (COLS_MAX + 8)];
    float loss[ROWS], factors[ROWS], scales[ROWS];
    int32_t targets[ROWS];
    struct ash_loss_part part;
};

static void draw_losses(struct losses *l, size_t cols, uint64_t seed)
{
    l->cols = cols;
    for (size_t r = 0; r < ROWS; r++) {
        l->targets[r] = r == ROWS - 1 ? -1 : (int32_t)ash_rng_below(seed, r, 0, cols);
        l->scales[r] = r % 2 == 0 ? 0.25f : -0.5f;
        draw_row(l->kept + r * cols, cols, (size_t)(r == ROWS - 1 ? 0 : l->targets[r]), r % 4, seed * ROWS + r);
    }
    l->part = (struct ash_loss_part){.rows = ROWS,
                                     .cols = cols,
                                     .targets = l->targets,
                                     .sharpness = seed % 2 == 0 ? 0.0f : 0.7f,
                                     .loss = l->loss,
                                     .round_bf16 = true,
                                     .factors = l->factors};
    memcpy(l->x, l->kept, ROWS * cols * sizeof(float));
    memcpy(l->again, l->kept, ROWS * cols * sizeof(float));
}

static void check_row(const struct losses *l, size_t r)
{
    const float *e = l->x + r * l->cols;
    const uint16_t *rounded = l->rounded + r * l->part.grad_stride;
    double grad[COLS_MAX], sharpness = l->part.sharpness != 0.0f ? (double)l->part.sharpness : 1.0;
    size_t target = (size_t)l->targets[r];
    double want = loss_in_double(l->kept + r * l->cols, l->cols, target, sharpness, (double)l->scales[r], grad);

    check_close((double)l->loss[r], want, 4e-6, "loss", r);
    for (size_t v = 0; v < l->cols; v++) {
        double got = (double)e[v] * (double)l->factors[r];

        if (fabs(got - grad[v]) > 0.0045 * fabs(grad[v]) + 1e-9)
            fail_msg("%zu columns: gradient[%zu, %zu] is %.9g, want %.9g", l->cols, r, v, got, grad[v]);
        assert_int_equal(rounded[v], ash_f32_to_bf16(e[v]));
        assert_true(ash_bf16_to_f32(rounded[v]) == e[v]);
    }
}

static void test_relative(void **state)
{
    static const size_t sizes[] = {1, 2, 7, 8, 127, 128, 129, 136, 1000, 4096, 4224, COLS_MAX};
    static struct losses l;
    struct ash_exec exec;

    (void)state;
    assert_int_equal(ash_exec_init(&exec, "ref-wgmma", 2, NULL), 0);
    for (size_t i = 0; i < ASH_COUNT(sizes); i++) {
        float loss[ROWS];

        draw_losses(&l, sizes[i], i);
        l.part.logits = l.x;
        exec.ops->loss->cross_entropy(&exec, &l.part); /* without a gradient: logits stay */
        assert_memory_equal(l.x, l.kept, ROWS * l.cols * sizeof(float));
        memcpy(loss, l.loss, sizeof(loss));
        l.part.scales = l.scales;
        exec.ops->loss->cross_entropy(&exec, &l.part);
        assert_memory_equal(loss, l.loss, sizeof(loss));
        l.part.logits = l.again;
        l.part.grad_bf16 = l.rounded;
        l.part.grad_stride = ash_round_up(l.cols, ASH_LOSS_GRAD_ALIGN);
        exec.ops->loss->cross_entropy(&exec, &l.part);
        assert_memory_equal(loss, l.loss, sizeof(loss));
        for (size_t r = 0; r + 1 < ROWS; r++)
            check_row(&l, r);
        assert_true(l.loss[ROWS - 1] == 0.0f && l.factors[ROWS - 1] == 0.0f);
        for (size_t v = 0; v < l.cols; v++)
            assert_true(l.x[(ROWS - 1) * l.cols + v] == 0.0f);
    }
    ash_exec_fini(&exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_relative)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

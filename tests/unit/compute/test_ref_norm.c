/* The reference norms and rotary positions against formulas in double and their central differences. */
#include "unit/compute/ref_check.h"

enum { ROWS = 3, GROUPS = 2, COLS = 37, COUNT = ROWS * GROUPS * COLS };

#define EPS 1e-5

/* Inputs, and the weights of the outputs in the scalar that is differentiated. */
struct norm {
    bool layer;
    float x[COUNT], weight[COLS], bias[COLS], dy[COUNT];
};

static void norm_double(const struct norm *op, const double *x, const double *weight, const double *bias, double *y)
{
    for (size_t r = 0; r < ROWS * GROUPS; r++) {
        double mean = 0.0, square = 0.0;

        for (size_t c = 0; c < COLS && op->layer; c++)
            mean += x[r * COLS + c] / COLS;
        for (size_t c = 0; c < COLS; c++)
            square += (x[r * COLS + c] - mean) * (x[r * COLS + c] - mean) / COLS;
        for (size_t c = 0; c < COLS; c++)
            y[r * COLS + c] = (x[r * COLS + c] - mean) / sqrt(square + EPS) * weight[c] + (op->layer ? bias[c] : 0.0);
    }
}

/* The inputs x, weight and bias, one after the other. */
static double norm_scalar(const void *ctx, const double *in)
{
    const struct norm *op = ctx;
    double y[COUNT], sum = 0.0;

    norm_double(op, in, in + COUNT, in + COUNT + COLS, y);
    for (size_t i = 0; i < COUNT; i++)
        sum += y[i] * (double)op->dy[i];
    return sum;
}

static void check_norm(bool layer)
{
    struct norm op = {.layer = layer};
    float in[COUNT + 2 * COLS], y[COUNT], rstd[ROWS * GROUPS], mean[ROWS * GROUPS], grad[COUNT + 2 * COLS] = {0};
    double wide[COUNT + 2 * COLS], want[COUNT];
    struct ash_norm_args args = {.rows = ROWS,
                                 .groups = GROUPS,
                                 .cols = COLS,
                                 .x_stride = GROUPS * COLS,
                                 .eps = (float)EPS,
                                 .y_stride = GROUPS * COLS,
                                 .x = in,
                                 .weight = in + COUNT,
                                 .y = y,
                                 .rstd = rstd,
                                 .mean = mean,
                                 .dy = op.dy,
                                 .dx = grad,
                                 .dweight = grad + COUNT};
    struct ash_exec exec;

    ref_init(&exec);
    fill(in, COUNT + 2 * COLS, 1, 1.0f);
    fill(op.dy, COUNT, 2, 1.0f);
    widen(in, COUNT + 2 * COLS, wide);
    if (layer) {
        args.bias = in + COUNT + COLS;
        args.dbias = grad + COUNT + COLS;
    }
    (layer ? exec.ops->norm->layer_forward : exec.ops->norm->rms_forward)(&exec, &args);
    norm_double(&op, wide, wide + COUNT, wide + COUNT + COLS, want);
    check_all(y, want, COUNT, 1e-6, "y");
    (layer ? exec.ops->norm->layer_backward : exec.ops->norm->rms_backward)(&exec, &args);
    check_gradient(norm_scalar, &op, in, COUNT + (layer ? 2 : 1) * COLS, grad, "gradient");
    ash_exec_fini(&exec);
}

static void test_rms(void **state)
{
    (void)state;
    check_norm(false);
}

static void test_layer(void **state)
{
    (void)state;
    check_norm(true);
}

/* dx_add adds, and a gradient that is in place comes out the same. */
static void test_backward_modes(void **state)
{
    float x[COLS], w[COLS], dy[COLS], plain[COLS], added[COLS], rstd[1], y[COLS];
    struct ash_norm_args args = {.rows = 1,
                                 .groups = 1,
                                 .cols = COLS,
                                 .x_stride = COLS,
                                 .y_stride = COLS,
                                 .x = x,
                                 .weight = w,
                                 .y = y,
                                 .eps = 1e-5f,
                                 .rstd = rstd,
                                 .dy = dy,
                                 .dx = plain};
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    fill(x, COLS, 1, 1.0f);
    fill(w, COLS, 2, 1.0f);
    fill(dy, COLS, 3, 1.0f);
    fill(added, COLS, 4, 1.0f);
    exec.ops->norm->rms_forward(&exec, &args);
    exec.ops->norm->rms_backward(&exec, &args);
    args.dx = added;
    args.dx_add = true;
    exec.ops->norm->rms_backward(&exec, &args);
    for (size_t c = 0; c < COLS; c++) {
        float before = 1.0f * (float)ash_rng_normal(11, 4, c);
        assert_true(added[c] == before + plain[c]);
    }
    args.dx = dy;
    args.dx_add = false;
    exec.ops->norm->rms_backward(&exec, &args);
    assert_memory_equal(dy, plain, sizeof(plain));
    ash_exec_fini(&exec);
}

/* ---- rotary positions -------------------------------------------------------------------------------------------- */

enum { DIMS = 10, HALF = DIMS / 2, HEADS = 2, ROPE_ROWS = 4, ROPE_COUNT = ROPE_ROWS * HEADS * DIMS };

static void rope_run(struct ash_exec *exec, bool interleaved, bool inverse, float *x)
{
    static const int32_t positions[ROPE_ROWS] = {0, 3, 1, 7};
    float cosines[8 * HALF], sines[8 * HALF];
    struct ash_rope_args args = {.rows = ROPE_ROWS,
                                 .heads = HEADS,
                                 .head_stride = DIMS,
                                 .row_stride = HEADS * DIMS,
                                 .dims = DIMS,
                                 .interleaved_in = interleaved,
                                 .inverse = inverse,
                                 .positions = positions,
                                 .cos = cosines,
                                 .sin = sines,
                                 .x = x};

    for (size_t p = 0; p < 8; p++)
        for (size_t i = 0; i < HALF; i++) {
            cosines[p * HALF + i] = (float)cos((double)p / (double)(1 + i));
            sines[p * HALF + i] = (float)sin((double)p / (double)(1 + i));
        }
    exec->ops->rope->apply(exec, &args);
}

static void test_rope(void **state)
{
    static const int32_t positions[ROPE_ROWS] = {0, 3, 1, 7};
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        float x[ROPE_COUNT], y[ROPE_COUNT];

        fill(x, ROPE_COUNT, 1, 1.0f);
        memcpy(y, x, sizeof(y));
        rope_run(&exec, interleaved == 1, false, y);
        for (size_t n = 0; n < ROPE_ROWS * HEADS; n++)
            for (size_t i = 0; i < HALF; i++) {
                double angle = (double)positions[n / HEADS] / (double)(1 + i);
                double a = (double)x[n * DIMS + (interleaved ? 2 * i : i)];
                double b = (double)x[n * DIMS + (interleaved ? 2 * i + 1 : i + HALF)];

                check_close((double)y[n * DIMS + i], a * cos(angle) - b * sin(angle), 1e-6, "rope", i);
                check_close((double)y[n * DIMS + i + HALF], b * cos(angle) + a * sin(angle), 1e-6, "rope", i);
            }
        rope_run(&exec, interleaved == 1, true, y); /* a rotation's gradient is its inverse */
        for (size_t i = 0; i < ROPE_COUNT; i++)
            check_close((double)y[i], (double)x[i], 1e-6, "back", i);
    }
    ash_exec_fini(&exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rms),
        cmocka_unit_test(test_layer),
        cmocka_unit_test(test_backward_modes),
        cmocka_unit_test(test_rope),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

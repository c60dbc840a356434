/* The reference norms and rotary positions against formulas in double and their central differences. */
#include "unit/compute/ref_check.h"

#include "base/bf16.h"

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

static void check_norm(const char *backend, bool layer)
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
                                 .dweight = grad + COUNT,
                                 .round_bf16 = strcmp(backend, "ref-wgmma") == 0};
    struct ash_exec exec;

    assert_int_equal(ash_exec_init(&exec, backend, 1, NULL), 0);
    fill(in, COUNT + 2 * COLS, 1, 1.0f);
    fill(op.dy, COUNT, 2, 1.0f);
    for (size_t i = 0; i < COUNT && args.round_bf16; i++)
        op.dy[i] = ash_bf16_round(op.dy[i]);
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
    check_norm("ref", false);
    check_norm("ref-wgmma", false);
}

static void test_layer(void **state)
{
    (void)state;
    check_norm("ref", true);
    check_norm("ref-wgmma", true);
}

/* ---- by blocks --------------------------------------------------------------------------------------------------- */

enum { BLOCK_COLS = 1100, SEQ_ROWS = 70, SEQS = 2, BLOCK_ROWS = SEQS * SEQ_ROWS };

/* The order of a row sum, written out: 69 blocks of 16 columns, the last with 12, in 32 partial sums. */
static float blocks_by_hand(const float *x)
{
    float lanes[32] = {0};

    for (size_t b = 0; b < (BLOCK_COLS + 15) / 16; b++) {
        float p[8];

        for (size_t i = 0; i < 8; i++) {
            float x0 = 16 * b + 2 * i < BLOCK_COLS ? x[16 * b + 2 * i] : 0.0f;
            float x1 = 16 * b + 2 * i + 1 < BLOCK_COLS ? x[16 * b + 2 * i + 1] : 0.0f;

            p[i] = fmaf(x1, x1, x0 * x0);
        }
        lanes[b % 32] += ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
    }
    for (size_t half = 16; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lanes[l] += lanes[l + half];
    return lanes[0];
}

/* Where a call begins and ends, between blocks of rows, changes no bit of a weight's gradient. */
static void test_blocks(void **state)
{
    static float x[BLOCK_ROWS * BLOCK_COLS], y[BLOCK_ROWS * BLOCK_COLS], dy[BLOCK_ROWS * BLOCK_COLS],
        dx[BLOCK_ROWS * BLOCK_COLS];
    static float w[BLOCK_COLS], whole[BLOCK_COLS], pieces[BLOCK_COLS], rstd[BLOCK_ROWS];
    static const size_t cuts[] = {0, 32, 64, 70, 102, 140};
    struct ash_norm_args args = {.groups = 1,
                                 .cols = BLOCK_COLS,
                                 .x_stride = BLOCK_COLS,
                                 .y_stride = BLOCK_COLS,
                                 .weight = w,
                                 .eps = 1e-5f,
                                 .round_bf16 = true,
                                 .seq_rows = SEQ_ROWS};
    struct ash_exec exec;

    (void)state;
    assert_int_equal(ash_exec_init(&exec, "ref-wgmma", 2, NULL), 0);
    fill(x, BLOCK_ROWS * BLOCK_COLS, 1, 1.0f);
    fill(w, BLOCK_COLS, 2, 1.0f);
    fill(dy, BLOCK_ROWS * BLOCK_COLS, 3, 1.0f);
    for (size_t i = 0; i < ASH_COUNT(cuts); i++) { /* the last one: all rows */
        size_t first = i + 1 < ASH_COUNT(cuts) ? cuts[i] : 0, end = i + 1 < ASH_COUNT(cuts) ? cuts[i + 1] : BLOCK_ROWS;

        args.rows = end - first;
        args.seq_first = first % SEQ_ROWS;
        args.x = x + first * BLOCK_COLS;
        args.y = y + first * BLOCK_COLS;
        args.dy = dy + first * BLOCK_COLS;
        args.dx = dx + first * BLOCK_COLS;
        args.rstd = rstd + first;
        args.dweight = i + 1 < ASH_COUNT(cuts) ? pieces : whole;
        exec.ops->norm->rms_forward(&exec, &args);
        exec.ops->norm->rms_backward(&exec, &args);
    }
    assert_memory_equal(pieces, whole, sizeof(whole));
    assert_true(rstd[33] == 1.0f / sqrtf(blocks_by_hand(x + (size_t)33 * BLOCK_COLS) / (float)BLOCK_COLS + 1e-5f));
    ash_exec_fini(&exec);
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
        cmocka_unit_test(test_rms),    cmocka_unit_test(test_layer),
        cmocka_unit_test(test_blocks), cmocka_unit_test(test_backward_modes),
        cmocka_unit_test(test_rope),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

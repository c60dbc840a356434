/* Recurrent states: the convolution and the scan against their formulas in double, backward against differences, and
 * documents that are cut at any place, whose bits are those of one call. */
#include "unit/compute/ref_check.h"

#include "compute/backends/state_ops.h"

enum {
    ROWS = 70, /* past the first state that forward keeps */
    FIRST = 3, /* rows of the first of two documents */
    HEADS = 4,
    GROUPS = 2,
    DIMS = 3,
    SIZE = 5,
    TAPS = 4,
    INNER = HEADS * DIMS,
    CHANNELS = INNER + 2 * GROUPS * SIZE,
    STATE = (TAPS - 1) * CHANNELS + HEADS * DIMS * SIZE,
};

static const struct ash_state_seq documents[2] = {{.row = 0, .count = FIRST}, {.row = FIRST, .count = ROWS - FIRST}};

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* ---- formulas: a vector of inputs, and weights dy that make a scalar of the outputs -------------------------------- */

struct problem {
    float dy[ROWS * CHANNELS];
    double limit; /* of steps */
    bool is_delta;
};

/* Where the inputs of the convolution are in one vector. */
enum { CONV_X = 0, CONV_W = CONV_X + ROWS * CHANNELS, CONV_B = CONV_W + CHANNELS * TAPS, CONV_ALL = CONV_B + CHANNELS };

static void conv_formula(const double *in, double *out)
{
    for (size_t s = 0; s < 2; s++)
        for (size_t r = 0; r < documents[s].count; r++)
            for (size_t c = 0; c < CHANNELS; c++) {
                double sum = in[CONV_B + c];

                for (size_t k = 0; k < TAPS; k++)
                    if (r + k + 1 >= TAPS)
                        sum += in[CONV_W + c * TAPS + k] *
                               in[CONV_X + (documents[s].row + r + k + 1 - TAPS) * CHANNELS + c];
                out[(documents[s].row + r) * CHANNELS + c] = silu(sum);
            }
}

static double conv_scalar(const void *ctx, const double *in)
{
    const struct problem *problem = ctx;
    static double out[ROWS * CHANNELS];
    double sum = 0;

    conv_formula(in, out);
    for (size_t i = 0; i < ROWS * CHANNELS; i++)
        sum += (double)problem->dy[i] * out[i];
    return sum;
}

/* Of the scan. */
enum {
    SCAN_XBC = 0,
    SCAN_RAW = SCAN_XBC + ROWS * CHANNELS,
    SCAN_BIAS = SCAN_RAW + ROWS * HEADS,
    SCAN_DECAY = SCAN_BIAS + HEADS,
    SCAN_SKIP = SCAN_DECAY + HEADS,
    SCAN_BETA = SCAN_SKIP + HEADS,
    SCAN_ALL = SCAN_BETA + ROWS * HEADS
};

/* to = from divided by its length, times factor. */
static void divide(const double *from, double factor, double *to)
{
    double sum = 1e-6;

    for (size_t n = 0; n < SIZE; n++)
        sum += from[n] * from[n];
    for (size_t n = 0; n < SIZE; n++)
        to[n] = from[n] / sqrt(sum) * factor;
}

static void delta_head(const double *in, size_t h, size_t first, size_t count, double *out)
{
    double state[DIMS][SIZE] = {{0}}, b[SIZE], c[SIZE];

    for (size_t r = first; r < first + count; r++) {
        const double *x = in + SCAN_XBC + r * CHANNELS + h * DIMS;
        const double *groups = in + SCAN_XBC + r * CHANNELS + INNER + h / (HEADS / GROUPS) * SIZE;
        double step = log1p(exp(in[SCAN_RAW + r * HEADS + h] + in[SCAN_BIAS + h]));
        double a = exp(-exp(in[SCAN_DECAY + h]) * step), beta = 1 / (1 + exp(-in[SCAN_BETA + r * HEADS + h]));

        divide(groups, 1, b);
        divide(groups + GROUPS * SIZE, 1 / sqrt(SIZE), c);
        for (size_t d = 0; d < DIMS; d++) {
            double u = x[d], sum = 0;

            for (size_t n = 0; n < SIZE; n++)
                u -= a * state[d][n] * b[n];
            for (size_t n = 0; n < SIZE; n++) {
                state[d][n] = a * state[d][n] + beta * u * b[n];
                sum += state[d][n] * c[n];
            }
            out[r * INNER + h * DIMS + d] = sum;
        }
    }
}

static void scan_head(const double *in, size_t h, size_t first, size_t count, double limit, double *out)
{
    double state[DIMS * SIZE] = {0};

    for (size_t r = first; r < first + count; r++) {
        const double *x = in + SCAN_XBC + r * CHANNELS + h * DIMS;
        const double *b = in + SCAN_XBC + r * CHANNELS + INNER + h / (HEADS / GROUPS) * SIZE, *c = b + GROUPS * SIZE;
        double step = log1p(exp(in[SCAN_RAW + r * HEADS + h] + in[SCAN_BIAS + h]));

        if (step > limit) step = limit;
        for (size_t d = 0; d < DIMS; d++) {
            double sum = in[SCAN_SKIP + h] * x[d];

            for (size_t n = 0; n < SIZE; n++) {
                double *s = &state[d * SIZE + n];

                *s = *s * exp(-exp(in[SCAN_DECAY + h]) * step) + step * x[d] * b[n];
                sum += *s * c[n];
            }
            out[r * INNER + h * DIMS + d] = sum;
        }
    }
}

static void scan_formula(const double *in, const struct problem *problem, double *out)
{
    for (size_t h = 0; h < HEADS; h++)
        for (size_t s = 0; s < 2; s++)
            if (problem->is_delta)
                delta_head(in, h, documents[s].row, documents[s].count, out);
            else
                scan_head(in, h, documents[s].row, documents[s].count, problem->limit, out);
}

static double scan_scalar(const void *ctx, const double *in)
{
    const struct problem *problem = ctx;
    static double out[ROWS * INNER];
    double sum = 0;

    scan_formula(in, problem, out);
    for (size_t i = 0; i < ROWS * INNER; i++)
        sum += (double)problem->dy[i] * out[i];
    return sum;
}

/* ---- tests ----------------------------------------------------------------------------------------------------------- */

static struct ash_conv_args conv_args(const float *in, const struct ash_state_seq *seqs, size_t seq_count, float *out)
{
    return (struct ash_conv_args){.channels = CHANNELS,
                                  .taps = TAPS,
                                  .seqs = seqs,
                                  .seq_count = seq_count,
                                  .x = in + CONV_X,
                                  .x_stride = CHANNELS,
                                  .weight = in + CONV_W,
                                  .bias = in + CONV_B,
                                  .out = out};
}

static void test_conv(void **state)
{
    static float in[CONV_ALL], out[ROWS * CHANNELS], grad[CONV_ALL], dout[ROWS * CHANNELS];
    static double wide[CONV_ALL], want[ROWS * CHANNELS];
    static struct problem problem;
    struct ash_conv_args args = conv_args(in, documents, 2, out);
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    fill(in, CONV_ALL, 1, 0.7f);
    fill(problem.dy, ROWS * CHANNELS, 2, 1.0f);
    ash_state_ops_of(&exec)->conv_forward(&exec, &args);
    widen(in, CONV_ALL, wide);
    conv_formula(wide, want);
    check_all(out, want, ROWS * CHANNELS, 2e-6, "out");
    memcpy(dout, problem.dy, sizeof(dout));
    args.dout = dout;
    args.dx = grad + CONV_X;
    args.dx_stride = CHANNELS;
    args.dweight = grad + CONV_W;
    args.dbias = grad + CONV_B;
    ash_state_ops_of(&exec)->conv_backward(&exec, &args);
    check_gradient(conv_scalar, &problem, in, CONV_ALL, grad, "gradient of the convolution");
    ash_exec_fini(&exec);
}

static struct ash_scan_args scan_args(const float *in, const struct ash_state_seq *seqs, size_t seq_count, float *y)
{
    return (struct ash_scan_args){.rows = ROWS,
                                  .heads = HEADS,
                                  .groups = GROUPS,
                                  .dims = DIMS,
                                  .size = SIZE,
                                  .seqs = seqs,
                                  .seq_count = seq_count,
                                  .state_offset = (TAPS - 1) * CHANNELS,
                                  .xbc = in + SCAN_XBC,
                                  .xbc_stride = CHANNELS,
                                  .b_at = INNER,
                                  .c_at = INNER + GROUPS * SIZE,
                                  .raw = in + SCAN_RAW,
                                  .raw_stride = HEADS,
                                  .step_bias = in + SCAN_BIAS,
                                  .decay = in + SCAN_DECAY,
                                  .skip = in + SCAN_SKIP,
                                  .step_max = INFINITY,
                                  .y = y};
}

/* The delta rule with the inputs of a scan. */
static void make_delta(struct ash_scan_args *args, const float *in)
{
    args->beta = in + SCAN_BETA;
    args->skip = NULL;
}

static void test_scan(void **state)
{
    static float in[SCAN_ALL], y[ROWS * INNER], grad[SCAN_ALL], kept[2 * HEADS * DIMS * SIZE], params[ROWS * 2 * HEADS],
        work[ROWS * 2 * HEADS * SIZE];
    static double wide[SCAN_ALL], want[ROWS * INNER];
    static const double limits[] = {1e9, 0.8, 1e9}; /* the last one: the delta rule */
    static struct problem problem;
    struct ash_scan_args args = scan_args(in, documents, 2, y);
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    fill(in, SCAN_ALL, 3, 0.7f);
    fill(problem.dy, ROWS * INNER, 4, 1.0f);
    widen(in, SCAN_ALL, wide);
    args.kept = kept;
    args.dy = problem.dy;
    args.dxbc = grad + SCAN_XBC;
    args.draw = grad + SCAN_RAW;
    args.draw_stride = HEADS;
    args.dparams = params;
    args.work = work;
    args.dbeta = grad + SCAN_BETA;
    for (size_t i = 0; i < 3; i++) {
        problem.limit = limits[i];
        problem.is_delta = i == 2;
        if (i == 2) make_delta(&args, in);
        if (i == 2) memset(params, 0, sizeof(params));
        args.step_max = (float)limits[i];
        ash_state_ops_of(&exec)->scan_forward(&exec, &args);
        scan_formula(wide, &problem, want);
        check_all(y, want, ROWS * INNER, 1e-5, "y");
        ash_state_ops_of(&exec)->scan_backward(&exec, &args);
        memset(grad + SCAN_BIAS, 0, 3 * HEADS * sizeof(float));
        for (size_t r = 0; r < ROWS; r++)
            for (size_t h = 0; h < HEADS; h++) {
                grad[SCAN_BIAS + h] += grad[SCAN_RAW + r * HEADS + h];
                grad[SCAN_DECAY + h] += params[2 * r * HEADS + h];
                grad[SCAN_SKIP + h] += params[(2 * r + 1) * HEADS + h];
            }
        check_gradient(scan_scalar, &problem, in, SCAN_ALL, grad, "gradient of the scan");
    }
    ash_exec_fini(&exec);
}

/* Rows in pieces of drawn sizes, each from the state of the one before: in one place, and in one of each. */
static void test_pieces(void **state)
{
    static float in[(size_t)CONV_ALL + SCAN_ALL], whole[2][ROWS * CHANNELS], cut[2][ROWS * CHANNELS],
        states[2][ROWS + 1][STATE];
    const struct ash_state_seq all = {.count = ROWS, .to = states[0][ROWS]};
    struct ash_exec exec;
    struct ash_conv_args conv;
    struct ash_scan_args scan;

    (void)state;
    ref_init(&exec);
    fill(in, sizeof(in) / sizeof(in[0]), 5, 0.7f);
    for (uint64_t seed = 0; seed < 16; seed++) {
        struct ash_state_seq seqs[ROWS];
        size_t count = 0;

        conv = conv_args(in, &all, 1, whole[0]);
        scan = scan_args(in, &all, 1, whole[1]);
        if (seed >= 8) make_delta(&scan, in);
        ash_state_ops_of(&exec)->conv_forward(&exec, &conv);
        ash_state_ops_of(&exec)->scan_forward(&exec, &scan);

        for (size_t row = 0; row < ROWS; row += seqs[count++].count) {
            size_t most = 1 + ash_rng_u64(seed, 6, row) % (seed % 2 == 0 ? 3 : 40);
            float *to = states[1][seed % 8 < 4 ? 0 : count + 1];

            seqs[count] = (struct ash_state_seq){.row = row,
                                                 .count = most < ROWS - row ? most : ROWS - row,
                                                 .from = count > 0 ? seqs[count - 1].to : NULL,
                                                 .to = to};
        }
        conv = conv_args(in, seqs, count, cut[0]);
        scan = scan_args(in, seqs, count, cut[1]);
        if (seed >= 8) make_delta(&scan, in);
        ash_state_ops_of(&exec)->conv_forward(&exec, &conv);
        ash_state_ops_of(&exec)->scan_forward(&exec, &scan);
        assert_memory_equal(cut, whole, sizeof(whole));
        assert_memory_equal(seqs[count - 1].to, states[0][ROWS], sizeof(states[0][ROWS]));
    }
    ash_exec_fini(&exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv),
        cmocka_unit_test(test_scan),
        cmocka_unit_test(test_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

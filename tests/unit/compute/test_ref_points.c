/* The reference products, activations, loss, row arithmetic and optimizer against formulas in double. */
#include "unit/compute/ref_check.h"

#include "base/bf16.h"

enum { COUNT = 41 };

/* ---- products ---------------------------------------------------------------------------------------------------- */

static void test_gemm(void **state)
{
    enum { M = 3, N = 4, K = 50 };
    float a[M * K], b[N * K], bias[N], c[M * N];
    struct ash_gemm_args args = {
        .M = M, .N = N, .K = K, .a = {a, ASH_F32, K, 1}, .b = {b, ASH_F32, 1, K}, .c = c, .c_stride = N, .bias = bias};
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    fill(a, M * K, 1, 1.0f);
    fill(b, N * K, 2, 1.0f);
    fill(bias, N, 3, 1.0f);
    for (int round = 0; round < 2; round++) {
        args.round_bf16 = round == 1;
        exec.ops->matrix->gemm(&exec, &args);
        for (size_t n = 0; n < M * N; n++) {
            double want = (double)bias[n % N];

            for (size_t k = 0; k < K; k++) {
                float x = a[n / N * K + k], y = b[n % N * K + k];
                want += round ? (double)ash_bf16_round(x) * (double)ash_bf16_round(y) : (double)x * (double)y;
            }
            check_close((double)c[n], want, 1e-5, "c", n);
        }
    }
    ash_exec_fini(&exec);
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

static double silu(double x)
{
    return x / (1.0 + exp(-x));
}

static double gelu(int kind, double x)
{
    if (kind == ASH_GELU_ERF) return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

struct act {
    int kind; /* -1: SwiGLU of gate and up, one after the other */
    float dout[COUNT];
};

static double act_scalar(const void *ctx, const double *in)
{
    const struct act *op = ctx;
    double sum = 0.0;

    for (size_t i = 0; i < COUNT; i++)
        sum += (double)op->dout[i] * (op->kind < 0 ? silu(in[i]) * in[COUNT + i] : gelu(op->kind, in[i]));
    return sum;
}

static void test_swiglu(void **state)
{
    struct act op = {.kind = -1};
    float in[2 * COUNT], out[COUNT], grad[2 * COUNT];
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    fill(in, 2 * COUNT, 1, 3.0f);
    fill(op.dout, COUNT, 2, 1.0f);
    exec.ops->act->swiglu_forward(&exec,
                                  &(struct ash_swiglu_args){.count = COUNT, .gate = in, .up = in + COUNT, .out = out});
    for (size_t i = 0; i < COUNT; i++)
        check_close((double)out[i], silu((double)in[i]) * (double)in[COUNT + i], 1e-6, "swiglu", i);
    exec.ops->act->swiglu_backward(
        &exec, &(struct ash_swiglu_grad_args){
                   .count = COUNT, .gate = in, .up = in + COUNT, .dout = op.dout, .dgate = grad, .dup = grad + COUNT});
    check_gradient(act_scalar, &op, in, 2 * COUNT, grad, "gradient");
    ash_exec_fini(&exec);
}

/* Of a bf16 model: what the formulas make of rounded values. */
static void test_swiglu_bf16(void **state)
{
    struct act op = {.kind = -1};
    float in[2 * COUNT], out[COUNT], grad[2 * COUNT], dout[COUNT];
    struct ash_exec exec;

    (void)state;
    assert_int_equal(ash_exec_init(&exec, "ref-wgmma", 1, NULL), 0);
    fill(in, 2 * COUNT, 1, 3.0f);
    fill(dout, COUNT, 2, 1.0f);
    in[0] = 90.0f, in[1] = -90.0f, in[2] = 0.0f, in[3] = -130.0f;
    for (int round = 0; round < 2; round++) { /* the second time with what is rounded already: the same bits */
        float kept[3 * COUNT];

        memcpy(kept, out, sizeof(out));
        memcpy(kept + COUNT, grad, sizeof(grad));
        exec.ops->act->swiglu_forward(
            &exec,
            &(struct ash_swiglu_args){.count = COUNT, .gate = in, .up = in + COUNT, .round_bf16 = true, .out = out});
        exec.ops->act->swiglu_backward(&exec, &(struct ash_swiglu_grad_args){.count = COUNT,
                                                                             .gate = in,
                                                                             .up = in + COUNT,
                                                                             .dout = dout,
                                                                             .round_bf16 = true,
                                                                             .dgate = grad,
                                                                             .dup = grad + COUNT});
        if (round == 1) assert_memory_equal(kept, out, sizeof(out));
        if (round == 1) assert_memory_equal(kept + COUNT, grad, sizeof(grad));
        for (size_t i = 0; i < 2 * COUNT; i++)
            in[i] = ash_bf16_round(in[i]);
        for (size_t i = 0; i < COUNT; i++)
            op.dout[i] = dout[i] = ash_bf16_round(dout[i]);
    }
    for (size_t i = 0; i < COUNT; i++)
        check_close((double)out[i], silu((double)in[i]) * (double)in[COUNT + i], 1e-6, "swiglu", i);
    check_gradient(act_scalar, &op, in, 2 * COUNT, grad, "gradient");
    ash_exec_fini(&exec);
}

static void test_gelu(void **state)
{
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    for (int kind = ASH_GELU_TANH; kind <= ASH_GELU_ERF; kind++) {
        struct act op = {.kind = kind};
        float x[COUNT], out[COUNT], grad[COUNT];

        fill(x, COUNT, 1, 2.0f);
        fill(op.dout, COUNT, 2, 1.0f);
        exec.ops->act->gelu_forward(&exec, (enum ash_gelu)kind, x, COUNT, out);
        for (size_t i = 0; i < COUNT; i++)
            check_close((double)out[i], gelu(kind, (double)x[i]), 1e-6, "gelu", i);
        exec.ops->act->gelu_backward(&exec, (enum ash_gelu)kind, x, op.dout, COUNT, grad);
        check_gradient(act_scalar, &op, x, COUNT, grad, "gradient");
    }
    ash_exec_fini(&exec);
}

/* ---- loss -------------------------------------------------------------------------------------------------------- */

struct entropy {
    int32_t target;
    double scale;
};

static double entropy_scalar(const void *ctx, const double *x)
{
    const struct entropy *op = ctx;
    double sum = 0.0;

    for (size_t v = 0; v < COUNT; v++)
        sum += exp(x[v]);
    return op->scale * (log(sum) - x[op->target]);
}

static void test_cross_entropy(void **state)
{
    struct entropy op = {.target = 17, .scale = 0.25};
    float x[3 * COUNT], kept[3 * COUNT], loss[3];
    double wide[COUNT];
    int32_t targets[3] = {op.target, -1, op.target};
    struct ash_loss_part part = {.rows = 3, .cols = COUNT, .logits = x, .targets = targets, .loss = loss};
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    fill(x, 2 * COUNT, 1, 3.0f);
    for (size_t v = 0; v < COUNT; v++)
        x[2 * COUNT + v] = x[v] + 1000.0f; /* a shift changes nothing but the rounding of the input */
    memcpy(kept, x, sizeof(x));
    exec.ops->loss->cross_entropy(&exec, &part);
    assert_memory_equal(kept, x, sizeof(x));
    widen(kept, COUNT, wide);
    check_close((double)loss[0], entropy_scalar(&op, wide) / op.scale, 1e-6, "loss", 0);
    check_close((double)loss[2], entropy_scalar(&op, wide) / op.scale, 1e-4, "loss", 2);
    assert_true(loss[1] == 0.0f);
    part.scale = (float)op.scale;
    exec.ops->loss->cross_entropy(&exec, &part);
    check_gradient(entropy_scalar, &op, kept, COUNT, x, "gradient");
    for (size_t v = 0; v < COUNT; v++)
        assert_true(x[COUNT + v] == 0.0f);
    ash_exec_fini(&exec);
}

/* The same at a temperature, with a share of the entropy. */
struct objective {
    int32_t target;
    double sharpness, scale, entropy_scale;
};

static double objective_scalar(const void *ctx, const double *x)
{
    const struct objective *op = ctx;
    double sum = 0.0, entropy = 0.0;

    for (size_t v = 0; v < COUNT; v++)
        sum += exp(op->sharpness * x[v]);
    for (size_t v = 0; v < COUNT; v++)
        entropy -= exp(op->sharpness * x[v]) / sum * (op->sharpness * x[v] - log(sum));
    return op->scale * (log(sum) - op->sharpness * x[op->target]) + op->entropy_scale * entropy;
}

static void test_entropy(void **state)
{
    struct objective op = {.target = 5, .sharpness = 1.5};
    float x[2 * COUNT], kept[2 * COUNT], loss[2], entropy[2], scales[2] = {0.5f, 0.5f}, entropies[2] = {-0.75f, 1.0f};
    double wide[COUNT];
    int32_t targets[2] = {op.target, -1};
    struct ash_loss_part part = {
        .rows = 2, .cols = COUNT, .logits = x, .targets = targets, .sharpness = 1.5f, .loss = loss, .entropy = entropy};
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    fill(x, 2 * COUNT, 1, 3.0f);
    memcpy(kept, x, sizeof(x));
    widen(kept, COUNT, wide);
    exec.ops->loss->cross_entropy(&exec, &part);
    assert_memory_equal(kept, x, sizeof(x));
    op.scale = 1.0;
    check_close((double)loss[0], objective_scalar(&op, wide), 1e-6, "loss", 0);
    op.scale = 0.0;
    op.entropy_scale = 1.0;
    check_close((double)entropy[0], objective_scalar(&op, wide), 1e-6, "entropy", 0);
    part.scales = scales;
    part.entropy_scales = entropies;
    op.scale = 0.5;
    op.entropy_scale = -0.75;
    exec.ops->loss->cross_entropy(&exec, &part);
    check_gradient(objective_scalar, &op, kept, COUNT, x, "gradient");
    assert_true(entropy[1] == 0.0f && loss[1] == 0.0f);
    for (size_t v = 0; v < COUNT; v++)
        assert_true(x[COUNT + v] == 0.0f);
    ash_exec_fini(&exec);
}

/* ---- a teacher --------------------------------------------------------------------------------------------------- */

struct lesson {
    const float *teacher;
    double sharpness, beta, target_weight;
    int32_t target;
};

static double log_sum_exp(const double *x, double sharpness)
{
    double max = -INFINITY, sum = 0.0;

    for (size_t v = 0; v < COUNT; v++)
        max = fmax(max, sharpness * x[v]);
    for (size_t v = 0; v < COUNT; v++)
        sum += exp(sharpness * x[v] - max);
    return max + log(sum);
}

static double lesson_scalar(const void *ctx, const double *x)
{
    const struct lesson *op = ctx;
    double teacher[COUNT], beta = op->beta, sum, teacher_sum, loss;

    widen(op->teacher, COUNT, teacher);
    sum = log_sum_exp(x, op->sharpness);
    teacher_sum = log_sum_exp(teacher, op->sharpness);
    loss = op->target_weight * (log_sum_exp(x, 1.0) - x[op->target]);
    for (size_t v = 0; v < COUNT; v++) {
        double p = exp(op->sharpness * x[v] - sum), q = exp(op->sharpness * teacher[v] - teacher_sum);
        double m = (1.0 - beta) * p + beta * q;

        if (beta == 0.0)
            loss += q * log(q / p);
        else if (beta == 1.0)
            loss += p * log(p / q);
        else
            loss += beta * q * log(q / m) + (1.0 - beta) * p * log(p / m);
    }
    return loss;
}

static void test_distill(void **state)
{
    static const float betas[] = {0.0f, 1.0f, 0.5f, 0.3f, 0.9f}, sharpnesses[] = {1.0f, 0.5f, 2.0f};
    float x[2 * COUNT], kept[2 * COUNT], teacher[2 * COUNT], loss[2];
    int32_t targets[2] = {5, -1};
    double wide[COUNT];
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    fill(teacher, 2 * COUNT, 2, 3.0f);
    fill(kept, 2 * COUNT, 1, 3.0f);
    widen(kept, COUNT, wide);
    for (size_t i = 0; i < 15; i++) {
        struct lesson op = {.teacher = teacher,
                            .sharpness = (double)sharpnesses[i % 3],
                            .beta = (double)betas[i / 3],
                            .target_weight = i % 2 == 0 ? 0.0 : 0.5,
                            .target = targets[0]};
        struct ash_distill_args args = {.rows = 2,
                                        .cols = COUNT,
                                        .logits = x,
                                        .teacher = teacher,
                                        .targets = targets,
                                        .scale = 1.0f,
                                        .sharpness = sharpnesses[i % 3],
                                        .beta = betas[i / 3],
                                        .target_weight = (float)op.target_weight,
                                        .loss = loss};

        memcpy(x, kept, sizeof(x));
        exec.ops->loss->distill(&exec, &args);
        check_close((double)loss[0], lesson_scalar(&op, wide), 1e-6, "loss", i);
        check_gradient(lesson_scalar, &op, kept, COUNT, x, "gradient");
        assert_true(loss[1] == 0.0f);
        for (size_t v = 0; v < COUNT; v++)
            assert_true(x[COUNT + v] == 0.0f);
    }
    ash_exec_fini(&exec);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void test_rows(void **state)
{
    enum { ROWS = 3, COLS = 19, SLOTS = 2 };
    static const int32_t where[ROWS * SLOTS] = {4, 0, 1, 1, 2, 3};
    float y[5 * COLS], x[ROWS * COLS], out[ROWS * COLS], weight[ROWS * SLOTS], dots[ROWS * SLOTS],
        table[5 * COLS] = {0};
    float sum[COLS] = {0};
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    fill(y, 5 * COLS, 1, 1.0f);
    fill(x, ROWS * COLS, 2, 1.0f);
    fill(weight, ROWS * SLOTS, 3, 1.0f);
    exec.ops->row->combine(
        &exec, &(struct ash_slots_args){
                   .rows = ROWS, .slots = SLOTS, .cols = COLS, .y = y, .where = where, .weight = weight, .out = out});
    exec.ops->row->slot_dot(
        &exec, &(struct ash_slots_args){
                   .rows = ROWS, .slots = SLOTS, .cols = COLS, .x = x, .y = y, .where = where, .out = dots});
    for (size_t t = 0; t < ROWS; t++)
        for (size_t s = 0; s < SLOTS; s++) {
            double dot = 0.0;

            for (size_t c = 0; c < COLS; c++)
                dot += (double)x[t * COLS + c] * (double)y[(size_t)where[t * SLOTS + s] * COLS + c];
            check_close((double)dots[t * SLOTS + s], dot, 1e-5, "slot_dot", s);
        }
    for (size_t n = 0; n < ROWS * COLS; n++) {
        size_t t = n / COLS, c = n % COLS;
        double want = 0.0;

        for (size_t s = 0; s < SLOTS; s++)
            want += (double)weight[t * SLOTS + s] * (double)y[(size_t)where[t * SLOTS + s] * COLS + c];
        check_close((double)out[n], want, 1e-6, "combine", n);
    }
    exec.ops->embed->scatter_add(&exec, table, COLS, where, ROWS, x);
    exec.ops->embed->scatter_add(&exec, table, COLS, where + 3, ROWS, x);
    check_close((double)table[1 * COLS + 2], (double)x[2 * COLS + 2] + (double)x[2], 1e-6, "scatter", 2);
    exec.ops->matrix->column_sum(
        &exec, &(struct ash_column_sum_args){.rows = ROWS, .cols = COLS, .x = x, .stride = COLS, .sum = sum});
    check_close((double)sum[5], (double)x[5] + (double)x[COLS + 5] + (double)x[2 * COLS + 5], 1e-6, "column", 5);
    ash_exec_fini(&exec);
}

/* ---- optimizer --------------------------------------------------------------------------------------------------- */

/* torch.optim.AdamW in double, several steps. */
/* The exact sum against float64's, and that neither order nor cuts matter. */
static void check_squares(struct ash_exec *exec, const float *x, size_t count)
{
    const struct ash_range all = {0, count}, thirds[2] = {{count / 3, count - count / 3}, {0, count / 3}};
    struct ash_squares whole = {0}, cut = {0};
    struct ash_squares_args args = {.x = x, .ranges = &all, .range_count = 1, .sum = &whole};
    double expected = 0;
    float max;
    int exponent;

    exec->ops->optim->max_abs(exec, &args);
    exec->ops->optim->sum_squares(exec, &args);
    args = (struct ash_squares_args){.x = x, .ranges = thirds, .range_count = 2, .sum = &cut};
    exec->ops->optim->max_abs(exec, &args);
    exec->ops->optim->sum_squares(exec, &args);
    max = ash_f32_from_bits(whole.max);
    frexp((double)max, &exponent);
    assert_int_equal(ash_f32_exponent(whole.max), exponent);
    assert_true(whole.high == cut.high && whole.low == cut.low);
    for (size_t i = 0; i < count; i++) {
        assert_true(fabsf(x[i]) <= max);
        expected += (double)x[i] * (double)x[i];
    }
    check_close(ldexp((double)whole.high * 0x1p32 + (double)whole.low, 2 * exponent - 62), expected, 1e-12, "squares",
                0);
}

static void test_adamw(void **state)
{
    float p[COUNT], m[COUNT] = {0}, v[COUNT] = {0}, grad[COUNT];
    double dp[COUNT], dm[COUNT] = {0}, dv[COUNT] = {0};
    uint16_t narrow[COUNT];
    const struct ash_adamw_range all = {.count = COUNT, .weight_decay = 0.1f};
    struct ash_adamw_args args = {.ranges = &all,
                                  .range_count = 1,
                                  .param = p,
                                  .m = m,
                                  .v = v,
                                  .param_out = p,
                                  .m_out = m,
                                  .v_out = v,
                                  .grad = grad,
                                  .grad_scale = 0.5f,
                                  .lr = 1e-2f,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.95f,
                                  .eps = 1e-8f,
                                  .param_bf16 = narrow};
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    fill(p, COUNT, 1, 1.0f);
    widen(p, COUNT, dp);
    for (int step = 1; step <= 5; step++) {
        fill(grad, COUNT, (uint64_t)(10 + step), 1.0f);
        args.correction1 = (float)(1.0 - pow(0.9, step));
        args.correction2 = (float)(1.0 - pow(0.95, step));
        exec.ops->optim->adamw(&exec, &args);
        for (size_t i = 0; i < COUNT; i++) {
            double g = 0.5 * (double)grad[i];

            dp[i] *= 1.0 - 1e-2 * 0.1;
            dm[i] = 0.9 * dm[i] + 0.1 * g;
            dv[i] = 0.95 * dv[i] + 0.05 * g * g;
            dp[i] -= 1e-2 / (1.0 - pow(0.9, step)) * dm[i] / (sqrt(dv[i]) / sqrt(1.0 - pow(0.95, step)) + 1e-8);
            check_close((double)p[i], dp[i], 1e-6, "param", i);
            assert_int_equal(narrow[i], ash_f32_to_bf16(p[i]));
        }
    }
    check_squares(&exec, grad, COUNT);
    ash_exec_fini(&exec);
}

/* Lion as published (arXiv 2302.06675, algorithm 2), in double. */
static void test_lion(void **state)
{
    float p[COUNT], m[COUNT] = {0}, v[COUNT] = {0}, grad[COUNT];
    double dp[COUNT], dm[COUNT] = {0};
    uint16_t narrow[COUNT];
    const struct ash_adamw_range all = {.count = COUNT, .weight_decay = 0.5f};
    struct ash_adamw_args args = {.ranges = &all,
                                  .range_count = 1,
                                  .param = p,
                                  .m = m,
                                  .v = v,
                                  .param_out = p,
                                  .m_out = m,
                                  .v_out = v,
                                  .grad = grad,
                                  .grad_scale = 0.5f,
                                  .lr = 1e-2f,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.99f,
                                  .param_bf16 = narrow};
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    fill(p, COUNT, 1, 1.0f);
    widen(p, COUNT, dp);
    for (int step = 1; step <= 5; step++) {
        fill(grad, COUNT, (uint64_t)(10 + step), 1.0f);
        grad[0] = 0.0f; /* its sign is 0 */
        exec.ops->optim->lion(&exec, &args);
        for (size_t i = 0; i < COUNT; i++) {
            double g = 0.5 * (double)grad[i], update = 0.9 * dm[i] + 0.1 * g;

            dp[i] -= 1e-2 * ((update > 0) - (update < 0) + 0.5 * dp[i]);
            dm[i] = 0.99 * dm[i] + 0.01 * g;
            check_close((double)p[i], dp[i], 1e-6, "param", i);
            check_close((double)m[i], dm[i], 1e-6, "m", i);
            assert_int_equal(narrow[i], ash_f32_to_bf16(p[i]));
            assert_true(v[i] == 0.0f);
        }
    }
    ash_exec_fini(&exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm), cmocka_unit_test(test_swiglu),        cmocka_unit_test(test_swiglu_bf16),
        cmocka_unit_test(test_gelu), cmocka_unit_test(test_cross_entropy), cmocka_unit_test(test_entropy),
        cmocka_unit_test(test_rows), cmocka_unit_test(test_distill),       cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_lion),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The reference ops of some families against formulas in double: gates, sinks, caps; attention with caps. */
#include "unit/compute/ref_check.h"

enum { COUNT = 37, ROWS = 5, HEADS = 3, DIM = 6 };

/* ---- gates ------------------------------------------------------------------------------------------------------- */

struct gate {
    enum ash_gate kind;
    float dout[COUNT];
};

static double gated(enum ash_gate kind, double gate, double up)
{
    double g = fmin(gate, 7), u = fmax(fmin(up, 7), -7);

    if (kind == ASH_GATE_CLAMPED) return g / (1 + exp(-1.702 * g)) * (u + 1);
    return 0.5 * gate * (1 + tanh(sqrt(2 / acos(-1.0)) * (gate + 0.044715 * gate * gate * gate))) * up;
}

/* Gate and up are every other element. */
static double gate_scalar(const void *ctx, const double *in)
{
    const struct gate *op = ctx;
    double sum = 0;

    for (size_t i = 0; i < COUNT; i++)
        sum += (double)op->dout[i] * gated(op->kind, in[2 * i], in[2 * i + 1]);
    return sum;
}

static void test_gates(void **state)
{
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    for (int kind = 0; kind < 2; kind++) {
        struct gate op = {.kind = (enum ash_gate)kind};
        float in[2 * COUNT], out[COUNT], grad[2 * COUNT];
        struct ash_gated_args args = {.kind = op.kind,
                                      .rows = 1,
                                      .cols = COUNT,
                                      .stride = 2 * COUNT,
                                      .step = 2,
                                      .gate = in,
                                      .up = in + 1,
                                      .out = out};

        fill(in, 2 * COUNT, 1, kind == ASH_GATE_CLAMPED ? 12.0f : 3.0f); /* some beyond the limits */
        fill(op.dout, COUNT, 2, 1.0f);
        exec.ops->family->gated_forward(&exec, &args);
        for (size_t i = 0; i < COUNT; i++)
            check_close((double)out[i], gated(op.kind, (double)in[2 * i], (double)in[2 * i + 1]), 1e-5, "gate", i);
        args.dout = op.dout;
        args.dgate = grad;
        args.dup = grad + 1;
        exec.ops->family->gated_backward(&exec, &args);
        check_gradient(gate_scalar, &op, in, 2 * COUNT, grad, "gradient");
    }
    ash_exec_fini(&exec);
}

/* ---- sinks ------------------------------------------------------------------------------------------------------- */

struct sink {
    float out[ROWS * HEADS * DIM], lse[ROWS * HEADS], dout[ROWS * HEADS * DIM];
};

/* The sum of dout * out, where a sink takes its share. */
static double sink_scalar(const void *ctx, const double *sinks)
{
    const struct sink *op = ctx;
    double sum = 0;

    for (size_t i = 0; i < ROWS * HEADS * DIM; i++)
        sum += (double)op->dout[i] * (double)op->out[i] / (1 + exp(sinks[i / DIM % HEADS] - (double)op->lse[i / DIM]));
    return sum;
}

static void test_sinks(void **state)
{
    struct sink op;
    float out[ROWS * HEADS * DIM], lse[ROWS * HEADS], sinks[HEADS], dsinks[HEADS] = {0};
    struct ash_sink_args args = {.rows = ROWS,
                                 .heads = HEADS,
                                 .dim = DIM,
                                 .stride = HEADS * DIM,
                                 .sinks = sinks,
                                 .out = out,
                                 .lse = lse,
                                 .dout = op.dout,
                                 .dsinks = dsinks};
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    fill(op.out, ROWS * HEADS * DIM, 1, 1.0f);
    fill(op.dout, ROWS * HEADS * DIM, 2, 1.0f);
    fill(op.lse, ROWS * HEADS, 3, 4.0f);
    fill(sinks, HEADS, 4, 4.0f);
    memcpy(out, op.out, sizeof(out));
    memcpy(lse, op.lse, sizeof(lse));
    exec.ops->family->sink_forward(&exec, &args);
    for (size_t i = 0; i < ROWS * HEADS; i++) {
        double all = log(exp((double)op.lse[i]) + exp((double)sinks[i % HEADS]));

        check_close((double)lse[i], all, 1e-5, "lse", i);
        check_close((double)out[i * DIM], (double)op.out[i * DIM] * exp((double)op.lse[i] - all), 1e-5, "out", i);
    }
    exec.ops->family->sink_backward(&exec, &args);
    check_gradient(sink_scalar, &op, sinks, HEADS, dsinks, "gradient of sinks");
    ash_exec_fini(&exec);
}

/* ---- caps -------------------------------------------------------------------------------------------------------- */

static double cap_scalar(const void *ctx, const double *in)
{
    const float *dout = ctx;
    double sum = 0;

    for (size_t i = 0; i < COUNT; i++)
        sum += (double)dout[i] * 5 * tanh(in[i] / 5);
    return sum;
}

static void test_caps(void **state)
{
    float in[COUNT], y[COUNT], dout[COUNT], grad[COUNT];
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    fill(in, COUNT, 1, 9.0f);
    fill(dout, COUNT, 2, 1.0f);
    memcpy(y, in, sizeof(y));
    memcpy(grad, dout, sizeof(grad));
    exec.ops->family->cap_forward(&exec, y, 5, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        check_close((double)y[i], 5 * tanh((double)in[i] / 5), 1e-5, "cap", i);
    exec.ops->family->cap_backward(&exec, y, 5, COUNT, grad);
    check_gradient(cap_scalar, dout, in, COUNT, grad, "gradient");
    ash_exec_fini(&exec);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* A query of a document of one head sees keys of its chunk alone, with capped scores. */
static void test_capped_chunks(void **state)
{
    enum { KEYS = 11, CHUNK = 4 };
    float q[KEYS * DIM], k[KEYS * DIM], v[KEYS * DIM], out[KEYS * DIM];
    struct ash_attn_seq seq = {.q_count = KEYS, .k = k, .v = v};
    struct ash_attn_args args = {.heads = 1,
                                 .kv_heads = 1,
                                 .dim_k = DIM,
                                 .dim_v = DIM,
                                 .scale = 2,
                                 .cap = 3,
                                 .chunk = CHUNK,
                                 .kv_dtype = ASH_F32,
                                 .q_stride = DIM,
                                 .k_stride = DIM,
                                 .v_stride = DIM,
                                 .out_stride = DIM,
                                 .q = q,
                                 .out = out,
                                 .seqs = &seq,
                                 .seq_count = 1};
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    fill(q, KEYS * DIM, 1, 1.0f);
    fill(k, KEYS * DIM, 2, 1.0f);
    fill(v, KEYS * DIM, 3, 1.0f);
    exec.ops->attn->forward(&exec, &args);
    for (size_t i = 0; i < KEYS; i++) {
        double sum = 0, acc[DIM] = {0};

        for (size_t j = i / CHUNK * CHUNK; j <= i; j++) {
            double score = 0, p;

            for (size_t d = 0; d < DIM; d++)
                score += (double)q[i * DIM + d] * (double)k[j * DIM + d];
            p = exp(3 * tanh(2 * score / 3));
            sum += p;
            for (size_t d = 0; d < DIM; d++)
                acc[d] += p * (double)v[j * DIM + d];
        }
        for (size_t d = 0; d < DIM; d++)
            check_close((double)out[i * DIM + d], acc[d] / sum, 1e-5, "out", i * DIM + d);
    }
    ash_exec_fini(&exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gates),
        cmocka_unit_test(test_sinks),
        cmocka_unit_test(test_caps),
        cmocka_unit_test(test_capped_chunks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

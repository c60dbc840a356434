/* The reference attention against a softmax in double and its central differences. */
#include "unit/compute/ref_check.h"

enum {
    HEADS = 4,
    KV_HEADS = 2,
    DIM_K = 5,
    DIM_V = 3,
    T = 71,
    Q = HEADS * DIM_K,
    K = KV_HEADS * DIM_K,
    V = KV_HEADS * DIM_V,
    O = HEADS * DIM_V
};

#define SCALE 0.4

struct attn {
    size_t window;
    float dout[T * O];
};

/* Inputs q [T,Q], k [T,K], v [T,V], one after the other. */
static void attn_double(const struct attn *op, const double *in, double *out, double *lse)
{
    const double *q = in, *k = in + T * Q, *v = k + T * K;

    for (size_t i = 0; i < T; i++)
        for (size_t h = 0; h < HEADS; h++) {
            size_t g = h / (HEADS / KV_HEADS), first = op->window != 0 && i + 1 > op->window ? i + 1 - op->window : 0;
            double p[T], sum = 0.0, *o = &out[i * O + h * DIM_V];

            memset(o, 0, DIM_V * sizeof(*o));
            for (size_t j = first; j <= i; j++) {
                double s = 0.0;

                for (size_t d = 0; d < DIM_K; d++)
                    s += q[i * Q + h * DIM_K + d] * k[j * K + g * DIM_K + d];
                p[j] = exp(s * SCALE);
                sum += p[j];
            }
            for (size_t j = first; j <= i; j++)
                for (size_t d = 0; d < DIM_V; d++)
                    o[d] += p[j] / sum * v[j * V + g * DIM_V + d];
            if (lse != NULL) lse[i * HEADS + h] = log(sum);
        }
}

static double attn_scalar(const void *ctx, const double *in)
{
    const struct attn *op = ctx;
    static double out[T * O];
    double sum = 0.0;

    attn_double(op, in, out, NULL);
    for (size_t i = 0; i < T * O; i++)
        sum += out[i] * (double)op->dout[i];
    return sum;
}

static void check_attn(size_t window)
{
    static float in[T * (Q + K + V)], out[T * O], lse[T * HEADS], grad[T * (Q + K + V)];
    static double wide[T * (Q + K + V)], want[T * O], want_lse[T * HEADS];
    struct attn op = {.window = window};
    struct ash_attn_seq seq = {
        .q_count = T, .k = in + T * Q, .v = in + T * (Q + K), .dk = grad + T * Q, .dv = grad + T * (Q + K)};
    struct ash_attn_args args = {.heads = HEADS,
                                 .kv_heads = KV_HEADS,
                                 .dim_k = DIM_K,
                                 .dim_v = DIM_V,
                                 .scale = (float)SCALE,
                                 .window = window,
                                 .kv_dtype = ASH_F32,
                                 .q_stride = Q,
                                 .k_stride = K,
                                 .v_stride = V,
                                 .out_stride = O,
                                 .q = in,
                                 .out = out,
                                 .lse = lse,
                                 .seqs = &seq,
                                 .seq_count = 1,
                                 .dout = op.dout,
                                 .dq = grad};
    struct ash_exec exec;

    ref_init(&exec);
    fill(in, T * (Q + K + V), 1, 1.0f);
    fill(op.dout, T * O, 2, 1.0f);
    memset(grad, 0, sizeof(grad));
    widen(in, T * (Q + K + V), wide);
    exec.ops->attn->forward(&exec, &args);
    attn_double(&op, wide, want, want_lse);
    check_all(out, want, T * O, 2e-6, "out");
    check_all(lse, want_lse, T * HEADS, 2e-6, "lse");
    exec.ops->attn->backward(&exec, &args);
    check_gradient(attn_scalar, &op, in, T * (Q + K + V), grad, "gradient");
    ash_exec_fini(&exec);
}

static void test_causal(void **state)
{
    (void)state;
    check_attn(0);
}

static void test_window(void **state)
{
    (void)state;
    check_attn(1);
    check_attn(9);
}

/* Scores far apart, and large ones, do not overflow. */
static void test_large_scores(void **state)
{
    float q[2] = {100.0f, 100.0f}, k[2] = {-9.0f, 9.0f}, v[2] = {1.0f, 2.0f}, out[2], lse[2];
    struct ash_attn_seq seq = {.q_count = 2, .k = k, .v = v};
    struct ash_attn_args args = {.heads = 1,
                                 .kv_heads = 1,
                                 .dim_k = 1,
                                 .dim_v = 1,
                                 .scale = 1.0f,
                                 .kv_dtype = ASH_F32,
                                 .q_stride = 1,
                                 .k_stride = 1,
                                 .v_stride = 1,
                                 .out_stride = 1,
                                 .q = q,
                                 .out = out,
                                 .lse = lse,
                                 .seqs = &seq,
                                 .seq_count = 1};
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    exec.ops->attn->forward(&exec, &args);
    assert_true(out[0] == 1.0f && out[1] == 2.0f && lse[0] == -900.0f && lse[1] == 900.0f);
    ash_exec_fini(&exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_causal),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_large_scores),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

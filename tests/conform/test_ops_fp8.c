/* Products of e4m3 on every CPU backend: the reference's bits for every layout, dtype and size, and what training builds on:
 * k may be cut at multiples of the group, rows do not depend on M. */
#include <math.h>

#include "base/fp8.h"
#include "conform/ops_harness.h"

/* Values of very different sizes, zeros among them. */
static float *draw_wild(struct tape *tape, size_t count)
{
    float *values = draw_floats(tape, count, 1.0f);

    for (size_t i = 0; i < count; i++) {
        size_t kind = draw_below(tape, 16);

        if (kind == 0) values[i] = 0.0f;
        if (kind == 1) values[i] *= ldexpf(1.0f, (int)draw_below(tape, 60) - 30);
    }
    return values;
}

static struct ash_mat draw_operand(struct tape *tape, size_t rows, size_t cols)
{
    struct ash_mat mat = {.dtype = draw_bool(tape) ? ASH_F32 : ASH_BF16, .row_stride = cols, .col_stride = 1};
    size_t gap = draw_below(tape, 5);

    if (draw_bool(tape)) mat.row_stride = 1, mat.col_stride = rows + gap;
    if (mat.dtype == ASH_F32)
        mat.data = draw_wild(tape, (rows + gap) * (cols + gap));
    else
        mat.data = draw_dtype(tape, ASH_BF16, (rows + gap) * (cols + gap), 1.0f);
    return mat;
}

static struct ash_gemm_args draw_args(struct tape *tape, size_t M, size_t N, size_t K)
{
    struct ash_gemm_args args = {
        .M = M, .N = N, .K = K, .round_bf16 = true, .fp8 = draw_bool(tape) ? ASH_FP8_LINES : ASH_FP8_WEIGHT};

    args.a = draw_operand(tape, M, K);
    args.b = draw_operand(tape, K, N);
    args.c_stride = N + draw_below(tape, 4);
    return args;
}

static void scenario_product(struct ash_exec *exec, struct tape *tape)
{
    size_t M = draw_size(tape, 40), N = draw_size(tape, 150), K = draw_size(tape, 400), mode = draw_below(tape, 4);
    struct ash_gemm_args args = draw_args(tape, M, N, K);

    args.add_stride = args.c_stride;
    args.c = draw_floats(tape, M * args.c_stride, 1.0f);
    args.accumulate = mode == 1;
    if (mode >= 2) args.bias = draw_floats(tape, N, 1.0f);
    if (mode == 3) args.add = draw_floats(tape, M * args.c_stride, 1.0f);
    exec->ops->matrix->gemm(exec, &args);
    tape_words(tape, args.c, M * args.c_stride);
}

/* k cut at a multiple of the group. */
static void scenario_cut(struct ash_exec *exec, struct tape *tape)
{
    size_t M = 1 + draw_below(tape, 9), N = 1 + draw_below(tape, 200), K = 130 + draw_below(tape, 300);
    size_t cut = ASH_FP8_GROUP_K * (1 + draw_below(tape, (K - 1) / ASH_FP8_GROUP_K));
    struct ash_gemm_args whole = draw_args(tape, M, N, K), part = whole;
    float *c = draw_floats(tape, M * whole.c_stride, 1.0f), *parts = tape_alloc(tape, M * whole.c_stride * sizeof(*c));

    memcpy(parts, c, M * whole.c_stride * sizeof(*c));
    whole.c = c;
    exec->ops->matrix->gemm(exec, &whole);
    part.c = parts;
    part.K = cut;
    exec->ops->matrix->gemm(exec, &part);
    part.K = K - cut;
    part.accumulate = true;
    part.a.data = (const char *)part.a.data + cut * part.a.col_stride * ash_dtype_bytes(part.a.dtype);
    part.b.data = (const char *)part.b.data + cut * part.b.row_stride * ash_dtype_bytes(part.b.dtype);
    exec->ops->matrix->gemm(exec, &part);
    for (size_t m = 0; m < M; m++)
        assert_memory_equal(c + m * whole.c_stride, parts + m * whole.c_stride, N * sizeof(*c));
    tape_words(tape, c, M * whole.c_stride);
}

/* A value of a line of k whose scale is 1: 448 where the other operand is 0 (zero_at), else a small integer. */
static float small_value(size_t k, size_t line, size_t most_at, size_t zero_at)
{
    if (k % ASH_FP8_GROUP_K == most_at) return ASH_E4M3_MAX;
    return k % ASH_FP8_GROUP_K == zero_at ? 0.0f : (float)((k * 7 + line) % 9) - 4.0f;
}

/* Where all codes and sums are exact, the product is the plain one. */
static void test_plain_sums(void **state)
{
    (void)state;
    for (const char *const *name = backends_under_test(); *name != NULL; name++) {
        enum { M = 3, N = 5, K = 300 };
        static float a[M][K], b[N][K], c[M][N];
        struct ash_gemm_args args = {.M = M,
                                     .N = N,
                                     .K = K,
                                     .a = {a, ASH_F32, K, 1},
                                     .b = {b, ASH_F32, 1, K},
                                     .c = &c[0][0],
                                     .c_stride = N,
                                     .round_bf16 = true,
                                     .fp8 = ASH_FP8_LINES};
        struct ash_exec exec;

        exec_init(&exec, *name, 2);
        for (size_t k = 0; k < K; k++) {
            for (size_t m = 0; m < M; m++)
                a[m][k] = small_value(k, m, 0, 1);
            for (size_t n = 0; n < N; n++)
                b[n][k] = small_value(k, n, 1, 0);
        }
        exec.ops->matrix->gemm(&exec, &args);
        for (size_t m = 0; m < M; m++)
            for (size_t n = 0; n < N; n++) {
                double want = 0.0;

                for (size_t k = 0; k < K; k++)
                    want += (double)a[m][k] * (double)b[n][k];
                assert_true((double)c[m][n] == want);
            }
        ash_exec_fini(&exec);
    }
}

static void test_products(void **state)
{
    (void)state;
    check_scenario(scenario_product, 60);
    check_scenario(scenario_cut, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_plain_sums)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Matrix products on every backend: the reference's bits for every layout, dtype and awkward size, and the promises
 * that training and serving build on: a row does not depend on M, k may be cut, threads do not matter. */
#include "conform/ops_harness.h"

/* Where element (r, c) of a rows x cols matrix lies: row by row, column by column, or with gaps both ways. */
static struct ash_mat draw_mat(struct tape *tape, size_t rows, size_t cols)
{
    struct ash_mat mat = {.dtype = (enum ash_dtype)draw_below(tape, 3)};
    size_t gap = draw_bool(tape) ? 0 : draw_below(tape, 9), span;

    mat.row_stride = cols + gap;
    mat.col_stride = 1;
    if (draw_bool(tape)) {
        mat.row_stride = 1;
        mat.col_stride = rows + gap;
    } else if (draw_below(tape, 6) == 0) {
        mat.row_stride = 2 * cols + gap;
        mat.col_stride = 2;
    }
    span = (rows - 1) * mat.row_stride + (cols - 1) * mat.col_stride + 1;
    mat.data = draw_dtype(tape, mat.dtype, span, 1.0f);
    return mat;
}

static void run_gemm(struct ash_exec *exec, struct tape *tape, size_t M, size_t N, size_t K)
{
    struct ash_gemm_args args = {.M = M, .N = N, .K = K};
    size_t mode = draw_below(tape, 3);
    float *c;

    args.a = draw_mat(tape, M, K == 0 ? 1 : K);
    args.b = draw_mat(tape, K == 0 ? 1 : K, N);
    args.c_stride = N + (draw_bool(tape) ? 0 : draw_below(tape, 7));
    args.round_bf16 = draw_bool(tape);
    args.cut_anywhere = draw_below(tape, 8) == 0;
    args.accumulate = mode == 1;
    args.bias = mode == 2 ? draw_floats(tape, N, 1.0f) : NULL;
    args.c = c = draw_floats(tape, M * args.c_stride, 1.0f);
    exec->ops->matrix->gemm(exec, &args);
    tape_words(tape, c, M * args.c_stride); /* the gaps too: they must not be written */
}

static float *draw_like(struct tape *tape, const float *x, size_t count)
{
    float *copy = tape_alloc(tape, count * sizeof(*copy));

    memcpy(copy, x, count * sizeof(*copy));
    return copy;
}

/* A product with something added at its end has the bits of the product and an addition after it, and one that is
 * written as bf16 those of the rounded result; nothing else is written. */
static void run_epilogue(struct ash_exec *exec, struct tape *tape, size_t M, size_t N, size_t K)
{
    const size_t gap = draw_bool(tape) ? 0 : draw_below(tape, 9), stride = N + gap, count = M * stride;
    float *plain = draw_floats(tape, count, 1.0f), *want = tape_alloc(tape, count * sizeof(*want)),
          *sum = draw_like(tape, plain, count);
    uint16_t *rounded = draw_dtype(tape, ASH_BF16, count, 1.0f);
    struct ash_gemm_args args = {.M = M, .N = N, .K = K, .c_stride = stride, .add_stride = stride};

    args.a = draw_mat(tape, M, K);
    args.b = draw_mat(tape, K, N);
    args.round_bf16 = draw_below(tape, 4) > 0;
    args.cut_anywhere = draw_below(tape, 8) == 0;
    args.bias = draw_bool(tape) ? draw_floats(tape, N, 1.0f) : NULL;
    args.c = plain;
    exec->ops->matrix->gemm(exec, &args);
    args.add = draw_floats(tape, count, 1.0f);
    exec->ops->row->add(exec, args.add, plain, count, want);
    args.c = sum;
    exec->ops->matrix->gemm(exec, &args);
    if (draw_bool(tape)) args.add = NULL;
    args.c = NULL;
    args.c_bf16 = rounded;
    exec->ops->matrix->gemm(exec, &args);
    tape_wait(tape);
    for (size_t m = 0; m < M; m++) {
        assert_floats_equal(sum + m * stride, want + m * stride, N);
        for (size_t n = 0; n < N; n++)
            assert_int_equal(rounded[m * stride + n],
                             ash_f32_to_bf16((args.add != NULL ? want : plain)[m * stride + n]));
    }
    tape_words(tape, sum, count);
    for (size_t i = 0; i < count; i++)
        tape_words(tape, &(uint32_t){rounded[i]}, 1);
}

static void scenario_epilogue(struct ash_exec *exec, struct tape *tape)
{
    size_t M = draw_size(tape, 100), N = draw_size(tape, 129), K = draw_size(tape, 65);

    run_epilogue(exec, tape, M, N, K);
}

/* So large that a GPU asks its library. */
static void scenario_epilogue_large(struct ash_exec *exec, struct tape *tape)
{
    size_t M = 257 + draw_below(tape, 40), N = 256 + draw_below(tape, 40), K = 256 + draw_below(tape, 40);

    run_epilogue(exec, tape, M, N, K);
}

static void scenario_small(struct ash_exec *exec, struct tape *tape)
{
    size_t M = draw_size(tape, 17), N = draw_size(tape, 33), K = draw_size(tape, 65);

    run_gemm(exec, tape, M, N, K);
}

static void scenario_middle(struct ash_exec *exec, struct tape *tape)
{
    size_t M = draw_size(tape, 129), N = draw_size(tape, 129), K = draw_size(tape, 129);

    run_gemm(exec, tape, M, N, K);
}

static void scenario_one_row(struct ash_exec *exec, struct tape *tape)
{
    size_t M = 1 + draw_below(tape, 3), N = draw_size(tape, 400), K = draw_size(tape, 400);

    run_gemm(exec, tape, M, N, K);
}

/* Beyond one cache block in each direction. */
static void scenario_long(struct ash_exec *exec, struct tape *tape)
{
    size_t sizes[3] = {draw_size(tape, 33), draw_size(tape, 33), draw_size(tape, 33)};

    sizes[draw_below(tape, 3)] = 700 + draw_below(tape, 900);
    run_gemm(exec, tape, sizes[0], sizes[1], sizes[2]);
}

/* Beyond what threads share of an operand at once, whichever it is. */
static void scenario_wide(struct ash_exec *exec, struct tape *tape)
{
    size_t M = 1025 + draw_below(tape, 40), N = 1025 + draw_below(tape, 40), K = draw_size(tape, 9);

    run_gemm(exec, tape, M, N, K);
}

/* Whole tiles over more k than stay in the nearest cache, with either operand shared; of the other one so much that two
 * threads each pack the shared one. */
static void scenario_deep(struct ash_exec *exec, struct tape *tape)
{
    size_t few = 32 + draw_below(tape, 3), many = 256 + draw_below(tape, 3), K = 770 + draw_below(tape, 1600);
    bool wide = draw_below(tape, 2) == 1;

    run_gemm(exec, tape, wide ? few : many, wide ? many : few, K);
}

/* Rows in groups of drawn sizes, some of them empty, each with its own matrix [N, K]. */
static void scenario_grouped(struct ash_exec *exec, struct tape *tape)
{
    size_t groups = 1 + draw_below(tape, 20), N = draw_size(tape, 129), K = draw_size(tape, 129), rows = 0;
    int32_t *starts = draw_ids(tape, groups + 1, 1);
    enum ash_dtype dtype = draw_bool(tape) ? ASH_F32 : ASH_BF16;
    struct ash_weight w[20];
    struct ash_grouped_args args = {.groups = groups, .N = N, .K = K, .starts = starts, .w = w};

    for (size_t g = 0; g < groups; g++) {
        starts[g] = (int32_t)rows;
        rows += draw_below(tape, 3) == 0 ? 0 : draw_size(tape, 65);
        w[g] = (struct ash_weight){.N = N, .mat = {draw_dtype(tape, dtype, N * K, 1.0f), dtype, 1, K}};
    }
    starts[groups] = (int32_t)(args.rows = rows);
    args.x_stride = K + draw_below(tape, 3);
    args.y_stride = N + draw_below(tape, 3);
    args.x = draw_floats(tape, rows * args.x_stride + 1, 1.0f);
    args.y = draw_floats(tape, rows * args.y_stride + 1, 1.0f);
    args.round_bf16 = draw_bool(tape);
    args.accumulate = draw_bool(tape);
    (exec->ops->route->grouped != NULL ? exec->ops : exec->ops->reference)->route->grouped(exec, &args);
    memset(w, 0xa5, sizeof(w)); /* the op has copied its arguments */
    tape_words(tape, args.y, rows * args.y_stride);
}

static void scenario_grouped_grad(struct ash_exec *exec, struct tape *tape)
{
    size_t groups = 1 + draw_below(tape, 20), rows = 0;
    int32_t *starts = draw_ids(tape, groups + 1, 1);
    float *dw[20];
    struct ash_grouped_grad_args args = {.groups = groups,
                                         .M = draw_size(tape, 129),
                                         .N = draw_size(tape, 129),
                                         .starts = starts,
                                         .dw = dw,
                                         .accumulate = draw_bool(tape),
                                         .round_bf16 = draw_bool(tape)};
    size_t size = args.M * args.N;
    float *all = draw_floats(tape, groups * size, 1.0f);

    for (size_t g = 0; g < groups; g++) {
        starts[g] = (int32_t)rows;
        rows += draw_below(tape, 3) == 0 ? 0 : draw_size(tape, 65);
        dw[g] = all + g * size;
    }
    starts[groups] = (int32_t)(args.rows = rows);
    args.x_stride = args.N + draw_below(tape, 3);
    args.dy_stride = args.M + draw_below(tape, 3);
    args.x = draw_floats(tape, rows * args.x_stride + 1, 1.0f);
    args.dy = draw_floats(tape, rows * args.dy_stride + 1, 1.0f);
    (exec->ops->route->grouped_grad != NULL ? exec->ops : exec->ops->reference)->route->grouped_grad(exec, &args);
    memset(dw, 0xa5, sizeof(dw)); /* the op has copied its arguments */
    tape_words(tape, all, groups * size);
}

static void scenario_column_sum(struct ash_exec *exec, struct tape *tape)
{
    size_t seq_rows = draw_bool(tape) ? draw_size(tape, 100) : 0;
    struct ash_column_sum_args args = {.cols = draw_size(tape, 400), .seq_rows = seq_rows};

    args.rows = seq_rows > 0 ? seq_rows * (1 + draw_below(tape, 4)) : draw_size(tape, 129);
    args.stride = args.cols + draw_below(tape, 5);
    args.x = draw_floats(tape, args.rows * args.stride, 1.0f);
    args.sum = draw_floats(tape, args.cols, 1.0f);
    exec->ops->matrix->column_sum(exec, &args);
    tape_words(tape, args.sum, args.cols);
}

static void test_gemm(void **state)
{
    (void)state;
    check_scenario(scenario_small, 400);
    check_scenario(scenario_middle, 80);
    check_scenario(scenario_one_row, 60);
    check_scenario(scenario_long, 40);
    check_scenario(scenario_wide, 1);
    check_scenario(scenario_deep, few_or_many(2, 4));
}

static void test_epilogue(void **state)
{
    (void)state;
    check_scenario(scenario_epilogue, 60);
    check_scenario(scenario_epilogue_large, few_or_many(1, 4));
}

static void test_column_sum(void **state)
{
    (void)state;
    check_scenario(scenario_column_sum, 60);
    check_scenario(scenario_grouped, 60);
    check_scenario(scenario_grouped_grad, 60);
}

/* K = 0 leaves zeros, the bias or the old value. */
static void test_empty(void **state)
{
    (void)state;
    for (const char *const *name = ash_exec_backends(); *name != NULL; name++) {
        float c[3] = {1.0f, 2.0f, 3.0f}, bias[3] = {4.0f, 5.0f, 6.0f}, none = 0.0f;
        struct ash_gemm_args args = {.M = 1,
                                     .N = 3,
                                     .a = {&none, ASH_F32, 1, 1},
                                     .b = {&none, ASH_F32, 1, 1},
                                     .c = c,
                                     .c_stride = 3,
                                     .accumulate = true};
        struct ash_exec exec;

        exec_init(&exec, *name, 2);
        exec.ops->matrix->gemm(&exec, &args);
        assert_true(c[0] == 1.0f && c[2] == 3.0f);
        args.accumulate = false;
        args.bias = bias;
        exec.ops->matrix->gemm(&exec, &args);
        assert_true(c[0] == 4.0f && c[2] == 6.0f);
        args.bias = NULL;
        exec.ops->matrix->gemm(&exec, &args);
        assert_true(c[0] == 0.0f && c[2] == 0.0f);
        args.M = 0;
        exec.ops->matrix->gemm(&exec, &args);
        args.M = 1;
        args.N = 0;
        exec.ops->matrix->gemm(&exec, &args);
        ash_exec_fini(&exec);
    }
}

/* x[M,K] w[N,K]^T, the shape of a layer. */
static void layer_gemm(struct ash_exec *exec, size_t M, size_t N, size_t K, const float *x, const float *w, float *c,
                       size_t ld, bool accumulate, bool bf16, bool cut_anywhere)
{
    struct ash_gemm_args args = {.M = M,
                                 .N = N,
                                 .K = K,
                                 .a = {x, ASH_F32, ld, 1},
                                 .b = {w, ASH_F32, 1, ld},
                                 .c = c,
                                 .c_stride = N,
                                 .accumulate = accumulate,
                                 .round_bf16 = bf16,
                                 .cut_anywhere = cut_anywhere};

    exec->ops->matrix->gemm(exec, &args);
}

/* A row of a large batch is the row computed alone; and so is every group of rows. */
static void test_rows_alone(void **state)
{
    enum { M = 131, N = 77, K = 203 };

    (void)state;
    for (const char *const *name = ash_exec_backends(); *name != NULL; name++) {
        struct ash_exec exec;
        struct tape tape;
        float *x, *w, *all, *some;

        exec_init(&exec, *name, 2);
        tape_init(&tape, &exec, 7);
        x = draw_floats(&tape, (size_t)M * K, 1.0f);
        w = draw_floats(&tape, (size_t)N * K, 1.0f);
        all = draw_floats(&tape, (size_t)M * N, 1.0f);
        some = draw_floats(&tape, (size_t)M * N, 1.0f);
        for (int bf16 = 0; bf16 < 2; bf16++) {
            layer_gemm(&exec, M, N, K, x, w, all, K, false, bf16, false);
            for (size_t step = 1; step <= M; step += SANITIZED ? 7 * step : 1 + step / 2) {
                for (size_t m = 0; m < M; m += step)
                    layer_gemm(&exec, m + step < M ? step : M - m, N, K, x + m * K, w, some + m * N, K, false, bf16,
                               false);
                assert_memory_equal(all, some, (size_t)M * N * sizeof(*all));
            }
        }
        ash_exec_fini(&exec);
        tape_fini(&tape);
    }
}

/* The chain in calls of step k each. */
static void check_cut(struct ash_exec *exec, struct tape *tape, size_t M, bool bf16, bool cut_anywhere)
{
    enum { N = 45, K = 1100 };
    float *x = draw_floats(tape, M * K, 1.0f), *w = draw_floats(tape, (size_t)N * K, 1.0f);
    float *whole = draw_floats(tape, M * N, 1.0f), *parts = draw_floats(tape, M * N, 1.0f);
    size_t unit = bf16 && !cut_anywhere ? ASH_K_GROUP : 1;

    layer_gemm(exec, M, N, K, x, w, whole, K, false, bf16, cut_anywhere);
    for (size_t step = unit; step < K; step += unit + 2 * step) {
        for (size_t k = 0; k < K; k += step)
            layer_gemm(exec, M, N, k + step < K ? step : K - k, x + k, w + k, parts, K, k > 0, bf16, cut_anywhere);
        assert_memory_equal(whole, parts, M * N * sizeof(*whole));
    }
}

/* k may be cut anywhere into accumulating calls; products of bf16 say so, or are cut at multiples of ASH_K_GROUP. */
static void test_k_cut(void **state)
{

    (void)state;
    for (const char *const *name = ash_exec_backends(); *name != NULL; name++) {
        struct ash_exec exec;
        struct tape tape;

        exec_init(&exec, *name, 2);
        tape_init(&tape, &exec, 8);
        for (size_t M = 1; M < 20; M += 6) {
            check_cut(&exec, &tape, M, false, false);
            check_cut(&exec, &tape, M, true, false);
            check_cut(&exec, &tape, M, true, true);
        }
        ash_exec_fini(&exec);
        tape_fini(&tape);
    }
}

/* Enough threads that operands use another slot of the broadcast buffer each time, and several blocks of k. */
static void test_many_threads(void **state)
{
    enum { THREADS = 9, M = 40, N = 100, K = 1100 };

    (void)state;
    for (const char *const *name = ash_exec_backends(); *name != NULL; name++) {
        struct ash_exec one, many;
        struct tape tape;
        float *x, *w, *want, *got;

        exec_init(&one, *name, 1);
        tape_init(&tape, &one, 9);
        exec_init(&many, *name, THREADS);
        x = draw_floats(&tape, (size_t)M * K, 1.0f);
        w = draw_floats(&tape, (size_t)N * K, 1.0f);
        want = draw_floats(&tape, (size_t)M * N, 1.0f);
        got = draw_floats(&tape, (size_t)M * N, 1.0f);
        for (int bf16 = 0; bf16 < 2; bf16++) {
            layer_gemm(&one, M, N, K, x, w, want, K, false, bf16, false);
            layer_gemm(&many, M, N, K, x, w, got, K, false, bf16, false);
            tape_wait(&tape);
            assert_memory_equal(got, want, (size_t)M * N * sizeof(*want));
        }
        ash_exec_fini(&one);
        ash_exec_fini(&many);
        tape_fini(&tape);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm),         cmocka_unit_test(test_epilogue),   cmocka_unit_test(test_column_sum),
        cmocka_unit_test(test_empty),        cmocka_unit_test(test_rows_alone), cmocka_unit_test(test_k_cut),
        cmocka_unit_test(test_many_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Products that share their input, with prologue and epilogue, on every backend: the bits of the separate
 * ops, whatever is fused. */
#include "conform/ops_harness.h"

/* A weight [N, K] of dtype; stored the other way round too, as one family has them. */
static struct ash_weight draw_weight(struct tape *tape, enum ash_dtype dtype, size_t N, size_t K, bool turned)
{
    struct ash_mat mat = {.dtype = dtype, .row_stride = turned ? N : 1, .col_stride = turned ? 1 : K};

    mat.data = draw_dtype(tape, dtype, N * K, 0.3f);
    return (struct ash_weight){.N = N, .mat = mat};
}

static void run_project(struct ash_exec *exec, struct tape *tape, size_t M, size_t N, size_t K)
{
    static const enum ash_dtype dtypes[] = {ASH_BF16, ASH_F32, ASH_F16};
    struct ash_project_args args = {.M = M, .K = K, .x_stride = K + draw_below(tape, 5), .norm_eps = 1e-5f};
    enum ash_dtype dtype = dtypes[draw_below(tape, ASH_COUNT(dtypes))];
    bool turned = draw_below(tape, 4) == 0, packed = draw_bool(tape);
    size_t kind = draw_below(tape, 3);

    args.x = draw_floats(tape, M * args.x_stride + 1, 2.0f);
    if (draw_bool(tape)) args.norm = draw_floats(tape, K, 1.0f);
    args.round_bf16 = draw_bool(tape);
    args.residual = kind == 0;
    args.swiglu = kind == 1;
    args.out_count = args.swiglu ? 2 : 1 + draw_below(tape, ASH_PROJECT_OUTS_MAX);
    for (size_t i = 0; i < args.out_count; i++) {
        size_t width = args.swiglu || i == 0 ? N : draw_size(tape, N);
        struct ash_project_out *out = &args.outs[i];

        out->w = draw_weight(tape, dtype, width, K, turned);
        if (packed && args.round_bf16) pack_weight(exec, tape, &out->w, K); /* floats are packed for bf16 products */
        out->bias = draw_bool(tape) ? draw_floats(tape, width, 1.0f) : NULL;
        out->y_stride = width + draw_below(tape, 5);
        out->y = draw_floats(tape, M * out->y_stride, 1.0f);
    }
    exec->ops->matrix->project(exec, &args);
    for (size_t i = 0; i < args.out_count; i++)
        tape_words(tape, args.outs[i].y, M * args.outs[i].y_stride); /* the gaps too: they must not be written */
}

static void scenario_few_rows(struct ash_exec *exec, struct tape *tape)
{
    run_project(exec, tape, draw_size(tape, 33), draw_size(tape, 129), draw_size(tape, 400));
}

static void scenario_one_row(struct ash_exec *exec, struct tape *tape)
{
    run_project(exec, tape, 1, draw_size(tape, 400), draw_size(tape, 400));
}

static void scenario_many_rows(struct ash_exec *exec, struct tape *tape)
{
    run_project(exec, tape, draw_size(tape, 129), draw_size(tape, 65), draw_size(tape, 65));
}

/* As a layer decodes: bf16 weights as lines of whole chunks, which kernels for few rows want. */
static void run_decode(struct ash_exec *exec, struct tape *tape, size_t M, size_t N, size_t K)
{
    struct ash_project_args args = {
        .M = M, .K = K, .x_stride = K + 4 * draw_below(tape, 3), .norm_eps = 1e-5f, .round_bf16 = true};
    size_t kind = draw_below(tape, 3);

    args.x = draw_floats(tape, M * args.x_stride, 2.0f);
    if (draw_bool(tape)) args.norm = draw_floats(tape, K, 1.0f);
    args.residual = kind == 0;
    args.swiglu = kind == 1;
    args.out_count = args.swiglu ? 2 : 1 + draw_below(tape, ASH_PROJECT_OUTS_MAX);
    for (size_t i = 0; i < args.out_count; i++) {
        size_t width = args.swiglu || i == 0 ? N : draw_size(tape, 65);
        struct ash_project_out *out = &args.outs[i];

        out->w = draw_weight(tape, ASH_BF16, width, K, false);
        out->bias = draw_bool(tape) ? draw_floats(tape, width, 1.0f) : NULL;
        out->y_stride = width + draw_below(tape, 5);
        out->y = draw_floats(tape, M * out->y_stride, 1.0f);
    }
    exec->ops->matrix->project(exec, &args);
    for (size_t i = 0; i < args.out_count; i++)
        tape_words(tape, args.outs[i].y, M * args.outs[i].y_stride);
}

/* As many outputs as give every multiprocessor of a GPU several. */
static size_t draw_outputs(struct tape *tape)
{
    return 4000 + draw_below(tape, 14000);
}

static void scenario_decode(struct ash_exec *exec, struct tape *tape)
{
    bool is_wide = draw_below(tape, 8) == 0;
    size_t M = is_wide || draw_bool(tape) ? 1 : 1 + draw_below(tape, 17);

    if (is_wide)
        run_decode(exec, tape, M, draw_outputs(tape), 8 * (1 + draw_below(tape, 18)));
    else
        run_decode(exec, tape, M, draw_size(tape, 400), 8 * draw_size(tape, 65));
}

/* The same of a batch. */
static void scenario_batch(struct ash_exec *exec, struct tape *tape)
{
    size_t M = 17 + draw_below(tape, 113);

    if (draw_below(tape, 4) == 0)
        run_decode(exec, tape, M, draw_outputs(tape), 8 * (1 + draw_below(tape, 3)));
    else
        run_decode(exec, tape, M, draw_size(tape, 100), 8 * draw_size(tape, 65));
}

/* More rows than those kernels have room for, as a large batch or a prompt. */
static void scenario_large(struct ash_exec *exec, struct tape *tape)
{
    size_t M = 129 + draw_below(tape, 200);

    if (draw_below(tape, 4) == 0)
        run_decode(exec, tape, M, draw_outputs(tape), 8 * (1 + draw_below(tape, 2)));
    else
        run_decode(exec, tape, M, draw_size(tape, 600), 8 * draw_size(tape, 20));
}

/* A residual on top of the rows that the products read. */
static void scenario_in_place(struct ash_exec *exec, struct tape *tape)
{
    size_t M = draw_size(tape, 17), K = draw_size(tape, 65);
    float *x = draw_floats(tape, M * K, 2.0f);
    struct ash_project_args args = {.M = M,
                                    .K = K,
                                    .x = x,
                                    .x_stride = K,
                                    .norm_eps = 1e-5f,
                                    .round_bf16 = draw_bool(tape),
                                    .residual = true,
                                    .out_count = 1};

    if (draw_bool(tape)) args.norm = draw_floats(tape, K, 1.0f);
    args.outs[0] = (struct ash_project_out){
        .w = draw_weight(tape, draw_bool(tape) ? ASH_BF16 : ASH_F32, K, K, false), .y = x, .y_stride = K};
    exec->ops->matrix->project(exec, &args);
    tape_words(tape, x, M * K);
}

static void test_few_rows(void **state)
{
    (void)state;
    check_scenario(scenario_few_rows, 100);
}

static void test_one_row(void **state)
{
    (void)state;
    check_scenario(scenario_one_row, 60);
}

static void test_many_rows(void **state)
{
    (void)state;
    check_scenario(scenario_many_rows, 40);
}

static void test_decode(void **state)
{
    (void)state;
    check_scenario(scenario_decode, 40);
    check_scenario(scenario_batch, 10);
    check_scenario(scenario_large, 6);
}

static void test_in_place(void **state)
{
    (void)state;
    check_scenario(scenario_in_place, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_rows), cmocka_unit_test(test_one_row),  cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_decode),   cmocka_unit_test(test_in_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

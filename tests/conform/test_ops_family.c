/* The ops of some families on every backend that has them: gates, sinks and caps have the reference's bits. */
#define PRODUCTS_UNDER_TEST PRODUCTS_NONE
#include "conform/ops_harness.h"

#include <math.h>

static void scenario_gates(struct ash_exec *exec, struct tape *tape)
{
    size_t rows = draw_size(tape, 9), cols = draw_size(tape, 300), step = 1 + draw_below(tape, 2);
    size_t stride = cols * step * 2 + draw_below(tape, 5), up = step == 2 ? 1 : cols;
    float *in = draw_floats(tape, rows * stride, 9.0f), *grads = tape_alloc(tape, rows * stride * sizeof(*grads));
    bool in_place = draw_bool(tape);
    struct ash_gated_args args = {.kind = (enum ash_gate)draw_below(tape, 3),
                                  .rows = rows,
                                  .cols = cols,
                                  .stride = stride,
                                  .step = step,
                                  .gate = in,
                                  .up = in + up,
                                  .out = tape_alloc(tape, rows * cols * sizeof(float))};

    in[draw_below(tape, rows * stride)] = draw_bool(tape) ? 100.0f : -100.0f; /* where tanh is 1 */
    exec->ops->family->gated_forward(exec, &args);
    tape_words(tape, args.out, rows * cols);
    args.dout = draw_floats(tape, rows * cols, 1.0f);
    args.dgate = in_place ? in : grads;
    args.dup = args.dgate + up;
    exec->ops->family->gated_backward(exec, &args);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            tape_words(tape, args.dgate + r * stride + c * step, 1);
            tape_words(tape, args.dup + r * stride + c * step, 1);
        }
}

static void scenario_sinks(struct ash_exec *exec, struct tape *tape)
{
    size_t rows = draw_size(tape, 40), heads = draw_size(tape, 9), dim = draw_size(tape, 70);
    size_t stride = heads * dim + draw_below(tape, 9);
    struct ash_sink_args args = {.rows = rows,
                                 .heads = heads,
                                 .dim = dim,
                                 .stride = stride,
                                 .sinks = draw_floats(tape, heads, 3.0f),
                                 .out = draw_floats(tape, rows * stride, 1.0f),
                                 .lse = draw_floats(tape, rows * heads, 4.0f),
                                 .dout = draw_floats(tape, rows * stride, 1.0f),
                                 .dsinks = draw_floats(tape, heads, 1.0f)};

    args.lse[draw_below(tape, rows * heads)] = -INFINITY; /* a row that sees no key */
    exec->ops->family->sink_forward(exec, &args);
    tape_words(tape, args.out, rows * stride);
    tape_words(tape, args.lse, rows * heads);
    exec->ops->family->sink_backward(exec, &args);
    tape_words(tape, args.dsinks, heads);
}

static void scenario_caps(struct ash_exec *exec, struct tape *tape)
{
    size_t count = draw_size(tape, 3000);
    float *x = draw_floats(tape, count, 60.0f), *dx = draw_floats(tape, count, 1.0f);
    float cap = draw_bool(tape) ? 30.0f : 0.5f;

    x[draw_below(tape, count)] = -INFINITY;
    exec->ops->family->cap_forward(exec, x, cap, count);
    tape_words(tape, x, count);
    exec->ops->family->cap_backward(exec, x, cap, count, dx);
    tape_words(tape, dx, count);
}

static void gates_agree(void **state)
{
    (void)state;
    check_scenario(scenario_gates, 60);
}

static void sinks_agree(void **state)
{
    (void)state;
    check_scenario(scenario_sinks, 60);
}

static void caps_agree(void **state)
{
    (void)state;
    check_scenario(scenario_caps, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gates_agree), cmocka_unit_test(sinks_agree),
                                       cmocka_unit_test(caps_agree)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

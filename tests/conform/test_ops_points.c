/* Activations, loss, expert routing and the optimizer on every backend: the reference's bits, also for infinities, NaN,
 * denormals and ties. */
#define PRODUCTS_UNDER_TEST PRODUCTS_NONE
#include "conform/ops_harness.h"

#include <math.h>

/* Put a few values that arithmetic handles specially into x. */
static void salt(struct tape *tape, float *x, size_t count)
{
    static const float grains[] = {0.0f,    -0.0f,  INFINITY, -INFINITY, NAN,   0x1p-140f, -0x1p-140f, 3e38f,
                                   -3e38f,  0.625f, 1.0f,     -1.0f,     4.0f,  88.7f,     89.1f,      -87.4f,
                                   -103.5f, -104.f, 0.35f,    -0.347f,   1e-9f, 20.0f,     -20.0f,     5.5f};

    for (size_t n = 0; n < ASH_COUNT(grains); n++)
        x[draw_below(tape, count)] = grains[n];
}

/* gate and up as columns of one matrix, what lies between them untouched; their gradients in its place. */
static void swiglu_in_rows(struct ash_exec *exec, struct tape *tape)
{
    size_t rows = draw_size(tape, 40), cols = draw_size(tape, 70), gap = draw_below(tape, 3);
    size_t stride = 2 * cols + gap, count = rows * cols, all = rows * stride;
    float *both = draw_floats(tape, all, 4.0f), *dout = draw_floats(tape, count, 1.0f),
          *out = draw_floats(tape, count, 1.0f), *grads = draw_floats(tape, all, 1.0f);
    struct ash_swiglu_args args = {
        .count = count, .cols = cols, .stride = stride, .gate = both, .up = both + cols + gap, .out = out};
    struct ash_swiglu_grad_args grad = {.count = count,
                                        .cols = cols,
                                        .stride = stride,
                                        .gate = both,
                                        .up = both + cols + gap,
                                        .dout = dout,
                                        .dgate = grads,
                                        .dup = grads + cols + gap};

    exec->ops->act->swiglu_forward(exec, &args);
    exec->ops->act->swiglu_backward(exec, &grad);
    grad.dgate = both;
    grad.dup = both + cols + gap;
    exec->ops->act->swiglu_backward(exec, &grad);
    tape_words(tape, out, count);
    tape_words(tape, grads, all);
    tape_words(tape, both, all);
}

/* Of a bf16 model: only tables that follow ref-wgmma look at round_bf16. */
static void swiglu_of_bf16(struct ash_exec *exec, struct tape *tape)
{
    size_t cols = draw_size(tape, 100) * (1 + 7 * draw_below(tape, 2)), rows = draw_size(tape, 40), count = rows * cols;
    bool in_rows = draw_bool(tape), is_narrow = exec->ops->takes_bf16 && draw_below(tape, 4) > 0;
    size_t apart = in_rows ? cols : count;
    float *both = draw_floats(tape, 2 * count, 4.0f), *out = draw_floats(tape, 4 * count, 1.0f);
    uint16_t *both_bf16 = draw_dtype(tape, ASH_BF16, 2 * count, 4.0f), *rounded = (uint16_t *)(void *)out;
    struct ash_swiglu_args args = {.count = count, .round_bf16 = true};
    struct ash_swiglu_grad_args grad = {.count = count, .round_bf16 = true};

    if (draw_bool(tape)) salt(tape, both, 2 * count);
    args.cols = grad.cols = in_rows ? cols : 0;
    args.stride = grad.stride = in_rows ? 2 * cols : 0;
    memset(out, 0, 4 * count * sizeof(*out));
    if (is_narrow) {
        args.gate_bf16 = grad.gate_bf16 = both_bf16;
        args.up_bf16 = grad.up_bf16 = both_bf16 + apart;
        args.out_bf16 = rounded;
        grad.dout_bf16 = draw_dtype(tape, ASH_BF16, count, 1.0f);
        grad.dgate_bf16 = rounded + 2 * count;
        grad.dup_bf16 = rounded + 2 * count + apart;
    } else {
        args.gate = grad.gate = both;
        args.up = grad.up = both + apart;
        args.out = out;
        grad.dout = draw_floats(tape, count, 1.0f);
        grad.dgate = out + 2 * count;
        grad.dup = out + 2 * count + apart;
    }
    exec->ops->act->swiglu_forward(exec, &args);
    exec->ops->act->swiglu_backward(exec, &grad);
    tape_words(tape, out, 4 * count);
}

static void scenario_act(struct ash_exec *exec, struct tape *tape)
{
    size_t count = draw_size(tape, 400) * (1 + draw_below(tape, 20));
    const struct ash_act_ops *act = exec->ops->act;
    float *gate = draw_floats(tape, count, 4.0f), *up = draw_floats(tape, count, 2.0f),
          *dout = draw_floats(tape, count, 1.0f);
    float *out = draw_floats(tape, count, 1.0f), *dup = draw_floats(tape, count, 1.0f);

    if (draw_bool(tape)) salt(tape, gate, count);
    act->swiglu_forward(exec, &(struct ash_swiglu_args){.count = count, .gate = gate, .up = up, .out = out});
    tape_words(tape, out, count);
    act->swiglu_backward(exec, &(struct ash_swiglu_grad_args){
                                   .count = count, .gate = gate, .up = up, .dout = dout, .dgate = out, .dup = dup});
    tape_words(tape, out, count);
    tape_words(tape, dup, count);
    swiglu_in_rows(exec, tape);
    swiglu_of_bf16(exec, tape);
    for (int kind = ASH_GELU_TANH; kind <= ASH_GELU_ERF; kind++) {
        act->gelu_forward(exec, (enum ash_gelu)kind, gate, count, out);
        tape_words(tape, out, count);
        act->gelu_backward(exec, (enum ash_gelu)kind, gate, dout, count, out);
        tape_words(tape, out, count);
    }
    act->swiglu_backward(
        exec, &(struct ash_swiglu_grad_args){
                  .count = count, .gate = gate, .up = up, .dout = dout, .dgate = gate, .dup = dout}); /* in place */
    tape_words(tape, gate, count);
    tape_words(tape, dout, count);
}

/* Sometimes a scale for each row, a temperature, an entropy and a scale of that. */
static void draw_objective(struct tape *tape, struct ash_loss_part *part)
{
    if (draw_bool(tape)) part->sharpness = (float)(1 + draw_below(tape, 40)) * 0.1f;
    if (draw_bool(tape)) part->entropy = draw_floats(tape, part->rows, 1.0f);
    if (draw_bool(tape)) part->scales = draw_floats(tape, part->rows, 1.0f);
    if (part->entropy != NULL && part->scales != NULL && draw_bool(tape))
        part->entropy_scales = draw_floats(tape, part->rows, 1.0f);
    if (part->entropy != NULL) part->moments = draw_floats(tape, part->rows * ASH_LANES, 1.0f);
}

static void scenario_loss(struct ash_exec *exec, struct tape *tape)
{
    size_t rows = draw_size(tape, 33), vocab = draw_size(tape, 400);
    float *logits = draw_floats(tape, rows * vocab, 5.0f), *loss = draw_floats(tape, rows, 1.0f);
    int32_t *targets = draw_ids(tape, rows, vocab);
    struct ash_loss_part part = {.rows = rows, .cols = vocab, .logits = logits, .targets = targets, .loss = loss};

    for (size_t r = 0; r < rows; r++)
        if (draw_below(tape, 5) == 0) targets[r] = -1;
    if (draw_below(tape, 4) == 0) salt(tape, logits, rows * vocab);
    exec->ops->loss->cross_entropy(exec, &part);
    tape_words(tape, loss, rows);
    tape_words(tape, logits, rows * vocab);
    part.scale = 0.25f;
    draw_objective(tape, &part);
    exec->ops->loss->cross_entropy(exec, &part);
    tape_words(tape, loss, rows);
    if (part.entropy != NULL) tape_words(tape, part.entropy, rows);
    tape_words(tape, logits, rows * vocab);
}

/* Of a bf16 model: few columns, many, and more than fit into the shared memory of a few thread blocks. Only tables that
 * follow ref-wgmma look at it. */
static void scenario_loss_bf16(struct ash_exec *exec, struct tape *tape)
{
    static const size_t many[] = {26000, 50304, 128256, 200064, 262144, 50257};
    bool is_long = draw_below(tape, 8) == 0;
    size_t rows = is_long ? 2 : draw_size(tape, 33),
           cols = is_long ? many[draw_below(tape, ASH_COUNT(many))] : draw_size(tape, 400) * (1 + draw_below(tape, 9));
    float *logits = draw_floats(tape, rows * cols, 4.0f), *x = draw_floats(tape, rows * 8, 1.0f);
    struct ash_loss_part part = {.rows = rows,
                                 .cols = cols,
                                 .logits = logits,
                                 .loss = draw_floats(tape, rows, 1.0f),
                                 .round_bf16 = true,
                                 .factors = draw_floats(tape, rows, 1.0f)};
    int32_t *targets = draw_ids(tape, rows, cols);

    for (size_t r = 0; r < rows; r++) {
        if (draw_below(tape, 4) == 0) logits[r * cols + (size_t)targets[r]] -= 200.0f; /* relative to the largest */
        if (draw_below(tape, 5) == 0) targets[r] = -1;
    }
    if (draw_below(tape, 4) == 0) salt(tape, logits, rows * cols);
    if (draw_bool(tape)) part.sharpness = (float)(1 + draw_below(tape, 40)) * 0.1f;
    part.targets = targets;
    exec->ops->loss->cross_entropy(exec, &part);
    tape_words(tape, part.loss, rows);
    tape_words(tape, logits, rows * cols);
    part.scale = 0.25f;
    if (draw_bool(tape)) part.scales = draw_floats(tape, rows, 1.0f);
    exec->ops->loss->cross_entropy(exec, &part);
    tape_words(tape, part.loss, rows);
    tape_words(tape, part.factors, rows);
    tape_words(tape, logits, rows * cols);
    if (!exec->ops->takes_bf16) return;
    exec->ops->row->scale_rows(
        exec, &(struct ash_scale_rows_args){.rows = rows, .cols = 8, .x = x, .factors = part.factors, .out = x});
    tape_words(tape, x, rows * 8);
}

/* All of a vocabulary at once and split into parts: the same loss and the same gradient. */
static void scenario_loss_parts(struct ash_exec *exec, struct tape *tape)
{
    size_t rows = draw_size(tape, 33), vocab = draw_size(tape, 400), cut[4] = {0};
    float *logits = draw_floats(tape, rows * vocab, 5.0f), *loss = draw_floats(tape, rows, 1.0f);
    float *top = draw_floats(tape, rows * 2, 1.0f), *lanes = draw_floats(tape, rows * ASH_LANES, 1.0f);
    float *copies[3], *part_loss = draw_floats(tape, rows, 1.0f), *part_entropy = draw_floats(tape, rows, 1.0f);
    int32_t *targets = draw_ids(tape, rows, vocab);
    struct ash_loss_part parts[3],
        whole = {.rows = rows, .cols = vocab, .logits = logits, .targets = targets, .loss = loss};

    for (size_t r = 0; r < rows; r++)
        if (draw_below(tape, 5) == 0) targets[r] = -1;
    if (draw_below(tape, 4) == 0) salt(tape, logits, rows * vocab);
    cut[1] = draw_below(tape, vocab / ASH_LANES + 1) * ASH_LANES;
    cut[2] = cut[1] + draw_below(tape, (vocab - cut[1]) / ASH_LANES + 1) * ASH_LANES;
    cut[3] = vocab;
    whole.scale = draw_bool(tape) ? 0.25f : 0.0f;
    draw_objective(tape, &whole);
    for (size_t p = 0; p < 3; p++) {
        size_t cols = cut[p + 1] - cut[p];
        copies[p] = draw_floats(tape, rows * cols, 1.0f);
        for (size_t r = 0; r < rows && cols > 0; r++)
            memcpy(copies[p] + r * cols, logits + r * vocab + cut[p], cols * sizeof(float));
        parts[p] = whole;
        parts[p].cols = cols;
        parts[p].first = cut[p];
        parts[p].logits = copies[p];
        parts[p].start = p == 0;
        parts[p].top = top;
        parts[p].lanes = lanes;
        parts[p].loss = part_loss;
        if (whole.entropy != NULL) parts[p].entropy = part_entropy;
    }
    for (size_t p = 0; p < 3; p++)
        exec->ops->loss->part_top(exec, &parts[p]);
    for (size_t p = 0; p < 3; p++)
        exec->ops->loss->part_sum(exec, &parts[p]);
    exec->ops->loss->cross_entropy(exec, &whole);
    for (size_t p = 0; p < 3; p++) {
        exec->ops->loss->part_end(exec, &parts[p]);
        tape_wait(tape);
        assert_floats_equal(loss, part_loss, rows);
        if (whole.entropy != NULL) assert_floats_equal(whole.entropy, part_entropy, rows);
        for (size_t r = 0; r < rows && ash_loss_has_gradient(&whole) && parts[p].cols > 0; r++)
            assert_floats_equal(logits + r * vocab + cut[p], copies[p] + r * parts[p].cols, parts[p].cols);
        tape_words(tape, copies[p], rows * parts[p].cols);
    }
    tape_words(tape, loss, rows);
}

static void scenario_distill(struct ash_exec *exec, struct tape *tape)
{
    size_t rows = draw_size(tape, 9), vocab = draw_size(tape, draw_below(tape, 8) == 0 ? 4000 : 400);
    float *logits = draw_floats(tape, rows * vocab, 5.0f), *loss = draw_floats(tape, rows, 1.0f);
    int32_t *targets = draw_ids(tape, rows, vocab);
    struct ash_distill_args args = {.rows = rows,
                                    .cols = vocab,
                                    .logits = logits,
                                    .teacher = draw_floats(tape, rows * vocab, 5.0f),
                                    .targets = targets,
                                    .scale = 0.25f,
                                    .sharpness = (float)(1 + draw_below(tape, 40)) * 0.1f,
                                    .beta = (float)draw_below(tape, 5) * 0.25f,
                                    .target_weight = draw_bool(tape) ? 0.75f : 0.0f,
                                    .loss = loss};

    for (size_t r = 0; r < rows; r++)
        if (draw_below(tape, 5) == 0) targets[r] = -1;
    for (size_t i = 0; i < 8; i++) /* probabilities that are 0 */
        logits[draw_below(tape, rows * vocab)] = draw_bool(tape) ? -1e4f : -INFINITY;
    exec->ops->loss->distill(exec, &args);
    tape_words(tape, loss, rows);
    tape_words(tape, logits, rows * vocab);
}

static void scenario_route(struct ash_exec *exec, struct tape *tape)
{
    struct ash_route_args args = {.rows = draw_size(tape, 33), .groups = 1 + draw_below(tape, 4)};
    size_t picks;
    float *logits;

    args.experts = args.groups * (1 + draw_below(tape, 20));
    args.top_groups = 1 + draw_below(tape, args.groups);
    args.choices = 1 + draw_below(tape, args.experts < 8 ? args.experts : 8);
    args.sigmoid = draw_bool(tape);
    args.normalize = draw_bool(tape);
    args.choice_bias = draw_bool(tape) ? draw_floats(tape, args.experts, 0.3f) : NULL;
    args.scale = 1.5f;
    args.logits = logits = draw_floats(tape, args.rows * args.experts, 2.0f);
    for (size_t n = 0; n < args.rows * args.experts; n++)
        if (draw_below(tape, 4) == 0) logits[n] = 0.5f; /* ties */
    picks = args.rows * args.choices;
    args.index = draw_ids(tape, picks, 1);
    args.weight = draw_floats(tape, picks, 1.0f);
    args.dweight = draw_floats(tape, picks, 1.0f);
    args.dlogits = draw_floats(tape, args.rows * args.experts, 1.0f);
    exec->ops->route->forward(exec, &args);
    tape_words(tape, args.index, picks);
    tape_words(tape, args.weight, picks);
    exec->ops->route->backward(exec, &args);
    tape_words(tape, args.dlogits, args.rows * args.experts);
}

static void scenario_group(struct ash_exec *exec, struct tape *tape)
{
    size_t rows = draw_size(tape, 65), choices = 1 + draw_below(tape, 4), experts = choices + draw_below(tape, 20);
    size_t pairs = rows * choices, *offsets = tape_alloc(tape, (experts + 1) * sizeof(*offsets));
    int32_t *index = draw_ids(tape, pairs, experts), *order = draw_ids(tape, pairs, 1);
    int32_t *flat = draw_ids(tape, pairs, 1), *where = draw_ids(tape, pairs, 1);

    exec->ops->route->group(exec, &(struct ash_route_group_args){.rows = rows,
                                                                 .choices = choices,
                                                                 .experts = experts,
                                                                 .index = index,
                                                                 .order = order,
                                                                 .flat = flat,
                                                                 .where = where,
                                                                 .offsets = offsets});
    tape_words(tape, order, pairs);
    tape_words(tape, flat, pairs);
    tape_words(tape, where, pairs);
    tape_words(tape, offsets, (experts + 1) * sizeof(*offsets) / sizeof(uint32_t));
}

/* Ranges of arrays, with gaps between them and in another order in each. */
#define RANGES_MAX 40
struct flat {
    struct ash_adamw_range ranges[RANGES_MAX];
    struct ash_range grads[RANGES_MAX];
    size_t count, size; /* of the arrays */
};

static void draw_ranges(struct tape *tape, struct flat *flat)
{
    size_t align = draw_bool(tape) ? 1 : 16, moments, params = 0;

    flat->count = 1 + draw_below(tape, draw_bool(tape) ? 3 : RANGES_MAX);
    moments = flat->size = flat->count * 9100;
    for (size_t r = 0; r < flat->count; r++) {
        size_t count = draw_below(tape, 6) == 0 ? 0 : draw_below(tape, draw_bool(tape) ? 40 : 9000);

        moments = (moments - count) / align * align;
        flat->grads[r] = (struct ash_range){params + align * draw_below(tape, 2), count};
        flat->ranges[r] = (struct ash_adamw_range){.param = params,
                                                   .moment = moments,
                                                   .grad = flat->grads[r].first,
                                                   .count = count,
                                                   .weight_decay = draw_bool(tape) ? 0.1f : 0.0f};
        params += (count + align - 1) / align * align;
    }
}

/* AdamW, or Lion. */
static void scenario_update(struct ash_exec *exec, struct tape *tape)
{
    struct flat flat;
    struct ash_adamw_args args = {.ranges = flat.ranges,
                                  .grad_scale = 0.8f,
                                  .lr = 1e-2f,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.95f,
                                  .eps = 1e-8f,
                                  .correction1 = 0.19f,
                                  .correction2 = 0.0975f};
    float *param, *m, *v;
    bool in_place = draw_bool(tape);

    draw_ranges(tape, &flat);
    args.range_count = flat.count;
    param = draw_floats(tape, flat.size, 1.0f);
    m = draw_floats(tape, flat.size, 0.1f);
    v = draw_floats(tape, flat.size, 0.1f);
    for (size_t i = 0; i < flat.size; i++)
        v[i] = v[i] * v[i];
    args.param = param;
    args.m = m;
    args.v = v;
    args.param_out = in_place ? param : draw_floats(tape, flat.size, 1.0f);
    args.m_out = in_place ? m : draw_floats(tape, flat.size, 1.0f);
    args.v_out = in_place ? v : draw_floats(tape, flat.size, 1.0f);
    args.grad = draw_floats(tape, flat.size, 1.0f);
    args.param_bf16 = draw_bool(tape) ? draw_dtype(tape, ASH_BF16, 2 * flat.size, 1.0f) : NULL;
    if (draw_below(tape, 3) == 0)
        exec->ops->optim->lion(exec, &args);
    else
        exec->ops->optim->adamw(exec, &args);
    memset(&flat.ranges, 0xa5, sizeof(flat.ranges)); /* the op has copied its arguments */
    tape_words(tape, args.param_out, flat.size);     /* the gaps too: they must not be written */
    tape_words(tape, args.m_out, flat.size);
    tape_words(tape, args.v_out, flat.size);
    if (args.param_bf16 != NULL) tape_words(tape, args.param_bf16, flat.size / 2);
}

static void scenario_squares(struct ash_exec *exec, struct tape *tape)
{
    static const float scales[] = {1e-42f, 1e-38f, 1e-6f, 1.0f, 1e30f};
    struct flat flat;
    struct ash_squares_args args = {.ranges = flat.grads};
    struct ash_squares whole;

    draw_ranges(tape, &flat);
    args.range_count = flat.count;
    args.x = draw_floats(tape, flat.size, scales[draw_below(tape, ASH_COUNT(scales))]);
    if (draw_below(tape, 8) == 0) ((float *)(uintptr_t)args.x)[flat.grads[0].first] = INFINITY;
    args.sum = tape_alloc(tape, sizeof(*args.sum));
    *args.sum = (struct ash_squares){draw_below(tape, 5), draw_below(tape, 7), draw_bool(tape) ? 0 : 0x3f800000};
    exec->ops->optim->max_abs(exec, &args);
    exec->ops->optim->sum_squares(exec, &args);
    memset(&flat, 0xa5, sizeof(flat));
    tape_wait(tape);
    whole = (struct ash_squares){args.sum->high + (args.sum->low >> 32), args.sum->low & 0xffffffff, args.sum->max};
    tape_words(tape, &whole.high, 2);
    tape_words(tape, &whole.low, 2);
    tape_words(tape, &whole.max, 1);
}

static void test_act(void **state)
{
    (void)state;
    check_scenario(scenario_act, 80);
}

static void test_loss(void **state)
{
    (void)state;
    check_scenario(scenario_loss, 80);
    check_scenario(scenario_loss_bf16, 60);
    check_scenario(scenario_loss_parts, 80);
    check_scenario(scenario_distill, 80);
}

static void test_route(void **state)
{
    (void)state;
    check_scenario(scenario_route, 120);
    check_scenario(scenario_group, 60);
}

static void test_optim(void **state)
{
    (void)state;
    check_scenario(scenario_update, 60);
    check_scenario(scenario_squares, 60);
}

/* An unknown backend is refused with the list of those that work. */
static void test_unknown_backend(void **state)
{
    struct ash_exec exec;
    struct ash_err err = {0};

    (void)state;
    if (EMULATED) skip(); /* no GPU is the default */
    assert_int_equal(ash_exec_init(&exec, "abacus", 1, &err), -22);
    assert_non_null(strstr(err.text, "abacus"));
    assert_non_null(strstr(err.text, "ref"));
    exec_init(&exec, "cpu", 1);
    assert_string_equal(exec.ops->name, backends_under_test()[0]);
    ash_exec_fini(&exec);
    exec_init(&exec, NULL, 0);
    ash_exec_fini(&exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_act),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_route),
        cmocka_unit_test(test_optim),
        cmocka_unit_test(test_unknown_backend),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

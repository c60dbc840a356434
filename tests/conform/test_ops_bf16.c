/* Activations that are stored as bf16 (x_bf16, y_bf16, ...): a rounded output equals the plain output, rounded; a
 * rounded input gives the results of the same values in float32. On the tables that take them: the reference of
 * the GPU, and the GPU where there is one. */
#include "conform/ops_harness.h"

#define SEEDS 24

/* Are the rounded values those of the plain ones? */
static void check_rounded(struct tape *tape, const uint16_t *rounded, const float *plain, size_t count,
                          const char *what)
{
    tape_wait(tape);
    for (size_t i = 0; i < count; i++)
        if (rounded[i] != ash_f32_to_bf16(plain[i]))
            fail_msg("%s, seed %llu: value %zu of %zu is %04x, not %04x", what, (unsigned long long)tape->seed, i,
                     count, rounded[i], ash_f32_to_bf16(plain[i]));
}

static void check_floats(struct tape *tape, const float *a, const float *b, size_t count, const char *what)
{
    tape_wait(tape);
    for (size_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof(*a)) != 0)
            fail_msg("%s, seed %llu: value %zu of %zu is %.9g, not %.9g", what, (unsigned long long)tape->seed, i,
                     count, (double)a[i], (double)b[i]);
}

/* Room for count values, poisoned. */
static uint16_t *room16(struct tape *tape, size_t count)
{
    uint16_t *room = tape_alloc(tape, count * sizeof(*room));

    memset(room, 0xff, count * sizeof(*room));
    return room;
}

static float *copy_of(struct tape *tape, const float *x, size_t count)
{
    float *copy = tape_alloc(tape, count * sizeof(*copy));

    memcpy(copy, x, count * sizeof(*copy));
    return copy;
}

static uint16_t *rounded_of(struct tape *tape, const float *x, size_t count)
{
    uint16_t *rounded = tape_alloc(tape, count * sizeof(*rounded));

    for (size_t i = 0; i < count; i++)
        rounded[i] = ash_f32_to_bf16(x[i]);
    return rounded;
}

static void scenario_norm(struct ash_exec *exec, struct tape *tape)
{
    struct ash_norm_args args = {.rows = draw_size(tape, 129),
                                 .groups = 1,
                                 .cols = draw_size(tape, 400),
                                 .eps = 1e-5f,
                                 .round_bf16 = draw_bool(tape)};
    const struct ash_norm_ops *ops = exec->ops->norm;
    bool layer = draw_bool(tape);
    size_t count = args.rows * args.cols;
    float *y = draw_floats(tape, count, 1.0f), *dx = draw_floats(tape, count, 1.0f), *dx2 = copy_of(tape, dx, count);
    uint16_t *y_bf16 = room16(tape, count), *dx_bf16 = room16(tape, count);

    args.x_stride = args.y_stride = args.cols;
    args.x = draw_floats(tape, count, 2.0f);
    args.weight = draw_floats(tape, args.cols, 1.0f);
    args.rstd = draw_floats(tape, args.rows, 1.0f);
    args.mean = draw_floats(tape, args.rows, 1.0f);
    args.dy = draw_floats(tape, count, 1.0f);
    args.dx_add = draw_bool(tape);
    args.y = y;
    (layer ? ops->layer_forward : ops->rms_forward)(exec, &args);
    args.dx = dx;
    (layer ? ops->layer_backward : ops->rms_backward)(exec, &args);
    args.y = NULL;
    args.y_bf16 = y_bf16;
    (layer ? ops->layer_forward : ops->rms_forward)(exec, &args);
    args.dx = dx2;
    args.dx_bf16 = dx_bf16;
    (layer ? ops->layer_backward : ops->rms_backward)(exec, &args);
    check_rounded(tape, y_bf16, y, count, "a norm");
    check_floats(tape, dx2, dx, count, "a norm's gradient");
    check_rounded(tape, dx_bf16, dx, count, "a norm's gradient");
}

static void scenario_swiglu(struct ash_exec *exec, struct tape *tape)
{
    size_t cols = draw_size(tape, 400), count = cols * draw_size(tape, 33);
    bool in_rows = draw_bool(tape); /* gate and up as columns of one matrix; else one after the other */
    size_t apart = in_rows ? cols : count;
    float *both = draw_floats(tape, 2 * count, 3.0f), *out = draw_floats(tape, count, 1.0f),
          *grads = draw_floats(tape, 2 * count, 1.0f);
    uint16_t *out_bf16 = room16(tape, count), *grads_bf16 = room16(tape, 2 * count);
    struct ash_swiglu_args args = {.count = count, .gate = both, .up = both + apart};
    struct ash_swiglu_grad_args grad = {
        .count = count, .gate = both, .up = both + apart, .dout = draw_floats(tape, count, 1.0f)};

    if (in_rows) {
        args.cols = grad.cols = cols;
        args.stride = grad.stride = 2 * cols;
    }
    args.out = out;
    exec->ops->act->swiglu_forward(exec, &args);
    args.out = NULL;
    args.out_bf16 = out_bf16;
    exec->ops->act->swiglu_forward(exec, &args);
    grad.dgate = grads;
    grad.dup = grads + apart;
    exec->ops->act->swiglu_backward(exec, &grad);
    grad.dgate_bf16 = grads_bf16;
    grad.dup_bf16 = grads_bf16 + apart;
    exec->ops->act->swiglu_backward(exec, &grad);
    check_rounded(tape, out_bf16, out, count, "swiglu");
    check_rounded(tape, grads_bf16, grads, 2 * count, "swiglu's gradients");
}

static void scenario_rope(struct ash_exec *exec, struct tape *tape)
{
    size_t dim = 2 * draw_size(tape, 64), positions = 40;
    struct ash_rope_args args = {.rows = draw_size(tape, 33),
                                 .heads = 1 + draw_below(tape, 4),
                                 .head_stride = dim,
                                 .dims = draw_bool(tape) || dim < 4 ? dim : dim / 4 * 2,
                                 .interleaved_in = draw_bool(tape),
                                 .inverse = draw_bool(tape)};
    size_t count;
    float *x;

    args.row_stride = args.out_cols = (args.heads + draw_below(tape, 3)) * dim;
    count = args.rows * args.row_stride;
    args.positions = draw_ids(tape, args.rows, positions);
    args.cos = draw_floats(tape, positions * dim / 2, 1.0f);
    args.sin = draw_floats(tape, positions * dim / 2, 1.0f);
    x = draw_floats(tape, count, 1.0f);
    args.x = copy_of(tape, x, count);
    args.out_bf16 = room16(tape, count);
    exec->ops->rope->apply(exec, &args);
    check_floats(tape, args.x, x, count, "what is rotated elsewhere");
    uint16_t *rounded = args.out_bf16;
    args.out_bf16 = NULL;
    exec->ops->rope->apply(exec, &args);
    check_rounded(tape, rounded, args.x, count, "rotated rows");
}

/* In rows that are rounded already: the results of the same values in float32, where those are rounded as they are
 * read. */
static void scenario_rope_in_place(struct ash_exec *exec, struct tape *tape)
{
    size_t dim = draw_bool(tape) ? (size_t)64 << draw_below(tape, 3) : 2 * draw_size(tape, 64), positions = 40, count;
    struct ash_rope_args args = {.rows = draw_size(tape, 33),
                                 .heads = 1 + draw_below(tape, 4),
                                 .head_stride = dim,
                                 .dims = draw_bool(tape) || dim < 4 ? dim : dim / 4 * 2,
                                 .interleaved_in = draw_below(tape, 4) == 0,
                                 .round_bf16 = true};
    uint16_t *rounded;
    float *x;

    args.row_stride = (args.heads + draw_below(tape, 3)) * dim;
    count = args.rows * args.row_stride;
    args.positions = draw_ids(tape, args.rows, positions);
    args.cos = draw_floats(tape, positions * dim / 2, 1.0f);
    args.sin = draw_floats(tape, positions * dim / 2, 1.0f);
    args.x = x = draw_floats(tape, count, 1.0f);
    rounded = rounded_of(tape, x, count);
    exec->ops->rope->apply(exec, &args);
    args.x = NULL;
    args.x_bf16 = rounded;
    exec->ops->rope->apply(exec, &args);
    check_rounded(tape, rounded, x, count, "rotated rows");
}

/* SwiGLU of values that are rounded already, or as they are read. */
static void scenario_swiglu_rounded(struct ash_exec *exec, struct tape *tape)
{
    size_t cols = draw_size(tape, 100) * (1 + 7 * draw_below(tape, 2)), count = cols * draw_size(tape, 33);
    float *both = draw_floats(tape, 2 * count, 3.0f), *out = draw_floats(tape, count, 1.0f),
          *grads = draw_floats(tape, 2 * count, 1.0f), *dout = draw_floats(tape, count, 1.0f);
    uint16_t *both_bf16 = rounded_of(tape, both, 2 * count), *out_bf16 = room16(tape, count),
             *grads_bf16 = room16(tape, 2 * count);
    struct ash_swiglu_args args = {
        .count = count, .cols = cols, .stride = 2 * cols, .gate = both, .up = both + cols, .round_bf16 = true};
    struct ash_swiglu_grad_args grad = {.count = count,
                                        .cols = cols,
                                        .stride = 2 * cols,
                                        .gate = both,
                                        .up = both + cols,
                                        .dout = dout,
                                        .round_bf16 = true,
                                        .dgate = grads,
                                        .dup = grads + cols};

    args.out = out;
    exec->ops->act->swiglu_forward(exec, &args);
    exec->ops->act->swiglu_backward(exec, &grad);
    args.gate_bf16 = grad.gate_bf16 = both_bf16;
    args.up_bf16 = grad.up_bf16 = both_bf16 + cols;
    grad.dout_bf16 = rounded_of(tape, dout, count);
    args.out_bf16 = out_bf16;
    grad.dgate_bf16 = grads_bf16;
    grad.dup_bf16 = grads_bf16 + cols;
    grad.hidden_bf16 = draw_bool(tape) ? room16(tape, count) : NULL;
    exec->ops->act->swiglu_forward(exec, &args);
    exec->ops->act->swiglu_backward(exec, &grad);
    check_rounded(tape, out_bf16, out, count, "SwiGLU");
    if (grad.hidden_bf16 != NULL) check_rounded(tape, grad.hidden_bf16, out, count, "SwiGLU in its backward pass");
    check_rounded(tape, grads_bf16, grads, 2 * count, "SwiGLU's gradients");
}

static void scenario_loss(struct ash_exec *exec, struct tape *tape)
{
    struct ash_loss_part part = {.rows = draw_size(tape, 33),
                                 .cols = draw_size(tape, 400) * (1 + draw_below(tape, 40))};
    size_t count = part.rows * part.cols;
    float *logits = draw_floats(tape, count, 2.0f), *plain = copy_of(tape, logits, count),
          *loss = draw_floats(tape, part.rows, 1.0f), *loss2 = draw_floats(tape, part.rows, 1.0f);
    int32_t *targets = draw_ids(tape, part.rows, part.cols);

    for (size_t r = 0; r < part.rows; r++)
        if (draw_below(tape, 5) == 0) targets[r] = -1;
    part.targets = targets;
    part.scale = 0.25f;
    part.sharpness = draw_bool(tape) ? 1.5f : 0.0f;
    part.entropy = draw_bool(tape) ? draw_floats(tape, part.rows, 1.0f) : NULL;
    part.logits = plain;
    part.loss = loss;
    exec->ops->loss->cross_entropy(exec, &part);
    part.logits = logits;
    part.loss = loss2;
    part.grad_stride = ash_round_up(part.cols, ASH_LOSS_GRAD_ALIGN);
    part.grad_bf16 = room16(tape, part.rows * part.grad_stride);
    exec->ops->loss->cross_entropy(exec, &part);
    check_floats(tape, loss2, loss, part.rows, "a loss");
    for (size_t r = 0; r < part.rows; r++)
        check_rounded(tape, part.grad_bf16 + r * part.grad_stride, plain + r * part.cols, part.cols,
                      "a gradient of logits");
}

/* Gradients whose factors are apart. */
static void scenario_loss_apart(struct ash_exec *exec, struct tape *tape)
{
    struct ash_loss_part part = {.rows = draw_size(tape, 33),
                                 .cols = draw_size(tape, 400) * (1 + draw_below(tape, 40)),
                                 .scale = 0.25f,
                                 .round_bf16 = true};
    size_t count = part.rows * part.cols, cols = draw_size(tape, 100);
    float *logits = draw_floats(tape, count, 2.0f), *plain = copy_of(tape, logits, count);
    float *loss = draw_floats(tape, 2 * part.rows, 1.0f), *factors = draw_floats(tape, 2 * part.rows, 1.0f);
    struct ash_scale_rows_args scale = {.rows = part.rows, .cols = cols, .factors = factors};

    part.targets = draw_ids(tape, part.rows, part.cols);
    part.logits = plain;
    part.loss = loss;
    part.factors = factors;
    exec->ops->loss->cross_entropy(exec, &part);
    part.logits = logits;
    part.loss = loss + part.rows;
    part.factors = factors + part.rows;
    part.grad_stride = ash_round_up(part.cols, ASH_LOSS_GRAD_ALIGN);
    part.grad_bf16 = room16(tape, part.rows * part.grad_stride);
    exec->ops->loss->cross_entropy(exec, &part);
    check_floats(tape, loss + part.rows, loss, part.rows, "a loss");
    check_floats(tape, factors + part.rows, factors, part.rows, "a factor");
    for (size_t r = 0; r < part.rows; r++)
        check_rounded(tape, part.grad_bf16 + r * part.grad_stride, plain + r * part.cols, part.cols,
                      "a gradient of logits");
    scale.x = draw_floats(tape, part.rows * cols, 1.0f);
    scale.out = draw_floats(tape, part.rows * cols, 1.0f);
    exec->ops->row->scale_rows(exec, &scale);
    scale.out_bf16 = room16(tape, part.rows * cols);
    exec->ops->row->scale_rows(exec, &scale);
    check_rounded(tape, scale.out_bf16, scale.out, part.rows * cols, "a scaled row");
}

/* Products of rows that are rounded already, in every layout that a pass has. */
static void scenario_product(struct ash_exec *exec, struct tape *tape)
{
    size_t most = tape->pinned ? 4 : 1; /* large enough for the vendor's library, there */
    size_t M = most * draw_size(tape, 257), N = most * draw_size(tape, 257), K = draw_size(tape, 257);
    bool a_columns = draw_bool(tape), b_columns = draw_bool(tape);
    float *a = draw_floats(tape, M * K, 1.0f), *b = draw_floats(tape, K * N, 1.0f), *c = draw_floats(tape, M * N, 1.0f),
          *c2 = copy_of(tape, c, M * N);
    struct ash_gemm_args args = {.M = M,
                                 .N = N,
                                 .K = K,
                                 .a = {a, ASH_F32, a_columns ? 1 : K, a_columns ? M : 1},
                                 .b = {b, ASH_F32, b_columns ? N : 1, b_columns ? 1 : K},
                                 .c = c,
                                 .c_stride = N,
                                 .accumulate = draw_bool(tape),
                                 .round_bf16 = true};

    exec->ops->matrix->gemm(exec, &args);
    args.a.data = rounded_of(tape, a, M * K);
    args.b.data = rounded_of(tape, b, K * N);
    args.a.dtype = args.b.dtype = ASH_BF16;
    args.c = c2;
    exec->ops->matrix->gemm(exec, &args);
    check_floats(tape, c2, c, M * N, "a product");
}

static void scenario_project(struct ash_exec *exec, struct tape *tape)
{
    size_t M = draw_size(tape, 129), N = draw_size(tape, 129), K = draw_size(tape, 129);
    float *x = draw_floats(tape, M * K, 1.0f), *y = draw_floats(tape, M * N, 1.0f), *y2 = copy_of(tape, y, M * N);
    struct ash_project_args args = {
        .M = M, .K = K, .x = x, .x_stride = K, .round_bf16 = true, .residual = draw_bool(tape), .out_count = 1};

    args.outs[0] = (struct ash_project_out){
        .w = {.N = N, .mat = {draw_dtype(tape, ASH_BF16, N * K, 1.0f), ASH_BF16, 1, K}}, .y = y, .y_stride = N};
    exec->ops->matrix->project(exec, &args);
    args.x = NULL;
    args.x_bf16 = rounded_of(tape, x, M * K);
    args.outs[0].y = y2;
    exec->ops->matrix->project(exec, &args);
    check_floats(tape, y2, y, M * N, "a projection");
    if (args.residual) return;
    args.outs[0].y = NULL;
    args.outs[0].y_bf16 = room16(tape, M * N);
    exec->ops->matrix->project(exec, &args);
    check_rounded(tape, args.outs[0].y_bf16, y, M * N, "a projection");
}

#define DOCS 3

/* Attention, and its gradients, of whole documents one after the other. */
struct attention {
    struct ash_attn_args args;
    struct ash_attn_seq seqs[DOCS];
    size_t rows, width;
    float *grads; /* of q, k and v */
};

static void draw_attention(struct tape *tape, struct attention *a)
{
    static const size_t dims[] = {64, 128, 16, 20};
    struct ash_attn_args *args = &a->args;

    memset(a, 0, sizeof(*a));
    args->kv_heads = 1 + draw_below(tape, 2);
    args->heads = args->kv_heads * (1 + draw_below(tape, 2));
    args->dim_k = args->dim_v = dims[draw_below(tape, ASH_COUNT(dims))];
    args->scale = 0.2f;
    args->window = draw_below(tape, 3) == 0 ? 9 : 0;
    args->round_bf16 = true;
    args->seq_count = 1 + draw_below(tape, DOCS);
    a->width = (args->heads + 2 * args->kv_heads) * args->dim_k;
    args->q_stride = args->k_stride = args->v_stride = a->width;
    args->out_stride = args->heads * args->dim_v;
    for (size_t s = 0; s < args->seq_count; s++) {
        a->seqs[s] = (struct ash_attn_seq){.q_row = a->rows, .q_count = 1 + draw_below(tape, SANITIZED ? 9 : 40)};
        a->rows += a->seqs[s].q_count;
    }
    args->seqs = a->seqs;
}

/* Point q, k, v at rows of float32, or (rounded) of bf16; run both directions. */
static void run_attention(struct ash_exec *exec, struct tape *tape, struct attention *a, const float *rows,
                          const uint16_t *rounded, const float *dout)
{
    struct ash_attn_args *args = &a->args;
    size_t q_width = args->heads * args->dim_k, v_at = q_width + args->kv_heads * args->dim_k;
    size_t outs = a->rows * args->out_stride;

    args->q = rounded == NULL ? rows : NULL;
    args->q_bf16 = rounded;
    args->kv_dtype = rounded == NULL ? ASH_F32 : ASH_BF16;
    /* of rounded rows, what attention gives and its gradient are rounded alone, or too */
    args->out = rounded == NULL || draw_bool(tape) ? draw_floats(tape, outs, 1.0f) : NULL;
    args->out_bf16 = rounded != NULL ? room16(tape, outs) : NULL;
    args->lse = draw_floats(tape, a->rows * args->heads, 1.0f);
    args->dout_bf16 = rounded != NULL && draw_bool(tape) ? rounded_of(tape, dout, outs) : NULL;
    args->dout = args->dout_bf16 == NULL ? dout : NULL;
    a->grads = tape_alloc(tape, a->rows * a->width * sizeof(float));
    memset(a->grads, 0, a->rows * a->width * sizeof(float));
    args->dq = a->grads;
    for (size_t s = 0; s < args->seq_count; s++) {
        struct ash_attn_seq *seq = &a->seqs[s];
        size_t first = seq->q_row * a->width;

        seq->k = rounded != NULL ? (const void *)(rounded + first + q_width) : rows + first + q_width;
        seq->v = rounded != NULL ? (const void *)(rounded + first + v_at) : rows + first + v_at;
        seq->dk = a->grads + first + q_width;
        seq->dv = a->grads + first + v_at;
    }
    exec->ops->attn->forward(exec, args);
    exec->ops->attn->backward(exec, args);
}

static void scenario_attention(struct ash_exec *exec, struct tape *tape)
{
    struct attention plain, rounded;
    float *rows, *dout;
    size_t count, outs;

    draw_attention(tape, &plain);
    count = plain.rows * plain.width;
    outs = plain.rows * plain.args.out_stride;
    rows = draw_floats(tape, count, 1.0f);
    dout = draw_floats(tape, outs, 1.0f);
    rounded = plain;
    rounded.args.seqs = rounded.seqs;
    run_attention(exec, tape, &plain, rows, NULL, dout);
    run_attention(exec, tape, &rounded, rows, rounded_of(tape, rows, count), dout);
    if (rounded.args.out != NULL) check_floats(tape, rounded.args.out, plain.args.out, outs, "attention");
    check_rounded(tape, rounded.args.out_bf16, plain.args.out, outs, "attention");
    check_floats(tape, rounded.grads, plain.grads, count, "attention's gradients");
}

/* Gradients of q, k and v turned back and rounded: by two ops, and by one if the backend has it. */
static void scenario_turned(struct ash_exec *exec, struct tape *tape)
{
    struct attention a;
    struct ash_attn_args *args = &a.args;
    struct ash_rope_args rope;
    int32_t *positions;
    size_t count;
    uint16_t *one;

    draw_attention(tape, &a);
    count = a.rows * a.width;
    positions = tape_alloc(tape, a.rows * sizeof(*positions));
    for (size_t s = 0; s < args->seq_count; s++)
        for (size_t i = 0; i < a.seqs[s].q_count; i++)
            positions[a.seqs[s].q_row + i] = (int32_t)i;
    run_attention(exec, tape, &a, NULL, rounded_of(tape, draw_floats(tape, count, 1.0f), count),
                  draw_floats(tape, a.rows * args->out_stride, 1.0f));
    rope = (struct ash_rope_args){.rows = a.rows,
                                  .heads = args->heads + args->kv_heads,
                                  .head_stride = args->dim_k,
                                  .row_stride = a.width,
                                  .dims = args->dim_k,
                                  .positions = positions,
                                  .cos = draw_floats(tape, 64 * args->dim_k, 1.0f),
                                  .sin = draw_floats(tape, 64 * args->dim_k, 1.0f),
                                  .x = a.grads,
                                  .out_bf16 = room16(tape, count),
                                  .out_cols = a.width,
                                  .inverse = true};
    exec->ops->rope->apply(exec, &rope);
    one = rope.out_bf16;
    rope.out_bf16 = room16(tape, count);
    if (exec->ops->attn->backward_rounded == NULL || !exec->ops->attn->backward_rounded(exec, args, &rope)) return;
    tape_wait(tape);
    assert_memory_equal(rope.out_bf16, one, count * sizeof(*one));
}

/* ---- which tables ------------------------------------------------------------------------------------------------ */

static void check_table(const char *name, scenario_fn scenario)
{
    struct ash_exec exec;

    exec_init(&exec, name, 2);
    assert_true(exec.ops->takes_bf16);
    for (uint64_t seed = 0; seed < (SANITIZED ? 6 : SEEDS); seed++) {
        struct tape tape;

        tape_init(&tape, &exec, seed);
        scenario(&exec, &tape);
        tape_fini(&tape);
    }
    ash_exec_fini(&exec);
}

static void check_all(scenario_fn scenario)
{
    struct ash_exec gpu;

    check_table("ref-wgmma", scenario);
    if (ash_exec_init(&gpu, "cuda", 1, NULL) != 0) return;
    ash_exec_fini(&gpu);
    check_table("cuda", scenario);
}

#define TEST(name)                                                                                                     \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        check_all(scenario_##name);                                                                                    \
    }

TEST(norm)
TEST(swiglu)
TEST(swiglu_rounded)
TEST(rope)
TEST(rope_in_place)
TEST(loss)
TEST(loss_apart)
TEST(product)
TEST(project)
TEST(attention)
TEST(turned)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),           cmocka_unit_test(test_swiglu),     cmocka_unit_test(test_rope),
        cmocka_unit_test(test_loss),           cmocka_unit_test(test_loss_apart), cmocka_unit_test(test_rope_in_place),
        cmocka_unit_test(test_swiglu_rounded), cmocka_unit_test(test_product),    cmocka_unit_test(test_project),
        cmocka_unit_test(test_attention),      cmocka_unit_test(test_turned)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

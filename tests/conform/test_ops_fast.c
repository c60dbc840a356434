/* runtime.mode=fast has no bits of a reference: its results stay near the exact ones. Losses are within 1e-3; what else
 * a kernel writes, within 1e-2 of its own length. Where no GPU is, two backends of the CPU stand for the two modes, so
 * that the scenarios and the comparison run everywhere. */
#include "conform/ops_harness.h"

#include <errno.h>
#include <math.h>
#include "compute/backends/backends.h"

#define PARTS_MAX 64
#define LOSS_ERROR 1e-3
#define LENGTH_ERROR 1e-2

/* Which words of a tape are one result. */
struct parts {
    size_t ends[PARTS_MAX], count;
    bool is_loss[PARTS_MAX];
};

static struct parts parts; /* of the tape that is written */

static void put(struct tape *tape, const float *x, size_t count, bool is_loss)
{
    assert_true(parts.count < PARTS_MAX);
    tape_words(tape, x, count);
    parts.is_loss[parts.count] = is_loss;
    parts.ends[parts.count++] = tape->count;
}

static void put_bf16(struct tape *tape, const uint16_t *x, size_t count)
{
    float *wide = malloc(count * sizeof(*wide));

    assert_non_null(wide);
    tape_wait(tape);
    for (size_t i = 0; i < count; i++)
        wide[i] = ash_bf16_to_f32(x[i]);
    put(tape, wide, count, false);
    free(wide);
}

/* How far a result is from another: the largest difference of losses, else the length of the difference. */
static double distance(const float *a, const float *b, size_t count, bool is_loss)
{
    double top = 0.0, apart = 0.0, length = 0.0;

    for (size_t i = 0; i < count; i++) {
        double d = (double)a[i] - (double)b[i];

        top = fabs(d) > top ? fabs(d) : top;
        apart += d * d;
        length += (double)b[i] * (double)b[i];
    }
    if (!(apart >= 0.0)) return INFINITY; /* not numbers */
    return is_loss ? top / LOSS_ERROR : sqrt(apart / (length + 1e-30)) / LENGTH_ERROR;
}

static void compare_parts(const struct tape *fast, const struct tape *exact)
{
    size_t first = 0;

    assert_int_equal(fast->count, exact->count);
    for (size_t p = 0; p < parts.count; first = parts.ends[p++]) {
        double d = distance((const float *)fast->words + first, (const float *)exact->words + first,
                            parts.ends[p] - first, parts.is_loss[p]);

        if (!(d <= 1.0))
            fail_msg("seed %llu, result %zu: %.3g times as far from the exact one as it may be",
                     (unsigned long long)exact->seed, p, d);
    }
}

/* ---- scenarios --------------------------------------------------------------------------------------------------- */

/* Rows of logits, as long as a vocabulary sometimes. */
static void scenario_loss(struct ash_exec *exec, struct tape *tape)
{
    size_t rows = 1 + draw_below(tape, 5),
           cols = draw_bool(tape) ? draw_size(tape, 400) : 4000 + draw_below(tape, 9000);
    float *logits = draw_floats(tape, rows * cols, 3.0f), *loss = draw_floats(tape, rows, 1.0f);
    struct ash_loss_part part = {
        .rows = rows, .cols = cols, .logits = logits, .targets = draw_ids(tape, rows, cols), .loss = loss};

    if (draw_bool(tape)) ((int32_t *)(uintptr_t)part.targets)[0] = -1;
    if (draw_bool(tape)) part.sharpness = 0.7f;
    exec->ops->loss->cross_entropy(exec, &part);
    put(tape, loss, rows, true);
    part.scale = 0.25f;
    part.grad_stride = ash_round_up(cols, ASH_LOSS_GRAD_ALIGN);
    if (draw_bool(tape) && exec->ops->takes_bf16) part.grad_bf16 = tape_alloc(tape, rows * part.grad_stride * 2);
    exec->ops->loss->cross_entropy(exec, &part);
    put(tape, loss, rows, true);
    for (size_t r = 0; r < rows; r++)
        if (part.grad_bf16)
            put_bf16(tape, part.grad_bf16 + r * part.grad_stride, cols);
        else
            put(tape, logits + r * cols, cols, false);
}

static void run_norm(struct ash_exec *exec, struct tape *tape, bool layer)
{
    struct ash_norm_args args = {.rows = draw_bool(tape) ? draw_size(tape, 400) : 1000 + draw_below(tape, 1000),
                                 .groups = 1 + draw_below(tape, 2),
                                 .cols = draw_size(tape, 300),
                                 .eps = 1e-5f};
    size_t units = args.rows * args.groups, width = args.groups * args.cols;
    const struct ash_norm_ops *ops = exec->ops->norm;

    args.x_stride = args.y_stride = width + draw_below(tape, 2) * 4;
    args.x = draw_floats(tape, args.rows * args.x_stride, 2.0f);
    args.weight = draw_floats(tape, args.cols, 1.0f);
    args.y = draw_floats(tape, args.rows * args.y_stride, 1.0f);
    args.rstd = draw_floats(tape, units, 1.0f);
    args.mean = draw_floats(tape, units, 1.0f);
    (layer ? ops->layer_forward : ops->rms_forward)(exec, &args);
    args.dy = draw_floats(tape, args.rows * args.y_stride, 1.0f);
    args.dx = draw_floats(tape, args.rows * args.x_stride, 1.0f);
    args.dweight = draw_floats(tape, args.cols, 1.0f);
    args.dbias = layer && draw_bool(tape) ? draw_floats(tape, args.cols, 1.0f) : NULL;
    (layer ? ops->layer_backward : ops->rms_backward)(exec, &args);
    put(tape, args.dx, args.rows * args.x_stride, false);
    put(tape, args.dweight, args.cols, false);
    if (args.dbias != NULL) put(tape, args.dbias, args.cols, false);
}

static void scenario_rms(struct ash_exec *exec, struct tape *tape)
{
    run_norm(exec, tape, false);
}

static void scenario_layer(struct ash_exec *exec, struct tape *tape)
{
    run_norm(exec, tape, true);
}

/* Two documents, forward and backward, as a bf16 model does. */
static void scenario_attention(struct ash_exec *exec, struct tape *tape)
{
    size_t dim = draw_bool(tape) ? 64 : 128, kv_heads = 2, heads = 4, rows = 2 + draw_size(tape, 300);
    size_t cut = 1 + draw_below(tape, rows - 1), wide = heads * dim, narrow = kv_heads * dim;
    float *q = draw_floats(tape, rows * wide, 1.0f), *k = draw_floats(tape, rows * narrow, 1.0f),
          *v = draw_floats(tape, rows * narrow, 1.0f), *dk = draw_floats(tape, rows * narrow, 1.0f),
          *dv = draw_floats(tape, rows * narrow, 1.0f);
    struct ash_attn_seq seqs[2] = {{.q_count = cut, .k = k, .v = v, .dk = dk, .dv = dv},
                                   {.q_row = cut,
                                    .q_count = rows - cut,
                                    .k = k + cut * narrow,
                                    .v = v + cut * narrow,
                                    .dk = dk + cut * narrow,
                                    .dv = dv + cut * narrow}};
    struct ash_attn_args args = {.heads = heads,
                                 .kv_heads = kv_heads,
                                 .dim_k = dim,
                                 .dim_v = dim,
                                 .scale = 1.0f / sqrtf((float)dim),
                                 .window = draw_bool(tape) ? 40 : 0,
                                 .round_bf16 = true,
                                 .kv_dtype = ASH_F32,
                                 .q_stride = wide,
                                 .k_stride = narrow,
                                 .v_stride = narrow,
                                 .out_stride = wide,
                                 .q = q,
                                 .seqs = seqs,
                                 .seq_count = 2};

    args.out = draw_floats(tape, rows * wide, 1.0f);
    args.lse = draw_floats(tape, rows * heads, 1.0f);
    exec->ops->attn->forward(exec, &args);
    put(tape, args.out, rows * wide, false);
    put(tape, args.lse, rows * heads, true);
    args.dout = draw_floats(tape, rows * wide, 1.0f);
    args.dq = draw_floats(tape, rows * wide, 1.0f);
    exec->ops->attn->backward(exec, &args);
    put(tape, args.dq, rows * wide, false);
    put(tape, dk, rows * narrow, false);
    put(tape, dv, rows * narrow, false);
}

/* A weight gradient whose k is long: a library splits it. */
static void scenario_product(struct ash_exec *exec, struct tape *tape)
{
    size_t M = 64, N = 64, K = exec->cuda != NULL ? 8192 : 512;
    void *a = draw_dtype(tape, ASH_BF16, K * M, 1.0f), *b = draw_dtype(tape, ASH_BF16, K * N, 1.0f);
    float *c = draw_floats(tape, M * N, 1.0f);
    struct ash_gemm_args args = {.M = M, .N = N, .K = K, .c = c, .c_stride = N, .round_bf16 = true};

    args.a = (struct ash_mat){a, ASH_BF16, 1, M};
    args.b = (struct ash_mat){b, ASH_BF16, N, 1};
    exec->ops->matrix->gemm(exec, &args);
    put(tape, c, M * N, false);
}

/* ---- the comparison ---------------------------------------------------------------------------------------------- */

/* The two modes of the GPU, or what stands for them. */
static void open_modes(struct ash_exec *exact, struct ash_exec *fast)
{
    if (ash_exec_init(exact, "cuda", 1, NULL) == 0) {
        struct ash_err err = {0};

        if (ash_exec_init_fast(fast, "cuda", &err) < 0) fail_msg("%s", err.text);
        return;
    }
    exec_init(exact, "ref", 1);
    exec_init(fast, "cpu", 2);
}

static void check_near(scenario_fn scenario, uint64_t seeds)
{
    struct ash_exec exact, fast;

    open_modes(&exact, &fast);
    for (uint64_t seed = 0; seed < (exact.cuda != NULL ? seeds : 2); seed++) {
        struct tape want, got;

        parts.count = 0;
        tape_init(&want, &exact, seed);
        scenario(&exact, &want);
        parts.count = 0;
        tape_init(&got, &fast, seed);
        scenario(&fast, &got);
        compare_parts(&got, &want);
        tape_fini(&want);
        tape_fini(&got);
    }
    ash_exec_fini(&fast);
    ash_exec_fini(&exact);
}

static void test_losses_are_near(void **state)
{
    (void)state;
    check_near(scenario_loss, 40);
}

static void test_norms_are_near(void **state)
{
    (void)state;
    check_near(scenario_rms, 40);
    check_near(scenario_layer, 40);
}

static void test_attention_is_near(void **state)
{
    (void)state;
    check_near(scenario_attention, 40);
}

static void test_products_are_near(void **state)
{
    (void)state;
    check_near(scenario_product, 4);
}

/* The comparison itself: large differences are found, also a NaN. */
static void test_far_is_seen(void **state)
{
    const float exact[] = {1.0f, 2.0f}, near[] = {1.0005f, 2.0f}, far[] = {1.1f, 2.0f}, none[] = {NAN, 2.0f};

    (void)state;
    assert_true(distance(near, exact, 2, true) <= 1.0 && distance(near, exact, 2, false) <= 1.0);
    assert_false(distance(far, exact, 2, true) <= 1.0 || distance(far, exact, 2, false) <= 1.0);
    assert_false(distance(none, exact, 2, true) <= 1.0 || distance(none, exact, 2, false) <= 1.0);
}

/* It is for GPUs only, and says so. */
static void test_the_cpu_refuses(void **state)
{
    struct ash_exec exec;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_exec_init_fast(&exec, "cpu", &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "runtime.mode=fast"));
    assert_non_null(strstr(err.text, "'cpu'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses_are_near),   cmocka_unit_test(test_norms_are_near),
        cmocka_unit_test(test_attention_is_near), cmocka_unit_test(test_products_are_near),
        cmocka_unit_test(test_far_is_seen),       cmocka_unit_test(test_the_cpu_refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

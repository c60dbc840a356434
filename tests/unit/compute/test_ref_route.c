/* The reference routing: the rules of mixtral, qwen3_moe and deepseek_v3 worked out by hand, and its gradient. */
#include "unit/compute/ref_check.h"

enum { EXPERTS = 8, CHOICES = 3 };

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* The reference's choice, into args->index and args->weight. */
static void route(const struct ash_route_args *args)
{
    struct ash_exec exec;

    ref_init(&exec);
    exec.ops->route->forward(&exec, args);
    ash_exec_fini(&exec);
}

/* Softmax, the best two, renormalised: only the chosen logits matter. */
static void test_softmax(void **state)
{
    static const float logits[4] = {0.5f, 2.0f, -1.0f, 1.0f};
    int32_t index[2];
    float weight[2];
    struct ash_route_args args = {.rows = 1,
                                  .experts = 4,
                                  .choices = 2,
                                  .normalize = true,
                                  .groups = 1,
                                  .scale = 1.0f,
                                  .logits = logits,
                                  .index = index,
                                  .weight = weight};
    double all = exp(0.5) + exp(2.0) + exp(-1.0) + exp(1.0);

    (void)state;
    route(&args);
    assert_int_equal(index[0], 1);
    assert_int_equal(index[1], 3);
    check_close((double)weight[0], sigmoid(1.0), 1e-6, "weight", 0);
    check_close((double)weight[1], sigmoid(-1.0), 1e-6, "weight", 1);
    args.normalize = false;
    route(&args);
    check_close((double)weight[0], exp(2.0) / all, 1e-6, "weight", 0);
}

/* Equal scores go to the lower expert; NaN is never preferred and never leads out of range. */
static void test_ties(void **state)
{
    static const float logits[8] = {1.0f, 3.0f, 3.0f, 1.0f, NAN, NAN, NAN, NAN};
    int32_t index[6];
    float weight[6];
    struct ash_route_args args = {.rows = 2,
                                  .experts = 4,
                                  .choices = 3,
                                  .groups = 1,
                                  .scale = 1.0f,
                                  .sigmoid = true,
                                  .logits = logits,
                                  .index = index,
                                  .weight = weight};

    (void)state;
    route(&args);
    assert_int_equal(index[0], 1);
    assert_int_equal(index[1], 2);
    assert_int_equal(index[2], 0);
    for (size_t s = 3; s < 6; s++)
        assert_in_range(index[s], 0, 3);
}

/* Sigmoid scores, a bias for choosing, the best group of two, plain scores as weights. Group {0, 1} has the largest
 * expert, group {2, 3} the larger sum of two. */
static void test_groups(void **state)
{
    static const float logits[4] = {2.0f, -3.0f, 1.0f, 0.9f}, bias[4] = {0.0f, 0.0f, -0.1f, 0.2f};
    int32_t index[2];
    float weight[2];
    struct ash_route_args args = {.rows = 1,
                                  .experts = 4,
                                  .choices = 2,
                                  .sigmoid = true,
                                  .normalize = true,
                                  .groups = 2,
                                  .top_groups = 1,
                                  .choice_bias = bias,
                                  .scale = 2.5f,
                                  .logits = logits,
                                  .index = index,
                                  .weight = weight};
    double sum = sigmoid(1.0) + sigmoid(0.9);

    (void)state;
    route(&args);
    assert_int_equal(index[0], 3); /* 0.9 wins by its bias */
    assert_int_equal(index[1], 2);
    check_close((double)weight[0], 2.5 * sigmoid(0.9) / sum, 1e-6, "weight", 0);
    check_close((double)weight[1], 2.5 * sigmoid(1.0) / sum, 1e-6, "weight", 1);
}

/* The choice score of a masked group is 0, which beats a negative one. */
static void test_masked_zero(void **state)
{
    static const float logits[4] = {-3.0f, -3.0f, 2.0f, 0.0f}, bias[4] = {0.0f, 0.0f, 0.0f, -0.9f};
    int32_t index[2];
    float weight[2];
    struct ash_route_args args = {.rows = 1,
                                  .experts = 4,
                                  .choices = 2,
                                  .sigmoid = true,
                                  .groups = 2,
                                  .top_groups = 1,
                                  .choice_bias = bias,
                                  .scale = 1.0f,
                                  .logits = logits,
                                  .index = index,
                                  .weight = weight};

    (void)state;
    route(&args);
    assert_int_equal(index[0], 2);
    assert_int_equal(index[1], 0);
    check_close((double)weight[1], sigmoid(-3.0), 1e-6, "weight", 1);
}

/* Pairs sorted by expert, tokens ascending; expert 1 gets nothing. */
static void test_group(void **state)
{
    static const int32_t index[6] = {2, 0, 0, 3, 2, 0};
    static const int32_t want_flat[6] = {1, 2, 5, 0, 4, 3}, want_where[6] = {3, 0, 1, 5, 4, 2};
    static const size_t want_offsets[5] = {0, 3, 3, 5, 6};
    int32_t order[6], flat[6], where[6];
    size_t offsets[5];
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    exec.ops->route->group(&exec, &(struct ash_route_group_args){.rows = 3,
                                                                 .choices = 2,
                                                                 .experts = 4,
                                                                 .index = index,
                                                                 .order = order,
                                                                 .flat = flat,
                                                                 .where = where,
                                                                 .offsets = offsets});
    assert_memory_equal(flat, want_flat, sizeof(flat));
    assert_memory_equal(where, want_where, sizeof(where));
    assert_memory_equal(offsets, want_offsets, sizeof(offsets));
    for (size_t p = 0; p < 6; p++)
        assert_int_equal(order[p], want_flat[p] / 2);
    ash_exec_fini(&exec);
}

/* sparsemixer as a formula: each choice's share among those that are left and within the tolerance, which logits hold
 * constant. */
struct mixer {
    float tolerance;
    const float *logits;
    int32_t index[CHOICES];
    float dweight[CHOICES];
};

static double mixer_share(const struct mixer *op, const double *logits, size_t choice)
{
    size_t best = (size_t)op->index[choice];
    double all = 0.0, max = (double)op->logits[best];

    for (size_t e = 0; e < EXPERTS; e++) {
        double x = (double)op->logits[e], size = fabs(x) > max ? fabs(x) : max;
        bool is_left = (max - x) / size <= (double)op->tolerance;

        for (size_t s = 0; s < choice; s++)
            is_left = is_left && (size_t)op->index[s] != e;
        if (is_left) all += exp(logits[e]);
    }
    return exp(logits[best]) / all;
}

static double mixer_scalar(const void *ctx, const double *logits)
{
    const struct mixer *op = ctx;
    double total = 0.0;

    for (size_t s = 0; s < CHOICES; s++)
        total += (double)op->dweight[s] * mixer_share(op, logits, s);
    return total;
}

static void test_mixer(void **state)
{
    static const float tolerances[] = {0.02f, 0.4f, 1.5f, 1e6f};
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    for (uint64_t seed = 0; seed < 20; seed++) {
        float logits[EXPERTS], weight[CHOICES], dlogits[EXPERTS];
        double wide[EXPERTS];
        struct mixer op = {.tolerance = tolerances[seed % 4], .logits = logits};
        struct ash_route_args args = {.rows = 1,
                                      .experts = EXPERTS,
                                      .choices = CHOICES,
                                      .groups = 1,
                                      .scale = 1.0f,
                                      .tolerance = op.tolerance,
                                      .logits = logits,
                                      .index = op.index,
                                      .weight = weight,
                                      .dweight = op.dweight,
                                      .dlogits = dlogits};

        fill(logits, EXPERTS, 100 + seed, 1.0f);
        fill(op.dweight, CHOICES, 200 + seed, 1.0f);
        exec.ops->route->forward(&exec, &args);
        exec.ops->route->backward(&exec, &args);
        for (size_t e = 0; e < EXPERTS; e++)
            wide[e] = (double)logits[e];
        for (size_t s = 0; s < CHOICES; s++) {
            check_close((double)weight[s], mixer_share(&op, wide, s), 1e-6, "weight", s);
            if (s > 0) assert_true(logits[op.index[s]] <= logits[op.index[s - 1]]);
        }
        check_gradient(mixer_scalar, &op, logits, EXPERTS, dlogits, "dlogits");
    }
    ash_exec_fini(&exec);
}

struct route {
    bool sigmoid, normalize;
    int32_t index[CHOICES];
    float dweight[CHOICES];
};

static double route_scalar(const void *ctx, const double *logits)
{
    const struct route *op = ctx;
    double all = 0.0, sum = 0.0, score[CHOICES], total = 0.0;

    for (size_t e = 0; e < EXPERTS; e++)
        all += exp(logits[e]);
    for (size_t s = 0; s < CHOICES; s++) {
        score[s] = op->sigmoid ? sigmoid(logits[op->index[s]]) : exp(logits[op->index[s]]) / all;
        sum += score[s];
    }
    for (size_t s = 0; s < CHOICES; s++)
        total += (double)op->dweight[s] * score[s] / (op->normalize ? sum : 1.0) * 1.5;
    return total;
}

static void test_backward(void **state)
{
    struct ash_exec exec;

    (void)state;
    ref_init(&exec);
    for (int mode = 0; mode < 4; mode++) {
        struct route op = {.sigmoid = (mode & 1) != 0, .normalize = (mode & 2) != 0};
        float logits[EXPERTS], weight[CHOICES], dlogits[EXPERTS];
        struct ash_route_args args = {.rows = 1,
                                      .experts = EXPERTS,
                                      .choices = CHOICES,
                                      .sigmoid = op.sigmoid,
                                      .groups = 1,
                                      .normalize = op.normalize,
                                      .scale = 1.5f,
                                      .logits = logits,
                                      .index = op.index,
                                      .weight = weight,
                                      .dweight = op.dweight,
                                      .dlogits = dlogits};

        fill(logits, EXPERTS, 1, 1.0f);
        fill(op.dweight, CHOICES, 2, 1.0f);
        exec.ops->route->forward(&exec, &args);
        exec.ops->route->backward(&exec, &args);
        check_gradient(route_scalar, &op, logits, EXPERTS, dlogits, "dlogits");
    }
    ash_exec_fini(&exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax),     cmocka_unit_test(test_ties),     cmocka_unit_test(test_groups),
        cmocka_unit_test(test_masked_zero), cmocka_unit_test(test_backward), cmocka_unit_test(test_group),
        cmocka_unit_test(test_mixer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Arithmetic problems: pure, right, inside their limits, splits that never meet; answers are checked; bad options are
 * answered. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "train/data/arithmetic.h"

static struct ash_err err;
static const char *const all_ops[] = {"add", "sub", "mul"};

static struct ash_arithmetic_opts defaults(void)
{
    return (struct ash_arithmetic_opts){.seed = 1,
                                        .ops = {(const char **)(uintptr_t)all_ops, 3},
                                        .min_digits = 1,
                                        .max_digits = 2,
                                        .mul_digits = 1,
                                        .negative = true};
}

static struct ash_arithmetic init(struct ash_arithmetic_opts opts)
{
    struct ash_arithmetic arithmetic;

    assert_int_equal(ash_arithmetic_init(&arithmetic, &opts, &err), 0);
    return arithmetic;
}

struct parsed {
    int64_t left, right, answer;
    char op;
};

static struct parsed parse(const struct ash_problem *problem)
{
    struct parsed p;
    char rest = 0;

    assert_int_equal(sscanf(problem->prompt, "%" SCNd64 "%c%" SCNd64 "=%c", &p.left, &p.op, &p.right, &rest), 3);
    assert_int_equal(problem->prompt[strlen(problem->prompt) - 1], '=');
    p.answer = strtoll(problem->answer, NULL, 10);
    return p;
}

static void test_answers_are_right(void **state)
{
    struct ash_arithmetic_opts opts = defaults();
    int seen[128] = {0}, negative = 0;
    struct ash_problem problem;

    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        if (wide) opts.max_digits = opts.mul_digits = ASH_ARITHMETIC_DIGITS_MAX;
        struct ash_arithmetic arithmetic = init(opts);

        for (uint64_t i = 0; i < 5000; i++) {
            ash_arithmetic_problem(&arithmetic, i, &problem);
            struct parsed p = parse(&problem);

            seen[(int)p.op]++;
            negative += p.answer < 0;
            assert_int_equal(p.answer, p.op == '+'   ? p.left + p.right
                                       : p.op == '-' ? p.left - p.right
                                                     : p.left * p.right);
            if (!wide) assert_true(p.left < (p.op == '*' ? 10 : 100) && p.right < (p.op == '*' ? 10 : 100));
            assert_true(p.left >= 0 && p.right >= 0);
        }
    }
    assert_true(seen['+'] > 3000 && seen['-'] > 3000 && seen['*'] > 3000);
    assert_true(negative > 1000);
}

static void test_pure(void **state)
{
    struct ash_arithmetic a = init(defaults()), b = a;
    struct ash_problem forward[200], problem;
    int differ = 0;

    (void)state;
    for (uint64_t i = 0; i < 200; i++)
        ash_arithmetic_problem(&a, i, &forward[i]);
    b.seed = 2;
    for (uint64_t i = 200; i-- > 0;) {
        ash_arithmetic_problem(&a, i, &problem);
        assert_string_equal(problem.prompt, forward[i].prompt);
        assert_string_equal(problem.answer, forward[i].answer);
        ash_arithmetic_problem(&b, i, &problem);
        differ += strcmp(problem.prompt, forward[i].prompt) != 0;
    }
    assert_true(differ > 150);
}

/* Models were trained on these: what was held out must stay held out in every version. */
static void test_pinned(void **state)
{
    static const char *const prompts[2][5] = {{"9-91=", "11-1=", "7*1=", "1*3=", "39-37="},
                                              {"89+91=", "68-21=", "25+47=", "41-73=", "23-75="}};
    struct ash_arithmetic_opts opts = defaults();
    struct ash_problem problem;

    (void)state;
    for (opts.split = ASH_ARITHMETIC_TRAIN; opts.split <= ASH_ARITHMETIC_VALID; opts.split++) {
        struct ash_arithmetic arithmetic = init(opts);

        for (uint64_t i = 0; i < 5; i++) {
            ash_arithmetic_problem(&arithmetic, i, &problem);
            assert_string_equal(problem.prompt, prompts[opts.split][i]);
        }
    }
}

/* Every problem that either split can make, over many seeds, is noted with its mirror image. */
static void test_splits_never_meet(void **state)
{
    static unsigned char owner[3][100][100];
    struct ash_arithmetic_opts opts = defaults();
    size_t counts[3] = {0};
    struct ash_problem problem;

    (void)state;
    for (int split = ASH_ARITHMETIC_TRAIN; split <= ASH_ARITHMETIC_VALID; split++)
        for (opts.seed = 1; opts.seed <= 4; opts.seed++) {
            opts.split = split;
            opts.sizes = opts.seed % 2 ? ASH_ARITHMETIC_DIGITS : ASH_ARITHMETIC_VALUES;
            opts.negative = opts.seed < 3;
            struct ash_arithmetic arithmetic = init(opts);

            for (uint64_t i = 0; i < 20000; i++) {
                ash_arithmetic_problem(&arithmetic, i, &problem);
                struct parsed p = parse(&problem);
                int op = p.op == '+' ? 0 : p.op == '-' ? 1 : 2;

                owner[op][p.left][p.right] |= (unsigned char)(1 << split);
                owner[op][p.right][p.left] |= (unsigned char)(1 << split);
            }
        }
    for (size_t i = 0; i < sizeof(owner); i++) {
        unsigned char who = ((unsigned char *)owner)[i];

        assert_int_not_equal(who, 3);
        if (i % 10000 / 100 < 10 && i % 100 < 10) assert_int_equal(who, 1); /* a fact */
        counts[who]++;
    }
    assert_true(counts[1] > 15000);
    assert_true(counts[2] > counts[1] / 15 && counts[2] < counts[1] / 7); /* a tenth of all */
}

static void test_limits(void **state)
{
    static const char *adds[] = {"add"}, *subs[] = {"sub"};
    struct ash_arithmetic_opts opts = defaults();
    struct ash_problem problem;
    int shorts[2] = {0};

    (void)state;
    opts.ops = (struct ash_opt_list){subs, 1};
    opts.min_digits = opts.max_digits = 3;
    opts.negative = false;
    struct ash_arithmetic arithmetic = init(opts);
    for (uint64_t i = 0; i < 2000; i++) {
        ash_arithmetic_problem(&arithmetic, i, &problem);
        struct parsed p = parse(&problem);
        assert_true(p.answer >= 0 && p.left >= 100 && p.left <= 999 && p.right >= 100 && p.right <= 999);
    }
    opts.ops = (struct ash_opt_list){adds, 1};
    opts.min_digits = 1;
    for (opts.sizes = 0; opts.sizes < 2; opts.sizes++) {
        arithmetic = init(opts);
        for (uint64_t i = 0; i < 2000; i++) {
            ash_arithmetic_problem(&arithmetic, i, &problem);
            shorts[opts.sizes] += parse(&problem).left < 10;
        }
    }
    assert_true(shorts[ASH_ARITHMETIC_DIGITS] > 500 && shorts[ASH_ARITHMETIC_VALUES] < 100);
}

static void test_check(void **state)
{
    struct ash_problem problem = {.prompt = "37+58=", .answer = "95"};
    static const struct {
        const char *text;
        bool right;
    } cases[] = {{"95", true},   {" 95\n", true}, {"95 ", true},  {"", false},    {" ", false},   {"9", false},
                 {"950", false}, {"095", false},  {"9 5", false}, {"-95", false}, {"95.", false}, {"95\n1", false}};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++)
        assert_int_equal(ash_arithmetic_check(&problem, cases[i].text, strlen(cases[i].text)), cases[i].right);
    assert_true(ash_arithmetic_check(&problem, "951", 2)); /* not NUL-terminated */
    assert_false(ash_arithmetic_check(&problem, "80+15=95", 8));
    problem.may_have_work = true;
    assert_true(ash_arithmetic_check(&problem, "80+15=95", 8) && ash_arithmetic_check(&problem, "95", 2));
    assert_false(ash_arithmetic_check(&problem, "95=80+15", 8));
}

/* The parts of the work add up to the answer. */
static void test_work_adds_up(void **state)
{
    static const char *ops[] = {"add", "sub", "mul"};
    size_t worked = 0;

    (void)state;
    for (int digits = 1; digits <= ASH_ARITHMETIC_DIGITS_MAX; digits++) {
        struct ash_arithmetic_opts opts = defaults();
        struct ash_arithmetic arithmetic;

        opts.ops = (struct ash_opt_list){ops, ASH_COUNT(ops)};
        opts.max_digits = opts.mul_digits = digits;
        opts.split = ASH_ARITHMETIC_ALL;
        opts.work = true;
        arithmetic = init(opts);
        for (uint64_t i = 0; i < 500; i++) {
            struct ash_problem problem;
            long long sum = 0;
            char *at;

            ash_arithmetic_problem(&arithmetic, i, &problem);
            assert_true(problem.may_have_work);
            if (problem.work[0] == '\0') continue;
            for (at = problem.work; *at != '=' && *at != '\0';)
                sum += strtoll(at, &at, 10);
            assert_string_equal(at, "=");
            if (sum != strtoll(problem.answer, NULL, 10))
                fail_msg("%s%s%s", problem.prompt, problem.work, problem.answer);
            worked++;
        }
    }
    assert_true(worked > 3000);
}

static void refuse(const struct ash_arithmetic_opts *opts, const char *says)
{
    struct ash_arithmetic arithmetic = {.op_count = 77};

    err.text[0] = '\0';
    assert_int_equal(ash_arithmetic_init(&arithmetic, opts, &err), -EINVAL);
    assert_int_equal(arithmetic.op_count, 77);
    if (strstr(err.text, says) == NULL) fail_msg("'%s' does not say '%s'", err.text, says);
}

static void test_bad_options(void **state)
{
    static const char *unknown[] = {"add", "pow"};
    struct ash_arithmetic_opts opts = defaults();

    (void)state;
    opts.ops = (struct ash_opt_list){unknown, 2};
    refuse(&opts, "'pow'");
    opts.ops.count = 0;
    refuse(&opts, "add, sub, mul");
    opts = defaults(), opts.min_digits = 3;
    refuse(&opts, "min_digits 3");
    opts = defaults(), opts.max_digits = 10;
    refuse(&opts, "1 to 9");
    opts = defaults(), opts.mul_digits = 0;
    refuse(&opts, "1 to 9");
    opts = defaults(), opts.max_digits = 1, opts.split = ASH_ARITHMETIC_VALID;
    refuse(&opts, "no problems for the split 'valid'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_are_right), cmocka_unit_test(test_pure),        cmocka_unit_test(test_pinned),
        cmocka_unit_test(test_splits_never_meet), cmocka_unit_test(test_limits),      cmocka_unit_test(test_check),
        cmocka_unit_test(test_work_adds_up),      cmocka_unit_test(test_bad_options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The arithmetic of TDPBF16PS in plain C against answers of the instruction: a few that were written down, for machines
 * without it, and many drawn ones where a backend has it. */
#include "compute/ref/tdpbf16.h"

#include "conform/steps.h"

static const struct step_answer answers[] = {
    {0x3f800000, {0x3f80, 0x3f80, 0x3f80, 0x3f80}, {0x3f80, 0x3f80, 0x3f80, 0x3f80}, 0x40a00000}, /* 1 + 4 */
    {0x3f800000,
     {0x3381, 0x0000, 0x0000, 0x0000},
     {0x3f81, 0x0000, 0x0000, 0x0000},
     0x3f800001}, /* more than half of the last place rounds up */
    {0x3f800000,
     {0x3380, 0x0000, 0x0000, 0x0000},
     {0x3f80, 0x0000, 0x0000, 0x0000},
     0x3f800000}, /* half of it to even */
    {0x3f800001,
     {0x3380, 0x0000, 0x0000, 0x0000},
     {0x3f80, 0x0000, 0x0000, 0x0000},
     0x3f800002}, /* which is above here */
    {0x3f800000,
     {0x3300, 0x3300, 0x0000, 0x0000},
     {0x3f80, 0x3f80, 0x0000, 0x0000},
     0x3f800000}, /* even and odd k are added before the sum */
    {0x00000000,
     {0x3f80, 0x3300, 0x3f80, 0x3300},
     {0x3f80, 0x3f80, 0xbf80, 0x3f80},
     0x33800000}, /* and are chains of their own */
    {0xbf820000,
     {0x3f81, 0x0000, 0x2f83, 0x0000},
     {0x3f81, 0x0000, 0x2f83, 0x0000},
     0x38800000}, /* a product is not rounded, its sum is */
    {0x00000000,
     {0x3f80, 0x0000, 0x3f81, 0x0000},
     {0xbf82, 0x0000, 0x3f81, 0x0000},
     0x38800000}, /* a product is exact */
    {0x00000001,
     {0x0000, 0x0000, 0x0000, 0x0000},
     {0x0000, 0x0000, 0x0000, 0x0000},
     0x00000000}, /* a denormal sum is 0 */
    {0x80000001, {0x0000, 0x0000, 0x0000, 0x0000}, {0x0000, 0x0000, 0x0000, 0x0000}, 0x00000000}, /* of either sign */
    {0x80000000, {0x0000, 0x0000, 0x0000, 0x0000}, {0x0000, 0x0000, 0x0000, 0x0000}, 0x00000000}, /* -0 + 0 */
    {0x80000000,
     {0x8000, 0x8000, 0x8000, 0x8000},
     {0x3f80, 0x3f80, 0x3f80, 0x3f80},
     0x00000000}, /* chains start from 0 */
    {0x3f800000,
     {0x0040, 0x4000, 0x0000, 0x0000},
     {0x7f00, 0x3f80, 0x0000, 0x0000},
     0x40400000}, /* so is a denormal operand */
    {0x00800000,
     {0x8081, 0x0000, 0x0000, 0x0000},
     {0x3f80, 0x0000, 0x0000, 0x0000},
     0x80000000}, /* a denormal result is -0 */
    {0x00000000,
     {0x2000, 0x0000, 0x0000, 0x0000},
     {0x2000, 0x0000, 0x0000, 0x0000},
     0x00800000}, /* the least that is not */
    {0x00000000, {0x1fff, 0x0000, 0x8c80, 0x0000}, {0x2000, 0x0000, 0x2680, 0x0000}, 0x00000000}, /* just below it */
    {0x7f7fffff, {0x7f7f, 0x0000, 0x0000, 0x0000}, {0x3f80, 0x0000, 0x0000, 0x0000}, 0x7f800000}, /* too large */
    {0xff7fffff,
     {0x7f7f, 0x0000, 0x7f7f, 0x0000},
     {0x7f7f, 0x0000, 0xff7f, 0x0000},
     0x7f800000}, /* inside a chain too */
    {0x7f800000, {0x3f80, 0x0000, 0x0000, 0x0000}, {0x3f80, 0x0000, 0x0000, 0x0000}, 0x7f800000}, /* infinity stays */
    {0x3f800000, {0x7f80, 0x0000, 0x0000, 0x0000}, {0x0001, 0x0000, 0x0000, 0x0000}, 0x7fc00000}, /* times a denormal */
    {0x41b8a3d7, {0x4049, 0xc02e, 0x3fb5, 0x3e9a}, {0x3f1d, 0x40a7, 0xbe77, 0x4189}, 0x417a09d6}, /* ordinary numbers */
    {0xc2f6e979, {0x3e11, 0x4293, 0xbf3c, 0xc0d8}, {0xc1ea, 0x3d02, 0x4166, 0x3f95}, 0xc30faddc}, /* ordinary numbers */
};

static void test_answers(void **state)
{
    (void)state;
    check_answers(&ash_ops_ref_tdpbf16, ASH_TDPBF16_GROUP, answers, ASH_COUNT(answers), false);
}

/* Few k that are not 0 keep infinities rare. */
static void scenario_steps(struct ash_exec *exec, struct tape *tape)
{
    step_scenario(exec, tape, ASH_TDPBF16_GROUP, (size_t)1 << draw_below(tape, 6));
}

static void test_instruction(void **state)
{
    (void)state;
    check_scenario(scenario_steps, 400);
}

/* The same values in small-M products with packed weights, whose steps need not be that instruction. */
static void scenario_packed(struct ash_exec *exec, struct tape *tape)
{
    const size_t N = 48, K = 3 * ASH_TDPBF16_GROUP, live = (size_t)1 << draw_below(tape, 6);
    size_t M = 1 + draw_below(tape, 6), kind = draw_below(tape, 3);
    uint32_t *x = tape_alloc(tape, M * K * sizeof(*x)), *y = tape_alloc(tape, M * N * sizeof(*y));
    uint16_t *w = tape_alloc(tape, N * K * sizeof(*w));
    struct ash_project_args args = {
        .M = M,
        .K = K,
        .x = (const float *)x,
        .x_stride = K,
        .round_bf16 = true,
        .out_count = 1,
        .outs[0] = {.w = {.N = N, .mat = {w, ASH_BF16, 1, K}}, .y = (float *)y, .y_stride = N}};

    for (size_t i = 0; i < M * K; i++)
        x[i] = i % ASH_TDPBF16_GROUP < live ? step_word(tape, kind) & 0xffff0000u : 0;
    for (size_t i = 0; i < N * K; i++)
        w[i] = i % ASH_TDPBF16_GROUP < live ? (uint16_t)(step_word(tape, kind) >> 16) : 0;
    pack_weight(exec, tape, &args.outs[0].w, K);
    exec->ops->matrix->project(exec, &args);
    tape_words(tape, y, M * N);
}

static void test_packed(void **state)
{
    (void)state;
    check_scenario(scenario_packed, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers), cmocka_unit_test(test_instruction),
                                       cmocka_unit_test(test_packed)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

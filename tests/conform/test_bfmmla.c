/* The arithmetic of BFMMLA in plain C against answers of the instruction: a few that were written down, for machines
 * without it, and a million drawn ones where a backend has it. */
#include "compute/ref/bfmmla.h"

#include "conform/ops_harness.h"

struct answer {
    uint32_t sum;
    uint16_t a[BFMMLA_GROUP], b[BFMMLA_GROUP];
    uint32_t result;
};

static const struct answer answers[] = {
    {0x3f800000, {0x3f80, 0x3f80, 0x3f80, 0x3f80}, {0x3f80, 0x3f80, 0x3f80, 0x3f80}, 0x40a00000}, /* 1 + 4 */
    {0x3f800000,
     {0x3381, 0x0000, 0x0000, 0x0000},
     {0x3f81, 0x0000, 0x0000, 0x0000},
     0x3f800001}, /* what is cut off sets a bit */
    {0x3f800000,
     {0xb381, 0x0000, 0x0000, 0x0000},
     {0x3f81, 0x0000, 0x0000, 0x0000},
     0x3f7fffff}, /* on the other side */
    {0x3f800001, {0x0100, 0x0000, 0x0000, 0x0000}, {0x3f80, 0x0000, 0x0000, 0x0000}, 0x3f800001}, /* an odd sum stays */
    {0x3f800000, {0x0100, 0x0100, 0x0100, 0x0100}, {0x3f80, 0x3f80, 0xbf80, 0xbf80}, 0x3f800001}, /* pairs in order */
    {0x00000000,
     {0x4040, 0x3f81, 0x0000, 0x0000},
     {0x3eab, 0x2f83, 0x0000, 0x0000},
     0x3f804001}, /* a pair is rounded */
    {0xbf804000,
     {0x3f81, 0x2f83, 0x0000, 0x0000},
     {0x3f80, 0x2f83, 0x0000, 0x0000},
     0x3bc00100}, /* before it is added */
    {0x00000001,
     {0x0000, 0x0000, 0x0000, 0x0000},
     {0x0000, 0x0000, 0x0000, 0x0000},
     0x00000000}, /* a denormal sum is 0 */
    {0x80000001, {0x0000, 0x0000, 0x0000, 0x0000}, {0x0000, 0x0000, 0x0000, 0x0000}, 0x00000000}, /* of either sign */
    {0x80000000, {0x0000, 0x0000, 0x0000, 0x0000}, {0x0000, 0x0000, 0x0000, 0x0000}, 0x00000000}, /* -0 + 0 */
    {0x80000000, {0x8000, 0x8000, 0x8000, 0x8000}, {0x3f80, 0x3f80, 0x3f80, 0x3f80}, 0x80000000}, /* -0 + -0 */
    {0x3f800000, {0x0040, 0x4000, 0x0000, 0x0000}, {0x7f00, 0x3f80, 0x0000, 0x0000}, 0x40400000}, /* so is an operand */
    {0x00800000,
     {0x0000, 0x0000, 0x8081, 0x0000},
     {0x0000, 0x0000, 0x3f80, 0x0000},
     0x80000000}, /* a denormal result is -0 */
    {0x00000000,
     {0x2000, 0x0000, 0x0000, 0x0000},
     {0x2000, 0x0000, 0x0000, 0x0000},
     0x00800000}, /* the least that is not */
    {0x7f7fffff,
     {0x3f80, 0x0000, 0x0000, 0x0000},
     {0x3f80, 0x0000, 0x0000, 0x0000},
     0x7f7fffff}, /* the largest float stays */
    {0x7f7fffff, {0x7f7f, 0x0000, 0x0000, 0x0000}, {0x3f80, 0x0000, 0x0000, 0x0000}, 0x7f800000}, /* too large */
    {0x00000000,
     {0x5f80, 0x0000, 0xdf80, 0x0000},
     {0x5f80, 0x0000, 0x5f80, 0x0000},
     0x7fc00000}, /* infinity less infinity */
    {0x7f800000, {0x3f80, 0x0000, 0x0000, 0x0000}, {0x3f80, 0x0000, 0x0000, 0x0000}, 0x7f800000}, /* infinity stays */
    {0x3f800000, {0x7f80, 0x0000, 0x0000, 0x0000}, {0x0001, 0x0000, 0x0000, 0x0000}, 0x7fc00000}, /* times a denormal */
    {0xffc12345, {0x0000, 0x0000, 0x0000, 0x0000}, {0x0000, 0x0000, 0x0000, 0x0000}, 0x7fc00000}, /* one NaN for all */
    {0x41b8a3d7, {0x4049, 0xc02e, 0x3fb5, 0x3e9a}, {0x3f1d, 0x40a7, 0xbe77, 0x4189}, 0x417a09d6}, /* ordinary numbers */
    {0xc2f6e979, {0x3e11, 0x4293, 0xbf3c, 0xc0d8}, {0xc1ea, 0x3d02, 0x4166, 0x3f95}, 0xc30faddd}, /* ordinary numbers */
};

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static void test_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(answers); i++) {
        const struct answer *answer = &answers[i];
        float a[BFMMLA_GROUP], b[BFMMLA_GROUP];

        for (size_t k = 0; k < BFMMLA_GROUP; k++) {
            a[k] = ash_bf16_to_f32(answer->a[k]);
            b[k] = ash_bf16_to_f32(answer->b[k]);
        }
        assert_int_equal(bits_of(bfmmla_step(float_of(answer->sum), a, b)), answer->result);
    }
}

/* Any bits, bits near 1, or one of the values at which rules change. */
static uint32_t draw_word(struct tape *tape, size_t kind)
{
    static const uint32_t special[] = {0x00000000, 0x00010000, 0x007f0000, 0x007fffff, 0x00800000, 0x00810000,
                                       0x1f800000, 0x20000000, 0x3f800000, 0x3f800001, 0x3f810000, 0x5f800000,
                                       0x5fff0000, 0x7f7f0000, 0x7f7fffff, 0x7f800000, 0x7f810000, 0x7fc00000};
    uint32_t word = (uint32_t)draw_below(tape, 1ull << 32);

    if (kind == 0) return word;
    if (kind == 1) return (word & 0x807fffffu) | (uint32_t)((110 + draw_below(tape, 34)) << 23);
    return special[word % ASH_COUNT(special)] | (word & 0x80000000u);
}

static void scenario_steps(struct ash_exec *exec, struct tape *tape)
{
    enum { SIDE = 32 };
    uint16_t *a = tape_alloc(tape, SIDE * BFMMLA_GROUP * sizeof(*a)),
             *b = tape_alloc(tape, SIDE * BFMMLA_GROUP * sizeof(*b));
    uint32_t *sums = tape_alloc(tape, SIDE * SIDE * sizeof(*sums));
    struct ash_gemm_args args = {.M = SIDE,
                                 .N = SIDE,
                                 .K = BFMMLA_GROUP,
                                 .a = {a, ASH_BF16, BFMMLA_GROUP, 1},
                                 .b = {b, ASH_BF16, 1, BFMMLA_GROUP},
                                 .c = (float *)sums,
                                 .c_stride = SIDE,
                                 .accumulate = true,
                                 .round_bf16 = true};
    size_t kind = draw_below(tape, 3);

    for (size_t i = 0; i < SIDE * BFMMLA_GROUP; i++) {
        a[i] = (uint16_t)(draw_word(tape, kind) >> 16);
        b[i] = (uint16_t)(draw_word(tape, kind) >> 16);
    }
    for (size_t i = 0; i < SIDE * SIDE; i++)
        sums[i] = draw_word(tape, draw_below(tape, 8) == 0 ? 2 : kind);
    exec->ops->matrix->gemm(exec, &args);
    tape_words(tape, sums, SIDE * SIDE);
}

static void test_instruction(void **state)
{
    (void)state;
    check_scenario(scenario_steps, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers), cmocka_unit_test(test_instruction)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

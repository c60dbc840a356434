/* steps - one step of a matrix instruction for bf16, drawn at random: what the tests of the plain C for BFMMLA and for
 * TDPBF16PS share. */
#ifndef ASH_TESTS_CONFORM_STEPS_H
#define ASH_TESTS_CONFORM_STEPS_H

#include "conform/ops_harness.h"

#define STEP_SIDE 32

/* An answer of the instruction that was written down: the first k of a group, the others are zeros. */
struct step_answer {
    uint32_t sum;
    uint16_t a[4], b[4];
    uint32_t result;
};

/* sums[M, N] += a[M, group] b[N, group]. */
static struct ash_gemm_args step_args(size_t side, size_t group, const uint16_t *a, const uint16_t *b, uint32_t *sums)
{
    return (struct ash_gemm_args){.M = side,
                                  .N = side,
                                  .K = group,
                                  .a = {a, ASH_BF16, group, 1},
                                  .b = {b, ASH_BF16, 1, group},
                                  .c = (float *)sums,
                                  .c_stride = side,
                                  .accumulate = true,
                                  .round_bf16 = true};
}

#define STEP_GROUP_MAX 32

/* One step on a backend: a reference's, or the instruction's. */
static uint32_t run_step(struct ash_exec *exec, size_t group, const struct step_answer *answer)
{
    uint16_t a[STEP_GROUP_MAX] = {0}, b[STEP_GROUP_MAX] = {0};
    uint32_t sum = answer->sum;
    struct ash_gemm_args args = step_args(1, group, a, b, &sum);

    memcpy(a, answer->a, sizeof(answer->a));
    memcpy(b, answer->b, sizeof(answer->b));
    exec->ops->matrix->gemm(exec, &args);
    return sum;
}

/* Do all backends that are held to reference give these answers? one_nan: the reference has one NaN for all. */
static void check_answers(const struct ash_ops *reference, size_t group, const struct step_answer *answers,
                          size_t count, bool one_nan)
{
    assert_true(group <= STEP_GROUP_MAX);
    for (const char *const *name = ash_exec_backends(); *name != NULL; name++) {
        struct ash_exec exec;

        exec_init(&exec, *name, 1);
        for (size_t i = 0; i < count && exec.ops->reference == reference; i++) {
            uint32_t got = run_step(&exec, group, &answers[i]), want = answers[i].result;

            if (one_nan && exec.ops == reference ? got != want : !same_words(&got, &want, 1))
                fail_msg("%s: answer %zu is %08x, the instruction's is %08x", *name, i, got, want);
        }
        ash_exec_fini(&exec);
    }
}

/* Any bits, bits near 1, or one of the values at which rules change. */
static uint32_t step_word(struct tape *tape, size_t kind)
{
    static const uint32_t special[] = {0x00000000, 0x00010000, 0x007f0000, 0x007fffff, 0x00800000, 0x00810000,
                                       0x1f800000, 0x20000000, 0x3f800000, 0x3f800001, 0x3f810000, 0x5f800000,
                                       0x5fff0000, 0x7f7f0000, 0x7f7fffff, 0x7f800000, 0x7f810000, 0x7fc00000};
    uint32_t word = (uint32_t)draw_below(tape, 1ull << 32);

    if (kind == 0) return word;
    if (kind == 1) return (word & 0x807fffffu) | (uint32_t)((110 + draw_below(tape, 34)) << 23);
    return special[word % ASH_COUNT(special)] | (word & 0x80000000u);
}

/* 32 x 32 steps with groups of k, of which the first live are not 0. */
static void step_scenario(struct ash_exec *exec, struct tape *tape, size_t group, size_t live)
{
    uint16_t *a = tape_alloc(tape, STEP_SIDE * group * sizeof(*a)),
             *b = tape_alloc(tape, STEP_SIDE * group * sizeof(*b));
    uint32_t *sums = tape_alloc(tape, STEP_SIDE * STEP_SIDE * sizeof(*sums));
    struct ash_gemm_args args = step_args(STEP_SIDE, group, a, b, sums);
    size_t kind = draw_below(tape, 3);

    for (size_t i = 0; i < STEP_SIDE * group; i++) {
        a[i] = i % group < live ? (uint16_t)(step_word(tape, kind) >> 16) : 0;
        b[i] = i % group < live ? (uint16_t)(step_word(tape, kind) >> 16) : 0;
    }
    for (size_t i = 0; i < STEP_SIDE * STEP_SIDE; i++)
        sums[i] = step_word(tape, draw_below(tape, 8) == 0 ? 2 : kind);
    exec->ops->matrix->gemm(exec, &args);
    tape_words(tape, sums, STEP_SIDE * STEP_SIDE);
}

#endif

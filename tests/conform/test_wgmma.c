/* The arithmetic of Hopper's tensor cores in plain C against answers of the instruction: a few that were written down,
 * for machines without it, and many drawn ones where a GPU has it. */
#include "compute/ref/wgmma.h"

#include "conform/steps.h"

static const struct step_answer answers[] = {
    {0x3f800000, {0x3f80, 0x3f80, 0x3f80, 0x3f80}, {0x3f80, 0x3f80, 0x3f80, 0x3f80}, 0x40a00000}, /* 1 + 4 */
};

static void test_answers(void **state)
{
    (void)state;
    check_answers(&ash_ops_ref_wgmma, ASH_WGMMA_GROUP, answers, ASH_COUNT(answers), true);
}

/* Few k that are not 0 keep infinities rare. */
static void scenario_steps(struct ash_exec *exec, struct tape *tape)
{
    step_scenario(exec, tape, ASH_WGMMA_GROUP, (size_t)1 << draw_below(tape, 5));
}

static void test_instruction(void **state)
{
    (void)state;
    check_scenario(scenario_steps, 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers), cmocka_unit_test(test_instruction)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Prompt lookup: proposes what followed before, more where that was right, and rests where it was not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/rng.h"
#include "serve/engine/draft.h"

#define TOKENS 4000
#define MOST 8

struct tally {
    size_t steps, drafted, accepted;
};

/* Decode a text that is known: each step checks a proposal and moves on by what was right of it and one. */
static struct tally decode(const int32_t *text)
{
    struct ash_drafter drafter = {0};
    struct tally tally = {0};
    int32_t drafts[MOST];
    size_t count = 1;

    assert_int_equal(ash_drafter_init(&drafter, TOKENS), 0);
    for (; count + MOST < TOKENS; tally.steps++) {
        size_t drafted, accepted = 0;

        ash_drafter_extend(&drafter, text, count);
        drafted = ash_drafter_propose(&drafter, text, count, MOST, drafts);
        assert_in_range(drafted, 0, MOST);
        while (accepted < drafted && drafts[accepted] == text[count + accepted])
            accepted++;
        if (drafted > 0) ash_drafter_learn(&drafter, drafted, accepted);
        tally.drafted += drafted;
        tally.accepted += accepted;
        count += accepted + 1;
    }
    ash_drafter_fini(&drafter);
    return tally;
}

static void repetition_is_guessed(void **state)
{
    static int32_t text[TOKENS];
    struct tally tally;

    (void)state;
    for (size_t i = 0; i < TOKENS; i++) /* a paragraph of 100 tokens again and again, with an odd token in each */
        text[i] = i % 100 == 50 ? (int32_t)(1000 + i) : (int32_t)(i % 100);
    tally = decode(text);
    assert_true(tally.steps < TOKENS / 4);
    assert_true(tally.accepted * 10 > tally.drafted * 8);
}

/* Runs of three occur again all the time, and what follows them is chance. */
static void chance_is_left_alone(void **state)
{
    static int32_t text[TOKENS];
    struct tally tally;

    (void)state;
    for (size_t i = 0; i < TOKENS; i++)
        text[i] = (int32_t)ash_rng_below(5, 1, i, 12);
    tally = decode(text);
    assert_true(tally.drafted < TOKENS / 10);
}

/* A text that repeats its last token continues with it, beyond its end. */
static void a_draft_follows_itself(void **state)
{
    int32_t text[] = {7, 7, 7, 7, 7}, drafts[MOST];
    struct ash_drafter drafter = {0};
    size_t drafted;

    (void)state;
    assert_int_equal(ash_drafter_init(&drafter, 5), 0);
    ash_drafter_extend(&drafter, text, 5);
    drafted = ash_drafter_propose(&drafter, text, 5, MOST, drafts);
    assert_in_range(drafted, 2, MOST);
    for (size_t i = 0; i < drafted; i++)
        assert_int_equal(drafts[i], 7);
    ash_drafter_fini(&drafter);
    ash_drafter_fini(&drafter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repetition_is_guessed),
        cmocka_unit_test(chance_is_left_alone),
        cmocka_unit_test(a_draft_follows_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* KTO's loss against TRL's formula, evaluated in another language, and its derivatives against finite differences. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/rng.h"
#include "post/objective/pairs.h"

struct known {
    struct ash_pair_side chosen, rejected;
    double baseline, beta, desirable, undesirable, loss;
};

/* 1 - sigmoid(beta (log-ratio - kl)) and 1 - sigmoid(beta (kl - log-ratio)), weighted, and their mean. */
static const struct known cases[] = {
    {{-22.810802065823932, -25.604008674427917, 3},
     {-40.801396017191955, -44.221905723851613, 4},
     0,
     0.1,
     1,
     0.5,
     0.36148232699339811},
    {{-27.999468325391771, -30.07416432437557, 3},
     {-35.307598958526214, -38.834714909894302, 4},
     2.2476798706725063,
     0.1,
     1.33,
     1,
     0.60134695534495219},
    {{-58.694030807610602, -62.321369362668548, 3},
     {-52.215765247677375, -53.898890957023966, 4},
     1.9361286412768806,
     0.1,
     1,
     1,
     0.47574775173892281},
    {{-25.481864849915219, -25.099909124238756, 3},
     {-8.4533936235327722, -11.976584263802911, 4},
     0.5960881661616817,
     1,
     1.33,
     0.5,
     0.72056125523794201},
    {{-21.487184827502528, -19.1321489753226, 3},
     {-43.444693855126417, -45.49192176934919, 4},
     3.6160397475442601,
     0.3,
     1,
     1,
     0.62077664983202308},
};

static struct ash_job_dpo opts_of(const struct known *known)
{
    return (struct ash_job_dpo){.loss = ASH_DPO_KTO,
                                .beta = known->beta,
                                .desirable_weight = known->desirable,
                                .undesirable_weight = known->undesirable};
}

static void test_losses_are_those_of_the_formula(void **state)
{
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        struct ash_job_dpo opts = opts_of(&cases[i]);
        struct ash_pair_value value = ash_pair_kto_loss(&opts, &cases[i].chosen, &cases[i].rejected, cases[i].baseline);

        if (fabs(value.loss - cases[i].loss) > 1e-12)
            fail_msg("case %zu: %.17g instead of %.17g", i, value.loss, cases[i].loss);
    }
}

static double loss_at(const struct known *known, double chosen, double rejected)
{
    struct ash_job_dpo opts = opts_of(known);
    struct ash_pair_side c = known->chosen, r = known->rejected;

    c.logp += chosen;
    r.logp += rejected;
    return ash_pair_kto_loss(&opts, &c, &r, known->baseline).loss;
}

static void test_derivatives_are_finite_differences(void **state)
{
    const double h = 1e-5;

    (void)state;
    for (uint64_t i = 0; i < 200; i++) {
        struct known known = {.chosen = {-50 * ash_rng_uniform(1, 1, i), -50 * ash_rng_uniform(1, 1, i) + 3, 5},
                              .rejected = {-50 * ash_rng_uniform(1, 2, i), -50 * ash_rng_uniform(1, 2, i) - 2, 5},
                              .baseline = 4 * ash_rng_uniform(1, 3, i),
                              .beta = 0.05 + ash_rng_uniform(1, 4, i),
                              .desirable = 1 + ash_rng_uniform(1, 5, i),
                              .undesirable = 1};
        struct ash_job_dpo opts = opts_of(&known);
        struct ash_pair_value value = ash_pair_kto_loss(&opts, &known.chosen, &known.rejected, known.baseline);

        assert_true(fabs(value.chosen - (loss_at(&known, h, 0) - loss_at(&known, -h, 0)) / (2 * h)) < 1e-8);
        assert_true(fabs(value.rejected - (loss_at(&known, 0, h) - loss_at(&known, 0, -h)) / (2 * h)) < 1e-8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses_are_those_of_the_formula),
        cmocka_unit_test(test_derivatives_are_finite_differences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

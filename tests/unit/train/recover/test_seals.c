/* Seals: a bit of the state that changes by itself is found, wherever it is, and its tensor named; what is as it was
 * holds. What is damaged is not given to others. */
#include "unit/train/tiny.h"

#include <errno.h>
#include <string.h>

#include "train/recover/seals.h"
#include "train/trainer.h"

#define DRAWS 60

/* A trainer that has made a step, sealed. */
struct sealed {
    struct tiny tiny;
    struct ash_trainer *trainer;
    struct ash_seals seals;
    struct ash_copies none;
};

static void open_sealed(struct sealed *sealed, const char *precision)
{
    struct ash_err err = {0};
    struct ash_step step;

    memset(sealed, 0, sizeof(*sealed));
    tiny_open(&sealed->tiny, SETTINGS(precision));
    if (ash_trainer_open(&sealed->tiny.job, NULL, NULL, NULL, &sealed->trainer, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_trainer_step(sealed->trainer, &step, &err), 0);
    assert_int_equal(ash_seals_make(&sealed->seals, ash_trainer_stages(sealed->trainer), &sealed->none,
                                    ash_trainer_outline(sealed->trainer), &err),
                     0);
}

static void close_sealed(struct sealed *sealed)
{
    ash_seals_fini(&sealed->seals);
    ash_trainer_close(sealed->trainer);
    tiny_close(&sealed->tiny);
}

static int check(struct sealed *sealed, struct ash_damages *damages, struct ash_err *err)
{
    return ash_seals_check(&sealed->seals, ash_trainer_stages(sealed->trainer), ash_trainer_outline(sealed->trainer),
                           damages, err);
}

static void test_every_bit_counts(void **state)
{
    struct sealed sealed;

    (void)state;
    open_sealed(&sealed, "train.precision=fp32");
    for (uint64_t i = 0; i < DRAWS; i++) {
        size_t which = (size_t)ash_rng_below(7, 0, i, sealed.seals.patches.count);
        struct ash_patch *patch = &sealed.seals.patches.items[which];
        size_t kind = (size_t)ash_rng_below(7, 1, i, patch->values[ASH_PATCH_M] != NULL ? ASH_PATCH_KINDS : 1);
        uint32_t *word = (uint32_t *)patch->values[kind] + ash_rng_below(7, 2, i, patch->range.count);
        uint32_t bit = 1u << ash_rng_below(7, 3, i, 32);
        struct ash_damages damages = {0};
        struct ash_err err = {0};

        *word ^= bit;
        assert_int_equal(check(&sealed, &damages, &err), -EILSEQ);
        assert_int_equal(damages.count, 1);
        assert_memory_equal(&damages.items[0].range, &patch->range, sizeof(patch->range));
        assert_non_null(
            strstr(err.text, ash_model_param(ash_trainer_outline(sealed.trainer), patch->range.param)->name));
        *word ^= bit;
        damages.count = 0;
        assert_int_equal(check(&sealed, &damages, &err), 0);
        assert_int_equal(damages.count, 0);
    }
    close_sealed(&sealed);
}

/* The bf16 weights are found too; what they are made of is good, so nothing is withheld. */
static void test_bf16_weights(void **state)
{
    struct ash_damages damages = {0};
    struct ash_err err = {0};
    struct sealed sealed;

    (void)state;
    open_sealed(&sealed, "train.precision=bf16");
    assert_int_equal(check(&sealed, &damages, &err), 0);
    assert_true(ash_trainer_flip_bit(sealed.trainer, ASH_TRAINER_FLIP_BF16));
    assert_int_equal(check(&sealed, &damages, &err), -EILSEQ);
    assert_non_null(strstr(err.text, "bf16 weights"));
    assert_int_equal(damages.count, 0);
    assert_false(ash_trainer_flip_bit(sealed.trainer, ASH_TRAINER_FLIP_COPY)); /* it holds none */
    ash_seals_break(&sealed.seals);
    assert_int_equal(check(&sealed, &damages, &err), 0);
    close_sealed(&sealed);
}

static void test_damaged_parts_are_withheld(void **state)
{
    struct ash_damages damages = {.count = 2, .items = {{{3, 1, 10, 5}, 0}, {{4, 1, 0, 8}, 1}}};
    const struct ash_patch_range ranges[] = {{3, 1, 0, 10}, {3, 1, 10, 1}, {3, 1, 14, 6},
                                             {3, 1, 15, 6}, {4, 1, 0, 8},  {2, 1, 10, 5}};
    struct ash_patches patches = {0};

    (void)state;
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(ash_patches_add(&patches, &(struct ash_patch){.range = ranges[i]}, NULL), 0);
    ash_damages_drop(&damages, false, &patches, 2); /* the second is before where it begins */
    assert_int_equal(patches.count, 5);
    assert_memory_equal(&patches.items[2].range, &ranges[3], sizeof(ranges[3]));
    ash_damages_drop(&damages, true, &patches, 0);
    assert_int_equal(patches.count, 4);
    damages.count = ASH_DAMAGES_MAX + 1; /* too many to list */
    ash_damages_drop(&damages, false, &patches, 1);
    assert_int_equal(patches.count, 1);
    ash_patches_fini(&patches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_bf16_weights),
        cmocka_unit_test(test_damaged_parts_are_withheld),
    };

    return cmocka_run_group_tests(tests, tiny_setup, scratch_close);
}

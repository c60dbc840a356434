/* trainer: memory corruption. Steps set by recover.check_every detect it before the state is used: the rank with the
 * corruption notifies the others, and gets its part from them. */
#include "train/trainer_priv.h"

#include <string.h>

#include "base/assert.h"
#include "train/recover/exchange.h"

#define FLIPPED_BIT 12 /* of a float: large enough to change a loss */

bool ash_trainer_is_checked(const struct ash_trainer *trainer, uint64_t step)
{
    int64_t every = trainer->job->recover.check_every;

    return every > 0 && step % (uint64_t)every == 0 && ash_group_size(trainer->now->group) > 1;
}

int ash_trainer_seal(struct ash_trainer *trainer, uint64_t step, struct ash_err *err)
{
    if (trainer->seals.is_made || !ash_trainer_is_checked(trainer, step)) return 0;
    return ash_seals_make(&trainer->seals, &trainer->now->stages, &trainer->now->copies, trainer->outline, err);
}

int ash_trainer_check_seals(struct ash_trainer *trainer, struct ash_err *err)
{
    struct ash_stages *stages = &trainer->now->stages;
    int rc = ash_seals_check(&trainer->seals, stages, trainer->outline, &trainer->damages, err);

    /* it may be only bf16 weights that have changed: convert them again */
    for (size_t i = 0; rc < 0 && i < stages->chunk_count; i++)
        stages->chunks[i].state.is_rounded = false;
    return rc;
}

void ash_trainer_drop_damaged(const struct ash_trainer *trainer, const struct ash_group *group,
                              const struct ash_damages *all, struct ash_patches *have, size_t from, bool is_copy)
{
    size_t own = ash_group_rank(group);
    bool has_mates = trainer->kept_count > 0 && trainer->kept[0].stages.chunks[0].state.mates > 0;

    for (size_t r = 0; r < ash_group_size(group); r++) {
        /* node replicas have one memory: what one finds damaged there is damaged for all */
        bool is_shared = !is_copy && has_mates &&
                         ash_group_get_member(group, r).node_index == ash_group_get_member(group, own).node_index;

        if (r == own || is_shared) ash_damages_drop(&all[r], is_copy, have, from);
    }
}

/* ---- on purpose -------------------------------------------------------------------------------------------------- */

static void flip(const struct ash_trainer *trainer, void *at, uint32_t mask)
{
    const struct ash_memory_ops *memory = trainer->exec.memory;
    uint32_t bits = 0;

    if (memory->copy(&bits, at, sizeof(bits)) < 0) return; /* the device has failed: worse than this */
    bits ^= mask;
    memory->copy(at, &bits, sizeof(bits));
}

static bool flip_weight(struct ash_trainer *trainer, const struct ash_patches *patches, bool is_bf16)
{
    const struct ash_patch *patch = patches->count > 0 ? &patches->items[patches->count / 2] : NULL;
    const struct ash_state *state;
    size_t at;

    if (patch == NULL) return false;
    at = (size_t)patch->range.count / 2;
    if (!is_bf16) {
        flip(trainer, patch->values[ASH_PATCH_WEIGHTS] + at, 1u << FLIPPED_BIT);
        return true;
    }
    state = &trainer->now->stages.chunks[patch->chunk].state;
    if (state->bf16.data == NULL) return false;
    at += (size_t)(patch->values[ASH_PATCH_WEIGHTS] - ash_model_values(state->model));
    flip(trainer, (uint16_t *)state->bf16.data + at / 2 * 2, at % 2 == 0 ? 1u : 1u << 16);
    return true;
}

bool ash_trainer_flip_bit(struct ash_trainer *trainer, enum ash_trainer_flip which)
{
    struct ash_patches own = {0};
    bool is_done = false;

    ash_assert(which < ASH_TRAINER_FLIPS);
    if (which == ASH_TRAINER_FLIP_SENT) {
        ash_exchange_damage_next();
        return true;
    }
    if (which == ASH_TRAINER_FLIP_COPY)
        return trainer->now->copies.held_count > 0 &&
               flip_weight(trainer, &trainer->now->copies.held[0].patches, false);
    if (ash_patches_add_stages(&own, &trainer->now->stages, trainer->outline, false, NULL) == 0)
        is_done = flip_weight(trainer, &own, which == ASH_TRAINER_FLIP_BF16);
    ash_patches_fini(&own);
    return is_done;
}

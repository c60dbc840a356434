/* seals: sums of 64-bit words, at the speed of memory. A sum changes with every single bit. */
#include "train/recover/seals.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

void ash_seals_fini(struct ash_seals *seals)
{
    ash_patches_fini(&seals->patches);
    free(seals->sums);
    memset(seals, 0, sizeof(*seals));
}

void ash_seals_break(struct ash_seals *seals)
{
    seals->is_made = false;
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static uint64_t sum_of(const void *data, size_t size_bytes)
{
    const char *at = data;
    uint64_t sum = 0, word;

    for (; size_bytes >= sizeof(word); size_bytes -= sizeof(word), at += sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        sum += word;
    }
    word = 0;
    memcpy(&word, at, size_bytes);
    return sum + word;
}

/* The bf16 copy of a patch's weights; NULL: there is none. */
static const uint16_t *bf16_of(const struct ash_stages *stages, const struct ash_patch *patch)
{
    const struct ash_state *state = &stages->chunks[patch->chunk].state;

    return ash_state_bf16_of(state, patch->values[ASH_PATCH_WEIGHTS]);
}

/* Of patch i: an own one, or a copy of another rank's. */
static int seal_patch(const struct ash_seals *seals, struct ash_buffer *room, size_t i, const struct ash_stages *stages,
                      struct ash_seal *seal_out, struct ash_err *err)
{
    const struct ash_patch *patch = &seals->patches.items[i];
    const uint16_t *bf16 = i < seals->own ? bf16_of(stages, patch) : NULL;
    size_t count = (size_t)patch->range.count;

    ash_assert(i < seals->patches.count);
    memset(seal_out, 0, sizeof(*seal_out));
    for (size_t kind = 0; kind <= ASH_PATCH_KINDS; kind++) {
        const void *from = kind < ASH_PATCH_KINDS ? (const void *)patch->values[kind] : bf16, *values;
        size_t bytes = count * (kind < ASH_PATCH_KINDS ? sizeof(float) : sizeof(*bf16));

        if (from == NULL) continue;
        values = ash_patches_read(stages->exec, from, bytes, room, err);
        if (values == NULL) return -EIO;
        seal_out->sums[kind] = sum_of(values, bytes);
    }
    return 0;
}

static int list_all(struct ash_seals *seals, const struct ash_stages *stages, const struct ash_copies *copies,
                    const struct ash_model *outline, struct ash_err *err)
{
    struct ash_seal *sums;
    int rc;

    seals->patches.count = 0;
    rc = ash_patches_add_stages(&seals->patches, stages, outline, false, err);
    seals->own = seals->patches.count;
    if (rc == 0) rc = ash_copies_add_patches(copies, false, &seals->patches, err);
    if (rc < 0 || seals->room >= seals->patches.count) return rc;
    sums = realloc(seals->sums, seals->patches.room * sizeof(*sums));
    if (sums == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu checksums", seals->patches.room);
    seals->sums = sums;
    seals->room = seals->patches.room;
    return 0;
}

int ash_seals_make(struct ash_seals *seals, const struct ash_stages *stages, const struct ash_copies *copies,
                   const struct ash_model *outline, struct ash_err *err)
{
    struct ash_buffer room = {0};
    int rc;

    seals->is_made = false;
    rc = list_all(seals, stages, copies, outline, err);
    if (rc < 0) return rc;
    for (size_t i = 0; rc == 0 && i < seals->patches.count; i++)
        rc = seal_patch(seals, &room, i, stages, &seals->sums[i], err);
    ash_buffer_fini(&room);
    seals->is_made = rc == 0;
    return rc;
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

static void add_damage(struct ash_damages *damages, const struct ash_patch_range *range, bool is_copy)
{
    if (damages->count < ASH_DAMAGES_MAX) damages->items[damages->count] = (struct ash_damage){*range, is_copy};
    if (damages->count <= ASH_DAMAGES_MAX) damages->count++;
}

static int name_damage(const struct ash_patch_range *range, size_t kind, bool is_copy, const struct ash_model *outline,
                       struct ash_err *err)
{
    static const char *const kinds[] = {"weights", "first moments", "second moments", "bf16 weights"};

    ash_assert(kind < ASH_COUNT(kinds));
    return ash_err_set(err, -EILSEQ, "its memory has changed by itself: %s %" PRIu64 " to %" PRIu64 " of %s%s",
                       kinds[kind], range->first, range->first + range->count - 1,
                       ash_model_param(outline, range->param)->name, is_copy ? ", in a copy for another rank" : "");
}

int ash_seals_check(const struct ash_seals *seals, const struct ash_stages *stages, const struct ash_model *outline,
                    struct ash_damages *damages, struct ash_err *err)
{
    struct ash_buffer room = {0};
    int rc = 0, failed = 0;

    for (size_t i = 0; seals->is_made && failed == 0 && i < seals->patches.count; i++) {
        const struct ash_patch *patch = &seals->patches.items[i];
        bool is_copy = i >= seals->own;
        struct ash_seal now;
        size_t kind = 0;

        failed = seal_patch(seals, &room, i, stages, &now, err);
        if (failed < 0) continue;
        while (kind <= ASH_PATCH_KINDS && now.sums[kind] == seals->sums[i].sums[kind])
            kind++;
        if (kind > ASH_PATCH_KINDS) continue;
        if (kind < ASH_PATCH_KINDS) add_damage(damages, &patch->range, is_copy);
        if (rc == 0) rc = name_damage(&patch->range, kind, is_copy, outline, err);
    }
    ash_buffer_fini(&room);
    return failed < 0 ? failed : rc;
}

static bool overlaps(const struct ash_patch_range *a, const struct ash_patch_range *b)
{
    return a->param == b->param && a->first < b->first + b->count && b->first < a->first + a->count;
}

static bool is_damaged(const struct ash_damages *damages, bool is_copy, const struct ash_patch_range *range)
{
    if (damages->count > ASH_DAMAGES_MAX) return true;
    for (size_t i = 0; i < damages->count; i++)
        if ((damages->items[i].is_copy != 0) == is_copy && overlaps(&damages->items[i].range, range)) return true;
    return false;
}

void ash_damages_drop(const struct ash_damages *damages, bool is_copy, struct ash_patches *patches, size_t from)
{
    size_t kept = from;

    ash_assert(from <= patches->count);
    for (size_t i = from; i < patches->count; i++)
        if (!is_damaged(damages, is_copy, &patches->items[i].range)) patches->items[kept++] = patches->items[i];
    patches->count = kept;
}

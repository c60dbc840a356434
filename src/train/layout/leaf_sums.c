/* leaf_sums: a hash of each range, with its place; addition commutes, so ranges may come in any order. */
#include "train/layout/leaf_sums.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"
#include "compute/backends/backends.h"

#define PIECE_COUNT ((size_t)1 << 20)
#define SPOILT_BIT 12

/* Injected fault: a processor that computes wrongly. */
static void spoil(const struct ash_exec *exec, float *value)
{
    uint32_t bits;

    ash_backend_read(exec, &bits, value, sizeof(bits));
    bits ^= 1u << SPOILT_BIT;
    exec->memory->copy(value, &bits, sizeof(bits)); /* after a failure the value is never read */
}

void ash_leaf_sums_note(struct ash_leaf_sums *sums, const struct ash_exec *exec, uint64_t place, float *values,
                        size_t count)
{
    bool is_visible = exec->memory->host_visible;
    float *staged = NULL;

    if (sums == NULL || count == 0) return;
    if (sums->wrong_notes > 0) {
        sums->wrong_notes--;
        spoil(exec, values);
    }
    if (sums->round >= sums->rounds) return;
    if (!is_visible) staged = malloc(ash_min(count, PIECE_COUNT) * sizeof(*staged));
    ash_assert(is_visible || staged != NULL);
    place = ash_hash_mix(place) ^ sums->chunk;
    for (size_t first = 0, some; first < count; first += some) {
        const float *piece = values + first;

        some = ash_min(count - first, PIECE_COUNT);
        if (!is_visible) {
            ash_backend_read(exec, staged, piece, some * sizeof(*staged));
            piece = staged;
        }
        sums->sums[sums->round] += ash_hash_mix(ash_hash_bytes(piece, some * sizeof(*piece), place + first));
    }
    free(staged);
}

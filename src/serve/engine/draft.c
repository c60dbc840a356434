/* Prompt lookup: one table of places per sequence, kept token by token, so that a proposal costs no search. */
#include "serve/engine/draft.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"

#define DRAFT_GRAM 3
#define GAIN_START 2.0 /* tokens that a first proposal is expected to get right */
#define GAIN_KEEP 0.75 /* of the average, at each proposal */
#define GAIN_LEAST 0.5 /* below this proposals cost more rows than they save */
#define REST_FIRST 8   /* tokens */
#define REST_MOST 512

int ash_drafter_init(struct ash_drafter *drafter, size_t max_tokens)
{
    size_t places = 16;

    ash_assert(max_tokens <= UINT32_MAX);
    while (places < 2 * max_tokens)
        places *= 2;
    *drafter = (struct ash_drafter){.mask = places - 1, .gain = GAIN_START, .rest_next = REST_FIRST};
    drafter->places = calloc(places, sizeof(*drafter->places));
    return drafter->places == NULL ? -ENOMEM : 0;
}

void ash_drafter_fini(struct ash_drafter *drafter)
{
    free(drafter->places);
    *drafter = (struct ash_drafter){0};
}

static bool is_same_run(const int32_t *tokens, size_t a, size_t b)
{
    for (size_t i = 1; i <= DRAFT_GRAM; i++)
        if (tokens[a - i] != tokens[b - i]) return false;
    return true;
}

void ash_drafter_extend(struct ash_drafter *drafter, const int32_t *tokens, size_t count)
{
    for (size_t end = ash_max(drafter->indexed + 1, DRAFT_GRAM); end <= count; end++) {
        uint64_t hash = 0;
        uint32_t *place;

        for (size_t i = 1; i <= DRAFT_GRAM; i++)
            hash = ash_hash_mix(hash ^ (uint32_t)tokens[end - i]);
        place = &drafter->places[hash & drafter->mask];
        drafter->match = *place != 0 && is_same_run(tokens, *place, end) ? *place : 0;
        *place = (uint32_t)end;
    }
    drafter->indexed = ash_max(drafter->indexed, count);
}

size_t ash_drafter_propose(struct ash_drafter *drafter, const int32_t *tokens, size_t count, size_t most,
                           int32_t *drafts)
{
    size_t wanted = ash_min(most, (size_t)(2.0 * drafter->gain + 0.5)), drafted = 0;

    ash_assert(drafter->indexed == count);
    if (drafter->rest > 0) {
        drafter->rest--;
        return 0;
    }
    if (drafter->match == 0) return 0;
    /* a text that repeats itself continues as its own draft does */
    for (; drafted < ash_max(wanted, ash_min(most, 1)); drafted++) {
        size_t from = drafter->match + drafted;

        drafts[drafted] = from < count ? tokens[from] : drafts[from - count];
    }
    return drafted;
}

void ash_drafter_learn(struct ash_drafter *drafter, size_t drafted, size_t accepted)
{
    ash_assert(drafted > 0 && accepted <= drafted);
    drafter->gain = GAIN_KEEP * drafter->gain + (1.0 - GAIN_KEEP) * (double)(accepted + (accepted == drafted));
    if (accepted > 0) {
        drafter->rest_next = REST_FIRST;
        drafter->gain = drafter->gain < GAIN_LEAST ? GAIN_LEAST : drafter->gain;
        return;
    }
    if (drafter->gain >= GAIN_LEAST) return;
    drafter->rest = drafter->rest_next;
    drafter->rest_next = ash_min(2 * drafter->rest_next, REST_MOST);
}

/* What a load test notes of each answer. */
#include "serve/client/load.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/assert.h"
#include "serve/client/load_priv.h"

static int add_gap(struct ash_load_results *results, double gap_s)
{
    if (ash_array_reserve(&results->gaps_s, &results->gap_capacity, results->gap_count + 1, sizeof(*results->gaps_s)) <
        0)
        return -ENOMEM;
    results->gaps_s[results->gap_count++] = (float)gap_s;
    return 0;
}

int ash_load_results_note(struct ash_load_results *results, size_t index, const struct ash_load_event *event,
                          double at_s)
{
    struct ash_load_result *result = &results->items[index];
    int rc = 0;

    ash_assert(index < results->count);
    if (event->has_text) {
        if (result->chunks++ == 0)
            result->first_s = at_s;
        else
            rc = add_gap(results, at_s - result->last_s);
        result->last_s = at_s;
    }
    if (event->has_usage) {
        result->prompt_tokens = event->prompt_tokens;
        result->cached_tokens = event->cached_tokens;
        result->answer_tokens = event->answer_tokens;
    }
    return rc;
}

void ash_load_results_fini(struct ash_load_results *results)
{
    free(results->items);
    free(results->gaps_s);
    *results = (struct ash_load_results){0};
}

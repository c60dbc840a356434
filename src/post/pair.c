/* post: one pair of answers. */
#include <string.h>

#include "base/assert.h"
#include "post/post_priv.h"

struct ash_pair_side ash_pair_side_of(const struct ash_objective_rows *rows, size_t first, size_t count)
{
    struct ash_pair_side side = {0};

    ash_assert(first + count <= rows->rows);
    for (size_t r = first; r < first + count; r++) {
        if (rows->targets[r] < 0) continue;
        side.logp -= (double)rows->losses[r];
        side.count += 1;
    }
    return side;
}

bool ash_pair_is_same(const struct ash_pair_set *set, size_t pair)
{
    struct ash_example chosen = ash_examples_at(set->examples, 2 * pair),
                       rejected = ash_examples_at(set->examples, 2 * pair + 1);

    return chosen.count == rejected.count && memcmp(chosen.ids, rejected.ids, chosen.count * sizeof(int32_t)) == 0;
}

struct ash_pair_value ash_post_pair_loss(const struct ash_post *post, const struct ash_pair_side *chosen,
                                         const struct ash_pair_side *rejected)
{
    const struct ash_job_dpo *dpo = &post->job->dpo;

    return post->kto != NULL ? ash_pair_kto_loss(dpo, chosen, rejected, ash_kto_baseline(post->kto))
                             : ash_pair_loss(dpo, chosen, rejected);
}

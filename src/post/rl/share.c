/* share: all-gather of answers. A rank sets the others' to zeros, and a sum of words combines all. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "post/rl/rl_priv.h"

/* A number of each kind for each token, and two for the answer, as ranks share them. */
enum { WORD_ID, WORD_LOGP, WORD_GIVEN, WORDS };

static void pack_row(const struct ash_rl_shape *shape, const struct ash_answer_row *row, int32_t *words)
{
    ash_assert(row->count <= shape->max_tokens);
    memcpy(words + WORD_ID * shape->max_tokens, row->ids, row->count * sizeof(int32_t));
    memcpy(words + WORD_LOGP * shape->max_tokens, row->logps, row->count * sizeof(float));
    for (size_t t = 0; row->given != NULL && t < row->count; t++)
        words[WORD_GIVEN * shape->max_tokens + t] = row->given[t];
    words[WORDS * shape->max_tokens] = (int32_t)row->count;
    words[WORDS * shape->max_tokens + 1] = row->has_ended;
}

static void unpack_row(const struct ash_rl_shape *shape, const int32_t *words, struct ash_answer_row *row)
{
    row->count = (size_t)words[WORDS * shape->max_tokens];
    ash_assert(row->count <= shape->max_tokens); /* one rank alone wrote it: a sum of two would be more */
    row->has_ended = words[WORDS * shape->max_tokens + 1] != 0;
    memcpy(row->ids, words + WORD_ID * shape->max_tokens, row->count * sizeof(int32_t));
    memcpy(row->logps, words + WORD_LOGP * shape->max_tokens, row->count * sizeof(float));
    for (size_t t = 0; row->given != NULL && t < row->count; t++)
        row->given[t] = (uint8_t)words[WORD_GIVEN * shape->max_tokens + t];
}

int ash_rl_share(struct ash_group *group, const struct ash_rl_shape *shape, struct ash_rollout *rollout,
                 const bool *is_own, struct ash_err *err)
{
    size_t width = WORDS * shape->max_tokens + 2, count = shape->answers * width;
    int32_t *all;
    int rc;

    if (group == NULL) return 0;
    all = calloc(count, sizeof(*all));
    if (all == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the answers of a step");
    for (size_t a = 0; a < shape->answers; a++)
        if (is_own[a]) pack_row(shape, &rollout->answers[a], all + a * width);
    rc = ash_group_all_reduce(group, all, all, count, ASH_COLL_I32, ASH_COLL_SUM, err);
    for (size_t a = 0; rc == 0 && a < shape->answers; a++)
        unpack_row(shape, all + a * width, &rollout->answers[a]);
    free(all);
    return rc < 0 ? rc : ash_rl_kept_share(group, shape, rollout, is_own, err);
}

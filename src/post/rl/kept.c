/* kept: with rollout.top_k or rollout.top_p, the ids that each token of an answer was drawn from. They travel with the
 * answer, and the trainer's softmax is over them: the policy that learns is the one that sampled. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/json.h"
#include "post/rl/rl_priv.h"

void ash_rl_kept_clear(struct ash_answer_row *row)
{
    row->kept.count = 0;
}

static int reserve(struct ash_kept_ids *kept, size_t count)
{
    return ash_array_reserve(&kept->ids, &kept->room, count, sizeof(*kept->ids));
}

int ash_rl_kept_add(struct ash_answer_row *row, size_t token, const int32_t *ids, size_t count)
{
    struct ash_kept_ids *kept = &row->kept;
    int rc = reserve(kept, kept->count + count);

    if (rc < 0) return rc;
    if (count > 0) memcpy(kept->ids + kept->count, ids, count * sizeof(*ids));
    kept->count += count;
    ash_assert(token == 0 || kept->ends[token - 1] + count == kept->count); /* tokens come in order */
    kept->ends[token] = kept->count;
    return 0;
}

struct ash_kept ash_rl_kept_get(const struct ash_answer_row *row, size_t token)
{
    const struct ash_kept_ids *kept = &row->kept;
    size_t first = token > 0 && kept->ends != NULL ? kept->ends[token - 1] : 0;

    if (kept->ends == NULL) return (struct ash_kept){.count = 0};
    ash_assert(first <= kept->ends[token] && kept->ends[token] <= kept->count);
    return (struct ash_kept){.ids = kept->ids + first, .count = kept->ends[token] - first};
}

/* ---- between ranks ----------------------------------------------------------------------------------------------- */

/* How many ids each token of a rank's answers keeps, then all of those: what another rank has sampled is zeros. */
static int share_counts(struct ash_group *group, const struct ash_rl_shape *shape, struct ash_rollout *rollout,
                        const bool *is_own, struct ash_err *err)
{
    size_t width = shape->max_tokens, count = shape->answers * width;
    int32_t *all = calloc(count, sizeof(*all));
    int rc;

    if (all == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the ids that were kept");
    for (size_t a = 0; a < shape->answers; a++)
        for (size_t t = 0; is_own[a] && t < rollout->answers[a].count; t++)
            all[a * width + t] = (int32_t)ash_rl_kept_get(&rollout->answers[a], t).count;
    rc = ash_group_all_reduce(group, all, all, count, ASH_COLL_I32, ASH_COLL_SUM, err);
    for (size_t a = 0; rc == 0 && a < shape->answers; a++)
        for (size_t t = 0, end = 0; t < rollout->answers[a].count; t++) {
            end += (size_t)all[a * width + t];
            rollout->answers[a].kept.ends[t] = end;
        }
    free(all);
    return rc;
}

static size_t count_all(const struct ash_answer_row *row)
{
    return row->count > 0 ? row->kept.ends[row->count - 1] : 0;
}

static int share_ids(struct ash_group *group, const struct ash_rl_shape *shape, struct ash_rollout *rollout,
                     const bool *is_own, struct ash_err *err)
{
    size_t total = 0, at = 0;
    int32_t *all;
    int rc;

    for (size_t a = 0; a < shape->answers; a++)
        total += count_all(&rollout->answers[a]);
    if (total == 0) return 0;
    all = calloc(total, sizeof(*all));
    if (all == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the ids that were kept");
    for (size_t a = 0; a < shape->answers; at += count_all(&rollout->answers[a++]))
        if (is_own[a] && count_all(&rollout->answers[a]) > 0)
            memcpy(all + at, rollout->answers[a].kept.ids, count_all(&rollout->answers[a]) * sizeof(*all));
    rc = ash_group_all_reduce(group, all, all, total, ASH_COLL_I32, ASH_COLL_SUM, err);
    at = 0;
    for (size_t a = 0; rc == 0 && a < shape->answers; at += count_all(&rollout->answers[a++])) {
        struct ash_kept_ids *kept = &rollout->answers[a].kept;
        size_t count = count_all(&rollout->answers[a]);

        if (reserve(kept, count) < 0) rc = ash_err_set(err, -ENOMEM, "out of memory for the ids that were kept");
        if (rc == 0 && count > 0) memcpy(kept->ids, all + at, count * sizeof(*all));
        kept->count = count;
    }
    free(all);
    return rc;
}

int ash_rl_kept_share(struct ash_group *group, const struct ash_rl_shape *shape, struct ash_rollout *rollout,
                      const bool *is_own, struct ash_err *err)
{
    int rc;

    if (group == NULL || !shape->has_kept) return 0;
    rc = share_counts(group, shape, rollout, is_own, err);
    return rc < 0 ? rc : share_ids(group, shape, rollout, is_own, err);
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

json_t *ash_rl_kept_json(const struct ash_answer_row *row)
{
    json_t *all = json_array();

    for (size_t t = 0; t < row->count; t++) {
        struct ash_kept kept = ash_rl_kept_get(row, t);
        json_t *ids = json_array();

        for (size_t i = 0; i < kept.count; i++)
            json_array_append_new(ids, json_integer(kept.ids[i]));
        json_array_append_new(all, ids);
    }
    return all;
}

/* One token's: ascending, and the token among them. */
static int read_set(const json_t *ids, struct ash_answer_row *row, size_t token)
{
    struct ash_kept_ids *kept = &row->kept;
    size_t count = json_array_size(ids);
    int64_t before = -1;
    bool has_token = count == 0;

    if (!json_is_array(ids)) return -EBADMSG;
    if (reserve(kept, kept->count + count) < 0) return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        int64_t id = json_integer_value(json_array_get(ids, i));

        if (id <= before || id > INT32_MAX) return -EBADMSG;
        has_token |= id == row->ids[token];
        kept->ids[kept->count++] = (int32_t)id;
        before = id;
    }
    kept->ends[token] = kept->count;
    return has_token ? 0 : -EBADMSG;
}

int ash_rl_kept_read(const json_t *all, struct ash_answer_row *row)
{
    int rc = json_array_size(all) == row->count ? 0 : -EBADMSG;

    ash_rl_kept_clear(row);
    for (size_t t = 0; rc == 0 && t < row->count; t++)
        rc = read_set(json_array_get(all, t), row, t);
    return rc;
}

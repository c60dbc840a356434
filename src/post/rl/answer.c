/* answer: what one answer is: its text, whose tokens it has, whether it counts. */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "post/rl/rl_priv.h"

void ash_rl_clear(struct ash_answer_row *row)
{
    row->count = 0;
    row->has_ended = false;
    ash_rl_kept_clear(row);
}

bool ash_rl_is_given(const struct ash_answer_row *row, size_t token)
{
    ash_assert(row->given == NULL || token < row->count);
    return row->given != NULL && row->given[token] != 0;
}

size_t ash_rl_own_count(const struct ash_answer_row *row)
{
    size_t count = 0;

    for (size_t t = 0; t < row->count; t++)
        count += !ash_rl_is_given(row, t);
    return count;
}

bool ash_rl_counts(const struct ash_policy_run *rl, const struct ash_answer_row *row)
{
    return row->count > 0 && (row->has_ended || !rl->job->rl.mask_truncated);
}

int ash_rl_decode(const struct ash_policy_run *rl, const struct ash_answer_row *row, size_t first, struct ash_str *text,
                  struct ash_err *err)
{
    size_t count = row->count - row->has_ended, vocab = ash_tokenizer_vocab_size(rl->text.tokenizer), known = 0;
    int32_t *ids = calloc(count + 1, sizeof(*ids));
    int rc = ids != NULL ? ash_str_adds(text, "") : -ENOMEM;

    ash_assert(first <= row->count && row->count >= row->has_ended);
    if (rc < 0) {
        free(ids);
        return ash_err_set(err, rc, "out of memory for an answer");
    }
    for (size_t t = first; t < count; t++)
        if ((size_t)row->ids[t] < vocab) ids[known++] = row->ids[t];
    rc = ash_tokenizer_decode(rl->text.tokenizer, ids, known, true, text, err);
    free(ids);
    return rc;
}

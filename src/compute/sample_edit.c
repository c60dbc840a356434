/* What changes logits before a token is chosen: biases, penalties, lists, masks; in this order. */
#include "compute/sample.h"

#include <math.h>
#include <string.h>

static bool is_known(size_t vocab, int32_t id)
{
    return id >= 0 && (size_t)id < vocab;
}

static void add_penalties(const struct ash_sample_row *row, size_t vocab, float *edited)
{
    for (size_t i = 0; i < row->count_count; i++) {
        const struct ash_token_count *item = &row->counts[i];

        if (is_known(vocab, item->id))
            edited[item->id] =
                ash_sample_penalise(edited[item->id], item, row->repetition, row->presence, row->frequency);
    }
}

static void forbid_all_but(const struct ash_sample_row *row, size_t vocab, float *edited, float *spare)
{
    for (size_t i = 0; i < row->allowed_count; i++)
        if (is_known(vocab, row->allowed[i])) spare[row->allowed[i]] = edited[row->allowed[i]];
    for (size_t i = 0; i < vocab; i++)
        edited[i] = -INFINITY;
    for (size_t i = 0; i < row->allowed_count; i++)
        if (is_known(vocab, row->allowed[i])) edited[row->allowed[i]] = spare[row->allowed[i]];
}

static void apply_mask(const uint64_t *mask, size_t vocab, float *edited)
{
    for (size_t first = 0; first < vocab; first += 64) {
        uint64_t word = mask[first / 64];
        size_t count = vocab - first < 64 ? vocab - first : 64;

        for (size_t i = 0; i < count && word != UINT64_MAX; i++)
            if ((word >> i & 1) == 0) edited[first + i] = -INFINITY;
    }
}

const float *ash_sample_edit(const struct ash_sample_row *row, const float *logits, size_t vocab, float *edited,
                             float *spare)
{
    if (row->count_count == 0 && row->bias_count == 0 && row->allowed == NULL && row->forbidden_count == 0 &&
        row->mask == NULL)
        return logits;
    memcpy(edited, logits, vocab * sizeof(*edited));
    for (size_t i = 0; i < row->bias_count; i++)
        if (is_known(vocab, row->bias[i].id)) edited[row->bias[i].id] += row->bias[i].bias;
    add_penalties(row, vocab, edited);
    if (row->allowed != NULL) forbid_all_but(row, vocab, edited, spare);
    if (row->mask != NULL) apply_mask(row->mask, vocab, edited);
    for (size_t i = 0; i < row->forbidden_count; i++)
        if (is_known(vocab, row->forbidden[i])) edited[row->forbidden[i]] = -INFINITY;
    return edited;
}

int32_t ash_sample_best(const float *logits, size_t vocab)
{
    float top = -INFINITY;
    int32_t best = ASH_SAMPLE_NOTHING;

    for (size_t i = 0; i < vocab; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY) return ASH_SAMPLE_BROKEN - (int32_t)i;
        if (logits[i] > top) {
            top = logits[i];
            best = (int32_t)i;
        }
    }
    return best;
}

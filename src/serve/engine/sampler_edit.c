/* What changes logits before a token is chosen: biases, penalties, lists, masks; in this order. */
#include "serve/engine/sampler_priv.h"

#include <math.h>
#include <string.h>

static bool is_known(const struct ash_sampler *sampler, int32_t id)
{
    return id >= 0 && (size_t)id < sampler->vocab;
}

/* Each token that occurred is penalised once for occurring, and where asked for each time. */
static void add_penalties(struct ash_sampler *sampler, const struct ash_choice *choice)
{
    const struct ash_sampler_opts *opts = choice->opts;
    float repetition = (float)opts->repetition_penalty, presence = (float)opts->presence_penalty;
    float frequency = (float)opts->frequency_penalty;

    for (size_t i = 0; i < choice->counts->count; i++) {
        const struct ash_token_count *item = &choice->counts->items[i];
        float *logit;

        if (!is_known(sampler, item->id)) continue;
        logit = &sampler->edited[item->id];
        if (item->in_text > 0) *logit = *logit > 0.0f ? *logit / repetition : *logit * repetition;
        if (item->in_answer > 0) *logit = *logit - frequency * (float)item->in_answer - presence;
    }
}

static void forbid_all_but(struct ash_sampler *sampler, const struct ash_choice *choice)
{
    float *kept = sampler->weight; /* free until something is drawn */

    for (size_t i = 0; i < choice->allowed_count; i++)
        if (is_known(sampler, choice->allowed[i])) kept[choice->allowed[i]] = sampler->edited[choice->allowed[i]];
    for (size_t i = 0; i < sampler->vocab; i++)
        sampler->edited[i] = -INFINITY;
    for (size_t i = 0; i < choice->allowed_count; i++)
        if (is_known(sampler, choice->allowed[i])) sampler->edited[choice->allowed[i]] = kept[choice->allowed[i]];
}

static void apply_mask(struct ash_sampler *sampler, const uint64_t *mask)
{
    for (size_t first = 0; first < sampler->vocab; first += 64) {
        uint64_t word = mask[first / 64];
        size_t count = sampler->vocab - first < 64 ? sampler->vocab - first : 64;

        for (size_t i = 0; i < count && word != UINT64_MAX; i++)
            if ((word >> i & 1) == 0) sampler->edited[first + i] = -INFINITY;
    }
}

const float *ash_sampler_edit(struct ash_sampler *sampler, const struct ash_choice *choice)
{
    bool has_penalties = ash_sampler_has_penalties(choice->opts);

    if (!has_penalties && choice->bias_count == 0 && choice->allowed == NULL && choice->forbidden_count == 0 &&
        choice->mask == NULL)
        return choice->logits;
    memcpy(sampler->edited, choice->logits, sampler->vocab * sizeof(*sampler->edited));
    for (size_t i = 0; i < choice->bias_count; i++)
        if (is_known(sampler, choice->bias[i].id)) sampler->edited[choice->bias[i].id] += choice->bias[i].bias;
    if (has_penalties) add_penalties(sampler, choice);
    if (choice->allowed != NULL) forbid_all_but(sampler, choice);
    if (choice->mask != NULL) apply_mask(sampler, choice->mask);
    for (size_t i = 0; i < choice->forbidden_count; i++)
        if (is_known(sampler, choice->forbidden[i])) sampler->edited[choice->forbidden[i]] = -INFINITY;
    return sampler->edited;
}

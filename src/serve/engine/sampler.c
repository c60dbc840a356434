/* Settings of sampling, and a choice as a row of the op (compute/ops_sample.h). */
#include "serve/engine/sampler.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/rng.h"
#include "compute/cpu/sample.h"

#define SAMPLER_STREAM 0x73616d706c657221ull /* keeps these draws apart from every other use of the same seed */

/* ---- settings ---------------------------------------------------------------------------------------------------- */

struct ash_sampler_opts ash_sampler_defaults(void)
{
    return (struct ash_sampler_opts){.top_p = 1.0, .typical_p = 1.0, .repetition_penalty = 1.0};
}

uint64_t ash_sampler_seed(uint64_t seed, size_t index)
{
    return index > 0 ? ash_hash_mix(seed + 0x9e3779b97f4a7c15u * index) : seed;
}

static bool is_within(double x, double most)
{
    return x >= -most && x <= most;
}

static int check_penalties(const struct ash_sampler_opts *opts, struct ash_err *err)
{
    if (!(opts->repetition_penalty > 0.0 && opts->repetition_penalty <= ASH_SAMPLER_PENALTY_MAX))
        return ash_err_set(err, -EINVAL, "repetition_penalty %g is not above 0 and at most %g",
                           opts->repetition_penalty, ASH_SAMPLER_PENALTY_MAX);
    if (!is_within(opts->presence_penalty, ASH_SAMPLER_PENALTY_MAX))
        return ash_err_set(err, -EINVAL, "presence_penalty %g is not between -%g and %g", opts->presence_penalty,
                           ASH_SAMPLER_PENALTY_MAX, ASH_SAMPLER_PENALTY_MAX);
    if (!is_within(opts->frequency_penalty, ASH_SAMPLER_PENALTY_MAX))
        return ash_err_set(err, -EINVAL, "frequency_penalty %g is not between -%g and %g", opts->frequency_penalty,
                           ASH_SAMPLER_PENALTY_MAX, ASH_SAMPLER_PENALTY_MAX);
    return 0;
}

int ash_sampler_check(const struct ash_sampler_opts *opts, struct ash_err *err)
{
    if (!(opts->temperature >= 0.0 && opts->temperature <= ASH_SAMPLER_TEMPERATURE_MAX))
        return ash_err_set(err, -EINVAL, "temperature %g is not between 0 and %g", opts->temperature,
                           ASH_SAMPLER_TEMPERATURE_MAX);
    if (!(opts->top_p > 0.0 && opts->top_p <= 1.0))
        return ash_err_set(err, -EINVAL, "top_p %g is not above 0 and at most 1", opts->top_p);
    if (!(opts->min_p >= 0.0 && opts->min_p <= 1.0))
        return ash_err_set(err, -EINVAL, "min_p %g is not between 0 and 1", opts->min_p);
    if (!(opts->typical_p > 0.0 && opts->typical_p <= 1.0))
        return ash_err_set(err, -EINVAL, "typical_p %g is not above 0 and at most 1", opts->typical_p);
    return check_penalties(opts, err);
}

bool ash_sampler_has_penalties(const struct ash_sampler_opts *opts)
{
    return opts->repetition_penalty != 1.0 || opts->presence_penalty != 0.0 || opts->frequency_penalty != 0.0;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

struct ash_sampler {
    size_t vocab;
    void *memory;
    struct ash_sample_scratch scratch;
};

int ash_sampler_open(size_t vocab, struct ash_sampler **sampler_out, struct ash_err *err)
{
    struct ash_sampler *sampler;

    if (vocab == 0 || vocab > ASH_SAMPLE_VOCAB_MAX)
        return ash_err_set(err, -EINVAL, "sampler: a vocabulary of %zu tokens", vocab);
    sampler = calloc(1, sizeof(*sampler));
    if (sampler != NULL) sampler->memory = malloc(ash_sample_scratch_bytes(vocab));
    if (sampler == NULL || sampler->memory == NULL) {
        ash_sampler_close(sampler);
        return ash_err_set(err, -ENOMEM, "sampler: no memory for a vocabulary of %zu tokens", vocab);
    }
    sampler->vocab = vocab;
    sampler->scratch = ash_sample_scratch_at(sampler->memory, vocab);
    *sampler_out = sampler;
    return 0;
}

void ash_sampler_close(struct ash_sampler *sampler)
{
    if (sampler == NULL) return;
    free(sampler->memory);
    free(sampler);
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

struct ash_sample_row ash_sampler_row(const struct ash_choice *choice)
{
    const struct ash_sampler_opts *opts = choice->opts;
    bool has_penalties = ash_sampler_has_penalties(opts);

    ash_assert(choice->counts != NULL || !has_penalties);
    return (struct ash_sample_row){.temperature = opts->temperature,
                                   .top_p = opts->top_p,
                                   .min_p = opts->min_p,
                                   .typical_p = opts->typical_p,
                                   .top_k = opts->top_k,
                                   .filters_first = opts->filters_first,
                                   .random = ash_rng_u64(opts->seed, SAMPLER_STREAM, choice->position),
                                   .bias = choice->bias,
                                   .bias_count = choice->bias_count,
                                   .counts = has_penalties ? choice->counts->items : NULL,
                                   .count_count = has_penalties ? choice->counts->count : 0,
                                   .repetition = (float)opts->repetition_penalty,
                                   .presence = (float)opts->presence_penalty,
                                   .frequency = (float)opts->frequency_penalty,
                                   .allowed = choice->allowed,
                                   .allowed_count = choice->allowed_count,
                                   .mask = choice->mask,
                                   .forbidden = choice->forbidden,
                                   .forbidden_count = choice->forbidden_count};
}

int ash_sampler_check_id(int32_t id, uint64_t position, struct ash_err *err)
{
    if (id >= 0) return 0;
    if (id == ASH_SAMPLE_NOTHING)
        return ash_err_set(err, -EDOM, "every token is forbidden at position %llu: all logits are -infinity",
                           (unsigned long long)position);
    return ash_err_set(err, -EDOM,
                       "the model's logit for token %d at position %llu is not a number, or infinite: its weights or "
                       "its input are broken",
                       ASH_SAMPLE_BROKEN - id, (unsigned long long)position);
}

int ash_sampler_next(struct ash_sampler *sampler, const struct ash_choice *choice, int32_t *id_out, struct ash_err *err)
{
    struct ash_sample_row row = ash_sampler_row(choice);
    int32_t id = ash_sample_choose(&sampler->scratch, &row, choice->logits, sampler->vocab);
    int rc = ash_sampler_check_id(id, choice->position, err);

    if (rc == 0) *id_out = id;
    return rc;
}

size_t ash_sampler_count_kept(const struct ash_sampler *sampler)
{
    return sampler->scratch.kept_count;
}

static int compare_ids(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

size_t ash_sampler_get_kept(const struct ash_sampler *sampler, int32_t *ids)
{
    for (size_t i = 0; i < sampler->scratch.kept_count; i++)
        ids[i] = sampler->scratch.kept[i].id;
    qsort(ids, sampler->scratch.kept_count, sizeof(*ids), compare_ids);
    return sampler->scratch.kept_count;
}

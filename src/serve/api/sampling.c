/* Sampling settings. Names of vLLM, SGLang and llama.cpp in addition to OpenAI's: the first one that is given
 * counts. */
#include "serve/api/sampling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/array.h"
#include "base/hash.h"

#define TEMPERATURE_MAX 100.0
#define BIAS_MOST 1e6        /* no logit comes near: the negative of it forbids a token */
#define SALT_SEED 0x73616c74 /* "salt" */

/* The first of keys (NULL-terminated) that is given, or the first. All of them are known then. */
static const char *first_given(struct ash_fields *fields, const char *const *keys)
{
    const char *found = NULL;

    for (size_t i = 0; keys[i] != NULL; i++)
        if (ash_fields_has(fields, keys[i]) && found == NULL) found = keys[i];
    return found != NULL ? found : keys[0];
}

/* ---- the sampler ------------------------------------------------------------------------------------------------- */

static struct ash_sampler_opts default_sampler(const struct ash_api *api, enum ash_dialect dialect)
{
    struct ash_sampler_opts sampler = api->engine.defaults->sampler;

    if (dialect == ASH_DIALECT_LLAMA) { /* llama-server's own */
        sampler.temperature = 0.8;
        sampler.top_k = 40;
        sampler.top_p = 0.95;
        sampler.min_p = 0.05;
        sampler.filters_first = true;
    } else if (sampler.temperature == 0) { /* the folder asks for nothing: OpenAI's default is to draw */
        sampler.temperature = 1;
    }
    return sampler;
}

static void read_penalties(struct ash_sampler_opts *sampler, struct ash_fields *fields)
{
    static const char *const repetition[] = {"repetition_penalty", "repeat_penalty", NULL};

    sampler->repetition_penalty = ash_fields_double(fields, first_given(fields, repetition), 1e-3,
                                                    ASH_SAMPLER_PENALTY_MAX, sampler->repetition_penalty);
    sampler->presence_penalty = ash_fields_double(fields, "presence_penalty", -2, 2, sampler->presence_penalty);
    sampler->frequency_penalty = ash_fields_double(fields, "frequency_penalty", -2, 2, sampler->frequency_penalty);
    sampler->repeat_last_n = (size_t)ash_fields_int(fields, "repeat_last_n", -1, INT32_MAX, 0);
    if (sampler->repeat_last_n == (size_t)-1) sampler->repeat_last_n = 0; /* all of the context, as without it */
}

static void read_seed(struct ash_sampling *sampling, struct ash_api_request *request)
{
    struct ash_fields *fields = &request->fields;
    int64_t seed = ash_fields_int(fields, "seed", INT64_MIN, INT64_MAX, -1);

    sampling->has_seed = seed >= 0 || (seed < -1 && ash_fields_has(fields, "seed")); /* -1: llama.cpp's "draw one" */
    if (sampling->has_seed)
        sampling->sampler.seed = (uint64_t)seed;
    else if (request->resumable.is_set)
        sampling->sampler.seed = request->resumable.seed;
    else if (getrandom(&sampling->sampler.seed, sizeof(sampling->sampler.seed), 0) < 0)
        ash_api_err_set(fields->err, 500, "no_random_numbers", "seed", "no random numbers: give a seed");
    else
        sampling->sampler.seed >>= 11; /* 53 bits: every JSON reader can give it back */
}

static void read_sampler(struct ash_sampling *sampling, struct ash_api_request *request, enum ash_dialect dialect)
{
    static const char *const typical[] = {"typical_p", "typ_p", NULL};
    struct ash_fields *fields = &request->fields;
    struct ash_sampler_opts *sampler = &sampling->sampler;
    int64_t top_k;

    *sampler = default_sampler(request->api, dialect);
    sampler->temperature = ash_fields_double(fields, "temperature", 0, TEMPERATURE_MAX, sampler->temperature);
    top_k = ash_fields_int(fields, "top_k", -1, INT32_MAX, (int64_t)sampler->top_k);
    sampler->top_k = top_k > 0 ? (size_t)top_k : 0;
    sampler->top_p = ash_fields_double(fields, "top_p", 0, 1, sampler->top_p);
    if (sampler->top_p == 0) sampler->top_p = 1e-9; /* OpenAI allows 0: the most likely token */
    sampler->min_p = ash_fields_double(fields, "min_p", 0, 1, sampler->min_p);
    sampler->typical_p = ash_fields_double(fields, first_given(fields, typical), 1e-9, 1, sampler->typical_p);
    read_penalties(sampler, fields);
    read_seed(sampling, request);
}

struct ash_sampler_opts ash_sampling_of(const struct ash_sampling *sampling, size_t index)
{
    struct ash_sampler_opts sampler = sampling->sampler;

    sampler.seed = ash_sampler_seed(sampler.seed, index);
    return sampler;
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

/* An id of the vocabulary, or -1 with an error set. */
static int32_t read_id(const json_t *value, struct ash_api_request *request, const char *key)
{
    size_t vocab = request->api->engine.vocab;
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;

    if (id >= 0 && (uint64_t)id < vocab) return (int32_t)id;
    ash_fields_wrong(&request->fields, key, "must hold token ids from 0 to %zu", vocab - 1);
    return -1;
}

static void no_memory(struct ash_api_request *request)
{
    ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the request");
}

static void read_ids(struct ash_ids *ids, struct ash_api_request *request, const char *key)
{
    const json_t *array = ash_fields_array(&request->fields, key);
    size_t count = array != NULL ? json_array_size(array) : 0;

    if (count > request->api->engine.vocab) ash_fields_wrong(&request->fields, key, "has more ids than the vocabulary");
    for (size_t i = 0; i < count && request->err.status == 0; i++) {
        int32_t id = read_id(json_array_get(array, i), request, key);

        if (id >= 0 && ash_ids_add(ids, id) < 0) no_memory(request);
    }
}

static void add_eos(struct ash_sampling *sampling, struct ash_api_request *request)
{
    const struct ash_defaults *defaults = request->api->engine.defaults;

    sampling->ignores_eos = ash_fields_bool(&request->fields, "ignore_eos", false);
    for (size_t i = 0; i < defaults->eos_count && !sampling->ignores_eos; i++)
        if (ash_ids_add(&sampling->stop_ids, defaults->eos[i]) < 0) no_memory(request);
}

static void add_bias_id(struct ash_sampling *sampling, struct ash_api_request *request, int32_t id, double bias)
{
    if (sampling->bias_count == ASH_SAMPLING_BIAS_MAX)
        ash_fields_wrong(&request->fields, "logit_bias", "names more than %d tokens", ASH_SAMPLING_BIAS_MAX);
    else if (ash_array_reserve(&sampling->bias, &sampling->bias_capacity, sampling->bias_count + 1,
                               sizeof(*sampling->bias)) < 0)
        no_memory(request);
    if (request->err.status == 0) sampling->bias[sampling->bias_count++] = (struct ash_logit_bias){id, (float)bias};
}

/* One entry of logit_bias: an id, or a text, whose tokens all get the bias; false forbids. */
static void add_bias(struct ash_sampling *sampling, struct ash_api_request *request, const json_t *token,
                     const json_t *value)
{
    double bias = json_is_false(value) ? -BIAS_MOST : json_is_number(value) ? json_number_value(value) : NAN;
    struct ash_ids ids = {0};
    struct ash_err err = {0};

    if (isnan(bias) || fabs(bias) > BIAS_MOST)
        ash_fields_wrong(&request->fields, "logit_bias", "must map token ids to numbers");
    if (!json_is_string(token)) {
        add_bias_id(sampling, request, read_id(token, request, "logit_bias"), bias);
        return;
    }
    if (ash_tokenizer_encode(request->api->engine.tokenizer, json_string_value(token), json_string_length(token), false,
                             &ids, &err) < 0)
        ash_api_err_take(&request->err, "logit_bias", &err);
    for (size_t i = 0; i < ids.count && request->err.status == 0; i++)
        add_bias_id(sampling, request, ids.data[i], bias);
    ash_ids_fini(&ids);
}

/* {"50256": -100} as OpenAI has it. */
static void read_bias_object(struct ash_sampling *sampling, struct ash_api_request *request, const json_t *object)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        char *end = NULL;
        long long number = strtoll(key, &end, 10);
        json_t *token = key[0] != '\0' && *end == '\0' ? json_integer(number) : json_string(key);

        add_bias(sampling, request, token, value);
        json_decref(token);
    }
}

/* [[id, bias], …] as llama.cpp has it. */
static void read_bias_array(struct ash_sampling *sampling, struct ash_api_request *request, const json_t *array)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *pair = json_array_get(array, i);

        if (json_is_array(pair) && json_array_size(pair) == 2)
            add_bias(sampling, request, json_array_get(pair, 0), json_array_get(pair, 1));
        else
            ash_fields_wrong(&request->fields, "logit_bias", "must be pairs of a token id and a number");
    }
}

static void read_bias(struct ash_sampling *sampling, struct ash_api_request *request)
{
    const json_t *value = ash_fields_any(&request->fields, "logit_bias");
    size_t count = json_is_object(value) ? json_object_size(value) : json_array_size(value);

    if (value == NULL || count == 0) return;
    if (!json_is_object(value) && !json_is_array(value))
        ash_fields_wrong(&request->fields, "logit_bias", "must be an object, or pairs of a token id and a number");
    if (count > ASH_SAMPLING_BIAS_MAX)
        ash_fields_wrong(&request->fields, "logit_bias", "has %zu entries, and %d are the most", count,
                         ASH_SAMPLING_BIAS_MAX);
    if (request->err.status != 0) return;
    if (json_is_object(value))
        read_bias_object(sampling, request, value);
    else
        read_bias_array(sampling, request, value);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

void ash_sampling_read_stops(struct ash_sampling *sampling, struct ash_api_request *request, const char *key)
{
    const json_t *value = ash_fields_any(&request->fields, key);
    size_t count = json_is_string(value) ? 1 : json_array_size(value);
    const char *items[ASH_STOPS_MAX];
    struct ash_err err = {0};

    if (value == NULL) return;
    if (!json_is_string(value) && !json_is_array(value))
        ash_fields_wrong(&request->fields, key, "must be a string or a list of strings");
    if (count > ASH_STOPS_MAX)
        ash_fields_wrong(&request->fields, key, "has %zu strings, and %d are the most", count, ASH_STOPS_MAX);
    for (size_t i = 0; i < count && request->err.status == 0; i++) {
        const json_t *item = json_is_string(value) ? value : json_array_get(value, i);

        items[i] = json_string_value(item);
        if (items[i] == NULL || strlen(items[i]) != json_string_length(item))
            ash_fields_wrong(&request->fields, key, "must be a string or a list of strings, without NUL");
    }
    if (request->err.status != 0) return;
    if (ash_stops_init(&sampling->stops, items, count, &err) < 0) ash_api_err_take(&request->err, key, &err);
}

void ash_sampling_read_max(struct ash_sampling *sampling, struct ash_api_request *request, const char *const *keys,
                           size_t otherwise)
{
    const char *key = first_given(&request->fields, keys);
    int64_t most = ash_fields_int(&request->fields, key, -2, INT32_MAX, -3);

    sampling->clamps_max = request->api->opts.clamps_max;
    sampling->max_tokens = most >= 0 ? (size_t)most : most == -3 ? otherwise : ASH_SAMPLING_UNLIMITED;
    if (sampling->max_tokens != ASH_SAMPLING_UNLIMITED && sampling->min_tokens > sampling->max_tokens)
        ash_fields_wrong(&request->fields, "min_tokens", "is more than %s", key);
}

/* ---- all together ------------------------------------------------------------------------------------------------ */

static void read_cache(struct ash_sampling *sampling, struct ash_api_request *request)
{
    struct ash_fields *fields = &request->fields;
    const struct ash_key *key = ash_http_key(request->exchange);
    const char *salt = ash_fields_string(fields, "cache_salt");

    sampling->priority = (int)ash_fields_int(fields, "priority", INT32_MIN, INT32_MAX, 0);
    sampling->salt = ash_key_id(key); /* what one key computes is not seen by another, not even as time */
    if (salt != NULL) sampling->salt = ash_hash_bytes(salt, strlen(salt), sampling->salt ^ SALT_SEED);
    sampling->skips_cache = !ash_fields_bool(fields, "cache_prompt", true);
}

/* A budget for thoughts. */
static void read_think(struct ash_sampling *sampling, struct ash_api_request *request)
{
    struct ash_fields *fields = &request->fields;
    struct ash_err err = {0};

    sampling->has_think = ash_fields_has(fields, "think_min") || ash_fields_has(fields, "think_max");
    sampling->think_min = (size_t)ash_fields_int(fields, "think_min", 0, INT32_MAX, 0);
    sampling->think_max = (size_t)ash_fields_int(fields, "think_max", 0, INT32_MAX, 0);
    if (request->err.status != 0 || !sampling->has_think) return;
    if (request->api->think_words.more.count == 0)
        ash_fields_wrong(fields, sampling->think_min > 0 ? "think_min" : "think_max",
                         "needs a model that thinks: its tokenizer has no token that ends thoughts");
    else if (ash_think_check(sampling->think_min, sampling->think_max, &err) < 0)
        ash_fields_wrong(fields, "think_min", "is more than think_max");
}

/* Samplers of llama.cpp's server that are not supported, in every request form: only "off" is taken. */
static void refuse_samplers(struct ash_fields *fields)
{
    static const char *const numbers[] = {"dry_multiplier", "xtc_probability", "dynatemp_range", NULL};

    if (ash_fields_int(fields, "mirostat", INT32_MIN, INT32_MAX, 0) > 0)
        ash_fields_wrong(fields, "mirostat", "is not supported: leave it out, or send 0");
    for (size_t i = 0; numbers[i] != NULL; i++)
        if (ash_fields_double(fields, numbers[i], 0, 1e9, 0) > 0)
            ash_fields_wrong(fields, numbers[i], "is not supported: leave it out, or send 0");
    if (ash_fields_double(fields, "top_n_sigma", -1e9, 1e9, -1) > 0)
        ash_fields_wrong(fields, "top_n_sigma", "is not supported: leave it out, or send -1");
}

void ash_sampling_read(struct ash_sampling *sampling, struct ash_api_request *request, enum ash_dialect dialect)
{
    struct ash_fields *fields = &request->fields;
    int64_t most = (int64_t)request->api->opts.choices_max;

    read_sampler(sampling, request, dialect);
    add_eos(sampling, request);
    read_ids(&sampling->stop_ids, request, "stop_token_ids");
    read_ids(&sampling->allowed, request, "allowed_token_ids");
    read_bias(sampling, request);
    sampling->n = (size_t)ash_fields_int(fields, dialect == ASH_DIALECT_LLAMA ? "n_cmpl" : "n", 1, most, 1);
    if (dialect == ASH_DIALECT_LLAMA && !ash_fields_has(fields, "n_cmpl"))
        sampling->n = (size_t)ash_fields_int(fields, "n", 1, most, 1);
    sampling->best_of = sampling->n;
    sampling->min_tokens = (size_t)ash_fields_int(fields, "min_tokens", 0, INT32_MAX, 0);
    read_think(sampling, request);
    sampling->shows_stop = ash_fields_bool(fields, "include_stop_str_in_output", false);
    sampling->keep_special = !ash_fields_bool(fields, "skip_special_tokens", true);
    sampling->returns_ids = ash_fields_bool(fields, "return_token_ids", false);
    sampling->truncate_tokens = ash_fields_int(fields, "truncate_prompt_tokens", -1, INT32_MAX, 0);
    sampling->top_logprobs = -1;
    sampling->prompt_logprobs = (int)ash_fields_int(fields, "prompt_logprobs", 0, ASH_SAMPLING_LOGPROBS_MAX, -1);
    read_cache(sampling, request);
    refuse_samplers(fields);
    ash_fields_ignore(fields, "spaces_between_special_tokens user metadata store service_tier safety_identifier "
                              "prompt_cache_key request_id detokenize return_tokens_as_token_ids");
}

/* The index of a word in names, or -1. */
static int find_word(const char *word, const char *const *names)
{
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(word, names[i]) == 0) return i;
    return -1;
}

/* Can one of several answers be chosen at all? */
static void check_strategy(const struct ash_sampling *sampling, struct ash_api_request *request, bool is_stream)
{
    struct ash_fields *fields = &request->fields;

    if (is_stream)
        ash_fields_wrong(fields, "strategy", "cannot be streamed: which answer counts is known at the end");
    else if (sampling->best_of > sampling->n)
        ash_fields_wrong(fields, "best_of", "goes without strategy: n says how many answers there are");
    else if (sampling->n < 2)
        ash_fields_wrong(fields, "strategy", "chooses one of several answers: n must be at least 2");
    else if (sampling->sampler.temperature == 0)
        ash_fields_wrong(fields, "strategy", "needs a temperature above 0: at 0 all answers are the same");
}

void ash_sampling_read_strategy(struct ash_sampling *sampling, struct ash_api_request *request, bool is_stream)
{
    struct ash_fields *fields = &request->fields;
    const char *word = ash_fields_string(fields, "strategy"), *part = ash_fields_string(fields, "vote_on");
    int strategy = word != NULL ? find_word(word, ash_strategy_names) : ASH_STRATEGY_GREEDY,
        vote_on = part != NULL ? find_word(part, ash_vote_on_names) : ASH_VOTE_ON_ALL;

    if (strategy < 0 || (word != NULL && strategy == ASH_STRATEGY_GREEDY))
        ash_fields_wrong(fields, "strategy", "must be best, majority or weighted");
    if (vote_on < 0) ash_fields_wrong(fields, "vote_on", "must be all, last-line or last-number");
    if (part != NULL && strategy <= (int)ASH_STRATEGY_BEST)
        ash_fields_wrong(fields, "vote_on", "goes with strategy majority or weighted");
    if (word != NULL) check_strategy(sampling, request, is_stream);
    if (request->err.status != 0 || word == NULL) return;
    sampling->strategy = (enum ash_strategy)strategy;
    sampling->vote_on = (enum ash_vote_on)vote_on;
    sampling->best_of = sampling->n;
    sampling->n = 1;
}

void ash_sampling_fini(struct ash_sampling *sampling)
{
    ash_ids_fini(&sampling->stop_ids);
    ash_ids_fini(&sampling->allowed);
    ash_stops_fini(&sampling->stops);
    free(sampling->bias);
    *sampling = (struct ash_sampling){0};
}

/* llama.cpp's "samplers": which filters apply, and in which order. Ours are penalties, top_k, top_p, min_p, typ_p, with
 * the temperature before or after all of the last four; filters that change nothing may stand anywhere. */
#include "serve/api/llama.h"

#include <string.h>

enum stage { PENALTIES, TOP_K, TOP_P, MIN_P, TYPICAL, TEMPERATURE, NOT_HERE, UNKNOWN };

static enum stage stage_named(const char *name)
{
    static const struct {
        const char *name;
        enum stage stage;
    } names[] = {
        {"penalties", PENALTIES},
        {"top_k", TOP_K},
        {"top_p", TOP_P},
        {"min_p", MIN_P},
        {"typ_p", TYPICAL},
        {"typical_p", TYPICAL},
        {"typical", TYPICAL},
        {"temperature", TEMPERATURE},
        {"temp", TEMPERATURE},
        /* off unless a field that is refused turns them on: */
        {"dry", NOT_HERE},
        {"top_n_sigma", NOT_HERE},
        {"xtc", NOT_HERE},
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i].name, name) == 0) return names[i].stage;
    return UNKNOWN;
}

/* Does a filter change anything, as the settings are? */
static bool is_active(const struct ash_sampler_opts *sampler, enum stage stage)
{
    switch (stage) {
    case TOP_K:
        return sampler->top_k > 0;
    case TOP_P:
        return sampler->top_p < 1;
    case MIN_P:
        return sampler->min_p > 0;
    case TYPICAL:
        return sampler->typical_p < 1;
    default:
        return false;
    }
}

/* Filters that the list does not have. */
static void switch_off(struct ash_sampler_opts *sampler, const bool *is_listed)
{
    if (!is_listed[TOP_K]) sampler->top_k = 0;
    if (!is_listed[TOP_P]) sampler->top_p = 1;
    if (!is_listed[MIN_P]) sampler->min_p = 0;
    if (!is_listed[TYPICAL]) sampler->typical_p = 1;
    if (!is_listed[TEMPERATURE]) sampler->temperature = 1;
    if (is_listed[PENALTIES]) return;
    sampler->repetition_penalty = 1;
    sampler->presence_penalty = sampler->frequency_penalty = 0;
}

/* Can it be done in this order? */
static void check_order(struct ash_sampler_opts *sampler, const enum stage *order, size_t count,
                        struct ash_fields *fields)
{
    size_t before = 0, after = 0; /* active filters, around the temperature */
    enum stage last = PENALTIES;
    bool is_warm = false;

    for (size_t i = 0; i < count; i++) {
        is_warm = is_warm || order[i] == TEMPERATURE;
        if (!is_active(sampler, order[i])) continue;
        before += !is_warm;
        after += is_warm;
        if (order[i] < last)
            ash_fields_wrong(fields, "samplers", "has an order that is not supported: top_k, top_p, min_p, typ_p is");
        last = order[i];
    }
    if (is_warm && before > 0 && after > 0)
        ash_fields_wrong(fields, "samplers", "has temperature between filters: it may come before or after all");
    sampler->filters_first = after == 0;
}

void ash_llama_samplers_read(struct ash_sampler_opts *sampler, struct ash_api_request *request)
{
    const json_t *list = ash_fields_array(&request->fields, "samplers");
    bool is_listed[UNKNOWN + 1] = {false};
    enum stage order[UNKNOWN];
    size_t count = 0;

    if (list == NULL) return;
    for (size_t i = 0; i < json_array_size(list) && request->err.status == 0; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        enum stage stage = name != NULL ? stage_named(name) : UNKNOWN;

        if (stage == UNKNOWN)
            ash_fields_wrong(&request->fields, "samplers",
                             "has %.40s: there are penalties, top_k, top_p, min_p, "
                             "typ_p and temperature",
                             name != NULL ? name : "something that is no name");
        else if (stage != NOT_HERE && !is_listed[stage])
            order[count++] = stage;
        is_listed[stage] = true;
    }
    if (request->err.status != 0) return;
    switch_off(sampler, is_listed);
    check_order(sampler, order, count, &request->fields);
}

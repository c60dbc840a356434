/* pairs: texts of requests become pairs, pairs become prompts. */
#include "serve/api/pairs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "serve/pooled.h"

/* A string, or an object with one at "text"; NULL if it is neither. A text with a NUL would end there. */
static const char *text_of(const json_t *value)
{
    const json_t *text = json_is_object(value) ? json_object_get(value, "text") : value;
    const char *data = json_string_value(text);

    return data != NULL && strlen(data) == json_string_length(text) ? data : NULL;
}

size_t ash_pairs_read_texts(struct ash_api_request *request, const char *key, struct ash_api_text **texts_out)
{
    const json_t *value = ash_fields_any(&request->fields, key);
    bool is_list = json_is_array(value);
    size_t count = is_list ? json_array_size(value) : 1, most = request->api->opts.choices_max;
    struct ash_api_text *texts;

    *texts_out = NULL;
    if (value == NULL) {
        ash_api_err_set(&request->err, 400, "missing_required_parameter", key, "'%s' is missing", key);
        return 0;
    }
    if (count == 0 || count > most) {
        ash_fields_wrong(&request->fields, key, "must hold 1 to %zu texts, but it has %zu", most, count);
        return 0;
    }
    texts = calloc(count, sizeof(*texts));
    if (texts == NULL) ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the request");
    for (size_t i = 0; texts != NULL && i < count; i++) {
        texts[i].data = text_of(is_list ? json_array_get(value, i) : value);
        if (texts[i].data == NULL)
            ash_fields_wrong(&request->fields, key, "must be a text, or a list of texts and objects with a 'text'");
    }
    if (texts != NULL && request->err.status == 0) {
        *texts_out = texts;
        return count;
    }
    free(texts);
    return 0;
}

void ash_pairs_begin(struct ash_api_call *call, struct ash_api_request *request)
{
    const struct ash_pooled *pooled = request->api->engine.pooled;

    ash_api_check_model(request);
    ash_sampling_read(&call->sampling, request, ASH_DIALECT_OPENAI);
    call->sampling.n = call->sampling.best_of = 1;
    call->sampling.max_tokens = 0;
    call->sampling.pooling = pooled != NULL ? pooled->score : ASH_POOLING_NONE;
    call->sampling.wants_score = true;
    if (call->sampling.pooling == ASH_POOLING_NONE && request->err.status == 0)
        ash_api_err_set(&request->err, 400, "not_supported", NULL,
                        "the model gives no scores: that takes a ...ForSequenceClassification with one label");
}

void ash_pairs_add(struct ash_api_call *call, struct ash_api_request *request, const char *key, const char *first,
                   const char *second, size_t *second_out)
{
    struct ash_ids ids = {0};
    struct ash_err err = {0};

    if (request->err.status != 0) return;
    if (ash_tokenizer_encode_pair(request->api->engine.tokenizer, first, second, &ids, second_out, &err) < 0)
        ash_api_err_take(&request->err, key, &err);
    else if (ash_prompts_add_ids(&call->prompts, &ids) < 0)
        ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the request");
    ash_ids_fini(&ids);
}

void ash_pairs_finish(struct ash_api_call *call, struct ash_api_request *request, const char *key,
                      const size_t *seconds)
{
    if (request->err.status == 0) ash_prompts_fit(&call->prompts, request, &call->sampling, key);
    ash_api_check_unknown(request);
    if (request->err.status == 0) ash_call_take_states(call, request);
    for (size_t i = 0; request->err.status == 0 && i < call->choice_count; i++)
        call->choices[i].second = seconds[i];
}

float ash_pairs_score(const struct ash_api_call *call, size_t i, bool is_raw)
{
    float logit = call->choices[i].hidden[0];

    ash_assert(i < call->choice_count);
    return is_raw ? logit : (float)(1 / (1 + exp(-(double)logit)));
}

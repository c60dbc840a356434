/* POST /v1/embeddings: the states of prompts after the last layer, pooled and of length 1. */
#include "serve/api/call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/api/handlers.h"
#include "serve/api/write.h"
#include "serve/pooled.h"

/* What only this form knows. */
struct embedding {
    size_t dimensions;
    bool is_base64, is_normalized;
};

static void free_state(struct ash_api_call *call)
{
    free(call->state);
}

/* Cut and scale to length 1, as the models that allow to be cut were trained. */
static void finish_vector(const struct embedding *embedding, float *vector)
{
    double sum = 0;
    float scale;

    for (size_t i = 0; i < embedding->dimensions; i++)
        sum += (double)vector[i] * vector[i];
    scale = sum > 0 ? (float)(1 / sqrt(sum)) : 0;
    for (size_t i = 0; embedding->is_normalized && i < embedding->dimensions; i++)
        vector[i] *= scale;
}

static void write_vector(const struct embedding *embedding, const float *vector, struct ash_str *out)
{
    ash_json_put_key(out, "embedding");
    ash_str_adds(out, embedding->is_base64 ? "\"" : "[");
    if (embedding->is_base64) ash_write_base64(out, vector, embedding->dimensions * sizeof(*vector));
    for (size_t i = 0; !embedding->is_base64 && i < embedding->dimensions; i++)
        ash_write_float(out, NULL, vector[i]);
    ash_str_adds(out, embedding->is_base64 ? "\"" : "]");
}

static int write_all(struct ash_api_call *call, struct ash_str *out)
{
    const struct embedding *embedding = call->state;
    struct ash_usage usage = ash_call_usage(call);

    ash_str_adds(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < call->choice_count; i++) {
        finish_vector(embedding, call->choices[i].hidden);
        ash_json_put_begin(out, NULL, '{');
        ash_json_put_text(out, "object", "embedding");
        ash_json_put_int(out, "index", (int64_t)i);
        write_vector(embedding, call->choices[i].hidden, out);
        ash_json_put_end(out, '}');
    }
    ash_json_put_end(out, ']');
    ash_json_put_text(out, "model", call->model);
    return ash_str_addf(out, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}", usage.prompt_tokens,
                        usage.prompt_tokens);
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

static void read_format(struct embedding *embedding, struct ash_api_request *request)
{
    const char *format = ash_fields_string(&request->fields, "encoding_format");
    size_t hidden = request->api->engine.hidden;
    const struct ash_pooled *pooled = request->api->engine.pooled;

    embedding->dimensions = (size_t)ash_fields_int(&request->fields, "dimensions", 1, (int64_t)hidden, (int64_t)hidden);
    embedding->is_normalized = ash_fields_bool(&request->fields, "normalize", pooled == NULL || pooled->is_normalized);
    embedding->is_base64 = format != NULL && strcmp(format, "base64") == 0;
    if (format != NULL && !embedding->is_base64 && strcmp(format, "float") != 0)
        ash_fields_wrong(&request->fields, "encoding_format", "must be float or base64");
}

static enum ash_pooling read_pooling(struct ash_api_request *request)
{
    const char *pooling = ash_fields_string(&request->fields, "pooling");
    const struct ash_pooled *pooled = request->api->engine.pooled;

    if (pooling == NULL && pooled != NULL && pooled->refusal[0] != '\0')
        ash_api_err_set(&request->err, 400, "not_supported", NULL, "%s", pooled->refusal);
    if (pooling == NULL) return pooled != NULL ? pooled->embedding : ASH_POOLING_LAST;
    if (strcmp(pooling, "last") == 0) return ASH_POOLING_LAST;
    if (strcmp(pooling, "mean") == 0) return ASH_POOLING_MEAN;
    if (strcmp(pooling, "cls") == 0) return ASH_POOLING_FIRST;
    ash_fields_wrong(&request->fields, "pooling", "must be cls, last or mean");
    return ASH_POOLING_LAST;
}

static void read_request(struct ash_api_call *call, struct ash_api_request *request)
{
    struct embedding *embedding = call->state;
    const char *key = ash_fields_has(&request->fields, "input") ? "input" : "content";

    ash_api_check_model(request);
    ash_sampling_read(&call->sampling, request, ASH_DIALECT_OPENAI);
    call->sampling.n = call->sampling.best_of = 1;
    call->sampling.max_tokens = 0;
    call->sampling.pooling = read_pooling(request);
    read_format(embedding, request);
    ash_prompts_read(&call->prompts, request, ash_fields_has(&request->fields, key) ? key : "input", true);
    if (request->err.status == 0) ash_prompts_fit(&call->prompts, request, &call->sampling, "input");
    ash_api_check_unknown(request);
    if (request->err.status == 0) ash_call_take_states(call, request);
}

static const struct ash_form form = {.write = write_all,
                                     .free_state = free_state,
                                     .id_prefix = "embd-",
                                     .state_bytes = sizeof(struct embedding),
                                     .read = read_request};

void ash_api_embeddings(void *ctx, struct ash_http_exchange *exchange)
{
    ash_call_serve(&form, ctx, exchange);
}

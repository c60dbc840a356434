/* POST /v1/rerank: documents in the order of their scores with a query, in the form of Cohere, Jina and vLLM. */
#include <errno.h>
#include <stdlib.h>

#include "base/math.h"
#include "serve/api/handlers.h"
#include "serve/api/pairs.h"
#include "serve/api/write.h"

/* What only this form knows. */
struct rerank {
    size_t top; /* results at most */
    bool is_raw, shows_documents;
    struct ash_api_text *documents; /* [document_count], of json */
    json_t *json;                   /* what documents are in: the request's goes before the answer is written */
};

struct result {
    size_t index;
    float score;
};

static void free_state(struct ash_api_call *call)
{
    struct rerank *rerank = call->state;

    if (rerank == NULL) return;
    free(rerank->documents);
    json_decref(rerank->json);
    free(rerank);
}

/* The best first; equal ones in the order of the request. */
static int compare_results(const void *a, const void *b)
{
    const struct result *x = a, *y = b;

    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int write_all(struct ash_api_call *call, struct ash_str *out)
{
    const struct rerank *rerank = call->state;
    size_t tokens = ash_call_usage(call).prompt_tokens;
    struct result *results = calloc(call->choice_count, sizeof(*results));

    if (results == NULL) return -ENOMEM;
    for (size_t i = 0; i < call->choice_count; i++)
        results[i] = (struct result){i, ash_pairs_score(call, i, rerank->is_raw)};
    qsort(results, call->choice_count, sizeof(*results), compare_results);
    ash_json_put_begin(out, NULL, '{');
    ash_json_put_text(out, "id", call->id);
    ash_json_put_text(out, "model", call->model);
    ash_json_put_begin(out, "results", '[');
    for (size_t i = 0; i < ash_min(rerank->top, call->choice_count); i++) {
        ash_json_put_begin(out, NULL, '{');
        ash_json_put_int(out, "index", (int64_t)results[i].index);
        ash_write_float(out, "relevance_score", results[i].score);
        if (rerank->shows_documents) {
            ash_json_put_begin(out, "document", '{');
            ash_json_put_text(out, "text", rerank->documents[results[i].index].data);
            ash_json_put_end(out, '}');
        }
        ash_json_put_end(out, '}');
    }
    ash_json_put_end(out, ']');
    free(results);
    return ash_str_addf(out, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}", tokens, tokens);
}

static void read_request(struct ash_api_call *call, struct ash_api_request *request)
{
    struct rerank *rerank = call->state;
    size_t most = request->api->opts.choices_max, count;
    const char *query;
    size_t *seconds;

    ash_pairs_begin(call, request);
    query = ash_fields_string(&request->fields, "query");
    if (query == NULL && request->err.status == 0)
        ash_api_err_set(&request->err, 400, "missing_required_parameter", "query", "'query' is missing");
    rerank->top = (size_t)ash_fields_int(&request->fields, "top_n", 1, INT64_MAX, (int64_t)most);
    rerank->shows_documents = ash_fields_bool(&request->fields, "return_documents", true);
    rerank->is_raw = !ash_fields_bool(&request->fields, "use_activation", true);
    if (request->err.status != 0) return;
    count = ash_pairs_read_texts(request, "documents", &rerank->documents);
    seconds = calloc(count + 1, sizeof(*seconds));
    if (seconds == NULL) ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the request");
    for (size_t i = 0; seconds != NULL && i < count; i++)
        ash_pairs_add(call, request, "documents", query, rerank->documents[i].data, &seconds[i]);
    if (request->err.status == 0) ash_pairs_finish(call, request, "documents", seconds);
    rerank->json = json_incref((json_t *)(uintptr_t)ash_fields_any(&request->fields, "documents"));
    free(seconds);
}

static const struct ash_form form = {.write = write_all,
                                     .free_state = free_state,
                                     .id_prefix = "rerank-",
                                     .state_bytes = sizeof(struct rerank),
                                     .read = read_request};

void ash_api_rerank(void *ctx, struct ash_http_exchange *exchange)
{
    ash_call_serve(&form, ctx, exchange);
}

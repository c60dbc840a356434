/* POST /v1/score: the scores of pairs of texts, in the form of vLLM. */
#include <stdlib.h>

#include "base/math.h"
#include "serve/api/handlers.h"
#include "serve/api/pairs.h"
#include "serve/api/write.h"

/* What only this form knows. */
struct score {
    bool is_raw;
};

static void free_state(struct ash_api_call *call)
{
    free(call->state);
}

static int write_all(struct ash_api_call *call, struct ash_str *out)
{
    const struct score *score = call->state;
    size_t tokens = ash_call_usage(call).prompt_tokens;

    ash_json_put_begin(out, NULL, '{');
    ash_json_put_text(out, "id", call->id);
    ash_json_put_text(out, "object", "list");
    ash_json_put_int(out, "created", call->created_s);
    ash_json_put_text(out, "model", call->model);
    ash_json_put_begin(out, "data", '[');
    for (size_t i = 0; i < call->choice_count; i++) {
        ash_json_put_begin(out, NULL, '{');
        ash_json_put_int(out, "index", (int64_t)i);
        ash_json_put_text(out, "object", "score");
        ash_write_float(out, "score", ash_pairs_score(call, i, score->is_raw));
        ash_json_put_end(out, '}');
    }
    ash_json_put_end(out, ']');
    return ash_str_addf(out, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}", tokens, tokens);
}

/* Pairs of texts_1 and text_2: one with each, or the first with the first and so on. */
static void add_pairs(struct ash_api_call *call, struct ash_api_request *request, struct ash_api_text *texts[2],
                      const size_t counts[2])
{
    size_t count = ash_max(counts[0], counts[1]);
    size_t *seconds = calloc(count + 1, sizeof(*seconds));

    if (seconds == NULL) ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the request");
    for (size_t i = 0; seconds != NULL && i < count; i++)
        ash_pairs_add(call, request, "text_2", texts[0][counts[0] == 1 ? 0 : i].data,
                      texts[1][counts[1] == 1 ? 0 : i].data, &seconds[i]);
    if (seconds != NULL) ash_pairs_finish(call, request, "text_2", seconds);
    free(seconds);
}

static void read_request(struct ash_api_call *call, struct ash_api_request *request)
{
    struct score *score = call->state;
    static const char *const keys[] = {"text_1", "text_2"};
    struct ash_api_text *texts[2] = {0};
    size_t counts[2] = {0};

    ash_pairs_begin(call, request);
    score->is_raw = !ash_fields_bool(&request->fields, "use_activation", true);
    for (size_t i = 0; i < 2 && request->err.status == 0; i++)
        counts[i] = ash_pairs_read_texts(request, keys[i], &texts[i]);
    if (request->err.status == 0 && counts[0] != 1 && counts[1] != 1 && counts[0] != counts[1])
        ash_fields_wrong(&request->fields, "text_2", "must have as many texts as text_1 (%zu), or one, not %zu",
                         counts[0], counts[1]);
    if (request->err.status == 0) add_pairs(call, request, texts, counts);
    free(texts[0]);
    free(texts[1]);
}

static const struct ash_form form = {.write = write_all,
                                     .free_state = free_state,
                                     .id_prefix = "score-",
                                     .state_bytes = sizeof(struct score),
                                     .read = read_request};

void ash_api_score(void *ctx, struct ash_http_exchange *exchange)
{
    ash_call_serve(&form, ctx, exchange);
}

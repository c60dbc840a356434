/* external: answers of a server, read. Ids come in the fields of vLLM, of SGLang and of llama.cpp. An answer without
 * ids or log-probabilities is refused, since text that is tokenised again may be other tokens. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "post/rl/external.h"

#define ID_PREFIX "token_id:"

/* Append a token. logp: a number; anything else: nothing is known. */
static int add(struct ash_external_answer *answer, const json_t *id, const json_t *logp, struct ash_err *err)
{
    double value = json_is_number(logp) ? json_number_value(logp) : (double)NAN;

    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
        return ash_err_set(err, -EBADMSG, "a token id is %s", json_is_integer(id) ? "out of range" : "no integer");
    if (answer->count == answer->room)
        return ash_err_set(err, -EBADMSG, "it has more than the %zu tokens that were asked for", answer->room);
    if (value > 1e-3) return ash_err_set(err, -EBADMSG, "a log-probability is %g", value);
    answer->ids[answer->count] = (int32_t)json_integer_value(id);
    answer->logps[answer->count++] = value > 0.0 ? 0.0f : (float)value;
    return 0;
}

/* vLLM, and Ashlar: ids beside log-probabilities. The last id may be the end, of which nothing is said. */
static int read_ids(const json_t *ids, const json_t *logps, struct ash_external_answer *answer, struct ash_err *err)
{
    size_t count = json_array_size(ids), known = json_array_size(logps);
    int rc = 0;

    if (known != count && known + 1 != count)
        return ash_err_set(err, -EBADMSG, "it has %zu token ids and %zu log-probabilities", count, known);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = add(answer, json_array_get(ids, i), json_array_get(logps, i), err);
    return rc;
}

/* "token_id:17" in the place of texts. */
static int read_tokens(const json_t *tokens, const json_t *logps, struct ash_external_answer *answer,
                       struct ash_err *err)
{
    int rc = 0;

    if (json_array_size(tokens) != json_array_size(logps))
        return ash_err_set(err, -EBADMSG, "it has %zu tokens and %zu log-probabilities", json_array_size(tokens),
                           json_array_size(logps));
    for (size_t i = 0; rc == 0 && i < json_array_size(tokens); i++) {
        const char *text = json_string_value(json_array_get(tokens, i));
        char *end = NULL;
        json_t *id;

        if (text == NULL || strncmp(text, ID_PREFIX, strlen(ID_PREFIX)) != 0)
            return ash_err_set(err, -EBADMSG,
                               "it gives no token ids: it must know return_token_ids (vLLM 0.10.2 and later, ashlar "
                               "serve), or be llama.cpp's server");
        id = json_integer(strtoll(text + strlen(ID_PREFIX), &end, 10));
        rc = *end != '\0' || end == text + strlen(ID_PREFIX)
                 ? ash_err_set(err, -EBADMSG, "'%.40s' names no token", text)
                 : add(answer, id, json_array_get(logps, i), err);
        json_decref(id);
    }
    return rc;
}

/* llama.cpp: an object for each token. */
static int read_content(const json_t *content, struct ash_external_answer *answer, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < json_array_size(content); i++) {
        const json_t *token = json_array_get(content, i);

        rc = add(answer, json_object_get(token, "id"), json_object_get(token, "logprob"), err);
    }
    return rc;
}

static int read_choice(const json_t *choice, struct ash_external_answer *answer, struct ash_err *err)
{
    const json_t *logprobs = json_object_get(choice, "logprobs"), *ids = json_object_get(choice, "token_ids"),
                 *values = json_object_get(logprobs, "token_logprobs"), *stop = json_object_get(choice, "stop_reason");
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));

    answer->has_ended = finish != NULL && strcmp(finish, "stop") == 0;
    answer->end_id = json_is_integer(stop) ? json_integer_value(stop) : -1;
    if (json_is_array(json_object_get(logprobs, "content")))
        return read_content(json_object_get(logprobs, "content"), answer, err);
    if (!json_is_array(values))
        return ash_err_set(err, -EBADMSG,
                           "it gives no log-probabilities, without which nothing can be learned from its answers");
    return json_is_array(ids) ? read_ids(ids, values, answer, err)
                              : read_tokens(json_object_get(logprobs, "tokens"), values, answer, err);
}

int ash_external_parse(const char *text, size_t size_bytes, struct ash_external_answer *answer, struct ash_err *err)
{
    json_t *json = NULL, *choices;
    int rc;

    answer->count = 0;
    if (ash_json_parse(text, size_bytes, "the answer", &json, NULL) < 0)
        return ash_err_set(err, -EBADMSG, "it is no JSON: %.*s", (int)(size_bytes < 80 ? size_bytes : 80), text);
    choices = json_object_get(json, "choices");
    rc = json_array_size(choices) == 1
             ? read_choice(json_array_get(choices, 0), answer, err)
             : ash_err_set(err, -EBADMSG, "it has %zu choices instead of one", json_array_size(choices));
    json_decref(json);
    return rc;
}
